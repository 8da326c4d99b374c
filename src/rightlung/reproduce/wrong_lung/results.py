"""What an experiment folder holds: the instances, and each model's answers and scores, checked row for row.

Everything is kept as one array over the instances for each (condition, target, measure), NaN where there is nothing, so
that any mean, change or comparison is arithmetic on such arrays; see `estimates` for their intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Change = Literal["changed", "as in the paper"]

MEASURES = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip
"""Measures of a map against a target."""

ANSWER_MEASURES = ("entropy", "abstention", "similarity_global", "similarity_local", "kl_random")
"""Numbers of an answer that need no target."""

CONDITIONS = ("none", "swap-sides", "random-sentence", "synthetic", "synthetic-swapped", "exchange-image")
TARGETS = ("regions", "trimmed", "exact")
MOVED_TARGETS = ("regions-shuffled", "exact-shuffled", "regions-random", "exact-random")

ASKED = {
    "swap-sides": "asked_swap_sides",
    "random-sentence": "asked_random_sentence",
    "synthetic": "asked_synthetic",
    "synthetic-swapped": "asked_synthetic_swapped",
    "exchange-image": "partner",
}
"""The column of the instances that says what a condition asks; nothing there, and the condition changes nothing."""

SHUFFLED = {f"{kind}-shuffled": f"{kind}_shuffled_differs" for kind in ("regions", "exact")}
"""The column of the instances that says whether a shuffled target is another mask than the phrase's own."""


@dataclass(frozen=True)
class Perturbation:
    """A change of words, image or target (section 3.1), and the subset that it should matter on (section 3.2)."""

    name: str
    title: str
    subset: str
    condition: str | None = None
    """The condition asked, ``None`` where the target is changed instead."""
    target: str | None = None
    """What is put behind the target's name, ``None`` where the target stays."""
    plain: str = "none"
    """The condition that the change is counted from."""

    def aim(self, target: str) -> str:
        """Return the target that the perturbed answer is scored against."""
        return target if self.target is None else f"{target}-{self.target}"


PERTURBATIONS = (
    Perturbation("swap-sides", "Swap Left Right", "one-lung", condition="swap-sides"),
    Perturbation("shuffle", "Shuffle in Report", "mdrb", target="shuffled"),
    Perturbation("random-sentence", "Random Sentences", "abnormal", condition="random-sentence"),
    Perturbation("random-boxes", "Random BBoxes", "abnormal", target="random"),
    Perturbation(
        "synthetic-swapped", "Synth w/ Swapped Conditions", "abnormal", condition="synthetic-swapped", plain="synthetic"
    ),
    Perturbation("exchange-image", "another patient's image (ours)", "abnormal", condition="exchange-image"),
)
"""The paper's five, and ours. Swapped conditions are counted from the synthetic sentence, which they are made of."""


@dataclass(frozen=True, eq=False)
class Instances:
    """The columns of ``instances.parquet``, an entry an instance, and what ``instances.json`` says of them."""

    texts: Mapping[str, Sequence[str | None]]
    flags: Mapping[str, Flags]
    findings: Sequence[Sequence[str]]
    clusters: NDArray[np.intp]
    """The patient's number; where the patient is not known, the study's."""
    about: Mapping[str, Any]
    differs: Mapping[str, Flags] = field(default_factory=dict)
    """Where a shuffled target is another mask, by its name; nothing where the file does not say."""

    def __len__(self) -> int:
        return len(self.clusters)

    @property
    def resampled(self) -> str:
        """What the clusters are: ``patients``, ``studies`` where no patient is known, or both."""
        known = {patient is not None and patient != "" for patient in self.texts["patient"]}
        return "studies" if known == {False} else "patients and studies" if len(known) > 1 else "patients"

    def subset(self, name: str) -> Flags:
        """Return which instances belong to a subset."""
        if name == "all":
            return np.ones(len(self), dtype=bool)
        return self.flags[name.replace("-", "_")]

    def changed(self, condition: str) -> Flags:
        """Return where a condition changes what is asked."""
        if condition == "none":
            return np.ones(len(self), dtype=bool)
        return np.array([asked is not None for asked in self.texts[ASKED[condition]]], dtype=bool)


@dataclass(frozen=True, eq=False)
class Model:
    """One row of the tables: what ``about.json`` says of a model, its answers and its scores."""

    slug: str
    variant: str
    name: str
    group: str
    comparable: bool
    seed: int | None
    order: int
    note: str
    training: Mapping[str, Any] | None
    about: Mapping[str, Any]
    scores: Mapping[tuple[str, str], Mapping[str, NDArray[np.float32]]]
    answers: Mapping[str, Mapping[str, Floats]]
    peak_sides: Mapping[str, Sequence[str | None]]
    errors: int
    """Answers that could not be had."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Scores that are not defined, for each (condition, target) that has any."""

    @property
    def label(self) -> str:
        """The name as tables print it, with an asterisk where it is not comparable."""
        return self.marked(self.name)

    def marked(self, name: str) -> str:
        """Return a name of the model with an asterisk where it is not comparable."""
        return name if self.comparable else f"{name} *"


@dataclass(frozen=True, eq=False)
class Results:
    """All that was measured."""

    folder: Path
    instances: Instances
    models: tuple[Model, ...]
    unfinished: tuple[str, ...] = ()
    """Folders of measures without ``about.json``, which is written last."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """What ``run.json`` says: whether it was a rehearsal, and why variants are missing."""

    @property
    def rows(self) -> tuple[Model, ...]:
        """The models that stand in the tables: the first seed of each variant."""
        first: dict[str, Model] = {}
        for model in self.models:
            if model.variant not in first or model.slug == model.variant:
                first[model.variant] = model
        return tuple(model for model in self.models if first[model.variant] is model)

    def seeds(self, variant: str) -> tuple[Model, ...]:
        """The models of a variant, the one of the tables first."""
        rows = self.rows
        return tuple(sorted((m for m in self.models if m.variant == variant), key=lambda m: (m not in rows, m.slug)))

    def model(self, slug: str) -> Model | None:
        """Return a model, ``None`` where it was not measured."""
        return next((model for model in self.models if model.slug == slug), None)

    def score(self, slug: str, measure: str, target: str = "regions", condition: str = "none") -> Floats:
        """Return a measure of all instances; NaN throughout where it was not measured."""
        model = self.model(slug)
        found = None if model is None else model.scores.get((condition, target), {}).get(measure)
        return self.nothing() if found is None else found.astype(np.float64)

    def answer(self, slug: str, measure: str, condition: str = "none") -> Floats:
        """Return a number of the answers to all instances; NaN throughout where it was not measured."""
        model = self.model(slug)
        found = None if model is None else model.answers.get(condition, {}).get(measure)
        return self.nothing() if found is None else found

    def nothing(self) -> Floats:
        """Return what stands for something not measured."""
        return np.full(len(self.instances), np.nan)

    def within(self, values: Floats, subset: str | Flags) -> Floats:
        """Return the values of a subset, NaN elsewhere."""
        inside = self.instances.subset(subset) if isinstance(subset, str) else subset
        return np.where(inside, values, np.nan)

    def selection(self, slug: str, kind: Literal["local", "global"]) -> Floats:
        """Return whether the image's own sentence is the more similar: 1, 0, and a half where both are equally so."""
        own = self.answer(slug, f"similarity_{kind}")
        other = np.where(
            self.instances.changed("random-sentence"),
            self.answer(slug, f"similarity_{kind}", "random-sentence"),
            np.nan,
        )
        chosen = np.where(own > other, 1.0, np.where(own == other, 0.5, 0.0))
        return np.where(np.isnan(own) | np.isnan(other), np.nan, chosen)

    def change(
        self, slug: str, perturbation: Perturbation, measure: str, target: str = "regions", how: Change = "changed"
    ) -> Floats:
        """Return perturbed minus plain.

        ``changed`` counts the instances that the perturbation changes; ``as in the paper`` counts all, and where
        nothing was changed the difference is 0.
        """
        condition, aim = perturbation.condition or perturbation.plain, perturbation.aim(target)
        if (model := self.model(slug)) is None or (condition, aim) not in model.scores:
            return self.nothing()
        plain = self.score(slug, measure, target, perturbation.plain)
        difference = self.score(slug, measure, aim, condition) - plain
        unchanged = np.where(np.isnan(plain), np.nan, 0.0) if how == "as in the paper" else self.nothing()
        return np.where(self.changed(perturbation, target), difference, unchanged)

    def changed(self, perturbation: Perturbation, target: str = "regions") -> Flags:
        """Return where a perturbation changes what is asked, or puts another mask in the place of the target."""
        if perturbation.condition is not None:
            return self.instances.changed(perturbation.condition) & self.has(target)
        aim = perturbation.aim(target)
        if aim in self.instances.differs:
            return self.instances.differs[aim]
        found = np.zeros(len(self.instances), dtype=bool)
        for model in self.models:
            for values in model.scores.get(("none", aim), {}).values():
                found |= ~np.isnan(values)
        return found

    def has(self, target: str) -> Flags:
        """Return which instances have a target."""
        return self.instances.flags["has_exact"] if target == "exact" else self.instances.subset("all")

    def peak_on_side(self, slug: str, condition: str = "none") -> Floats:
        """Return whether the peak lies on the side of the exact target, NaN where that is not on one side.

        A peak in the middle counts half, so that a map without sides gets what chance gets.
        """
        model = self.model(slug)
        peaks = None if model is None else model.peak_sides.get(condition)
        if peaks is None:
            return self.nothing()
        sides = self.instances.texts["exact_side"]
        return np.array(
            [
                (0.5 if peak == "middle" else float(peak == side))
                if side in ("left", "right") and peak is not None
                else math.nan
                for peak, side in zip(peaks, sides, strict=True)
            ]
        )


def variants_missing(results: Results, expected: Mapping[str, str]) -> dict[str, str]:
    """Return the expected variants that were not measured, with their names."""
    there = {model.variant for model in results.models}
    return {slug: name for slug, name in expected.items() if slug not in there}

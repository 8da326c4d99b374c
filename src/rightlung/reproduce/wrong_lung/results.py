"""What an experiment folder holds: the instances, and each model's answers and scores, checked row for row.

Everything is kept as one array over the instances for each (condition, target, measure), NaN where there is nothing, so
that any mean, change or comparison is arithmetic on such arrays; see `estimates` for their intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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

    @cached_property
    def rows(self) -> tuple[Model, ...]:
        """What stands in the tables: each variant, one of several seeds under its own name and as their mean.

        All numbers of the latter are means over its seeds, instance by instance.
        """
        variants: dict[str, list[Model]] = {}
        for model in self.models:
            variants.setdefault(model.variant, []).append(model)
        return tuple(one[0] if len(one) == 1 else replace(one[0], slug=name) for name, one in variants.items())

    def seeds(self, variant: str) -> tuple[Model, ...]:
        """The models of a variant."""
        return tuple(model for model in self.models if model.variant == variant)

    def model(self, slug: str) -> Model | None:
        """Return a variant or one of its seeds, ``None`` where it was not measured."""
        return next((model for model in (*self.rows, *self.models) if model.slug == slug), None)

    def _mean(self, slug: str, values: Callable[[Model], NDArray[np.floating[Any]] | None]) -> Floats:
        """Return numbers of a model, or their mean over the seeds of a variant; NaN where one of them has none."""
        row = self.model(slug)
        if row is None:
            return self.nothing()
        found = [values(model) for model in (self.seeds(row.variant) if row in self.rows else (row,))]
        together = np.array([self.nothing() if one is None else one for one in found], dtype=np.float64)
        return np.asarray(together.mean(axis=0))

    def score(self, slug: str, measure: str, target: str = "regions", condition: str = "none") -> Floats:
        """Return a measure of all instances; NaN throughout where it was not measured."""
        return self._mean(slug, lambda model: model.scores.get((condition, target), {}).get(measure))

    def answer(self, slug: str, measure: str, condition: str = "none") -> Floats:
        """Return a number of the answers to all instances; NaN throughout where it was not measured."""
        return self._mean(slug, lambda model: model.answers.get(condition, {}).get(measure))

    def nothing(self) -> Floats:
        """Return what stands for something not measured."""
        return np.full(len(self.instances), np.nan)

    def within(self, values: Floats, subset: str | Flags) -> Floats:
        """Return the values of a subset, NaN elsewhere."""
        inside = self.instances.subset(subset) if isinstance(subset, str) else subset
        return np.where(inside, values, np.nan)

    def selection(self, slug: str, kind: Literal["local", "global"]) -> Floats:
        """Return whether the image's own sentence is the more similar: 1, 0, and a half where both are equally so."""
        asked, name = self.instances.changed("random-sentence"), f"similarity_{kind}"

        def selected(model: Model) -> Floats | None:
            own, other = (model.answers.get(condition, {}).get(name) for condition in ("none", "random-sentence"))
            if own is None or other is None:
                return None
            chosen = np.where(own > other, 1.0, np.where(own == other, 0.5, 0.0))
            return np.where(np.isnan(own) | np.isnan(other) | ~asked, np.nan, chosen)

        return self._mean(slug, selected)

    def change(
        self, slug: str, perturbation: Perturbation, measure: str, target: str = "regions", how: Change = "changed"
    ) -> Floats:
        """Return perturbed minus plain.

        ``changed`` counts the instances that the perturbation changes; ``as in the paper`` counts all, and where
        nothing was changed the difference is 0.
        """
        condition, aim = perturbation.condition or perturbation.plain, perturbation.aim(target)
        where = self.changed(perturbation, target)

        def moved(model: Model) -> Floats | None:
            plain, perturbed = (
                model.scores.get(key, {}).get(measure) for key in ((perturbation.plain, target), (condition, aim))
            )
            if plain is None or perturbed is None:
                return None
            unchanged = np.where(np.isnan(plain), np.nan, 0.0) if how == "as in the paper" else self.nothing()
            return np.where(where, perturbed.astype(np.float64) - plain.astype(np.float64), unchanged)

        return self._mean(slug, moved)

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
        sides = self.instances.texts["exact_side"]

        def on_side(model: Model) -> Floats | None:
            if (peaks := model.peak_sides.get(condition)) is None:
                return None
            return np.array(
                [
                    (0.5 if peak == "middle" else float(peak == side))
                    if side in ("left", "right") and peak is not None
                    else math.nan
                    for peak, side in zip(peaks, sides, strict=True)
                ]
            )

        return self._mean(slug, on_side)


def variants_missing(results: Results, expected: Mapping[str, str]) -> dict[str, str]:
    """Return the expected variants that were not measured, with their names."""
    there = {model.variant for model in results.models}
    return {slug: name for slug, name in expected.items() if slug not in there}

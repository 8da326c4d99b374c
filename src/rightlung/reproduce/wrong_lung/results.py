"""What an experiment folder holds: the instances, and each model's answers and scores, checked row for row.

Everything is kept as one array over the instances for each (condition, target, measure), NaN where there is nothing, so
that any mean, change or comparison is arithmetic on such arrays; see `estimates` for their intervals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError

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

_TEXTS = ("study", "patient", "text", "exact_side", *ASKED.values())
_FLAGS = ("abnormal", "one_lung", "mdrb", "has_exact", "names_side", "focal")
_SIDES = ("left", "right", "both", "none")
_PEAKS = ("left", "right", "middle")
_GROUPS = ("paper", "ours", "reference")


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


def read_results(folder: str | Path) -> Results:
    """Read an experiment folder; a row that is missing, doubled or unknown is refused by file and row."""
    folder = Path(folder)
    instances = _read_instances(folder)
    found = sorted(path for path in (folder / "measures").glob("*") if path.is_dir())
    unfinished = tuple(path.name for path in found if not (path / "about.json").exists())
    models = [_read_model(path, instances) for path in found if path.name not in unfinished]
    if twice := _twice(model.slug for model in models):
        raise InputError(f"{folder / 'measures'}: two folders say that their slug is {twice!r}")
    run = _json(folder / "run.json") if (folder / "run.json").exists() else {}
    ordered = tuple(sorted(models, key=lambda model: (model.order, model.slug)))
    return Results(folder, instances, ordered, unfinished, run)


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def _read_instances(folder: Path) -> Instances:
    path = folder / "instances.parquet"
    columns = _columns(path, ("instance", *_TEXTS, *_FLAGS, "findings"))
    for position, number in enumerate(columns["instance"].tolist()):
        if number != position:
            raise InputError(f"{path}, row {position}: instance is {number!r}, and must be {position}")
    for name in ("study", "exact_side"):
        for position, value in enumerate(columns[name]):
            if not value or (name == "exact_side" and value not in _SIDES):
                raise InputError(f"{path}, row {position}: {name} is {value!r}")
    flags = {}
    for name in _FLAGS:
        for position, value in enumerate(columns[name]):
            if not isinstance(value, bool):
                raise InputError(f"{path}, row {position}: {name} is {value!r}, neither true nor false")
        flags[name] = np.array(columns[name], dtype=bool)
    whose = [
        ("patient", patient) if patient else ("study", study)
        for patient, study in zip(columns["patient"], columns["study"], strict=True)
    ]
    numbers = {name: number for number, name in enumerate(sorted(set(whose)))}
    moved = _columns(path, (), optional=tuple(SHUFFLED.values()))
    return Instances(
        {name: columns[name] for name in _TEXTS},
        flags,
        [found or [] for found in columns["findings"]],
        np.array([numbers[name] for name in whose], dtype=np.intp),
        _json(folder / "instances.json"),
        {
            target: np.array([value is True for value in moved[column]], dtype=bool)
            for target, column in SHUFFLED.items()
            if column in moved
        },
    )


def _read_model(folder: Path, instances: Instances) -> Model:
    about = _json(folder / "about.json")
    for name, kind in (("slug", str), ("variant", str), ("name", str), ("comparable", bool), ("order", int)):
        if not isinstance(about.get(name), kind):
            raise InputError(f"{folder / 'about.json'}: {name} is {about.get(name)!r}, and must be a {kind.__name__}")
    if about.get("group") not in _GROUPS:
        raise InputError(f"{folder / 'about.json'}: group is {about.get('group')!r}, not one of {', '.join(_GROUPS)}")
    ours, theirs = instances.about.get("protocol"), about.get("protocol")
    if ours is not None and theirs is not None and ours != theirs:
        raise InputError(
            f"{folder / 'about.json'}: measured under protocol {theirs}, and the instances are those of {ours}"
        )
    answers, peaks, failed = _read_answers(folder / "answers.parquet", instances)
    scores, left_out = _read_scores(folder / "scores.parquet", instances, failed)
    return Model(
        about["slug"],
        about["variant"],
        about["name"],
        about["group"],
        about["comparable"],
        about.get("seed"),
        about["order"],
        about.get("note") or "",
        about.get("training"),
        about,
        scores,
        answers,
        peaks,
        sum(int(flags.sum()) for flags in failed.values()),
        left_out,
    )


def _read_answers(
    path: Path, instances: Instances
) -> tuple[dict[str, dict[str, Floats]], dict[str, list[str | None]], dict[str, Flags]]:
    columns = _columns(path, ("instance", "condition", "peak_side", "error"), ANSWER_MEASURES)
    places = _places(path, columns["instance"], [columns["condition"]], instances, (CONDITIONS,))
    answers: dict[str, dict[str, Floats]] = {}
    peaks: dict[str, list[str | None]] = {}
    failed: dict[str, Flags] = {}
    for (condition,), rows in places.items():
        at = columns["instance"][rows]
        answers[condition] = {name: _spread(columns[name][rows], at, len(instances)) for name in ANSWER_MEASURES}
        sides: list[str | None] = [None] * len(instances)
        broken = np.zeros(len(instances), dtype=bool)
        for row, place in zip(rows.tolist(), at.tolist(), strict=True):
            sides[place] = columns["peak_side"][row]
            broken[place] = columns["error"][row] is not None
            if sides[place] not in (*_PEAKS, None):
                raise InputError(f"{path}, row {row}: peak_side is {sides[place]!r}, not one of {', '.join(_PEAKS)}")
        peaks[condition], failed[condition] = sides, broken
        _complete(path, at, instances.changed(condition), f"condition {condition}")
    if ("none",) not in places:
        raise InputError(f"{path}: no row has the condition 'none', the question as it stands")
    return answers, peaks, failed


def _read_scores(
    path: Path, instances: Instances, failed: Mapping[str, Flags]
) -> tuple[dict[tuple[str, str], dict[str, NDArray[np.float32]]], dict[str, int]]:
    columns = _columns(path, ("instance", "condition", "target"), MEASURES)
    known = (CONDITIONS, (*TARGETS, *MOVED_TARGETS))
    places = _places(path, columns["instance"], [columns["condition"], columns["target"]], instances, known)
    scores: dict[tuple[str, str], dict[str, NDArray[np.float32]]] = {}
    left_out = {}
    for (condition, target), rows in places.items():
        at = columns["instance"][rows]
        found = {name: _spread(columns[name][rows], at, len(instances)).astype(np.float32) for name in MEASURES}
        scores[condition, target] = found
        wanted = instances.changed(condition) & ~failed.get(condition, np.zeros(len(instances), dtype=bool))
        if target.startswith("exact"):
            wanted &= instances.flags["has_exact"]
        if target in TARGETS:  # a target that was moved may have nowhere to go
            _complete(path, at, wanted, f"condition {condition}, target {target}")
        undefined = int(np.isnan(found["auroc"][wanted]).sum())
        if undefined:
            left_out[f"{condition}, {target}"] = undefined
    return scores, left_out


def _spread(values: Floats, at: NDArray[np.intp], length: int) -> Floats:
    whole = np.full(length, np.nan)
    whole[at] = values
    return whole


def _complete(path: Path, at: NDArray[np.intp], wanted: Flags, what: str) -> None:
    there = np.zeros(len(wanted), dtype=bool)
    there[at] = True
    if missing := np.flatnonzero(wanted & ~there).tolist():
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{path}: no row for instance {missing[0]}{more} under {what}")


def _places(
    path: Path,
    numbers: NDArray[np.intp],
    names: Sequence[Sequence[str]],
    instances: Instances,
    known: Sequence[Sequence[str]],
) -> dict[tuple[str, ...], NDArray[np.intp]]:
    """Return the rows of each combination of names, after a check that no instance is unknown or stands twice."""
    outside = (numbers < 0) | (numbers >= len(instances))
    if outside.any():
        row = int(outside.argmax())
        raise InputError(f"{path}, row {row}: instance {numbers[row]} is unknown; there are {len(instances)}")
    for kind, column, names_known in zip(("condition", "target"), names, known, strict=False):
        for name in sorted(set(column), key=str):
            if name not in names_known:
                row = list(column).index(name)
                raise InputError(f"{path}, row {row}: {kind} {name!r} is unknown; known: {', '.join(names_known)}")
    combined = list(zip(*names, strict=True))
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, combination in enumerate(combined):
        groups.setdefault(combination, []).append(row)
    found = {}
    for combination, listed in groups.items():
        rows = np.array(listed, dtype=np.intp)
        _, firsts = np.unique(numbers[rows], return_index=True)
        if len(firsts) < len(rows):
            row = int(rows[np.setdiff1d(np.arange(len(rows)), firsts)[0]])
            raise InputError(f"{path}, row {row}: instance {numbers[row]} stands twice under {', '.join(combination)}")
        found[combination] = rows
    return found


def _columns(
    path: Path, names: Sequence[str], numeric: Sequence[str] = (), optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Read columns: ``numeric`` ones as floats with NaN for null, ``instance`` as whole numbers, the rest as lists.

    Those that are ``optional`` may be missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        there = pq.read_schema(path).names
        if missing := [name for name in (*names, *numeric) if name not in there]:
            raise InputError(f"{path}: the column {missing[0]!r} is missing")
        names = (*names, *(name for name in optional if name in there))
        table = pq.read_table(path, columns=[*names, *numeric])
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error})") from None
    columns: dict[str, Any] = {}
    for name in names:
        if name == "instance":
            if table.column(name).null_count or not pa.types.is_integer(table.schema.field(name).type):
                raise InputError(f"{path}: the column 'instance' must hold whole numbers, and no null")
            columns[name] = table.column(name).to_numpy().astype(np.intp)
        else:
            columns[name] = table.column(name).to_pylist()
    for name in numeric:
        try:
            columns[name] = table.column(name).cast(pa.float64()).to_numpy().astype(np.float64)
        except pa.ArrowException:
            raise InputError(f"{path}: the column {name!r} must hold numbers") from None
        infinite = np.isinf(columns[name])
        if infinite.any():
            raise InputError(f"{path}, row {int(infinite.argmax())}: {name} is {columns[name][infinite][0]}")
    return columns


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: must hold an object")
    return found


def variants_missing(results: Results, expected: Mapping[str, str]) -> dict[str, str]:
    """Return the expected variants that were not measured, with their names."""
    there = {model.variant for model in results.models}
    return {slug: name for slug, name in expected.items() if slug not in there}

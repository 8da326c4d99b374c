"""An experiment folder as `Results`: files checked row for row against the instances they are about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.reproduce.wrong_lung.results import (
    ANSWER_MEASURES,
    ASKED,
    CONDITIONS,
    MEASURES,
    MOVED_TARGETS,
    SHUFFLED,
    TARGETS,
    Flags,
    Floats,
    Instances,
    Model,
    Results,
)

_TEXTS = ("study", "patient", "text", "exact_side", *ASKED.values())
_FLAGS = ("abnormal", "one_lung", "mdrb", "has_exact", "names_side", "focal")
_SIDES = ("left", "right", "both", "none")
_PEAKS = ("left", "right", "middle")
_GROUPS = ("paper", "ours", "reference")


def read_results(folder: str | Path) -> Results:
    """Read an experiment folder; a row that is missing, doubled or unknown is refused by file and row."""
    folder = Path(folder)
    instances = _read_instances(folder)
    found = sorted(path for path in (folder / "measures").glob("*") if path.is_dir())
    unfinished = tuple(path.name for path in found if not (path / "about.json").exists())
    models = [_read_model(path, instances) for path in found if path.name not in unfinished]
    models = list(_seeds_named(sorted(models, key=lambda model: (model.order, model.slug))))
    if twice := _twice(model.slug for model in models):
        raise InputError(f"{folder / 'measures'}: two folders say that their slug is {twice!r}")
    run = _json(folder / "run.json") if (folder / "run.json").exists() else {}
    return Results(folder, instances, tuple(models), unfinished, run)


def _seeds_named(models: Sequence[Model]) -> Iterator[Model]:
    """Yield models, those called as their variant, of which there are more seeds, by their own seed."""
    count = Counter(model.variant for model in models)
    for model in models:
        several = model.slug == model.variant and count[model.variant] > 1
        yield replace(model, slug=f"{model.slug}-seed{model.seed}") if several else model


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

"""Plan a study: who judges which heatmaps, in which order.

An annotator judges a prompt for all models ("That's the Wrong Lung!", section A.7). The order of prompts is random;
models come in the rows of random Latin squares, so that each is at each position equally often (give or take one).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rightlung.core import InputError
from rightlung.core.keyed import text_generator
from rightlung.judgements.blinding import CODE, check_names
from rightlung.judgements.judgement import COLUMNS, VERSION, write_new_csv
from rightlung.judgements.measures import JudgedInstance


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned judgement."""

    annotator: str
    order: int
    instance: JudgedInstance
    model: str


def plan(
    instances: Iterable[JudgedInstance],
    codes: Sequence[str],
    annotators: Sequence[str],
    seed: int,
    per_annotator: int,
    overlap: int,
) -> list[Planned]:
    """Return a plan with ``per_annotator`` prompts for each annotator, ``overlap`` of them shared by all.

    ``codes`` are the models' blinded codes. Prompts come from as many patients as possible. The plan depends on the
    seed, not on the order of the arguments' entries.
    """
    _check(codes, annotators, per_annotator, overlap)
    known = {instance.key: instance for instance in instances}
    needed = overlap + len(annotators) * (per_annotator - overlap)
    if needed > len(known):
        raise InputError(
            f"{len(annotators)} annotators with {per_annotator} prompts each, {overlap} of them shared, need {needed} "
            f"prompts, but there are {len(known)}; lower --per-annotator or raise --overlap"
        )
    ordered = sorted(known.values(), key=lambda one: (one.study, int(one.query.partition(":")[2])))
    drawn = _balanced_over_patients(ordered, text_generator(seed, "prompts"))[:needed]
    shared, alone = drawn[:overlap], drawn[overlap:]
    own = per_annotator - overlap
    planned = []
    for place, annotator in enumerate(sorted(annotators)):
        generator = text_generator(seed, "order", place)
        chosen = [*shared, *alone[place * own : (place + 1) * own]]
        squares = _latin_rows(sorted(codes), generator)
        positions = generator.permutation(len(chosen)).tolist()
        asked = ((chosen[position], model) for position in positions for model in next(squares))
        planned += [Planned(annotator, order, instance, model) for order, (instance, model) in enumerate(asked)]
    return planned


def _check(codes: Sequence[str], annotators: Sequence[str], per_annotator: int, overlap: int) -> None:
    for kind, names in (("code", codes), ("annotator", annotators)):
        if not names:
            raise InputError(f"a plan needs at least one {kind}")
        check_names(kind, names)
    for code in codes:
        if not CODE.fullmatch(code):
            raise InputError(f"expected a code such as 'A7', not a model name; got {code!r}")
    if per_annotator < 1:
        raise InputError(f"each annotator needs at least 1 prompt; got {per_annotator}")
    if not 0 <= overlap <= per_annotator:
        raise InputError(f"the overlap must be from 0 to the {per_annotator} prompts of an annotator; got {overlap}")


def _balanced_over_patients(
    instances: Sequence[JudgedInstance], generator: np.random.Generator
) -> list[JudgedInstance]:
    """Return the instances in random order: one of each patient first, then a second of each, and so on."""
    rounds: dict[str, int] = {}
    placed = []
    for position in generator.permutation(len(instances)).tolist():
        instance = instances[position]
        patient = f"patient {instance.patient}" if instance.patient is not None else f"study {instance.study}"
        rounds[patient] = rounds.get(patient, -1) + 1
        placed.append((rounds[patient], instance))
    return [instance for _, instance in sorted(placed, key=lambda pair: pair[0])]


def _latin_rows(codes: Sequence[str], generator: np.random.Generator) -> Iterator[list[str]]:
    """Yield orders of the models endlessly; each block of ``len(codes)`` orders is a Latin square."""
    count = len(codes)
    while True:
        names, shifts = generator.permutation(count), generator.permutation(count)
        for shift in shifts.tolist():
            yield [codes[names[(place + shift) % count]] for place in range(count)]


def write_table(planned: Iterable[Planned], path: str | Path) -> None:
    """Write a plan as a table to fill in; raise an error if the file exists."""
    if Path(path).suffix.lower() != ".csv":
        raise InputError(f"{path}: the table is written as CSV, so its name must end in .csv")
    rows = []
    for row in planned:
        cells = {"version": VERSION, "annotator": row.annotator, "order": row.order, "study": row.instance.study}
        cells |= {"phrase": row.instance.query, "prompt": row.instance.text, "model": row.model}
        rows.append([cells.get(column, "") for column in COLUMNS])
    write_new_csv(Path(path), "table", [COLUMNS, *rows])

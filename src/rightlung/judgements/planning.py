"""Who is to judge what, in which order: an empty table, balanced and by chance.

Every prompt is judged for all models by the same annotator ("That's the Wrong Lung!", section A.7), so that models
are compared on the same images. A stated number of prompts goes to all annotators, so that their agreement can be
computed; the others go to one each. Each annotator has an order of prompts of their own, and the models come in the
rows of Latin squares drawn anew: each model stands at each place equally often, give or take one, and next to others.
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
    """A judgement that is still to be made."""

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
    """Draw ``per_annotator`` prompts for each annotator, ``overlap`` of them the same for all.

    ``codes`` are the models' blinded codes. Prompts of as many patients as possible are taken. The order of what is
    given means nothing: the same seed gives the same plan.
    """
    _check(codes, annotators, per_annotator, overlap)
    known = {instance.key: instance for instance in instances}
    needed = overlap + len(annotators) * (per_annotator - overlap)
    if needed > len(known):
        raise InputError(
            f"{len(annotators)} annotators with {per_annotator} prompts each, {overlap} of them shared, need {needed} "
            f"prompts, and there are {len(known)}: take fewer a person, or share more"
        )
    ordered = sorted(known.values(), key=lambda one: (one.study, int(one.query.partition(":")[2])))
    drawn = _spread_over_patients(ordered, text_generator(seed, "prompts"))[:needed]
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
            raise InputError(f"a plan shows codes, never models' names: {code!r} is no code such as 'A7'")
    if per_annotator < 1:
        raise InputError(f"each annotator needs at least 1 prompt; got {per_annotator}")
    if not 0 <= overlap <= per_annotator:
        raise InputError(f"the overlap must be from 0 to the {per_annotator} prompts of an annotator; got {overlap}")


def _spread_over_patients(instances: Sequence[JudgedInstance], generator: np.random.Generator) -> list[JudgedInstance]:
    """Return all instances in an order by chance: one of every patient first, then a second, and so on."""
    rounds: dict[str, int] = {}
    placed = []
    for position in generator.permutation(len(instances)).tolist():
        instance = instances[position]
        patient = f"patient {instance.patient}" if instance.patient is not None else f"study {instance.study}"
        rounds[patient] = rounds.get(patient, -1) + 1
        placed.append((rounds[patient], instance))
    return [instance for _, instance in sorted(placed, key=lambda pair: pair[0])]


def _latin_rows(codes: Sequence[str], generator: np.random.Generator) -> Iterator[list[str]]:
    """Yield orders of the models for ever; any ``len(codes)`` of them, from the first on, are a Latin square."""
    count = len(codes)
    while True:
        names, shifts = generator.permutation(count), generator.permutation(count)
        for shift in shifts.tolist():
            yield [codes[names[(place + shift) % count]] for place in range(count)]


def write_table(planned: Iterable[Planned], path: str | Path) -> None:
    """Write a plan as a table to fill in; one that is there already is never written over."""
    if Path(path).suffix.lower() != ".csv":
        raise InputError(f"{path}: the table to fill in is written as CSV, so its name must end in .csv")
    rows = []
    for row in planned:
        cells = {"version": VERSION, "annotator": row.annotator, "order": row.order, "study": row.instance.study}
        cells |= {"phrase": row.instance.query, "prompt": row.instance.text, "model": row.model}
        rows.append([cells.get(column, "") for column in COLUMNS])
    write_new_csv(Path(path), "table", [COLUMNS, *rows])

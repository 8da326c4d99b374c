"""Does the model work equally well for everybody? Its scores by sex, age band and view, where the source knows them.

Each group is compared with all other patients, in one family of tests per measure (Holm). A group may differ because
its findings do, so the lead over the image-blind prior is compared, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from rightlung.core.files import plain_fields
from rightlung.measuring import PhraseTargets, Targets, find_measure
from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import outcome, span
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.results.measured import Measured
from rightlung.scoring.statistics import FEW_CLUSTERS, smallest_p

ATTRIBUTES = {"sex": "sex", "age_band": "age", "view": "view"}
"""Columns of the instances table, with their titles."""
MEASURES = ("average_precision", "pointing")
LEAD = "lead"
"""Average precision of the model minus that of the prior."""


@dataclass(frozen=True)
class Subgroup:
    """The phrases about one group of patients or images; ``few``: not tested, because the group or all others
    are fewer than `FEW_CLUSTERS` patients.
    """

    attribute: str
    name: str
    phrases: int
    patients: int
    few: bool
    values: Mapping[str, Estimate]
    differences: Mapping[str, Comparison]
    """From all others, by measure; none for the second of two groups, whose difference is the first's."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return plain_fields(self)


def add_persons(targets: Targets, known: Collection[str]) -> None:
    """Add what is known of the persons and images to the instances table, one column for each ``known`` attribute."""
    for name in ATTRIBUTES:
        if name in known:
            targets.add_column(name, partial(_fact, targets, name))


def _fact(targets: Targets, name: str, phrase: PhraseTargets) -> str | None:
    return targets.persons.get(phrase.study, {}).get(name)


def subgroups(measured: Measured, settings: BootstrapSettings) -> list[Subgroup]:
    """Return the groups of each attribute that has at least two."""
    target, estimator = measured.targets[0], measured.estimator(settings)
    columns = {name: measured.value("model", name, target) for name in MEASURES}
    if measured.model("prior") is not None:
        columns[LEAD] = columns[MEASURES[0]] - measured.value("prior", MEASURES[0], target)
    scored = measured.has(target) & measured.asked("model")
    rows: list[tuple[str, str, Any, bool]] = []
    for attribute in (name for name in ATTRIBUTES if name in measured.columns):
        of_phrase = measured.fact(attribute)
        names = sorted({str(value) for value in of_phrase[scored] if value is not None}, key=_order)
        for place, name in enumerate(names if len(names) > 1 else ()):
            rows.append((attribute, name, scored & (of_phrase == name), not (len(names) == 2 and place == 1)))
    values: list[dict[str, Estimate]] = [{} for _ in rows]
    differences: list[dict[str, Comparison]] = [{} for _ in rows]
    others_of = [
        scored & ~flags & np.array([value is not None for value in measured.fact(attribute)])
        for attribute, _, flags, _ in rows
    ]
    counts, rest = (
        [len(set(measured.patients[flags].tolist())) for flags in some]
        for some in ([flags for _, _, flags, _ in rows], others_of)
    )
    few = [min(pair) < FEW_CLUSTERS for pair in zip(counts, rest, strict=True)]
    for measure, column in columns.items():
        tested = []
        for place, (_, _, flags, first) in enumerate(rows):
            values[place][measure] = estimator.mean(np.where(flags, column, np.nan))
            if first:
                pair = (np.where(one, column, np.nan) for one in (flags, others_of[place]))
                tested.append((place, _difference(estimator, *pair)))
        counted = [not few[place] for place, _ in tested]
        adjusted = estimator.adjusted([one for _, one in tested], counted)
        for (place, _), difference in zip(tested, adjusted, strict=True):
            differences[place][measure] = difference
    return [
        Subgroup(attribute, name, int(flags.sum()), counts[place], few[place], values[place], differences[place])
        for place, (attribute, name, flags, _) in enumerate(rows)
    ]


def _order(name: str) -> tuple[bool, str]:
    return not name.startswith("below"), name


def _difference(estimator: Estimator, group: Floats, others: Floats) -> Comparison:
    """Return the difference of two groups; its p-value is that of a normal distribution as wide as the interval."""
    found = estimator.contrast(group, others, method="percentile")
    if not found.has_interval or found.high <= found.low:
        return Comparison(**vars(found), smallest_p=1.0)
    normal, level = NormalDist(), estimator.settings.level
    std = (found.high - found.low) / (2 * normal.inv_cdf((1 + level) / 2))
    p = 2 * normal.cdf(-abs(found.value) / std)
    fewest = smallest_p(found.patients, estimator.settings.flips)
    return Comparison(**vars(found), p=p, shown=found.excludes(0.0) and p < 1 - level, level=level, smallest_p=fewest)


def subgroup_sentence(found: Sequence[Subgroup]) -> str:
    """Return which groups differ from all others, in the lead over the prior where there is one."""
    if not found:
        return ""
    measure = LEAD if LEAD in found[0].values else MEASURES[0]
    shown = [
        f"{ATTRIBUTES[one.attribute]} {one.name} ({span(one.differences[measure], signed=True)}; {one.patients:,} "
        "patients)"
        for one in found
        if measure in one.differences and one.differences[measure].shown
    ]
    what = "lead over the prior" if measure == LEAD else "average precision"
    by = ", ".join(ATTRIBUTES[name] for name in dict.fromkeys(one.attribute for one in found))
    small = [f"{ATTRIBUTES[one.attribute]} {one.name}, {one.patients}" for one in found if one.few and one.differences]
    note = f" Too few patients to compare: {'; '.join(small)}." if small else ""
    if not shown:
        tests = [one.differences[measure] for one in found if measure in one.differences]
        few = all(one.verdict == "too few patients to tell" for one in tests)
        if few:
            return f"Subgroups by {by}: too few patients to compare {what}."
        return f"Subgroups by {by}: no difference shown in {what}.{note}"
    return f"Subgroups by {by}: {what} differs from all others' for {'; '.join(shown)}.{note}"


def subgroup_tables(found: Sequence[Subgroup]) -> list[Table]:
    """Return a table of all groups for each measure."""
    titles = {name: find_measure(name).title for name in MEASURES} | {LEAD: "lead over the prior (average precision)"}
    columns = [Column("by", "text"), Column("group", "text"), *map(Column, ("phrases", "patients"))]
    tables = []
    for measure in sorted({name for one in found for name in one.values}, key=lambda name: (name != LEAD, name)):
        rows = []
        for one in found:
            difference = one.differences.get(measure)
            numbers = (f"{one.phrases:,}", f"{one.patients:,}", span(one.values[measure], brief=True))
            texts = (ATTRIBUTES[one.attribute], one.name, *numbers, span(difference, signed=True, brief=True))
            rows.append([Cell(text) for text in (*texts, outcome(None if one.few else difference))])
        header = [*columns, Column(titles[measure]), Column("minus all others"), Column("outcome", "text")]
        caption = (
            "Differences from all other patients, with Holm's correction for all rows; a group is not tested if it "
            f"has, or all others have, fewer than {FEW_CLUSTERS} patients. Of two groups, the first is compared with "
            "the second."
        )
        title = titles[measure][0].upper() + titles[measure][1:]
        tables.append(Table(f"subgroups-{measure}", title, caption, header, rows, folded=measure != LEAD))
    return tables

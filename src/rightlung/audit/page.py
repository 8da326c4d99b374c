"""The page of an audit: what was found, one figure, then the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightlung.audit.summary import left_out_note
from rightlung.measuring.measures import find_measure
from rightlung.pages.content import Cell, Column, Figure, Gallery, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, interval_figure
from rightlung.pages.numbers import span, verdict
from rightlung.results.estimate import Estimate
from rightlung.results.groups import FEW_PATIENTS, HEADLINE, Breakdown, Compared, GroupResult

_GROUP_TITLES = {
    "finding": "By finding",
    "size": "By size of the target",
    "side": "By side of the target",
    "side_named": "By the side that the words name",
    "region": "By region",
    "kind": "By kind of target",
    "polarity": "By polarity",
}
_GROUP_NOTES = {
    "size": "Small: under 1 % of the image's area. Large: 5 % or more.",
    "side": "Patient's side, from the target's pixels. Midline: it reaches across the middle.",
    "region": "As the source names it; a phrase counts in each of its regions.",
    "finding": "A phrase counts for each finding it asserts.",
}
CONDITION_TITLES = {
    "swap-sides": "Left and right swapped in the words",
    "exchange-image": "Another patient's image shown",
    "random-sentence": "Another patient's sentence asked",
    "synthetic": "The phrase as a synthetic sentence",
    "synthetic-swapped": "A synthetic sentence with other findings in the same places",
}
_PRIOR = (
    "The prior is the mean target of other patients' phrases that name the same finding, side and zone. It reads the "
    "words and never looks at the image: only what exceeds it is owed to the image. AUROC flatters, since most of an "
    "image is obviously not the target."
)


def make_page(
    result: Mapping[str, Any], found: Breakdown, galleries: Sequence[Gallery], next_steps: Sequence[str] = ()
) -> Page:
    """Lay out an audit's result (see `run.audit`)."""
    counts, protocol = result["counts"], result["protocol"]
    listed = [*result["problems"], *result["notes"]]
    more = [f"… and {len(listed) - 50} more, in audit.json"] if len(listed) > 50 else []
    basis = f"{100 * protocol['level']:g} % intervals, patients resampled; protocol {protocol['hash']}."
    sections = [
        Section("summary", "What was found", items=result["summary"], parts=[*_headline(found, protocol["level"])]),
        Section("cases", "Best and worst cases", parts=galleries),
        Section("overall", "Compared with the image-blind prior", [_PRIOR], parts=[*_overall(found, basis)]),
        Section("sides", "Left and right", parts=[*_sides(found, basis)]),
        Section("conditions", "When the question is changed", parts=[*_conditions(found)]),
        Section("groups", "By group", [_GROUPS_NOTE], parts=[*_groups(found)]),
        Section("abstention", "Abstention", [_abstention_note(found)], parts=[*_abstention(found, basis)]),
        Section("problems", "What was left out", items=[*listed[:50], *more]),
        Section("next", "What to try next", code="\n".join(next_steps)),
    ]
    lead = (
        f"{counts['phrases']:,} phrases of {counts['patients']:,} patients in {counts['studies']:,} studies of "
        f"{result['source']}. Protocol {protocol['hash']}."
    )
    facts = {
        name.replace("_", " "): ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in protocol.items()
    }
    return Page(f"Audit of {result['model'] or 'a model'}", lead, sections, facts)


def _headline(found: Breakdown, level: float) -> Iterator[Figure]:
    """Draw the model and the prior: as asked, with another image, with sides swapped, and the side of the peak."""
    if not found.overall:
        return
    rows: dict[str, dict[str, Compared]] = {"as asked": {name: found.overall[name] for name in HEADLINE}}
    for name, title in CONDITION_TITLES.items():
        if name in found.conditions and found.conditions[name].beside_prior:
            rows[title[0].lower() + title[1:]] = dict(found.conditions[name].beside_prior)
    panels = [
        IntervalPanel(
            title=find_measure(name).title, limits=(0.0, 1.0),
            series={
                "model": [row[name].model for row in rows.values()],
                "image-blind prior": [row[name].prior for row in rows.values()],
            },
        )
        for name in HEADLINE
    ]  # fmt: skip
    caption = (
        f"Mean over phrases with {100 * level:g} % intervals: the model and a prior that reads the same words and "
        "never looks."
    )
    yield interval_figure("headline", "The model and the image-blind prior", caption, list(rows), panels)


def _compared_columns(first: str, counted: bool = True) -> list[Column]:
    counts = [Column("phrases"), Column("patients")] if counted else []
    return [Column(first, "text"), *counts, Column("model"), Column("prior"), Column("model − prior")]


def _compared_row(name: str, value: Compared, counted: bool = True, help: str = "") -> list[Cell]:
    counts = [f"{value.model.n:,}", f"{value.model.patients:,}"] if counted else []
    cells = [*counts, span(value.model), span(value.prior), verdict(value.difference)]
    return [Cell(name, help), *map(Cell, cells)]


def _overall(found: Breakdown, basis: str) -> Iterator[Table]:
    if not found.overall:
        return
    ordered = [*HEADLINE, *(name for name in found.overall if name not in HEADLINE)]
    rows = [
        _compared_row(find_measure(name).title, found.overall[name], False, find_measure(name).meaning)
        for name in ordered
    ]
    first = found.overall[HEADLINE[0]].model
    caption = f"Mean over {first.n:,} phrases of {first.patients:,} patients. {basis}"
    yield Table("overall", "All measures", caption, _compared_columns("measure", False), rows)


def _sides(found: Breakdown, basis: str) -> Iterator[Table]:
    titles = {"named": "the words name it", "from_image": "no word gives it away: only the image can tell"}
    rows = [
        _compared_row(title, one) for name, title in titles.items() if (one := getattr(found.sides, name)) is not None
    ]
    if rows:
        caption = f"Share of phrases about a finding on one side whose peak lies on that side. {basis}"
        note = left_out_note(found.sides.left_out)
        notes = [f"{note[0].upper()}{note[1:]}. What the image tells is the difference from the prior."]
        yield Table("sides", "The side of the peak", caption, _compared_columns("the finding's side"), rows, notes)


def _changed_row(measure: str, count: int, *texts: str) -> list[Cell]:
    known = find_measure(measure)
    return [Cell(known.title, known.meaning), *map(Cell, (f"{count:,}", *texts))]


def _conditions(found: Breakdown) -> Iterator[Table]:
    for place, (name, changes) in enumerate(found.conditions.items()):
        title = CONDITION_TITLES.get(name, f"Condition {name}")
        rows = []
        for measure, change in changes.change.items():
            before, after = changes.values[measure].before, changes.values[measure].after
            rows.append(_changed_row(measure, change.n, span(before), span(after), verdict(change)))
        rows += [_changed_row(measure, one.n, "–", span(one), "–") for measure, one in changes.moved.items()]
        columns = [Column("measure", "text"), Column("phrases"), Column("as asked"), Column("changed")]
        notes = []
        if changes.follows_words is not None:
            share = span(changes.follows_words)
            notes.append(f"Share of one-sided phrases whose peak lies on the side now named: {share}.")
        caption = f"{changes.questions:,} questions asked both ways." if rows else "No question was asked both ways."
        yield Table(f"condition-{place}", title, caption, [*columns, Column("difference, paired")], rows, notes)
        if changes.beside_prior:
            rows = [
                _compared_row(find_measure(measure).title, value, False)
                for measure, value in changes.beside_prior.items()
            ]
            caption = "What is left, compared with the prior that reads the same words."
            columns = _compared_columns("measure", False)
            yield Table(f"left-{place}", f"{title}: compared with the prior", caption, columns, rows, folded=True)


_GROUPS_NOTE = (
    f"* fewer than {FEW_PATIENTS} patients: the interval means little, and no difference is called shown. Elsewhere a "
    "difference is shown where it survives Holm's adjustment for all the other rows of its table."
)


def _groups(found: Breakdown) -> Iterator[Table | Figure]:
    for grouping, title in _GROUP_TITLES.items():
        groups = [group for group in found.groups[grouping] if group.metrics]
        if grouping == "finding" and groups:
            yield _groups_figure(groups)
        for metric in HEADLINE if groups else ():
            name = find_measure(metric).title
            rows = [_compared_row(_starred(group), group.metrics[metric]) for group in groups]
            caption = f"{title}: {name}. {_GROUP_NOTES.get(grouping, '')}".strip()
            columns = _compared_columns(title.removeprefix("By "))
            folded = grouping != "finding" or metric != HEADLINE[0]
            yield Table(f"{grouping}-{metric}", f"{title}: {name}", caption, columns, rows, folded=folded)


def _starred(group: GroupResult) -> str:
    return group.name + (" *" if group.few else "")


def _groups_figure(groups: Sequence[GroupResult]) -> Figure:
    series: dict[str, list[Estimate | None]] = {
        "model": [group.metrics[HEADLINE[0]].model for group in groups],
        "image-blind prior": [group.metrics[HEADLINE[0]].prior for group in groups],
    }
    panel = IntervalPanel(title=find_measure(HEADLINE[0]).title, limits=(0.0, 1.0), series=series)
    labels = [f"{_starred(group)} ({group.phrases})" for group in groups]
    caption = "Average precision by finding; the number of phrases in brackets."
    return interval_figure("findings", "By finding", caption, labels, [panel])


def _abstention_note(found: Breakdown) -> str:
    if not found.abstention.given:
        return "The predictions give no abstention."
    if not found.abstention.ever:
        return "The model never abstains: its abstention is zero throughout."
    if found.abstention.auroc is None:
        return ""
    return (
        f"AUROC of the abstention for telling negated phrases from asserted ones: {span(found.abstention.auroc)}. The "
        "words alone can give a negation away; the change under another image says more."
    )


def _abstention(found: Breakdown, basis: str) -> Iterator[Table]:
    if found.abstention.given and found.abstention.ever:
        rows = [
            [Cell(group.name), Cell(f"{group.phrases:,}"), Cell(f"{group.patients:,}"), Cell(span(group.abstention))]
            for group in found.groups["polarity"]
        ]
        columns = [Column("polarity of the phrase", "text"), *map(Column, ("phrases", "patients", "abstention"))]
        yield Table("abstention", "By polarity of the phrase", f"Mean abstention. {basis}", columns, rows)

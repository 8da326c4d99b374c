"""Lay out the page of an audit: the verdict with one picture and one figure, the cases, then the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightlung.audit.summary import details, left_out_note, verdicts
from rightlung.measuring.measures import find_measure
from rightlung.pages.content import FEW, FEW_NOTE, Cell, Column, Figure, Gallery, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import outcome, span
from rightlung.pages.protocols import protocol_facts
from rightlung.results.estimate import Comparison, Estimate
from rightlung.results.groups import HEADLINE, Breakdown, ConditionChanges, GroupResult, PriorComparison
from rightlung.scoring.statistics import FEW_CLUSTERS

SHOWN_PROBLEMS, SHOWN_FINDINGS = 50, 12

_GROUP_TITLES = {
    "finding": "By finding",
    "size": "By target size",
    "side": "By target side",
    "side_named": "By named side",
    "region": "By anatomical region",
    "kind": "By target type",
    "polarity": "By polarity",
}
_GROUP_NOTES = {
    "size": "Small: less than 1 % of the image area. Large: 5 % or more.",
    "side": "The patient's side, computed from the target's pixels. Midline: the target crosses the middle.",
    "region": "Region names as given by the source. A phrase with several regions counts in each.",
    "finding": "A phrase that asserts several findings counts for each.",
}
CONDITION_TITLES = {
    "swap-sides": "Left and right swapped",
    "exchange-image": "Another patient's image",
    "random-sentence": "Another patient's sentence",
    "synthetic": "Synthetic sentence instead of the phrase",
    "synthetic-swapped": "Synthetic sentence with other findings in the same places",
    "index-nearest": "Nearest report of the index",
    "prior-corrected": "Prior-corrected (log frequency added)",
}
_PRIOR = (
    "The prior predicts the average target of other patients' phrases that name the same finding, side and zone. It "
    "reads the words and never sees the image, so only a score above the prior shows that the model uses the image. "
    "AUROC looks high even for poor maps, because most of an image is obviously outside the target."
)
_OUTCOME = Column(
    "outcome",
    "text",
    "A difference is shown if its interval excludes zero and the sign-flip test over patients is significant (in "
    "tables by group, after Holm's correction for all rows). With too few patients, no result could be significant.",
)


def make_page(
    result: Mapping[str, Any], found: Breakdown, galleries: Sequence[Gallery], next_steps: Sequence[str] = (),
    subgroups: Sequence[Table] = (), gates: Sequence[Section] = (),
    further: Sequence[Section] = (), appendix: Sequence[Section] = (),
) -> Page:  # fmt: skip
    """Return the page for an audit's result (see `run.audit`)."""
    counts, protocol, said = result["counts"], result["protocol"], details(found)
    listed = [*result["problems"], *result["notes"]]
    hidden = len(listed) - SHOWN_PROBLEMS
    more = [f"… and {hidden} more, in audit.json"] if hidden > 0 else []
    basis = (
        f"{100 * protocol['level']:g} % confidence intervals (bootstrap over patients); protocol {protocol['hash']}."
    )
    first = [gallery for gallery in galleries if gallery.name == "typical"]
    sections = [
        Section("verdict", "Verdict", parts=[*first, *_headline(found, HEADLINE[:1], basis)], verdict=verdicts(found)),
        *gates,
        Section("cases", "Cases", parts=[gallery for gallery in galleries if gallery not in first]),
        Section("overall", "Model and prior", [_PRIOR], parts=[*_overall(found, basis)]),
        Section("sides", "Left and right", parts=[*_sides(found, basis)]),
        Section("conditions", "Changed phrase or image", said["conditions"], parts=[*_conditions(found, basis)]),
        *further,
        Section("groups", "Groups", said["groups"], parts=[*_groups(found)]),
        Section("subgroups", "Sex, age and view", parts=subgroups),
        Section("abstention", "Abstention", said["abstention"], parts=[*_abstention(found, basis)]),
        Section("problems", "Left out", items=[*listed[:SHOWN_PROBLEMS], *more], folded=len(listed) > 5),
        Section("next", "Next steps", code="\n".join(next_steps), folded=True),
        *appendix,
        Section("definitions", "Definitions", parts=[_definitions(found)], folded=True),
    ]
    lead = (
        f"{counts['phrases']:,} phrases from {counts['studies']:,} studies of {counts['patients']:,} patients "
        f"({result['source']}). Protocol {protocol['hash']}."
    )
    warnings = [*result.get("warnings", ())]
    if counts["patients"] < FEW_CLUSTERS:
        warnings.append(f"Only {counts['patients']} patients: all intervals on this page are too narrow to rely on.")
    title = f"Audit of {result['model'] or 'a model'}"
    return Page(title, lead, sections, protocol_facts(protocol), " ".join(warnings))


def _headline(found: Breakdown, measures: Sequence[str], basis: str, folded: bool = False) -> Iterator[Figure]:
    """Yield a figure of model and prior on the original phrases and under each condition."""
    if not found.overall:
        return
    rows = {"original": dict(found.overall)}
    for name, title in CONDITION_TITLES.items():
        if name in found.conditions and found.conditions[name].compared_with_prior:
            rows[title[0].lower() + title[1:]] = dict(found.conditions[name].compared_with_prior)
    panels = [_panel(name, [row[name] for row in rows.values()]) for name in measures]
    caption = f"Mean over phrases with {basis} The prior reads the same words and never sees the image."
    name = f"headline-{len(panels)}"
    yield panel_figure(name, "Main measures, figure", caption, list(rows), panels, folded=folded)


def _panel(measure: str, rows: Sequence[PriorComparison]) -> IntervalPanel:
    model, prior = [row.model for row in rows], [row.prior for row in rows]
    series: dict[str, Sequence[Estimate | None]] = {"model": model, "image-blind prior": prior}
    return IntervalPanel(title=find_measure(measure).title, limits=(0.0, 1.0), series=series)


def _measure_cell(name: str) -> Cell:
    known = find_measure(name)
    return Cell(known.title, help=known.meaning)


def _difference_cells(difference: Comparison | None) -> list[Cell]:
    return [Cell(span(difference, signed=True, brief=True)), Cell(outcome(difference))]


def _compared_columns(first: str) -> list[Column]:
    numbers = ("phrases", "patients", "model", "prior", "model − prior")
    return [Column(first, "text"), *map(Column, numbers), _OUTCOME]


def _compared_row(first: Cell, value: PriorComparison) -> list[Cell]:
    model, prior, difference = value
    numbers = (f"{model.n:,}", f"{model.patients:,}", span(model, brief=True), span(prior, brief=True))
    return [first, *map(Cell, numbers), *_difference_cells(difference)]


def _compared_table(
    name: str, title: str, caption: str, values: Mapping[str, PriorComparison], folded: bool = False
) -> Table:
    """Return a table with a row for each measure."""
    rows = [_compared_row(_measure_cell(measure), value) for measure, value in values.items()]
    return Table(name, title, caption, _compared_columns("measure"), rows, folded=folded)


def _overall(found: Breakdown, basis: str) -> Iterator[Table | Figure]:
    if found.overall:
        main = {name: found.overall[name] for name in HEADLINE}
        yield _compared_table("overall", "Main measures", f"Means over phrases. {basis}", main)
        yield from _headline(found, HEADLINE, basis, folded=True)
        yield _compared_table(
            "measures", "All measures", f"Means over phrases. {basis}", main | dict(found.overall), True
        )


def _sides(found: Breakdown, basis: str) -> Iterator[Table]:
    titles = {"named": "named in the phrase", "from_image": "visible only in the image"}
    rows = [
        _compared_row(Cell(title), one)
        for name, title in titles.items()
        if (one := getattr(found.sides, name)) is not None
    ]
    if rows:
        caption = f"Share of phrases with a one-sided finding for which the peak is on the correct side. {basis}"
        note = left_out_note(found.sides.left_out)
        notes = [f"{note[0].upper()}{note[1:]}. Only the difference from the prior shows use of the image."]
        columns = _compared_columns("side of the finding")
        yield Table("sides", "Is the peak on the correct side?", caption, columns, rows, notes)


def _changed_row(first: Cell, change: Comparison, before: Estimate, after: Estimate) -> list[Cell]:
    counts = [Cell(f"{change.n:,}"), Cell(f"{change.patients:,}")]
    values = [Cell(span(one, brief=True)) for one in (before, after)]
    return [first, *counts, *values, *_difference_cells(change)]


def _changed_columns(first: str) -> list[Column]:
    numbers = ("phrases", "patients", "original", "changed", "paired difference")
    return [Column(first, "text"), *map(Column, numbers), _OUTCOME]


def _conditions(found: Breakdown, basis: str) -> Iterator[Table]:
    titles = {name: CONDITION_TITLES.get(name, f"Condition {name}") for name in found.conditions}
    main, name = HEADLINE[0], find_measure(HEADLINE[0]).title
    rows = [
        _changed_row(Cell(titles[condition]), changes.change[main], *vars(changes.values[main]).values())
        for condition, changes in found.conditions.items()
        if main in changes.change
    ]
    if rows:
        caption = f"{name[0].upper()}{name[1:]} against the original target. {basis}"
        yield Table("changes", f"Change of {name}", caption, _changed_columns("change"), rows)
    for place, (condition, changes) in enumerate(found.conditions.items()):
        yield _condition_table(f"condition-{place}", titles[condition], changes)
        if changes.compared_with_prior:
            title = f"{titles[condition]}: model and prior"
            caption = "Scores under the change, compared with the prior given the same words."
            yield _compared_table(f"left-{place}", title, caption, changes.compared_with_prior, folded=True)


def _condition_table(name: str, title: str, changes: ConditionChanges) -> Table:
    """Return every measure of the same phrases, original and changed."""
    rows = [
        _changed_row(_measure_cell(measure), change, *vars(changes.values[measure]).values())
        for measure, change in changes.change.items()
    ]
    for measure, one in changes.moved.items():
        texts = (f"{one.n:,}", f"{one.patients:,}", "–", span(one, brief=True), "–", "–")
        rows.append([_measure_cell(measure), *map(Cell, texts)])
    notes = []
    if changes.follows_words is not None:
        share = span(changes.follows_words)
        notes.append(f"Share of one-sided phrases for which the peak is on the side now named: {share}.")
    caption = f"{changes.questions:,} phrases, original and changed." if rows else "No phrase was asked in both forms."
    return Table(name, f"{title}: all measures", caption, _changed_columns("measure"), rows, notes, folded=True)


def _groups(found: Breakdown) -> Iterator[Table | Figure]:
    for grouping, title in _GROUP_TITLES.items():
        groups = [group for group in found.groups[grouping] if group.metrics]
        if grouping == "finding" and groups:
            yield _groups_figure(groups)
        for metric in HEADLINE if groups else ():
            name = find_measure(metric).title
            rows = [_compared_row(Cell(group.name), group.metrics[metric]) for group in groups]
            caption = f"{name[0].upper()}{name[1:]}. {_GROUP_NOTES.get(grouping, '')}".strip()
            columns = _compared_columns(title.removeprefix("By "))
            yield Table(f"{grouping}-{metric}", f"{title}: {name}", caption, columns, rows, folded=True)


def _groups_figure(groups: Sequence[GroupResult]) -> Figure:
    shown = groups[:SHOWN_FINDINGS]
    panel = _panel(HEADLINE[0], [group.metrics[HEADLINE[0]] for group in shown])
    marks = [f" {FEW}" if group.patients < FEW_CLUSTERS else "" for group in shown]
    labels = [f"{group.name} ({group.phrases}){mark}" for group, mark in zip(shown, marks, strict=True)]
    rest = f"; the {len(shown)} most frequent of {len(groups)}" if len(groups) > len(shown) else ""
    note = f" {FEW_NOTE}" if any(marks) else ""
    caption = f"Average precision by finding (number of phrases in brackets{rest}).{note}"
    return panel_figure("findings", "By finding", caption, labels, [panel])


def _abstention(found: Breakdown, basis: str) -> Iterator[Table]:
    if found.abstention.given and found.abstention.ever:
        rows = [
            [
                Cell(group.name),
                *map(Cell, (f"{group.phrases:,}", f"{group.patients:,}", span(group.abstention, brief=True))),
            ]
            for group in found.groups["polarity"]
        ]
        columns = [Column("polarity", "text"), *map(Column, ("phrases", "patients", "abstention"))]
        caption = f"Mean abstention (0: points somewhere, 1: declines to point). {basis}"
        yield Table("abstention", "Abstention by polarity", caption, columns, rows, folded=True)


def _definitions(found: Breakdown) -> Table:
    """Return what each measure on the page means."""
    conditions = found.conditions.values()
    names = [*HEADLINE, *found.overall, *(name for one in conditions for name in (*one.change, *one.moved))]
    rows = []
    for known in map(find_measure, dict.fromkeys([*names, "abstention", "abstention_auroc"])):
        low, high = (f"{end:g}".replace("inf", "∞").replace("-", "−") for end in known.range)
        rows.append([Cell(known.title), Cell(known.meaning), Cell(known.better or "neither"), Cell(f"{low} to {high}")])
    columns = [Column("measure", "text"), Column("meaning", "text"), Column("better", "text"), Column("range", "text")]
    return Table("definitions", "Definitions", "Measures on this page.", columns, rows)

"""Lay out the page of an audit: the findings, one figure, then the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightlung.audit.summary import left_out_note
from rightlung.measuring.measures import find_measure
from rightlung.pages.content import Cell, Column, Figure, Gallery, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import span, verdict
from rightlung.results.estimate import Estimate
from rightlung.results.groups import FEW_PATIENTS, HEADLINE, Breakdown, GroupResult, PriorComparison

_GROUP_TITLES = {
    "finding": "By finding",
    "size": "By target size",
    "side": "By target side",
    "side_named": "By side named in the phrase",
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
    "swap-sides": "Left and right swapped in the phrase",
    "exchange-image": "Another patient's image",
    "random-sentence": "Another patient's sentence",
    "synthetic": "Synthetic sentence instead of the phrase",
    "synthetic-swapped": "Synthetic sentence with other findings in the same places",
}
_PRIOR = (
    "The prior predicts the average target of other patients' phrases that name the same finding, side and zone. It "
    "reads the words and never sees the image, so only a score above the prior shows that the model uses the image. "
    "AUROC looks high even for poor maps, because most of an image is obviously outside the target."
)


def make_page(
    result: Mapping[str, Any], found: Breakdown, galleries: Sequence[Gallery], next_steps: Sequence[str] = ()
) -> Page:
    """Return the page for an audit's result (see `run.audit`)."""
    counts, protocol = result["counts"], result["protocol"]
    listed = [*result["problems"], *result["notes"]]
    more = [f"… and {len(listed) - 50} more, in audit.json"] if len(listed) > 50 else []
    basis = (
        f"{100 * protocol['level']:g} % confidence intervals (bootstrap over patients); protocol {protocol['hash']}."
    )
    sections = [
        Section("summary", "Findings", items=result["summary"], parts=[*_headline(found, protocol["level"])]),
        Section("cases", "Best and worst cases", parts=galleries),
        Section("overall", "Compared with the image-blind prior", [_PRIOR], parts=[*_overall(found, basis)]),
        Section("sides", "Left and right", parts=[*_sides(found, basis)]),
        Section("conditions", "Effect of changing the phrase or the image", parts=[*_conditions(found)]),
        Section("groups", "Results by group", [_GROUPS_NOTE], parts=[*_groups(found)]),
        Section("abstention", "Abstention", [_abstention_note(found)], parts=[*_abstention(found, basis)]),
        Section("problems", "Left out", items=[*listed[:50], *more]),
        Section("next", "Next steps", code="\n".join(next_steps)),
    ]
    lead = (
        f"Does the model look at the image? {counts['phrases']:,} phrases from {counts['studies']:,} studies of "
        f"{counts['patients']:,} patients ({result['source']}). Protocol {protocol['hash']}."
    )
    facts = {
        name.replace("_", " "): ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in protocol.items()
    }
    return Page(f"Audit of {result['model'] or 'a model'}", lead, sections, facts)


def _headline(found: Breakdown, level: float) -> Iterator[Figure]:
    """Yield the figure of model and prior on the original phrases and under each condition."""
    if not found.overall:
        return
    rows: dict[str, dict[str, PriorComparison]] = {"original": {name: found.overall[name] for name in HEADLINE}}
    for name, title in CONDITION_TITLES.items():
        if name in found.conditions and found.conditions[name].compared_with_prior:
            rows[title[0].lower() + title[1:]] = dict(found.conditions[name].compared_with_prior)
    panels = [_panel(name, [row[name] for row in rows.values()]) for name in HEADLINE]
    caption = (
        f"Mean over phrases with {100 * level:g} % confidence intervals. The prior reads the same words and never "
        "sees the image."
    )
    yield panel_figure("headline", "Model and image-blind prior", caption, list(rows), panels)


def _panel(measure: str, rows: Sequence[PriorComparison]) -> IntervalPanel:
    model, prior = [row.model for row in rows], [row.prior for row in rows]
    series: dict[str, Sequence[Estimate | None]] = {"model": model, "image-blind prior": prior}
    return IntervalPanel(title=find_measure(measure).title, limits=(0.0, 1.0), series=series)


def _compared_columns(first: str, counted: bool = True) -> list[Column]:
    counts = [Column("phrases"), Column("patients")] if counted else []
    return [Column(first, "text"), *counts, Column("model"), Column("prior"), Column("model − prior")]


def _compared_row(name: str, value: PriorComparison, counted: bool = True, help: str = "") -> list[Cell]:
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
    caption = f"Means over {first.n:,} phrases from {first.patients:,} patients. {basis}"
    yield Table("overall", "All measures", caption, _compared_columns("measure", False), rows)


def _sides(found: Breakdown, basis: str) -> Iterator[Table]:
    titles = {"named": "named in the phrase", "from_image": "visible only in the image"}
    rows = [
        _compared_row(title, one) for name, title in titles.items() if (one := getattr(found.sides, name)) is not None
    ]
    if rows:
        caption = f"Share of phrases with a one-sided finding for which the peak is on the correct side. {basis}"
        note = left_out_note(found.sides.left_out)
        notes = [f"{note[0].upper()}{note[1:]}. Only the difference from the prior shows use of the image."]
        yield Table(
            "sides", "Is the peak on the correct side?", caption, _compared_columns("side of the finding"), rows, notes
        )


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
        columns = [Column("measure", "text"), Column("phrases"), Column("original"), Column("changed")]
        notes = []
        if changes.follows_words is not None:
            share = span(changes.follows_words)
            notes.append(f"Share of one-sided phrases for which the peak is on the side now named: {share}.")
        caption = (
            f"{changes.questions:,} phrases, original and changed." if rows else "No phrase was asked in both forms."
        )
        yield Table(f"condition-{place}", title, caption, [*columns, Column("paired difference")], rows, notes)
        if changes.compared_with_prior:
            rows = [
                _compared_row(find_measure(measure).title, value, False)
                for measure, value in changes.compared_with_prior.items()
            ]
            caption = "Scores under the change, compared with the prior given the same words."
            columns = _compared_columns("measure", False)
            yield Table(f"left-{place}", f"{title}: compared with the prior", caption, columns, rows, folded=True)


_GROUPS_NOTE = (
    f"Groups marked * have fewer than {FEW_PATIENTS} patients: their intervals are unreliable and they are not tested. "
    "For the others, a difference is printed only if it stays significant after Holm's correction for all rows of the "
    "table."
)


def _groups(found: Breakdown) -> Iterator[Table | Figure]:
    for grouping, title in _GROUP_TITLES.items():
        groups = [group for group in found.groups[grouping] if group.metrics]
        if grouping == "finding" and groups:
            yield _groups_figure(groups)
        for metric in HEADLINE if groups else ():
            name = find_measure(metric).title
            rows = [_compared_row(_starred(group), group.metrics[metric]) for group in groups]
            caption = f"{name[0].upper()}{name[1:]}. {_GROUP_NOTES.get(grouping, '')}".strip()
            columns = _compared_columns(title.removeprefix("By "))
            folded = grouping != "finding" or metric != HEADLINE[0]
            yield Table(f"{grouping}-{metric}", f"{title}: {name}", caption, columns, rows, folded=folded)


def _starred(group: GroupResult) -> str:
    return group.name + (" *" if group.few else "")


def _groups_figure(groups: Sequence[GroupResult]) -> Figure:
    panel = _panel(HEADLINE[0], [group.metrics[HEADLINE[0]] for group in groups])
    labels = [f"{_starred(group)} ({group.phrases})" for group in groups]
    caption = "Average precision by finding (number of phrases in brackets)."
    return panel_figure("findings", "By finding", caption, labels, [panel])


def _abstention_note(found: Breakdown) -> str:
    if not found.abstention.given:
        return "The predictions contain no abstention values."
    if not found.abstention.ever:
        return "The model never abstains: all its abstention values are zero."
    if found.abstention.auroc is None:
        return ""
    return (
        f"AUROC of abstention for separating negated from asserted phrases: {span(found.abstention.auroc)}. Negation "
        "can be read from the words alone; the change with another patient's image is stronger evidence."
    )


def _abstention(found: Breakdown, basis: str) -> Iterator[Table]:
    if found.abstention.given and found.abstention.ever:
        rows = [
            [Cell(group.name), Cell(f"{group.phrases:,}"), Cell(f"{group.patients:,}"), Cell(span(group.abstention))]
            for group in found.groups["polarity"]
        ]
        columns = [Column("polarity", "text"), *map(Column, ("phrases", "patients", "abstention"))]
        yield Table(
            "abstention",
            "Abstention by polarity",
            f"Mean abstention (0: points somewhere, 1: declines to point). {basis}",
            columns,
            rows,
        )

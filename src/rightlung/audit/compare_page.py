"""Lay out the page of a comparison: verdicts, a forest plot of paired differences, the tables, and the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightlung.measuring import find_measure
from rightlung.pages.content import (
    FEW,
    FEW_NOTE,
    ONLY_INTERVAL,
    Cell,
    Column,
    Figure,
    MarkedSentence,
    Page,
    Section,
    Table,
)
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import outcome, span, why
from rightlung.pages.protocols import protocol_section
from rightlung.results.paired import ALL, ComparedPart, Pair
from rightlung.scoring.statistics import FEW_CLUSTERS

_OUTCOME = Column(
    "outcome",
    "text",
    "A difference is shown if its interval excludes zero and the sign-flip test over patients is significant after "
    "Holm's correction. With too few patients, no result could be significant.",
)


def make_compare_page(
    result: Mapping[str, Any], parts: Sequence[ComparedPart], main: Mapping[str, Sequence[str]]
) -> Page:
    """Return the page of a comparison (see `compare.compare`); ``main`` are the first measures of each part."""
    names = [one["name"] for one in result["models"]]
    sections = [
        Section("verdict", "Verdict", verdict=[one for part in parts for one in verdicts(part, main[part.title])])
    ]
    for place, part in enumerate(parts):
        shown = [name for name in main[part.title] if name in part.pairs]
        sections.append(
            Section(f"part-{place}", part.title, [_basis(part)], part.notes, [*_contents(place, part, shown)])
        )
    sections += [
        Section("notes", "Notes", items=result["notes"]),
        protocol_section({part.title: part.protocol for part in parts}),
    ]
    condition = "" if result["condition"] == "none" else f" Answers under the condition {result['condition']}."
    lead = f"{' and '.join([', '.join(names[:-1]), names[-1]])}, on the instances that all of them have.{condition}"
    facts = {f"result {one['name']}": one["path"] for one in result["models"]}
    facts |= {name: str(result[name]) for name in ("condition", "resamples", "level", "seed", "version")}
    few = [part.patients for part in parts if part.patients < FEW_CLUSTERS]
    warnings = [*result["warnings"]]
    warnings += [f"Only {min(few)} patients: intervals are too narrow to rely on."] if few else []
    return Page("Comparison of results", lead, sections, facts, " ".join(warnings))


def verdicts(part: ComparedPart, main: Sequence[str]) -> list[MarkedSentence]:
    """Return a sentence for each of the main measures and pair of models."""
    return [_verdict(part, name, pair) for name in main for pair in part.of(name)]


def _verdict(part: ComparedPart, name: str, pair: Pair) -> MarkedSentence:
    title, difference = find_measure(name).title, pair.difference
    said = outcome_of(name, pair).removesuffix(f" {ONLY_INTERVAL}") + why(difference)
    mark: Any = {"difference shown": "yes", "no difference shown": "unclear"}.get(difference.verdict, "not tested")
    shown = [one.group for one in part.pairs[name] if one.group != ALL and one.difference.shown
             and (one.first, one.second) == (pair.first, pair.second)]  # fmt: skip
    tested = len(part.groups(name))
    by_finding = (
        f" By finding: shown for {', '.join(shown) if shown else 'none'} of {tested} findings." if tested else ""
    )
    models = f", {pair.first} − {pair.second}" if len(part.models) > 2 else ""
    detail = (
        f"{pair.first} {span(pair.values[0], 3)}, {pair.second} {span(pair.values[1], 3)}; difference "
        f"{span(difference, 3, signed=True)}; {difference.n:,} instances of {difference.patients:,} patients."
        + by_finding
    )
    return MarkedSentence(mark, f"{part.title}, {title}{models}: {said}.", detail)


def outcome_of(name: str, pair: Pair) -> str:
    """Return which model is better, or why that is not shown."""
    difference = pair.difference
    if not difference.shown:
        return outcome(difference) if difference.has_interval else f"not tested ({difference.reason or 'undefined'})"
    higher = difference.value > 0
    return f"{pair.first if higher == (find_measure(name).better == 'higher') else pair.second} is better"


def _basis(part: ComparedPart) -> str:
    settings = part.settings
    return (
        f"{part.instances:,} instances of {part.patients:,} patients; {100 * settings.level:g} % intervals from a "
        f"paired bootstrap over patients ({settings.resamples:,} resamples); tests by sign flips of patients, with "
        f"Holm's correction over pairs of models and over findings; protocol {part.protocol.hash}."
    )


def _contents(place: int, part: ComparedPart, main: Sequence[str]) -> Iterator[Figure | Table]:
    couples = [(one.first, one.second) for one in part.of(next(iter(part.pairs)))]
    if len(couples) > 1 and main:
        labels = [f"{first} − {second}" for first, second in couples]
        panels = [_panel(find_measure(name).title, part.of(name)) for name in main]
        yield _forest(f"pairs-{place}", f"{part.title}: paired differences", labels, panels)
    for number, couple in enumerate(couples):
        yield from _by_finding_figure(f"forest-{place}-{number}", part, main, couple, folded=len(couples) > 1)
    yield _table(f"measures-{place}", f"{part.title}: all measures", part, list(part.pairs), ALL, "measure")
    for name in main:
        if part.groups(name):
            title = f"{part.title}: {find_measure(name).title} by finding"
            yield _table(f"findings-{place}-{name}", title, part, [name], None, "finding", folded=True)


def _by_finding_figure(
    name: str, part: ComparedPart, main: Sequence[str], couple: tuple[str, str], folded: bool
) -> Iterator[Figure]:
    """Yield the differences of two models, overall and by finding."""
    groups = [ALL, *dict.fromkeys(group for one in main for group in part.groups(one))]
    if not main or (len(groups) == 1 and folded):
        return
    panels, counts = [], dict[str, tuple[int, int]]()
    for measure in main:
        pairs = {one.group: one for one in part.pairs[measure] if (one.first, one.second) == couple}
        panels.append(_panel(find_measure(measure).title, [pairs.get(group) for group in groups]))
        counts = {group: (one.difference.n, one.difference.patients) for group, one in pairs.items()} | counts
    marks = {group: f" {FEW}" for group, (_, patients) in counts.items() if patients < FEW_CLUSTERS}
    labels = [f"{group} ({counts[group][0]:,}){marks.get(group, '')}" for group in groups]
    yield _forest(name, f"{part.title}: {couple[0]} minus {couple[1]}", labels, panels, folded)


def _panel(title: str, pairs: Sequence[Pair | None]) -> IntervalPanel:
    differences = [None if pair is None else pair.difference for pair in pairs]
    return IntervalPanel(title=title, line=0.0, signed=True, series={"difference": differences})


def _forest(
    name: str, title: str, labels: Sequence[str], panels: Sequence[IntervalPanel], folded: bool = False
) -> Figure:
    caption = "Paired differences with their intervals; right of the line, the first model has the higher value."
    caption += " In brackets: number of instances." if labels[0].startswith(f"{ALL} (") else ""
    caption += f" {FEW_NOTE}" if any(label.endswith(FEW) for label in labels) else ""
    return panel_figure(name, title, caption, labels, panels, folded=folded)


def pair_rows(part: ComparedPart, names: Sequence[str], group: str | None, first: str) -> tuple[list[str], list[Any]]:
    """Return the header and the rows of pairs: of one group by measure, or of all findings."""
    several = len(part.models) > 2
    header = [first, *(["models"] if several else []), "instances", "patients"]
    header += ["first", "second"] if several else part.models
    rows = []
    for name in names:
        for pair in part.pairs[name]:
            if (pair.group == ALL) != (group == ALL):
                continue
            row = [find_measure(name).title if group == ALL else pair.group]
            row += [f"{pair.first} − {pair.second}"] if several else []
            row += [f"{pair.difference.n:,}", f"{pair.difference.patients:,}"]
            row += [span(one, 3, brief=True) for one in pair.values]
            rows.append([*row, span(pair.difference, 3, signed=True, brief=True), outcome_of(name, pair)])
    return [*header, "difference", "outcome"], rows


def _table(
    name: str, title: str, part: ComparedPart, names: Sequence[str], group: str | None, first: str, folded: bool = False
) -> Table:
    header, rows = pair_rows(part, names, group, first)
    columns = [Column(one, "text" if one in (first, "models") else "number") for one in header[:-1]]
    caption = f"First minus second, paired. Protocol {part.protocol.hash}."
    return Table(name, title, caption, [*columns, _OUTCOME], [[*map(Cell, row)] for row in rows], folded=folded)

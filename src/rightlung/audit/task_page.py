"""Lay out the page of an audit of tasks: a section for each part, the model next to the image-blind baselines.

Each section begins with figures, which show what the tables below them list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightlung.audit.blind import baselines_of
from rightlung.audit.gates_page import gate_sections
from rightlung.audit.page import CONDITION_TITLES
from rightlung.audit.report_gates import gates_section
from rightlung.audit.task_results import Compared, PartResult
from rightlung.audit.tasks import CARDIOMEGALY
from rightlung.measuring import Measure, find_measure
from rightlung.pages.content import Cell, Column, Figure, Gallery, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import span, why
from rightlung.pages.protocols import protocol_section
from rightlung.results.estimate import Estimate
from rightlung.scoring.statistics import FEW_CLUSTERS

BLIND_NOTE = "Image-blind baselines never see the image; only a score above theirs shows that the model uses it."


def make_task_page(result: Mapping[str, Any], parts: Sequence[PartResult], missing: Sequence[str]) -> Page:
    """Return the page of an audit of tasks (see `task_audit.audit_tasks`)."""
    sections = [
        Section(f"task-{place}", one.part.title, _paragraphs(one), parts=[*_contents(place, one)])
        for place, one in enumerate(parts)
    ]
    sections += [
        section
        for place, one in enumerate(parts)
        for section in gate_sections(one.uses, slug=f"uses-{place}", of=one.part.title if len(parts) > 1 else "")
    ]
    sections += [gates_section(one.gates, f"gates-{place}") for place, one in enumerate(parts) if one.gates]
    problems = [*result.get("warnings", ()), *missing, *result["problems"]]
    sections += [
        Section("problems", "Left out", items=problems[:50], folded=len(problems) > 5),
        Section("definitions", "Definitions", parts=[_definitions(parts)], folded=True),
        protocol_section({one.part.title: one.protocol for one in parts}),
    ]
    counts = result["counts"]
    lead = (
        f"{', '.join(dict.fromkeys(one.part.task for one in parts))} on {counts['studies']:,} studies of "
        f"{counts['patients']:,} patients ({result['source']}). {BLIND_NOTE}"
    )
    few = f"Only {counts['patients']} patients: all intervals on this page are too narrow to rely on."
    facts = {"model": result["model"] or "not named", "source": result["source"], "version": result["version"]}
    facts |= {f"protocol of {one.part.title.lower()}": f"{one.protocol.name}, {one.protocol.hash}" for one in parts}
    warning = few if counts["patients"] < FEW_CLUSTERS else ""
    return Page(f"Audit of {result['model'] or 'a model'}", lead, sections, facts, warning)


def _contents(place: int, one: PartResult) -> Iterator[Figure | Gallery | Table]:
    yield from _figures(place, one)
    yield from one.galleries
    yield from _tables(place, one)


def _paragraphs(one: PartResult) -> list[str]:
    found = [verdict_of(one)]
    if one.classes:
        found.append(f"Findings: {', '.join(one.classes)}.")
    if one.unknown:
        found.append(f"Not known by the model and not measured: {', '.join(one.unknown)}.")
    if one.boxes:
        found.append(f"Boxes: {one.protocol.box_settings}.")
    if one.pool:
        found.append(pool_sentence(one.pool))
    return [*found, *(f"Undefined: {note}." for note in one.notes[:3])]


def pool_sentence(pool: Mapping[str, Any]) -> str:
    """Say what retrieval chose from, and how its prior was fitted."""
    said = (
        f"Candidates: {pool['candidates']:,} distinct reports of {pool['source']} and of the audited studies; "
        f"frequencies from {pool['reports_of_other_patients']:,} reports of patients who are not audited."
    )
    if prior := pool.get("prior"):
        said += (
            f" Prior-corrected: cosine + {prior['log_frequency']:.3g} x log frequency, fitted to {prior['images']:,} "
            "images of these patients."
        )
    return said


def _best_baseline(one: PartResult, name: str) -> str | None:
    """Return the image-blind baseline with the highest value of a measure, None if no value is defined."""
    values = {base: found.measures[name].value for base, found in one.blind.items() if found.measures[name].defined}
    return max(values, key=lambda base: values[base], default=None)


def verdict_of(one: PartResult) -> str:
    """Return the first main measure in words, next to the best image-blind baseline."""
    name = next((name for name in one.part.main if one.measures[name].defined), one.part.main[0])
    model, title, best = one.measures[name], find_measure(name).title, _best_baseline(one, name)
    if not model.defined or best is None:
        return f"{title}: {span(model, 3)}."
    difference = one.blind[best].difference[name]
    gain = {"higher": 1, "lower": -1, None: 0}[find_measure(name).better] * difference.value
    shown = "better" if gain > 0 else "worse" if gain < 0 else "different"
    outcome = shown if difference.shown else difference.verdict + why(difference)
    baseline = baselines_of(one.part)[best]
    return (
        f"{title}: model {span(model, 3)}, {baseline} {span(one.blind[best].measures[name], 3)}; difference "
        f"{span(difference, 3, signed=True)}: {outcome}."
    )


def _compared(one: PartResult) -> dict[str, Compared]:
    """Return what the model is compared with, by title: image-blind baselines, and the model under conditions."""
    titles = baselines_of(one.part)
    return {titles[name]: found for name, found in one.blind.items()} | {
        CONDITION_TITLES.get(name, name).lower(): found for name, found in one.conditions.items()
    }


def _figures(place: int, one: PartResult) -> Iterator[Figure]:
    """Yield a figure of the main measures, and one of the measure by finding."""
    basis = f"{100 * one.protocol.level:g} % confidence intervals over {one.clusters}"
    others, titles = _compared(one), baselines_of(one.part)
    panels = [
        _panel(name, [one.measures[name], *(found.measures[name] for found in others.values())])
        for name in one.part.main
        if one.measures[name].defined
    ]
    if panels:
        caption = f"Main measures with {basis}. Open diamonds: image-blind baselines."
        blind = [titles[name] for name in one.blind]
        yield panel_figure(
            f"task-{place}", f"{one.part.title}: main measures", caption, ["model", *others], panels, references=blind
        )
    name = one.part.by_class
    if name is None or not one.by_class:
        return
    best = _best_baseline(one, name)
    series = {"model": [found["model"] for found in one.by_class.values()]}
    if best is not None:
        series[titles[best]] = [found[best] for found in one.by_class.values()]
    panel = IntervalPanel(title=find_measure(name).title, limits=(0.0, 1.0), series=series)
    caption = f"{find_measure(name).title} of each finding with {basis}."
    yield panel_figure(f"classes-{place}", f"{one.part.title}: by finding", caption, [*one.by_class], [panel])


def _panel(name: str, values: Sequence[Estimate]) -> IntervalPanel:
    """Return the panel of a measure whose axis begins at 0 and shows every interval."""
    ends = [end for one in values for end in (one.value, one.high) if not math.isnan(end)]
    auroc = name.startswith("finding_auroc")
    limits = (0.0, 1.0 if auroc else 1.05 * max(ends, default=0.0) or 1.0)
    return IntervalPanel(
        title=find_measure(name).title, limits=limits, line=0.5 if auroc else None, series={"model": values}
    )


def task_rows(one: PartResult, main_only: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a part's table: each measure of the model, the baselines and under conditions."""
    others = _compared(one)
    header = ["measure", "instances", one.clusters, "model"]
    for title, found in others.items():
        header += [title, "difference" if found in one.conditions.values() else "model − baseline"]
    rows = []
    for name in dict.fromkeys([*one.part.main, *(() if main_only else one.measures)]):
        model = one.measures[name]
        row = [find_measure(name).title, f"{model.n:,}", f"{model.patients:,}", span(model, 3, brief=True)]
        for found in others.values():
            difference = found.difference.get(name)
            row += [span(found.measures[name], 3, brief=True), span(difference, 3, signed=True, brief=True)]
        rows.append(row)
    return header, rows


def _tables(place: int, one: PartResult) -> Iterator[Table]:
    basis = f"{100 * one.protocol.level:g} % confidence intervals (bootstrap over {one.clusters})"
    header, rows = task_rows(one)
    yield _table(f"task-{place}", one.part.title, f"{basis}; protocol {one.protocol.hash}.", header, rows)
    measured: dict[str, Mapping[str, Estimate]] = dict(one.by_class)
    if one.without_cardiomegaly:
        measured[f"all but {CARDIOMEGALY}"] = one.without_cardiomegaly
    if measured and one.part.by_class:
        names = ["model", *one.blind]
        titles = ["finding", "model", *(baselines_of(one.part)[name] for name in one.blind)]
        by_class = [
            [finding, *(span(found[name], 3, brief=True) for name in names)] for finding, found in measured.items()
        ]
        caption = f"{find_measure(one.part.by_class).title} of each finding."
        yield _table(f"classes-{place}", f"{one.part.title}: by finding, table", caption, titles, by_class, folded=True)
    folds = one.boxes.get("folds") or ([one.boxes] if one.boxes.get("scale") else [])
    if folds:
        scaled = sorted({name for fold in folds for name in fold["scale"]})
        titles = ["scale", *(["all"] if len(folds) == 1 else [f"fold {number}" for number in range(len(folds))])]
        settings = [[name or "all boxes", *(f"{fold['scale'].get(name, 1.0):g}" for fold in folds)] for name in scaled]
        settings.append(["NMS", *("–" if fold["nms"] is None else f"{fold['nms']:g}" for fold in folds)])
        caption = f"Tuned on {one.boxes['tuned_on']}."
        yield _table(f"boxes-{place}", "Settings of boxes", caption, titles, settings, folded=True)


def _table(
    name: str, title: str, caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], folded: bool = False
) -> Table:
    columns = [Column(header[0], "text"), *map(Column, header[1:])]
    return Table(name, title, caption, columns, [[*map(Cell, row)] for row in rows], folded=folded)


def _definitions(parts: Sequence[PartResult]) -> Table:
    names = dict.fromkeys(name for one in parts for name in one.measures)
    rows = [
        [one.title, one.meaning, one.better or "neither", range_of(one), ", ".join(one.published)]
        for one in map(find_measure, names)
    ]
    header = ["measure", "meaning", "better", "range", "in papers"]
    return _table("definitions", "Definitions", "Measures on this page.", header, rows)


def range_of(measure: Measure) -> str:
    """Return the range of a measure, such as "0 to 1"."""
    low, high = (f"{end:g}".replace("inf", "∞").replace("-", "−") for end in measure.range)
    return f"{low} to {high}"

"""Lay out the page of an audit of tasks: a section for each part, the model next to the image-blind baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rightlung.audit.blind import BASELINES
from rightlung.audit.page import CONDITION_TITLES
from rightlung.audit.task_results import PartResult
from rightlung.audit.tasks import CARDIOMEGALY
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Page, Section, Table
from rightlung.pages.numbers import span
from rightlung.results.estimate import Estimate
from rightlung.scoring.statistics import FEW_CLUSTERS

BLIND_NOTE = "Image-blind baselines never see the image; only a score above theirs shows that the model uses it."


def make_task_page(result: Mapping[str, Any], parts: Sequence[PartResult], missing: Sequence[str]) -> Page:
    """Return the page of an audit of tasks (see `task_run.audit_tasks`)."""
    sections = [
        Section(f"task-{place}", one.part.title, _paragraphs(one), parts=[*_tables(place, one)])
        for place, one in enumerate(parts)
    ]
    problems = [*missing, *result["problems"]]
    sections += [
        Section("problems", "Left out", items=problems[:50], folded=len(problems) > 5),
        Section("definitions", "Definitions", parts=[_definitions(parts)], folded=True),
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


def _paragraphs(one: PartResult) -> list[str]:
    found = [verdict_of(one)]
    if one.classes:
        found.append(f"Findings: {', '.join(one.classes)}.")
    if one.boxes:
        found.append(f"Boxes: {one.protocol.box_settings}.")
    return [*found, *(f"Undefined: {note}." for note in one.notes[:3])]


def verdict_of(one: PartResult) -> str:
    """Return the first main measure in words, next to the best image-blind baseline."""
    name = next((name for name in one.part.main if one.measures[name].defined), one.part.main[0])
    model, title = one.measures[name], find_measure(name).title
    blind = {base: found.measures[name] for base, found in one.blind.items() if found.measures[name].defined}
    if not model.defined or not blind:
        return f"{title}: {span(model, 3)}."
    best = max(blind, key=lambda base: blind[base].value)
    difference = one.blind[best].difference[name]
    shown = difference.excludes(0.0)
    outcome = "no difference shown" if not shown else "better" if difference.value > 0 else "worse"
    baseline = BASELINES[one.part.method][best]
    return (
        f"{title}: model {span(model, 3)}, {baseline} {span(blind[best], 3)}; difference "
        f"{span(difference, 3, signed=True)}: {outcome}."
    )


def task_rows(one: PartResult, main_only: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a part's table: each measure of the model, the baselines and under conditions."""
    others = {BASELINES[one.part.method][name]: found for name, found in one.blind.items()}
    others |= {CONDITION_TITLES.get(name, name).lower(): found for name, found in one.conditions.items()}
    header = ["measure", "instances", "patients", "model"]
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
    basis = f"{100 * one.protocol.level:g} % confidence intervals (bootstrap over patients)"
    header, rows = task_rows(one)
    yield _table(f"task-{place}", one.part.title, f"{basis}; protocol {one.protocol.hash}.", header, rows)
    measured: dict[str, Mapping[str, Estimate]] = dict(one.by_class)
    if one.without_cardiomegaly:
        measured[f"all but {CARDIOMEGALY}"] = one.without_cardiomegaly
    if measured and one.part.by_class:
        names = ["model", *one.blind]
        titles = ["finding", "model", *(BASELINES[one.part.method][name] for name in one.blind)]
        by_class = [
            [finding, *(span(found[name], 3, brief=True) for name in names)] for finding, found in measured.items()
        ]
        caption = f"{find_measure(one.part.by_class).title} of each finding."
        yield _table(f"classes-{place}", f"{one.part.title}: by finding", caption, titles, by_class)
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
        [find_measure(name).title, find_measure(name).meaning, find_measure(name).better or "neither"] for name in names
    ]
    return _table("definitions", "Definitions", "Measures on this page.", ["measure", "meaning", "better"], rows)

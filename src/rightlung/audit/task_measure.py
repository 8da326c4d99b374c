"""Measuring a part of a task: the model's answers, image-blind baselines beside them, and gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from rightlung.audit.analysis import asked_of
from rightlung.audit.box_gates import box_gates
from rightlung.audit.finding_gates import finding_gates
from rightlung.audit.gates import gate_conditions
from rightlung.audit.index_answers import IndexAnswers
from rightlung.audit.report_gates import (
    gate_of_maps,
    gate_protocol,
    have_report_gates,
    report_gate_conditions,
    report_gates,
    traced,
    words_of,
)
from rightlung.audit.report_pool import ReportPool
from rightlung.audit.report_rows import ReportGate
from rightlung.audit.sentence_maps import written_maps
from rightlung.audit.task_boxes import Tuned
from rightlung.audit.task_gallery import TaskCases
from rightlung.audit.task_known import Known, known_classes, under, wanted, without
from rightlung.audit.task_results import PartResult, part_result
from rightlung.audit.task_run import TaskRun
from rightlung.audit.tasks import TaskPart
from rightlung.measuring import BoxSettings, Protocol, measure
from rightlung.measuring.box_settings import processed
from rightlung.measuring.texts import COPIED_EXEMPLARS, COPIED_NEAREST, further_measures
from rightlung.models.base import Reporter, TracesWords
from rightlung.predictions import Batch, Predictions


def measure_part(run: TaskRun, part: TaskPart, known: Known) -> PartResult | None:
    """Ask, post-process and measure one part; None if the predictions hold no answers for it."""
    asked_for = part.task if part.method == "embed" else part.slug
    gates, not_asked = _gate_conditions(run, part)
    asked = [*dict.fromkeys([*run.conditions, *gates])]
    predictions = run.predictions(part, known, asked, f"predictions-{asked_for}")
    known, unknown = known_classes(part, known, predictions)
    tuned = run.tuned(part, known, predictions) if part.boxes else None
    index = run.index_answers(part, known, predictions)
    part, protocol = _protocol(run, part, known, tuned, index)
    answered = [key for key in predictions.keys() if (key.study, key.query) in known.asked.queries]  # noqa: SIM118
    protocol = replace(protocol, **asked_of((key.condition for key in answered), run.settings.level))
    there = {(key.study, key.query) for key in answered}
    keys = [key for key in known.asked.queries if key in there]
    if not keys:
        return None
    blind = run.blind(part, known)
    added = list(blind.answers(known.asked, known.targets, keys, run.settings.seed))
    pool = ReportPool({})
    if part.method == "embed":
        pool = run.report_pool(part, known, predictions, blind)
        added += pool.corrected(predictions, known.asked.queries)
        if pool.about:
            protocol = replace(protocol, labels=f"{protocol.labels}; {pool.sentence()}")
    if index is not None:
        added += index.predictions(keys)
    conditions = run.conditions if gates and part.method == "report" else None
    given = chain(_answers(predictions, known, tuned, conditions), [Batch.of(added)])
    table = measure(given, known.targets, protocol, candidates=pool.candidates)
    if part.method == "embed":
        table = table.filter(pc.equal(table["target"], part.name))
    if index is not None:
        table = index.with_copied(table)
    answers = table.filter(pc.equal(table["condition"], "none"))
    if not answers.num_rows:
        return None
    if part.method == "classify":
        known, silent = without(part, known, set(known.asked.classes) - set(answers["target"].to_pylist()))
        unknown = sorted({*unknown, *silent})
    if unknown:  # fewer classes are another question
        protocol = replace(protocol, labels=f"{protocol.labels}; without {', '.join(unknown)}")
    run.progress(f"computing intervals: {part.title.lower()}", 0, 1)
    boxes = {} if tuned is None else tuned.as_json()
    uses = None
    if part.method == "ground":
        again = _answers(predictions, known, tuned)
        uses = box_gates(table, again, known.targets, run.settings, run.source, not_asked)
    elif part.has_gates:
        uses = finding_gates(table, run.settings, run.source, not_asked)
    without_gates = pc.invert(pc.is_in(table["condition"], pa.array({*gates} - {*run.conditions}, pa.string())))
    result = part_result(part, protocol, table.filter(without_gates), known.asked.classes, boxes, run.settings)
    cases = TaskCases(part, run.source, known.asked, (tuned or Tuned([BoxSettings()])).of)
    drawn = cases.galleries(table, predictions, part.slug, run.cases)
    result = replace(result, table=table, uses=uses, pool=pool.about, unknown=unknown, galleries=drawn)
    if part.method == "report" and have_report_gates(predictions.rows_by_condition):
        result = replace(result, gates=gates_of_reports(run, known, predictions, protocol))
    return result


def _protocol(
    run: TaskRun, part: TaskPart, known: Known, tuned: Tuned | None, index: IndexAnswers | None
) -> tuple[TaskPart, Protocol]:
    """Return the part with the measures of this run, and its protocol."""
    changes = run.settings.as_options()
    if tuned is not None:
        changes |= {"box_settings": tuned.sentence()}
    if part.method == "report":
        further = (*further_measures(), *(() if index is None else (COPIED_NEAREST, COPIED_EXEMPLARS)))
        changes |= {"measures": (*part.protocol.measures, *further)}
        if index is not None:
            part = replace(part, main=(*part.main, *further))
    protocol = part.protocol.applied_to(known.targets, **changes)
    if part.method == "classify" and run.missing_labels != "unknown":
        protocol = replace(protocol, labels=f"{protocol.labels}; missing labels are {run.missing_labels}")
    if part.task == "probe":
        protocol = replace(protocol, labels=f"{protocol.labels}; {run.probing(part).sentence()}")
    return part, protocol


def _answers(
    predictions: Predictions, known: Known, tuned: Tuned | None, conditions: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield the answers to what is asked, under some conditions or all, with their boxes post-processed."""
    batches = under(predictions.batches(), conditions)
    if tuned is not None:
        patients = {study: labels.patient for (study, _), labels in known.asked.queries.items()}
        batches = processed(batches, lambda study: tuned.of(patients.get(study, "")))
    return wanted(batches, known.asked)


def _gate_conditions(run: TaskRun, part: TaskPart) -> tuple[list[str], dict[str, str]]:
    """Return the conditions that the gates add, and why others are left out."""
    if not run.gates:
        return [], {}
    if part.method == "report":
        return report_gate_conditions(run.what), {}
    return gate_conditions(run.what, run.source, with_words=part.method == "ground")


def gates_of_reports(run: TaskRun, known: Known, predictions: Predictions, protocol: Protocol) -> list[ReportGate]:
    """Measure the reports under all conditions, and return what they depend on."""
    rows = wanted(predictions.batches(), known.asked)
    table = measure(rows, known.targets, gate_protocol(protocol))
    if not isinstance(run.what, TracesWords):
        return report_gates(table, run.settings)
    studies = traced(run.source, table["study"].to_pylist())
    sources = words_of(run.what, studies, run.batch_size, partial(run.progress, "tracing words"))
    gates = report_gates(table, run.settings, sources)
    if isinstance(run.what, Reporter):
        gates.append(gate_of_maps(written_maps(run.what, studies, run.batch_size).table(), run.settings))
    return gates

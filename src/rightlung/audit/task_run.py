"""Audit the tasks that a source has targets for: ask, post-process boxes, measure, compare with image-blind baselines.

Writes ``audit.json`` (every number), ``audit.html`` (the page) and one table of instances for each part of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.asking import Summary, ask
from rightlung.audit.blind import BlindBaselines, baselines_of
from rightlung.audit.finding_gates import finding_gates
from rightlung.audit.gates import gate_conditions
from rightlung.audit.index_answers import IndexAnswers, nearest_writer
from rightlung.audit.report_gates import (
    gate_of_maps,
    gate_protocol,
    have_gates,
    report_conditions,
    report_gates,
    traced,
    words_of,
)
from rightlung.audit.report_pool import ReportPool, asked_of_pool, blind_candidates, report_pool, reports_of
from rightlung.audit.report_rows import ReportGate
from rightlung.audit.run import other_source, source_of
from rightlung.audit.sentence_maps import written_maps
from rightlung.audit.task_gallery import TaskCases
from rightlung.audit.task_page import make_task_page
from rightlung.audit.task_results import PartResult, part_result
from rightlung.audit.tasks import TaskAnswers, TaskPart, asked_of, labelled, parts_of, with_classes
from rightlung.core import Box, InputError, OutputError
from rightlung.core.files import folder_lock
from rightlung.core.progress import Progress, no_progress
from rightlung.generation.reporter import RetrievalReporter
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import BoxSettings, Protocol, Targets, gather_targets, measure, tune_boxes, write_instances
from rightlung.measuring.box_settings import BoxExample, processed
from rightlung.measuring.texts import COPIED_EXEMPLARS, COPIED_NEAREST, further_measures
from rightlung.models.base import Embedder, Reporter, TracesWords
from rightlung.models.blind.prior import FOLDS, fold_of
from rightlung.models.probe import LinearProbe, ProbeSettings, fit_probe
from rightlung.models.similarity_embedder import SimilarityEmbedder
from rightlung.pages.write import write_page
from rightlung.predictions import Batch, Predictions, open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.text_retrieval import TextPool
from rightlung.studies import Source, open_source

Floats = NDArray[np.float64]
CROSS_VALIDATE = "cross-validate"
DEFAULT_BOXES = BoxSettings(nms=0.25)
"""The paper's for all data sets but NIH, whose boxes of a finding are merged (E.2)."""
RESAMPLES = 250
"""Bootstrap resamples (the paper's for sentence grounding, detection and region classification)."""
CASES = 4
WITH_GATES = ("classification", "probe", "detection", "report")
"""Tasks that have gates."""


@dataclass(frozen=True)
class Known:
    """A source, its targets, and what it has for the part at hand."""

    source: Source
    targets: Targets
    asked: TaskAnswers


@dataclass(frozen=True)
class Tuned:
    """The settings of boxes: those of every patient fold, or one for all, and what they were tuned on."""

    folds: Sequence[BoxSettings]
    on: str | None = None
    nms_tuned: bool = False

    def of(self, patient: str) -> BoxSettings:
        """Return the settings for a patient."""
        return self.folds[fold_of(patient, len(self.folds))]

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain values; those of folds in a list."""
        if len(self.folds) == 1:
            return {"tuned_on": self.on, **self.folds[0].as_json()}
        return {"tuned_on": self.on, "folds": [one.as_json() for one in self.folds]}

    def sentence(self) -> str:
        """Say how boxes are post-processed, without what each class was tuned to."""
        first = self.folds[0]
        how = "boxes of a class merged" if first.merge else "no NMS" if first.nms is None else f"NMS at {first.nms:g}"
        if self.on is None:
            return f"{how}; not scaled"
        return f"NMS and scale tuned on {self.on}" if self.nms_tuned else f"{how}; scale tuned on {self.on}"


@dataclass(frozen=True)
class TaskAudit:
    """The output of an audit of tasks; ``result`` is the content of ``audit.json``."""

    folder: Path
    result: dict[str, Any]
    parts: Sequence[PartResult]

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "audit.html"


@dataclass
class TaskRun:
    """Everything that the parts of an audit share."""

    what: Any
    """The model to ask, or the predictions to measure."""
    source: Source
    folder: Path
    name: str | None = None
    conditions: Sequence[str] = ("none",)
    gates: bool = False
    """Whether a model is also asked under the conditions of the gates."""
    boxes: BoxSettings | None = None
    tune: str | None = None
    settings: BootstrapSettings = field(default_factory=lambda: BootstrapSettings(RESAMPLES))
    batch_size: int = 32
    overwrite: bool = False
    cases: int = CASES
    """Number of best, middle and worst cases to draw of each part."""
    train: str | Source | None = None
    """The source that a linear probe learns from."""
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    pool: str | Source | None = None
    """The source whose reports retrieval chooses from, besides those of the audited studies."""
    missing_labels: str = "unknown"
    """Whether a finding that an image's labels lack is ``unknown`` or, if other images have it, ``negative``."""
    progress: Progress = no_progress
    problems: list[str] = field(default_factory=list)
    _targets: dict[str, Targets] = field(default_factory=dict)

    def known(self, part: TaskPart, source: Source) -> Known | None:
        """Return what a source has for a part, None if it lacks the targets."""
        if source.address not in self._targets:
            tell = partial(self.progress, f"reading {source.address}")
            self._targets[source.address] = gather_targets(source, region_labels=True, progress=tell)
        targets = labelled(part, self._targets[source.address], self.missing_labels)
        scheme = source.address.partition(":")[0]
        asked = asked_of(part, targets, scheme)
        if asked is not None and part.method == "detect":
            with_classes(targets, asked.classes)
            asked = replace(asked, queries={key: targets.labels[key[0]] for key in asked.queries})
        return None if asked is None else Known(source, targets, asked)

    def predictions(self, part: TaskPart, known: Known, conditions: Sequence[str], folder: str) -> Predictions:
        """Return the predictions to measure; a model is asked first."""
        if isinstance(self.what, Predictions):
            return self.what
        tell: Callable[[float, int], None] = partial(self.progress, f"asking: {part.title.lower()}")
        try:
            summary: Summary = ask(
                self._model(part, known), known.source, self.folder / folder, conditions, queries=part.queries,
                only=known.asked.queries, method=part.asked_method, findings=known.asked.classes or None,
                model_name=self.name, batch_size=self.batch_size, overwrite=self.overwrite, progress=tell,
            )  # fmt: skip
        except InputError as error:
            raise InputError(f"task {part.task}: {error}") from None
        self.problems += [*map(str, summary.failed), *summary.problems]
        return open_predictions(summary.folder)

    def _model(self, part: TaskPart, known: Known) -> Any:
        """Return the model, made to embed images and texts if retrieval needs that; for a probe, the fitted probe."""
        if part.task == "probe":
            return self._probe(part, known)
        if part.method != "embed" or isinstance(self.what, Embedder):
            return self.what
        other = self._pool_of(part)
        labels = [*known.asked.queries.values(), *(() if other is None else other.asked.queries.values())]
        return SimilarityEmbedder(self.what, [one.report or "" for one in labels])

    def _pool_of(self, part: TaskPart) -> Known | None:
        """Return the pool of reports to retrieve from, None if there is none."""
        if self.pool is None:
            return None
        source = open_source(self.pool) if isinstance(self.pool, str) else self.pool
        known = self.known(part, source)
        if known is None:
            raise InputError(f"--pool {source.address}: the source lacks {part.needs}")
        return known

    def report_pool(self, part: TaskPart, known: Known, predictions: Predictions, blind: BlindBaselines) -> ReportPool:
        """Return the reports to retrieve from; the model embeds those that no audited study has."""
        other = self._pool_of(part)
        if other is None:
            reports = [str(one.report) for one in reports_of(known.asked.queries).values()]
            return ReportPool(blind_candidates(TextPool.of(reports), blind.reports or reports))
        asked, answers = asked_of_pool(known.asked.queries, other.asked.queries), None
        if asked:
            tell: Callable[[float, int], None] = partial(self.progress, "asking: embeddings of the pool")
            summary = ask(
                self._model(part, known), other.source, self.folder / "predictions-retrieval-pool",
                queries=part.queries, only=asked, method=part.asked_method, model_name=self.name,
                batch_size=self.batch_size, overwrite=self.overwrite, progress=tell,
            )  # fmt: skip
            self.problems += [*map(str, summary.failed), *summary.problems]
            answers = open_predictions(summary.folder)
        own = known.asked.queries, predictions
        return report_pool(other.source.address, own, (other.asked.queries, answers), self.problems)

    def _probing(self, part: TaskPart) -> ProbeSettings:
        return replace(self.probe, share=part.share)

    def _probe(self, part: TaskPart, known: Known) -> LinearProbe:
        """Return a linear probe of the model, fitted on the training source."""
        assert self.train is not None, "checked before"
        source = open_source(self.train) if isinstance(self.train, str) else self.train
        taught = self.known(part, source)
        if taught is None:
            raise InputError(f"{source.address} lacks {part.needs}")
        here, there = ({one.patient for one in some.asked.queries.values()} for some in (known, taught))
        if here & there:
            raise InputError(
                f"patient {min(here & there)!r} is both in {source.address} and in {known.source.address}: a probe "
                "must be measured on other patients than it learns from"
            )
        classes = tuple(name for name in known.asked.classes if name in taught.asked.classes)
        if not classes:
            raise InputError(f"{source.address} and {known.source.address} have no finding in common")
        tell = partial(self.progress, "asking: embeddings of the training images")
        summary = ask(
            self.what, source, self.folder / "embeddings-probe-train", queries=("image",), only=taught.asked.queries,
            method="embed", model_name=self.name, batch_size=self.batch_size, overwrite=self.overwrite, progress=tell,
        )  # fmt: skip
        weights = fit_probe(
            *labelled_embeddings(open_predictions(summary.folder), taught, classes), self._probing(part)
        )
        among = f"among the labels of {source.address} that it learns from"
        self.problems += [f"{part.title}: {name} has one class only {among}" for name in weights.left_out]
        return LinearProbe(self.what, weights)

    def index_answers(self, part: TaskPart, known: Known, predictions: Predictions) -> IndexAnswers | None:
        """Return what to compare the reports of an index with; None for other models and tasks."""
        if part.method != "report" or not isinstance(self.what, RetrievalReporter):
            return None
        if self.what.settings.writer != "nearest":
            tell: Callable[[float, int], None] = partial(self.progress, "asking: nearest reports of the index")
            summary = ask(
                nearest_writer(self.what), known.source, self.folder / "predictions-report-nearest",
                queries=part.queries, only=known.asked.queries, method=part.asked_method,
                model_name=f"{self.name} (nearest)", batch_size=self.batch_size, overwrite=self.overwrite,
                progress=tell,
            )  # fmt: skip
            predictions = open_predictions(summary.folder)
        return IndexAnswers.of(self.what, predictions)

    def tuned(self, part: TaskPart, known: Known, predictions: Predictions) -> Tuned:
        """Return the settings of boxes, tuned where that was asked for."""
        if self.tune is None:
            return Tuned([self.boxes or DEFAULT_BOXES])
        if self.tune == CROSS_VALIDATE:
            examples = box_examples(part, known, predictions)
            folds = np.array([fold_of(one.patient, FOLDS) for one in examples])
            used = folds[None] != np.arange(FOLDS)[:, None]
            on = f"other patients of the same source, cross-validated over {FOLDS} folds"
            return Tuned(tune_boxes(examples, used, self.boxes), on, self.boxes is None)
        other = self.known(part, open_source(self.tune))
        if other is None:
            raise InputError(f"--tune {self.tune}: the source lacks {part.needs}, which {part.task} is tuned on")
        self.check_other_patients(known, other)
        answers = self.predictions(part, other, ["none"], f"tuning-{part.slug}")
        examples = box_examples(part, other, answers)
        found = tune_boxes(examples, np.ones((1, len(examples)), bool), self.boxes)
        return Tuned(found, other.source.address, self.boxes is None)

    def check_other_patients(self, known: Known, other: Known) -> None:
        """List patients that are both tuned on and measured as a problem."""
        here, there = ({one.patient for one in some.asked.queries.values()} for some in (known, other))
        if here & there:
            self.problems.append(
                f"{len(here & there):,} patients of {known.source.address} are also in {other.source.address}, on "
                "which boxes were tuned: the scores are too high"
            )

    def measured(self, part: TaskPart, known: Known) -> PartResult | None:
        """Ask, post-process and measure one part; None if the predictions hold no answers for it."""
        asked_for = part.task if part.method == "embed" else part.slug
        gates, not_asked = self.gate_conditions(part)
        asked = [*dict.fromkeys([*self.conditions, *gates])]
        predictions = self.predictions(part, known, asked, f"predictions-{asked_for}")
        known, unknown = _known_classes(part, known, predictions)
        patients = {study: labels.patient for (study, _), labels in known.asked.queries.items()}
        batches: Iterable[Batch] = _under(
            predictions.batches(), self.conditions if gates and part.method == "report" else None
        )
        tuned = self.tuned(part, known, predictions) if part.boxes else None
        changes = self.settings.as_options()
        if tuned is not None:
            batches = processed(batches, lambda study: tuned.of(patients.get(study, "")))
            changes |= {"box_settings": tuned.sentence()}
        index = self.index_answers(part, known, predictions)
        if part.method == "report":
            copied = () if index is None else (COPIED_NEAREST, COPIED_EXEMPLARS)
            changes |= {"measures": (*part.protocol.measures, *further_measures(), *copied)}
            if index is not None:
                part = replace(part, main=(*part.main, *further_measures(), *copied))
        protocol = part.protocol.applied_to(known.targets, **changes)
        if part.method == "classify" and self.missing_labels != "unknown":
            protocol = replace(protocol, labels=f"{protocol.labels}; missing labels are {self.missing_labels}")
        if part.task == "probe":
            protocol = replace(protocol, labels=f"{protocol.labels}; {self._probing(part).sentence()}")
        answered = {(key.study, key.query) for key in predictions.keys()}  # noqa: SIM118  (not a mapping)
        keys = [key for key in known.asked.queries if key in answered]
        if not keys:
            return None
        blind = self.blind(part, known)
        added = list(blind.answers(known.asked, known.targets, keys, self.settings.seed))
        pool = ReportPool({})
        if part.method == "embed":
            pool = self.report_pool(part, known, predictions, blind)
            added += pool.corrected(predictions, known.asked.queries)
            if pool.about:
                protocol = replace(protocol, labels=f"{protocol.labels}; {pool.sentence()}")
        if index is not None:
            added += index.predictions(keys)
        given = chain(_wanted(batches, known.asked), [Batch.of(added)])
        table = measure(given, known.targets, protocol, candidates=pool.candidates)
        if part.method == "embed":
            table = table.filter(pc.equal(table["target"], part.name))
        if index is not None:
            table = index.with_copied(table)
        answers = table.filter(pc.equal(table["condition"], "none"))
        if not answers.num_rows:
            return None
        if part.method == "classify":
            known, silent = _without(part, known, set(known.asked.classes) - set(answers["target"].to_pylist()))
            unknown = sorted({*unknown, *silent})
        if unknown:  # fewer classes are another question
            protocol = replace(protocol, labels=f"{protocol.labels}; without {', '.join(unknown)}")
        self.progress(f"computing intervals: {part.title.lower()}", 0, 1)
        boxes = {} if tuned is None else tuned.as_json()
        uses = finding_gates(table, self.settings, self.source, not_asked) if part.query == "image" else None
        without_gates = pc.invert(pc.is_in(table["condition"], pa.array({*gates} - {*self.conditions}, pa.string())))
        result = part_result(part, protocol, table.filter(without_gates), known.asked.classes, boxes, self.settings)
        result = replace(result, table=table, uses=uses)
        cases = TaskCases(part, self.source, known.asked, (tuned or Tuned([BoxSettings()])).of)
        result = replace(result, pool=pool.about)
        if part.method == "report" and have_gates(predictions.rows_by_condition):
            result = replace(result, gates=self.report_gates(known, predictions, protocol))
        return replace(result, unknown=unknown, galleries=cases.galleries(table, predictions, part.slug, self.cases))

    def gate_conditions(self, part: TaskPart) -> tuple[list[str], dict[str, str]]:
        """Return the conditions that the gates add, and why others are left out."""
        if self.gates and part.method == "report":
            return report_conditions(self.what), {}
        if self.gates and part.query == "image" and part.method in ("classify", "detect"):
            return gate_conditions(self.what, self.source, with_words=False)
        return [], {}

    def report_gates(self, known: Known, predictions: Predictions, protocol: Protocol) -> list[ReportGate]:
        """Measure the reports under all conditions, and return what they depend on."""
        rows = _wanted(predictions.batches(), known.asked)
        table = measure(rows, known.targets, gate_protocol(protocol))
        if not isinstance(self.what, TracesWords):
            return report_gates(table, self.settings)
        studies = traced(self.source, table["study"].to_pylist())
        sources = words_of(self.what, studies, self.batch_size, partial(self.progress, "tracing words"))
        gates = report_gates(table, self.settings, sources)
        if isinstance(self.what, Reporter):
            gates.append(gate_of_maps(written_maps(self.what, studies, self.batch_size).table(), self.settings))
        return gates

    def blind(self, part: TaskPart, known: Known) -> BlindBaselines:
        """Return the baselines, fitted on the tuning source or on other patients of the same source."""
        if self.tune not in (None, CROSS_VALIDATE):
            other = self.known(part, open_source(str(self.tune)))
            if other is not None:
                return BlindBaselines(part, other.asked, other.targets, elsewhere=True)
        return BlindBaselines(part, known.asked, known.targets, elsewhere=False)


def labelled_embeddings(
    predictions: Predictions, known: Known, classes: Sequence[str]
) -> tuple[Floats, Floats, list[str], tuple[str, ...]]:
    """Return embeddings (n, dimension) of images, labels (n, classes; NaN: unknown), patients, and the classes."""
    features, truth, patients = [], [], []
    for one in (one for batch in predictions.batches() for one in batch.predictions()):
        labels = known.asked.queries.get((one.study, one.query))
        if labels is None or one.image_embedding is None:
            continue
        polarities = {canonical_finding(name): polarity for name, polarity in labels.findings.items()}
        features.append(one.image_embedding)
        truth.append([{"positive": 1.0, "negative": 0.0}.get(polarities.get(name, ""), np.nan) for name in classes])
        patients.append(labels.patient)
    return np.array(features, np.float64), np.array(truth), patients, tuple(classes)


def _known_classes(part: TaskPart, known: Known, predictions: Predictions) -> tuple[Known, Sequence[str]]:
    """Return what to measure without the findings that the model does not know, and these.

    The notes of the predictions list the findings that were asked for; without notes, all were.
    """
    noted = [run["findings"] for run in predictions.runs if "findings" in run]
    asked = {canonical_finding(str(name)) for names in noted if isinstance(names, Sequence) for name in names}
    return _without(part, known, set(known.asked.classes) - asked if noted else set())


def _without(part: TaskPart, known: Known, unknown: set[str]) -> tuple[Known, Sequence[str]]:
    """Return what to measure without some classes, and these in order."""
    if not unknown:
        return known, ()
    classes = tuple(name for name in known.asked.classes if name not in unknown)
    if part.method == "detect":
        with_classes(known.targets, classes)
    return replace(known, asked=replace(known.asked, classes=classes)), sorted(unknown)


def _baselines(parts: Iterable[TaskPart]) -> dict[str, dict[str, str]]:
    """Return the titles of the baselines of some parts, by method."""
    titles: dict[str, dict[str, str]] = {}
    for part in parts:
        titles.setdefault(part.method, {}).update(baselines_of(part))
    return titles


def _wanted(batches: Iterable[Batch], asked: TaskAnswers) -> Iterator[Batch]:
    """Yield the rows of batches whose queries are asked."""
    for batch in batches:
        places = [place for place, key in enumerate(batch.keys) if (key.study, key.query) in asked.queries]
        if places:
            yield batch.chosen(places)


def _under(batches: Iterable[Batch], conditions: Sequence[str] | None) -> Iterator[Batch]:
    """Yield the rows of batches under some conditions; None: under all."""
    for batch in batches:
        places = [n for n, key in enumerate(batch.keys) if conditions is None or key.condition in conditions]
        if places:
            yield batch.chosen(places)


def box_examples(part: TaskPart, known: Known, predictions: Predictions) -> list[BoxExample]:
    """Return predicted and target boxes of each finding of each image, or of each phrase."""
    found = []
    for one in (one for batch in predictions.batches() for one in batch.predictions()):
        labels = known.asked.queries.get((one.study, one.query))
        if labels is None or one.grounding is None or one.condition != "none":
            continue
        boxes = one.grounding.boxes
        if part.method == "ground":
            corners = known.targets.phrases[one.study, one.query].boxes
            found.append(BoxExample(labels.patient, "", boxes, [Box(*some) for some in corners]))
        for name in known.asked.classes:
            own = [box for box in boxes if box.label and canonical_finding(box.label) == name]
            targets = [Box(*some) for some in labels.boxes.get(name, ())]
            found.append(BoxExample(labels.patient, name, own, targets))
    if not found:
        raise InputError(f"{predictions.path}: there are no boxes to tune the task {part.task} on")
    return found


def audit_tasks(
    what: object,
    source: str | Source | None,
    out: str | Path,
    tasks: Sequence[str],
    **options: Any,
) -> TaskAudit:
    """Audit tasks of a model, or of predictions, on a source; write the numbers, the page and the instances.

    Without a ``source``, it is the one that the predictions name. ``options`` are the fields of `TaskRun`. A part that
    the source lacks the targets for is named in the result; it is an error if it lacks those of all tasks.
    """
    if isinstance(what, Predictions):
        studies = source_of(what, source)
    elif source is None:
        raise InputError("to audit a model, also give the source of the studies to ask it about")
    else:
        studies = open_source(source) if isinstance(source, str) else source
    folder = Path(out)
    run = TaskRun(what, studies, folder, **options)
    _check(run, parts_of(tasks))
    with folder_lock(folder, OutputError(f"{folder}: another audit is writing to this folder; choose another --out")):
        found: list[PartResult] = []
        missing: dict[str, str] = {}
        for part in parts_of(tasks):
            known = run.known(part, studies)
            if known is None:
                missing[part.slug] = f"{part.title}: not measured, because {studies.address} lacks {part.needs}"
            elif (done := run.measured(part, known)) is None:
                missing[part.slug] = f"{part.title}: not measured, because the predictions hold no answers for it"
            else:
                found.append(done)
        warnings = other_source(what, studies) if isinstance(what, Predictions) else []
        if not found:
            raise InputError("; ".join([*missing.values(), *warnings]))
        result = _result(run, found, missing) | {"warnings": warnings}
        page = make_task_page(result, found, [*missing.values()])
        tables: dict[str, Any] = {
            f"instances-{one.part.slug}.parquet": partial(
                write_instances, table=one.table, protocol=one.protocol, model=result["model"] or ""
            )
            for one in found
        }
        write_page(page, folder, html="audit.html", json_name="audit.json", data=result, further=tables)
    return TaskAudit(folder, result, found)


def _check(run: TaskRun, parts: Sequence[TaskPart]) -> None:
    """Raise an error for options that do not fit the tasks, or need a model."""
    if run.tune == run.source.address:
        raise InputError("boxes must not be tuned on the studies that are measured: use --tune cross-validate")
    if isinstance(run.what, Predictions) and run.tune not in (None, CROSS_VALIDATE):
        raise InputError(
            f"--tune {run.tune} needs a model to ask about it; with predictions, use --tune cross-validate"
        )
    probed = any(part.task == "probe" for part in parts)
    if probed and isinstance(run.what, Predictions):
        raise InputError("--task probe needs a model whose embeddings it learns from, not predictions")
    if probed and run.train is None:
        raise InputError("--task probe needs images to learn from: give their source by --train")
    if run.pool is not None and not any(part.method == "embed" for part in parts):
        raise InputError("--pool applies to --task retrieval only: also give that task")
    if run.pool is not None and isinstance(run.what, Predictions):
        raise InputError("--pool needs a model that embeds the pool's reports, not predictions")
    for task in dict.fromkeys(part.task for part in parts) if run.gates else ():
        if task not in WITH_GATES:
            raise InputError(f"--gates applies to {', '.join(WITH_GATES)} and heatmaps (without --task), not to {task}")


def _address(source: str | Source | None) -> str | None:
    return source.address if isinstance(source, Source) else source


def _result(run: TaskRun, found: Sequence[PartResult], missing: Mapping[str, str]) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for one in found:
        if one.part.name == one.part.task:
            tasks[one.part.task] = one.as_json()
        else:
            tasks.setdefault(one.part.task, {})[one.part.name] = one.as_json()
    rows = [row for one in found for row in one.table.select(["study", "patient"]).to_pylist()]
    model = run.what.model if isinstance(run.what, Predictions) else run.name
    result = {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "model": model,
        "source": run.source.address,
        "tune": run.tune,
        "train": _address(run.train),
        "pool": _address(run.pool),
        "counts": {"studies": len({row["study"] for row in rows}), "patients": len({row["patient"] for row in rows})},
        "tasks": tasks,
        "missing": dict(missing),
        "baselines": _baselines(one.part for one in found),
        "problems": [*dict.fromkeys([*run.problems, *map(str, run.source.problems)])],
    }
    return result | ({"map": tasks["detection"]["map"]} if "detection" in tasks else {})

"""Asking for an audit of tasks: the settings of a run, what its source has, and the answers of its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rightlung.asking import Summary, ask
from rightlung.audit.blind import BlindBaselines
from rightlung.audit.index_answers import IndexAnswers, nearest_writer
from rightlung.audit.report_pool import ReportPool, asked_of_pool, blind_candidates, report_pool, reports_of
from rightlung.audit.task_boxes import DEFAULT_BOXES, Tuned, cross_validated, tuned_on
from rightlung.audit.task_known import Known
from rightlung.audit.task_probe import fitted_probe
from rightlung.audit.tasks import TaskPart, asked_of, labelled, with_classes
from rightlung.core import InputError
from rightlung.core.progress import Progress, no_progress
from rightlung.generation.reporter import RetrievalReporter
from rightlung.measuring import BoxSettings, Targets, gather_targets
from rightlung.models.base import Embedder
from rightlung.models.probe import ProbeSettings
from rightlung.models.similarity_embedder import SimilarityEmbedder
from rightlung.predictions import Predictions, open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.text_retrieval import TextPool
from rightlung.studies import Source, open_source

CROSS_VALIDATE = "cross-validate"
RESAMPLES = 250
"""Bootstrap resamples (the paper's for sentence grounding, detection and region classification)."""
CASES = 4


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
            return fitted_probe(self, part, known)
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

    def probing(self, part: TaskPart) -> ProbeSettings:
        """Return the settings of the linear probe of a part."""
        return replace(self.probe, share=part.share)

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
            return cross_validated(part, known, predictions, self.boxes)
        other = self.known(part, open_source(self.tune))
        if other is None:
            raise InputError(f"--tune {self.tune}: the source lacks {part.needs}, which {part.task} is tuned on")
        self.check_other_patients(known, other)
        answers = self.predictions(part, other, ["none"], f"tuning-{part.slug}")
        return tuned_on(part, other, answers, self.boxes)

    def check_other_patients(self, known: Known, other: Known) -> None:
        """List patients that are both tuned on and measured as a problem."""
        here, there = ({one.patient for one in some.asked.queries.values()} for some in (known, other))
        if here & there:
            self.problems.append(
                f"{len(here & there):,} patients of {known.source.address} are also in {other.source.address}, on "
                "which boxes were tuned: the scores are too high"
            )

    def blind(self, part: TaskPart, known: Known) -> BlindBaselines:
        """Return the baselines, fitted on the tuning source or on other patients of the same source."""
        if self.tune not in (None, CROSS_VALIDATE):
            other = self.known(part, open_source(str(self.tune)))
            if other is not None:
                return BlindBaselines(part, other.asked, other.targets, elsewhere=True)
        return BlindBaselines(part, known.asked, known.targets, elsewhere=False)

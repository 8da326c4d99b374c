"""Ask a model about a source under every condition, and write or stream what it answers.

The source is gone through in windows (`rightlung.probes.windows`). The questions of a window are sorted by the image
they are about, so that each image is loaded once, and a model that is handed the same array again can encode it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rightlung import __version__
from rightlung.asking.answerer import Answerer, NoAnswer
from rightlung.asking.finished import FinishedStudies
from rightlung.asking.protocols import Shown
from rightlung.asking.questions import QUERIES, Question, questions_of
from rightlung.asking.summary import Summary, summarise
from rightlung.core import Image, InputError, Query, Study
from rightlung.core.errors import unknown_name
from rightlung.core.study import check_image
from rightlung.explain.boxes import BoxRule
from rightlung.models.base import FindingClassifier
from rightlung.models.fingerprint import weights_digest
from rightlung.predictions import Batch, DoneKeys, Key, Prediction, PredictionWriter, open_predictions
from rightlung.predictions.prediction import ANSWERS
from rightlung.probes import Owner, Probe, SentencePool, Setting, exchanged, exchanged_outside, find_probe, windows
from rightlung.studies import Source, build_studies, open_source

Progress = Callable[[float, int], None]
"""Called with the studies that are done (the one under way by its share) and how many there are."""

GIVE_UP_AFTER = 20
"""Questions that may go unanswered, before any was answered, until the model is taken to be broken."""

_ROWS_AT_ONCE, _CELLS_AT_ONCE, _SECONDS_PER_FLUSH = 1000, 1 << 22, 60.0


def ask(
    model: object,
    source: Source | str,
    out: str | Path,
    conditions: Sequence[str] = ("none",),
    *,
    queries: Sequence[str] | None = None,
    findings: Sequence[str] | None = None,
    embeddings: bool = False,
    batch_size: int = 32,
    model_name: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    boxes: BoxRule | None = None,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Ask ``model`` about the first ``limit`` studies of ``source`` and write a predictions folder, or go on with one.

    Parameters
    ----------
    conditions
        Names of probes.
    queries
        What to ask about every study: ``phrases``, ``image``, ``regions``; by default all that the model can answer.
    findings, embeddings, batch_size, boxes
        As `Answerer` has them.

    What is done is kept, whatever ends the call, and the next call goes on; rows are the same however often that
    happens and whatever the batch size. A question without an answer becomes a row with the reason, and a study that
    cannot be read is named in ``problems``.
    """
    answerer = Answerer(model, batch_size, boxes, findings, embeddings)
    run = _Run.open(answerer, source, conditions, queries, seed, limit, progress)
    name = model_name or str(getattr(model, "name", None) or type(model).__name__)
    notes = {
        "made_by": f"rightlung {__version__}", "seed": seed, "weights": weights_digest(model),
        "embeddings": embeddings,
    }  # fmt: skip
    if isinstance(model, FindingClassifier) and {"image", "regions"} & {*run.queries}:
        notes["findings"] = list(answerer.findings)
    written = flushed = 0
    with PredictionWriter(out, source=run.source.address, model=name, run=notes) as writer:
        _check_earlier_runs(writer, notes)
        pairs = [f"{query} {probe.name}" for query in run.queries for probe in run.probes]
        finished = FinishedStudies(writer.folder, pairs, len(writer.done))
        waiting: list[str] = []
        since = time.monotonic()
        for stretch, wanted in run.stretches():
            todo = [position for position in wanted if run.source.ids[position] not in finished]
            for row in run.rows(stretch, todo, writer):
                writer.write(row)
                written += 1
            waiting += [study for study in map(run.source.ids.__getitem__, todo) if study not in run.problems]
            if written - flushed >= _ROWS_AT_ONCE or time.monotonic() - since >= _SECONDS_PER_FLUSH:
                if not run.held:
                    writer.flush()
                    finished.add(waiting, len(writer.done) + written)
                    waiting = []
                flushed, since = written, time.monotonic()
        for row in run.release():
            writer.write(row)
            written += 1
        writer.flush()
        finished.add(waiting, len(writer.done) + written)
        if not written and not writer.done:
            run.check_not_empty()
    return summarise(
        writer.folder,
        model=name,
        source=run.source.address,
        studies=run.total,
        written=written,
        problems=[*map(str, run.source.problems), *run.problems.values()],
        notes=[] if answerer.note is None else [answerer.note],
    )


def answers(
    model: object,
    source: Source | str,
    conditions: Sequence[str] = ("none",),
    *,
    queries: Sequence[str] | None = None,
    findings: Sequence[str] | None = None,
    embeddings: bool = False,
    batch_size: int = 32,
    seed: int = 0,
    limit: int | None = None,
    boxes: BoxRule | None = None,
    problems: dict[str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> Iterator[Batch]:
    """Yield the rows that `ask` would write, without a file; studies that cannot be read go to ``problems``."""
    answerer = Answerer(model, batch_size, boxes, findings, embeddings)
    run = _Run.open(answerer, source, conditions, queries, seed, limit, progress)
    run.problems = {} if problems is None else problems
    return _batches(run)


def _batches(run: _Run) -> Iterator[Batch]:
    some: list[Prediction] = []
    cells, empty = 0, True
    for row in run.all_rows():
        some.append(row)
        heatmap = None if row.grounding is None else row.grounding.heatmap
        cells += 0 if heatmap is None else heatmap.values.size
        if len(some) >= _ROWS_AT_ONCE or cells >= _CELLS_AT_ONCE:
            yield Batch.of(some)
            some, cells, empty = [], 0, False
    if some:
        yield Batch.of(some)
    elif empty:
        run.check_not_empty()


@dataclass(slots=True)
class _Run:
    answerer: Answerer
    source: Source
    probes: Sequence[Probe]
    queries: Sequence[str]
    seed: int
    total: int
    progress: Progress
    problems: dict[str, str] = field(default_factory=dict)
    held: list[Prediction] = field(default_factory=list)
    """Rows without an answer, kept back until something was answered: a broken model must not fill a file."""
    answered: bool = False

    @classmethod
    def open(
        cls,
        answerer: Answerer,
        source: Source | str,
        conditions: Sequence[str],
        queries: Sequence[str] | None,
        seed: int,
        limit: int | None,
        progress: Progress,
    ) -> _Run:
        opened = open_source(source) if isinstance(source, str) else source
        for names, what in ((conditions, "conditions"), (queries, "queries")):
            if isinstance(names, str) or (names is not None and not names):
                raise InputError(f"{what} must be a list of at least one name; got {names!r}")
        probes = [find_probe(name) for name in dict.fromkeys(conditions)]
        if limit is not None and limit < 1:
            raise InputError(f"limit must be at least 1; got {limit}")
        chosen = answerer.queries if queries is None else tuple(name for name in QUERIES if name in queries)
        for name in queries or ():
            if name not in QUERIES:
                raise unknown_name("query", name, QUERIES)
            if name not in answerer.queries:
                model, known = type(answerer.model).__name__, ", ".join(answerer.queries)
                raise InputError(f"{model} cannot answer queries about {name}; it answers those about {known}")
        total = len(opened) if limit is None else min(limit, len(opened))
        return cls(answerer, opened, probes, chosen, seed, total, progress)

    def stretches(self) -> Iterator[tuple[range, range]]:
        """Yield the windows of the source, each with the positions in it that are wanted."""
        for stretch in windows(len(self.source)):
            wanted = range(stretch.start, min(stretch.stop, self.total))
            if not wanted:
                break
            yield stretch, wanted
            self.progress(wanted.stop, self.total)

    def all_rows(self) -> Iterator[Prediction]:
        for stretch, wanted in self.stretches():
            yield from self.rows(stretch, wanted, DoneKeys())
        yield from self.release()

    def rows(self, stretch: range, todo: Sequence[int], done: Container[Key]) -> Iterator[Prediction]:
        """Ask all that is not done about some studies of a window."""
        if not todo:
            return
        partner = any(probe.needs_partner for probe in self.probes)
        sentences = any(probe.needs_sentences for probe in self.probes)
        built = build_studies(self.source, stretch if partner or sentences else todo, self.problems)
        partners = self._partners(stretch, list(built.values())) if partner else {}
        pool = self._sentences(list(built.values()), partners) if sentences else SentencePool()
        setting = Setting(self.seed, partners, pool)
        by_image: dict[str, list[Question]] = {study.id: [] for study in built.values()}
        for study in (built[position] for position in todo if position in built):
            try:
                for question in list(questions_of(study, self.queries, self.probes, setting, done)):
                    by_image.setdefault(question.image_of or study.id, []).append(question)
            except UnicodeEncodeError as error:  # an id that no file can hold
                self.problems[study.id] = f"study {study.id!r} cannot be written as UTF-8 ({error.reason})"
        at_hand = {study.id: study for study in built.values()}
        count, asked = sum(map(len, by_image.values())), 0
        batch: list[Shown] = []
        for image_of, group in by_image.items():
            for shown in self._with_images(at_hand.get(image_of), image_of, group):
                if isinstance(shown, Prediction):
                    yield shown
                    continue
                batch.append(shown)
                if len(batch) >= self.answerer.batch_size:
                    yield from self._ask(batch)
                    asked += len(batch)
                    batch = []
                    share = asked / count * min(len(stretch), self.total - stretch.start)
                    self.progress(stretch.start + share, self.total)
        yield from self._ask(batch)

    def _partners(self, stretch: range, studies: list[Study]) -> dict[str, str]:
        owners = [Owner(study.id, study.patient) for study in studies]
        if not owners:
            return {}
        beyond = (
            Owner(study.id, study.patient)
            for position in (*range(stretch.stop, len(self.source)), *range(stretch.start))
            for study in build_studies(self.source, [position], self.problems).values()
        )
        found = exchanged(owners, self.seed) or exchanged_outside(owners, beyond, self.seed)
        if found is None:
            probe = next(probe for probe in self.probes if probe.needs_partner)
            what = "sentences" if probe.needs_sentences else "images"
            raise InputError(
                f"the condition {probe.name} needs {what} of two patients, but all of {self.source.address} are of "
                "one; leave it out and name the others"
            )
        return found

    def _sentences(self, studies: list[Study], partners: Mapping[str, str]) -> SentencePool:
        """Gather the sentences of a window, and of the partners from beyond it where one patient has most of it."""
        here = {study.id for study in studies}
        lent = sorted({partner for partner in partners.values() if partner not in here})
        return SentencePool.of(studies, map(self.source.study, lent))

    def _with_images(self, study: Study | None, image_of: str, group: list[Question]) -> Iterator[Shown | Prediction]:
        """Yield questions with their image and its regions, or the row of one whose image cannot be had.

        The image is the same array each time, and no longer kept than needed.
        """
        if not group:
            return
        if not self.answerer.needs_images:
            yield from (Shown(question, None, {}) for question in group)
            return
        try:
            owner = study or self.source.study(image_of)
            image = _loaded(owner.load, f"study {image_of!r}")
        except InputError as error:
            yield from (_without_image(question, image_of, error) for question in group)
            return
        for question in group:
            try:
                shown = image
                if question.alter is not None:
                    shown = _loaded(partial(question.alter, image), f"study {image_of!r}, changed")
                yield Shown(question, shown, owner.regions)
            except InputError as error:
                yield _without_image(question, image_of, error)

    def _ask(self, batch: Sequence[Shown]) -> Iterator[Prediction]:
        found = self.answerer.answers(*(list(part) for part in zip(*batch, strict=True))) if batch else []
        for (question, _, _), answer in zip(batch, found, strict=True):
            if isinstance(answer, NoAnswer):
                yield from self._hold(_failed(question, answer.reason))
                continue
            try:
                row = Prediction(*question.key, question.query, **{name: getattr(answer, name) for name in ANSWERS})
            except InputError as error:  # a similarity that is no number, a text that no file can hold
                yield from self._hold(_failed(question, str(error)))
                continue
            yield from self.release()
            yield row

    def _hold(self, row: Prediction) -> Iterator[Prediction]:
        if self.answered:
            yield row
            return
        self.held.append(row)
        if len(self.held) >= GIVE_UP_AFTER:
            raise InputError(
                f"the model answered none of the first {len(self.held)} questions; the first failed with: "
                f"{self.held[0].error}"
            )

    def release(self) -> Iterator[Prediction]:
        """Yield the rows that were kept back."""
        self.answered = True
        held, self.held = self.held, []
        yield from held

    def check_not_empty(self) -> None:
        """Refuse a source that has nothing to ask about, unless its problems say why."""
        if not self.problems:
            what = " or ".join(QUERIES[name] for name in self.queries).replace("box", "region")
            raise InputError(f"none of the {self.total:,} studies of {self.source.address} has a {what} to ask about")


def _loaded(load: Callable[[], Image], what: str) -> Image:
    """Load an image, whatever goes wrong. Not by `Study.image`, which keeps it: a window of them may be gigabytes."""
    try:
        return check_image(load(), what)
    except InputError:
        raise
    except Exception as error:  # a loader may be anybody's
        raise InputError(f"{what}: {type(error).__name__}: {error}") from None


def _without_image(question: Question, image_of: str, error: InputError) -> Prediction:
    lent = "" if image_of == question.key.study else f"the image of study {image_of!r}, shown instead: "
    return _failed(question, f"{lent}{error}")


def _failed(question: Question, reason: str) -> Prediction:
    text = question.query.phrase
    phrase = None if text is None else text.encode("utf-8", "backslashreplace").decode()
    return Prediction.failed(*question.key, Query(phrase, question.query.box), reason)


def _check_earlier_runs(writer: PredictionWriter, notes: Mapping[str, Any]) -> None:
    if not len(writer.done):
        return
    differences = {
        "seed": "another seed",
        "weights": "a model of the same name but with other weights",
        "findings": "other findings",
        "embeddings": "another choice of embeddings",
    }
    for earlier in open_predictions(writer.folder).runs:
        for name, what in differences.items():
            if name in earlier and name in notes and earlier[name] != notes[name]:
                raise InputError(
                    f"{writer.folder}: holds predictions of {what} ({earlier[name]}, now {notes[name]}); "
                    "choose another folder"
                )

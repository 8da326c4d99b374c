"""Ask a model about a source under every condition, and write or stream its answers.

The questions of a window are sorted by image, so that each image is loaded once and a model can encode it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rightlung import __version__
from rightlung.asking.answerer import DEFAULT_BOXES, Answerer, NoAnswer, check_not_broken
from rightlung.asking.fingerprint import code_fingerprint
from rightlung.asking.folder import FinishedStudies, Summary, count_rows
from rightlung.asking.protocols import ImageQuestion, Regions
from rightlung.asking.questions import Question, Walk
from rightlung.core import Image, InputError, Query
from rightlung.core.study import Study, check_image
from rightlung.explain.boxes import BoxRule
from rightlung.models.base import Detector, FindingClassifier
from rightlung.models.folder import weights_digest
from rightlung.predictions import Batch, DoneKeys, Key, Prediction, PredictionWriter
from rightlung.predictions.parts import Part
from rightlung.predictions.writer import OTHERWISE
from rightlung.studies import Source
from rightlung.studies.plausibility import check_plausible
from rightlung.studies.sources import absolute_address

Progress = Callable[[float, int], None]
"""Called with the number of finished studies (a fraction for the current one) and the total."""

_ROWS_AT_ONCE, _CELLS_AT_ONCE, _SECONDS_PER_FLUSH = 1000, 1 << 22, 60.0
_NO_REGIONS: Regions = {}
_MUST_AGREE = {
    "code": "a model whose code has changed",
    "weights": "a model of the same name but with other weights",
    "seed": "another seed",
    "findings": "other findings",
    "embeddings": "another choice of embeddings",
    "method": "another method of the model",
}
"""What two runs into one folder must have in common, and how errors call a difference."""


def ask(
    model: object,
    source: Source | str,
    out: str | Path,
    conditions: Sequence[str] = ("none",),
    *,
    queries: Sequence[str] | None = None,
    only: Container[tuple[str, str]] | None = None,
    method: str | None = None,
    findings: Sequence[str] | None = None,
    embeddings: bool = False,
    batch_size: int = 32,
    model_name: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    boxes: BoxRule | None = DEFAULT_BOXES,
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Ask ``model`` about the first ``limit`` studies of ``source`` and write a predictions folder, or continue one.

    ``conditions`` are names of probes. ``queries`` are ``phrases``, ``image``, ``regions``, ``boxes`` (of phrases),
    ``region-names`` and ``reports``; default: all of the first three that the model can answer. ``only`` selects some
    by study and name of the query. For ``method``, ``findings``, ``embeddings`` and ``boxes`` see `Answerer`. A
    question without an answer becomes a row with the reason, and the next call asks it again; studies that cannot be
    read are in ``problems``. Answers of earlier calls are reused, unless ``overwrite`` replaces them. It is an error if
    the model's code or weights, or an image file, have changed since, or if no question has an answer.
    """
    answerer = Answerer(model, batch_size, boxes, findings, embeddings, method)
    walk = Walk(source, conditions, answerer.chosen(queries), seed, limit, only)
    if any(probe.untrained for probe in walk.probes):
        answerer.untrained(seed)  # an error before anything is asked
    for changed in filter(None, (probe.intervention for probe in walk.probes)):
        answerer.intervened(changed)
    name = model_name or str(getattr(model, "name", None) or type(model).__name__)
    notes: dict[str, Any] = {
        "made_by": f"rightlung {__version__}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "code": code_fingerprint(model, name),
        "weights": weights_digest(model),
        "seed": seed,
        "embeddings": embeddings,
        "method": method or "all",
    }
    if isinstance(model, FindingClassifier | Detector) and {"image", "regions", "boxes", "region-names"} & {
        *walk.queries
    }:
        notes["findings"] = list(answerer.findings)
    address = absolute_address(walk.source.address)
    with PredictionWriter(out, source=address, model=name, run=notes, overwrite=overwrite) as writer:
        _check_earlier_runs(writer, notes)
        _check_images(writer, walk.source)
        answerer.answered_before = bool(writer.done)
        written = _write(_Run(answerer, walk, progress, writer.images), writer)
    rows, failed = count_rows(writer.folder) if written or writer.parts else ({}, ())  # without rows there is no part
    if failed and len(failed) == sum(rows.values()):
        raise InputError(f"none of the {len(failed):,} questions has an answer; first error: {failed[0]}")
    problems = dict.fromkeys([*map(str, walk.source.problems), *walk.problems.values()])
    return Summary(
        writer.folder, name, walk.source.address, walk.total, written, len(writer.done), _dates(writer.parts), rows,
        failed, tuple(problems), () if answerer.note is None else (answerer.note,),
    )  # fmt: skip


def answers(
    model: object,
    source: Source | str,
    conditions: Sequence[str] = ("none",),
    *,
    queries: Sequence[str] | None = None,
    method: str | None = None,
    findings: Sequence[str] | None = None,
    batch_size: int = 32,
    seed: int = 0,
    limit: int | None = None,
    boxes: BoxRule | None = DEFAULT_BOXES,
    progress: Progress = lambda done, total: None,
) -> Iterator[Batch]:
    """Yield the rows that `ask` would write, without a file. Studies that cannot be read are left out."""
    answerer = Answerer(model, batch_size, boxes, findings, method=method)
    walk = Walk(source, conditions, answerer.chosen(queries), seed, limit)
    some: list[Prediction] = []
    cells = 0
    for row in (row for _, rows in _Run(answerer, walk, progress, {}).windows(DoneKeys()) for row in rows):
        some.append(row)
        cells += row.cells
        if len(some) >= _ROWS_AT_ONCE or cells >= _CELLS_AT_ONCE:
            yield Batch.of(some)
            some, cells = [], 0
    if some:
        yield Batch.of(some)


def _write(run: _Run, writer: PredictionWriter) -> int:
    """Write the rows that the folder does not hold yet, and return their number."""
    walk, ids = run.walk, run.walk.source.ids
    pairs = [f"{query} {probe.name}" for query in walk.queries for probe in walk.probes]
    finished = FinishedStudies(writer.folder, pairs, len(writer.done))
    waiting: list[str] = []
    unfinished: set[str] = set()
    written = answered = flushed = 0
    since = time.monotonic()
    for todo, rows in run.windows(writer, finished):
        for row in rows:
            writer.write(row)
            written += 1
            if row.error is None:
                answered += 1
            else:
                unfinished.add(row.study)
        waiting += [ids[position] for position in todo]
        is_time = written - flushed >= _ROWS_AT_ONCE or time.monotonic() - since >= _SECONDS_PER_FLUSH
        if is_time and not run.held:
            writer.flush()
            finished.add(waiting, unfinished.union(walk.problems), len(writer.done) + answered)
            waiting, flushed, since = [], written, time.monotonic()
    if not written and not writer.parts and not walk.problems:
        what = " or ".join(f"{'an' if name == 'image' else 'a'} {name.removesuffix('s')}" for name in walk.queries)
        under = ", ".join(probe.name for probe in walk.probes)
        of = f"{walk.total:,} studies of {walk.source.address}"
        raise InputError(f"none of the {of} has {what} to ask about under {under}")
    writer.flush()
    finished.add(waiting, unfinished.union(walk.problems), len(writer.done) + answered)
    return written


class _Run:
    def __init__(self, answerer: Answerer, walk: Walk, progress: Progress, images: dict[str, str]) -> None:
        self.answerer, self.walk, self.progress, self.images = answerer, walk, progress, images
        self.loaded: dict[str, str] = {}  # identities; those behind an answer go to ``images``
        self.answered = answerer.answered_before
        self.held: list[Prediction] = []  # failures before the first answer: a broken model must not fill a file

    def windows(
        self, done: Container[Key] = (), finished: Container[str] = ()
    ) -> Iterator[tuple[list[int], Iterator[Prediction]]]:
        """Yield the positions of unfinished studies, a window at a time, with the rows about them."""
        walk = self.walk
        for stretch, wanted in walk.windows():
            todo = [position for position in wanted if walk.source.ids[position] not in finished]
            yield todo, self._rows(stretch, todo, done) if todo else iter(())
            self.progress(wanted.stop, walk.total)
        yield [], self._release()

    def _rows(self, stretch: range, todo: Sequence[int], done: Container[Key]) -> Iterator[Prediction]:
        studies, questions = self.walk.questions(stretch, todo, done)
        at_hand = {study.id: study for study in studies}
        by_image: dict[str, list[Question]] = {study: [] for study in at_hand}
        for question in questions:
            by_image.setdefault(question.image_of or question.key.study, []).append(question)
        batch: list[ImageQuestion] = []
        asked = 0
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
                    share = asked / len(questions) * min(len(stretch), self.walk.total - stretch.start)
                    self.progress(stretch.start + share, self.walk.total)
        yield from self._ask(batch)

    def _with_images(
        self, study: Study | None, image_of: str, group: list[Question]
    ) -> Iterator[ImageQuestion | Prediction]:
        """Yield questions with their image and regions, or the row of a question whose image cannot be loaded."""
        if not group or not self.answerer.needs_images:
            yield from (ImageQuestion(question, None, _NO_REGIONS) for question in group)
            return
        try:
            study = study or self.walk.source.study(image_of)
            what = f"study {image_of!r}"
            identity = identity_of(self.walk.source, image_of)
            image = check_plausible(load_image(study.load, what), what)
            if identity is not None:
                self.loaded[image_of] = identity
        except InputError as error:
            yield from (_failed(question, str(error), image_of) for question in group)
            return
        changed: dict[Any, Image] = {}  # by the change, so that each is made once and encoded once
        for question in group:
            try:
                alter = question.alter
                if alter is not None and alter not in changed:
                    changed[alter] = load_image(partial(alter, image), f"{what}, changed")
            except InputError as error:
                yield _failed(question, str(error), image_of)
            else:
                yield ImageQuestion(question, image if alter is None else changed[alter], study.regions)

    def _ask(self, batch: Sequence[ImageQuestion]) -> Iterator[Prediction]:
        for (question, _, _), answer in self._answered(batch):
            try:
                if isinstance(answer, NoAnswer):
                    raise InputError(answer.reason)
                row = Prediction(*question.key, question.query, **answer)
            except InputError as error:  # also a NaN similarity, or a text that is not UTF-8
                self.held.append(_failed(question, str(error)))
                if self.answered:
                    yield from self._release()
                check_not_broken([one.error for one in self.held])
            else:
                self.answered = True
                image_of = question.image_of or question.key.study
                if image_of in self.loaded:
                    self.images[image_of] = self.loaded[image_of]
                yield from self._release()
                yield row

    def _answered(self, batch: Sequence[ImageQuestion]) -> Iterator[tuple[ImageQuestion, Any]]:
        """Yield the questions with the answers of the model, of that with random weights, or under an intervention."""
        for untrained, changed in dict.fromkeys((one.question.untrained, one.question.intervention) for one in batch):
            some = [one for one in batch if (one.question.untrained, one.question.intervention) == (untrained, changed)]
            answerer = self.answerer.untrained(self.walk.seed) if untrained else self.answerer
            answerer = self.answerer.intervened(changed) if changed else answerer
            yield from zip(some, answerer.answers(*map(list, zip(*some, strict=True))), strict=True)

    def _release(self) -> Iterator[Prediction]:
        held, self.held = self.held, []
        yield from held


def load_image(load: Callable[[], Image], what: str) -> Image:
    """Load an image; any error becomes an `InputError`.

    ``load`` is `Study.load`, not `Study.image`, which would keep a window of images in memory.
    """
    try:
        return check_image(load(), what)
    except InputError:
        raise
    except Exception as error:  # a loader may raise anything
        raise InputError(f"{what}: {type(error).__name__}: {error}") from None


def _failed(question: Question, reason: str, image_of: str | None = None) -> Prediction:
    if image_of not in (None, question.key.study):
        reason = f"the image of study {image_of!r}, shown instead: {reason}"
    text = question.query.phrase
    phrase = None if text is None else text.encode("utf-8", "backslashreplace").decode()
    return Prediction.failed(*question.key, Query(phrase, question.query.box), reason)


def _check_earlier_runs(writer: PredictionWriter, notes: Mapping[str, Any]) -> None:
    for earlier in (part.run for part in writer.parts if part.run is not None):
        for name, what in _MUST_AGREE.items():
            if name in earlier and name in notes and earlier[name] != notes[name]:
                change = f"{what} ({earlier[name]}, now {notes[name]})"
                raise InputError(f"{writer.folder}: holds predictions of {change}; {OTHERWISE}")


def _check_images(writer: PredictionWriter, source: Source) -> None:
    asked = {study: identity for part in writer.parts for study, identity in part.images.items()}
    changed = [study for study, identity in asked.items() if identity_of(source, study) != identity]
    if changed:
        which = f"the images of {len(changed):,} of {len(asked):,} studies have changed (first: study {changed[0]!r})"
        raise InputError(f"{writer.folder}: {which} since the model was asked; {OTHERWISE}")


def identity_of(source: Source, study: str) -> str | None:
    """Return the identity of a study's image file (`Source.image_identity`); None if there is no such study."""
    position = source._position(study)
    return None if position is None else source.image_identity(position)


def _dates(parts: Sequence[Part]) -> str | None:
    dates = sorted({str(part.run["date"]) for part in parts if part.run is not None and "date" in part.run})
    return " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else None

"""What a source has for a part of a task: which questions, which findings, and which rows of the predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rightlung.audit.tasks import TaskAnswers, TaskPart, with_classes
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import Targets
from rightlung.predictions import Batch, Predictions
from rightlung.studies import Source


@dataclass(frozen=True)
class Known:
    """A source, its targets, and what it has for the part at hand."""

    source: Source
    targets: Targets
    asked: TaskAnswers


def known_classes(part: TaskPart, known: Known, predictions: Predictions) -> tuple[Known, Sequence[str]]:
    """Return what to measure without the findings that the model does not know, and these.

    The notes of the predictions list the findings that were asked for; without notes, all were.
    """
    noted = [run["findings"] for run in predictions.runs if "findings" in run]
    asked = {canonical_finding(str(name)) for names in noted if isinstance(names, Sequence) for name in names}
    return without(part, known, set(known.asked.classes) - asked if noted else set())


def without(part: TaskPart, known: Known, unknown: set[str]) -> tuple[Known, Sequence[str]]:
    """Return what to measure without some classes, and these in order."""
    if not unknown:
        return known, ()
    classes = tuple(name for name in known.asked.classes if name not in unknown)
    if part.method == "detect":
        with_classes(known.targets, classes)
    return replace(known, asked=replace(known.asked, classes=classes)), sorted(unknown)


def wanted(batches: Iterable[Batch], asked: TaskAnswers) -> Iterator[Batch]:
    """Yield the rows of batches whose queries are asked."""
    for batch in batches:
        places = [place for place, key in enumerate(batch.keys) if (key.study, key.query) in asked.queries]
        if places:
            yield batch.chosen(places)


def under(batches: Iterable[Batch], conditions: Sequence[str] | None) -> Iterator[Batch]:
    """Yield the rows of batches under some conditions; None: under all."""
    for batch in batches:
        places = [n for n, key in enumerate(batch.keys) if conditions is None or key.condition in conditions]
        if places:
            yield batch.chosen(places)

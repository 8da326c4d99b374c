"""What is asked about a study: its phrases, the whole image, the boxes of its regions, each under every probe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass

from rightlung.core import Box, Image, Phrase, Query, Study
from rightlung.core.study import QueryKind
from rightlung.predictions.prediction import IMAGE_QUERY, Key, phrase_query, region_query
from rightlung.probes import Probe, Setting

QUERIES: dict[str, QueryKind] = {"phrases": "phrase", "image": "image", "regions": "box"}
"""What can be asked about every study, with the kind of `Query` it is."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query about the image of a study, and what may be told about it.

    `ask` asks phrases, whole images and regions. A question of your own may hold any `Query` under any name.
    """

    key: Key
    query: Query
    phrase: Phrase | None = None
    """What the words of the query say: text, findings and regions, never a target."""
    patient: str | None = None
    """Whose question it is, whoever's image is shown; a study without a patient counts as a patient of its own."""
    image_of: str | None = None
    """The study whose image is shown; None for the study of the key."""
    alter: Callable[[Image], Image] | None = None
    """What is done to the pixels before they are shown."""


def questions_of(
    study: Study,
    queries: Collection[str],
    probes: Iterable[Probe],
    setting: Setting,
    done: Container[Key] = (),
) -> Iterator[Question]:
    """Yield the questions about a study whose keys are not ``done``, under every probe that applies."""
    patient = study.patient or f"study {study.id}"
    for name, phrase, box in _named_queries(study, queries):
        for probe in probes:
            key = Key(study.id, name, probe.name)
            if key in done or (probed := probe.ask(study, phrase, setting)) is None:
                continue
            words = None if probed.phrase is None else probed.phrase.without_target()
            query = Query(None if words is None else words.text, box)
            yield Question(key, query, words, patient, probed.image_of, probed.alter)


def _named_queries(study: Study, queries: Collection[str]) -> Iterator[tuple[str, Phrase | None, Box | None]]:
    if "phrases" in queries:
        for index, phrase in enumerate(study.phrases):
            yield phrase_query(index), phrase, None
    if "image" in queries:
        yield IMAGE_QUERY, None, None
    if "regions" in queries:
        for name, box in study.regions.items():
            yield region_query(name), None, box

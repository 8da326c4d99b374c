"""The questions about each study: its phrases, the whole image, and its regions, each under every probe."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace

from rightlung.core import Box, Image, InputError, Phrase, Query, Study
from rightlung.core.errors import check_known
from rightlung.core.keyed import text_digest
from rightlung.core.study import QueryKind
from rightlung.lexicon import REGIONS
from rightlung.predictions.prediction import (
    IMAGE_QUERY,
    REPORT_QUERY,
    Key,
    box_query,
    phrase_query,
    region_name_query,
    region_query,
)
from rightlung.probes import Owner, SentencePool, Setting, exchanged, exchanged_outside, find_probe, windows
from rightlung.probes.images import MeanImage
from rightlung.probes.twins import check_twins
from rightlung.studies import Source, build_studies, open_source

QUERIES: dict[str, QueryKind] = {
    "phrases": "phrase",
    "image": "image",
    "regions": "box",
    "boxes": "box",
    "region-names": "phrase",
    "reports": "phrase",
}
"""What can be asked about every study, and the kind of `Query`.

``boxes`` are the target boxes of phrases. ``region-names`` asks by name about the regions that the study has a box of;
``reports`` have the whole text of the report as their words.
"""
ON_DEMAND = ("boxes", "region-names", "reports")
"""Queries that are asked only if they are named."""


AVERAGED = 32
"""Number of neighbouring images in a mean image."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query about the image of a study."""

    key: Key
    query: Query
    phrase: Phrase | None = None
    """The phrase of the query with its findings and regions, without its target."""
    patient: str | None = None
    """The patient of the key's study; a study without a patient is its own patient."""
    image_of: str | None = None
    """The study whose image is shown; None: the study of the key."""
    alter: Callable[[Image], Image] | None = None
    """A change of the pixels."""
    untrained: bool = False
    """Whether the model with random weights is asked."""
    intervention: str = ""
    """What is changed inside the model (`rightlung.probes.interventions`)."""


def questions(
    source: Source | str,
    conditions: Sequence[str] = ("none",),
    *,
    queries: Sequence[str] = ("phrases",),
    seed: int = 0,
    limit: int | None = None,
) -> Iterator[Question]:
    """Yield the questions that `ask` would ask."""
    walk = Walk(source, conditions, queries, seed, limit)
    for stretch, wanted in walk.windows():
        yield from walk.questions(stretch, wanted)[1]


class Walk:
    """The first ``total`` studies of a source, window by window (`rightlung.probes.windows`), and their questions."""

    def __init__(
        self,
        source: Source | str,
        conditions: Sequence[str],
        queries: Sequence[str],
        seed: int,
        limit: int | None,
        only: Container[tuple[str, str]] | None = None,
    ) -> None:
        self.source = open_source(source) if isinstance(source, str) else source
        for names, what in ((conditions, "conditions"), (queries, "queries")):
            if isinstance(names, str) or not names:
                raise InputError(f"{what} must be a list of at least one name; got {names!r}")
        for name in queries:
            check_known("query", name, QUERIES)
        if limit is not None and limit < 1:
            raise InputError(f"limit must be at least 1; got {limit}")
        self.probes = [find_probe(name) for name in dict.fromkeys(conditions)]
        self.queries, self.seed, self.only = queries, seed, only
        self.total = min(limit or len(self.source), len(self.source))
        self.problems: dict[str, str] = {}  # by study id
        self._partner = next((probe for probe in self.probes if probe.needs_partner), None)
        self._sentences = any(probe.needs_sentences for probe in self.probes)
        self._neighbours = any(probe.needs_neighbours for probe in self.probes)
        for probe in self.probes:
            check_twins(self.source.address, self.source.has_twins, probe.name)

    def windows(self) -> Iterator[tuple[range, range]]:
        """Yield the windows of the source, each with its wanted positions."""
        for stretch in windows(len(self.source)):
            if stretch.start < self.total:
                yield stretch, range(stretch.start, min(stretch.stop, self.total))

    def questions(
        self, stretch: range, todo: Sequence[int], done: Container[Key] = ()
    ) -> tuple[list[Study], list[Question]]:
        """Return the studies at some positions of a window, and the questions whose keys are not ``done``."""
        whole = todo and (self._partner or self._sentences or self._neighbours)  # probes may draw from the whole window
        built = build_studies(self.source, stretch if whole else todo, self.problems)
        studies, found = [*built.values()], []
        partners = self._partners(stretch, studies) if self._partner else {}
        pool = SentencePool()
        if self._sentences:
            # If one patient has most of a window, partners from outside it lend their sentences.
            beyond = sorted({*partners.values()} - {study.id for study in studies})
            pool = SentencePool.of(studies, map(self.source.study, beyond))
        setting = Setting(self.seed, partners, pool)
        if self._neighbours:
            some = sorted(studies, key=lambda study: text_digest(self.seed, "mean-image", study.id))[:AVERAGED]
            setting = replace(setting, neighbours=studies, mean_image=MeanImage([study.load for study in some]))
        for study in (built[position] for position in todo if position in built):
            try:
                found += list(self._about(study, setting, done))
            except UnicodeEncodeError as error:  # an id that is not valid UTF-8
                self.problems[study.id] = f"study {study.id!r} cannot be written as UTF-8 ({error.reason})"
        return studies, found

    def _about(self, study: Study, setting: Setting, done: Container[Key]) -> Iterator[Question]:
        patient = study.patient or f"study {study.id}"
        for name, phrase, box in self._named_queries(study):
            if self.only is not None and (study.id, name) not in self.only:
                continue
            for probe in self.probes:
                key = Key(study.id, name, probe.name)
                if key not in done and (probed := probe.ask(study, phrase, setting)) is not None:
                    words = None if probed.phrase is None else probed.phrase.without_target()
                    query = Query(None if words is None else words.text, box)
                    changed = probed.image_of, probed.alter, probe.untrained, probe.intervention
                    yield Question(key, query, words, patient, *changed)

    def _named_queries(self, study: Study) -> Iterator[tuple[str, Phrase | None, Box | None]]:
        if "phrases" in self.queries:
            yield from ((phrase_query(index), phrase, None) for index, phrase in enumerate(study.phrases))
        if "image" in self.queries:
            yield IMAGE_QUERY, None, None
        if "regions" in self.queries:
            yield from ((region_query(name), None, box) for name, box in study.regions.items())
        for index, phrase in enumerate(study.phrases if "boxes" in self.queries else ()):
            yield from ((box_query(index, place), None, box) for place, box in enumerate(phrase.target_boxes))
        for name in study.regions if "region-names" in self.queries else ():
            if name in REGIONS:
                yield region_name_query(name), Phrase(REGIONS[name].spoken, regions=(name,)), None
        if "reports" in self.queries and study.report is not None and study.report.text.strip():
            yield REPORT_QUERY, Phrase(study.report.text), None

    def _partners(self, stretch: range, studies: Sequence[Study]) -> dict[str, str]:
        owners = [Owner(study.id, study.patient) for study in studies]
        beyond = (
            Owner(study.id, study.patient)
            for position in (*range(stretch.stop, len(self.source)), *range(stretch.start))
            for study in build_studies(self.source, [position], self.problems).values()
        )
        found = exchanged(owners, self.seed) or exchanged_outside(owners, beyond, self.seed) if owners else {}
        if found is None:
            assert self._partner is not None
            what = "sentences" if self._partner.needs_sentences else "images"
            needs = f"{self._partner.name} needs {what} of two patients"
            raise InputError(f"the condition {needs}, but {self.source.address} has one; choose other conditions")
        return found

"""Go through a source window by window (`rightlung.probes.windows`) and make the questions about its studies."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rightlung.asking.question import QUERIES, Question, questions_of
from rightlung.core import InputError, Study
from rightlung.core.errors import unknown_name
from rightlung.predictions import Key
from rightlung.probes import Owner, Probe, SentencePool, Setting, exchanged, exchanged_outside, find_probe, windows
from rightlung.studies import Source, build_studies, open_source


def questions(
    source: Source | str,
    conditions: Sequence[str] = ("none",),
    *,
    queries: Sequence[str] = ("phrases",),
    seed: int = 0,
    limit: int | None = None,
) -> Iterator[Question]:
    """Yield the questions that `ask` would ask a model, without asking."""
    walk = Walk.of(source, conditions, queries, seed, limit)
    for stretch, wanted in walk.windows():
        yield from walk.questions(walk.studies(stretch, wanted), stretch, wanted)


@dataclass(frozen=True, slots=True)
class Walk:
    """The first ``total`` studies of a source, and what is asked about each."""

    source: Source
    probes: Sequence[Probe]
    queries: Sequence[str]
    seed: int
    total: int
    problems: dict[str, str] = field(default_factory=dict)
    """Why a study cannot be asked about, by its id."""

    @classmethod
    def of(
        cls, source: Source | str, conditions: Sequence[str], queries: Sequence[str], seed: int, limit: int | None
    ) -> Walk:
        """Open a source and check what is to be asked."""
        opened = open_source(source) if isinstance(source, str) else source
        for names, what in ((conditions, "conditions"), (queries, "queries")):
            if isinstance(names, str) or not names:
                raise InputError(f"{what} must be a list of at least one name; got {names!r}")
        if unknown := [name for name in queries if name not in QUERIES]:
            raise unknown_name("query", unknown[0], QUERIES)
        if limit is not None and limit < 1:
            raise InputError(f"limit must be at least 1; got {limit}")
        probes = [find_probe(name) for name in dict.fromkeys(conditions)]
        return cls(opened, probes, queries, seed, len(opened) if limit is None else min(limit, len(opened)))

    def windows(self) -> Iterator[tuple[range, range]]:
        """Yield the windows of the source, each with those of its positions that are wanted."""
        for stretch in windows(len(self.source)):
            if stretch.start < self.total:
                yield stretch, range(stretch.start, min(stretch.stop, self.total))

    def studies(self, stretch: range, todo: Sequence[int]) -> dict[int, Study]:
        """Build the studies at some positions of a window, and those that their questions draw from."""
        whole = todo and any(probe.needs_partner or probe.needs_sentences for probe in self.probes)
        return build_studies(self.source, stretch if whole else todo, self.problems)

    def questions(
        self, built: Mapping[int, Study], stretch: range, todo: Sequence[int], done: Container[Key] = ()
    ) -> Iterator[Question]:
        """Yield the questions about some studies of a window whose keys are not ``done``."""
        studies = list(built.values())
        partners = self._partners(stretch, studies) if any(probe.needs_partner for probe in self.probes) else {}
        pool = SentencePool()
        if any(probe.needs_sentences for probe in self.probes):
            # Where one patient has most of a window, the partners from beyond it lend their sentences.
            beyond = sorted({*partners.values()} - {study.id for study in studies})
            pool = SentencePool.of(studies, map(self.source.study, beyond))
        setting = Setting(self.seed, partners, pool)
        for study in (built[position] for position in todo if position in built):
            try:
                yield from list(questions_of(study, self.queries, self.probes, setting, done))
            except UnicodeEncodeError as error:  # an id that no file can hold
                self.problems[study.id] = f"study {study.id!r} cannot be written as UTF-8 ({error.reason})"

    def _partners(self, stretch: range, studies: Sequence[Study]) -> dict[str, str]:
        owners = [Owner(study.id, study.patient) for study in studies]
        beyond = (
            Owner(study.id, study.patient)
            for position in (*range(stretch.stop, len(self.source)), *range(stretch.start))
            for study in build_studies(self.source, [position], self.problems).values()
        )
        found = exchanged(owners, self.seed) or exchanged_outside(owners, beyond, self.seed) if owners else {}
        if found is None:
            probe = next(probe for probe in self.probes if probe.needs_partner)
            what = "sentences" if probe.needs_sentences else "images"
            raise InputError(
                f"the condition {probe.name} needs {what} of two patients, but all of {self.source.address} are of "
                "one; leave it out and name the others"
            )
        return found

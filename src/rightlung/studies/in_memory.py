"""Studies kept in memory, for sources that are expensive to generate and read more than once."""

from __future__ import annotations

from collections.abc import Sequence

from rightlung.core import Study
from rightlung.core.progress import Progress, no_progress
from rightlung.studies.sources import Source


class InMemorySource(Source):
    """All studies of a source in memory, under the source's own address."""

    def __init__(self, source: Source, progress: Progress = no_progress) -> None:
        super().__init__(source.address)
        self._studies: list[Study] = []
        for study in source:
            self._studies.append(study)
            progress("making studies", len(self._studies), len(source))
        self.problems = list(source.problems)

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        return [study.id for study in self._studies]

    def _build(self, position: int) -> Study:
        return self._studies[position]

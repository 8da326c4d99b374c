"""Studies kept in memory, for sources whose studies are costly to make and are gone through more than once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rightlung.core import Study
from rightlung.studies.sources import Source


class HeldSource(Source):
    """All studies of a source, made once and kept, under the source's own address."""

    def __init__(self, source: Source, progress: Callable[[int, int], None] | None = None) -> None:
        super().__init__(source.address)
        self._studies: list[Study] = []
        for study in source:
            self._studies.append(study)
            if progress is not None:
                progress(len(self._studies), len(source))
        self.problems = list(source.problems)
        self._places = {study.id: place for place, study in enumerate(self._studies)}

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        return list(self._places)

    def _build(self, position: int) -> Study:
        return self._studies[position]

    def _position(self, study_id: str) -> int | None:
        return self._places.get(study_id)

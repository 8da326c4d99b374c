"""Remember which studies are finished, so that going on need not build them again to find out.

What can be asked about a study is known only once it is built, and building may mean rendering. A hidden list next to
the parts names the studies whose rows are all on the disk. It only saves time: without it, or where parts were taken
away since it was written, the keys of the rows decide.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

LIST = ".finished.jsonl"


class FinishedStudies:
    """The studies of a predictions folder that were asked everything in ``asked``, such as ``phrases swap-sides``."""

    def __init__(self, folder: Path, asked: Iterable[str], rows: int) -> None:
        self._path = folder / LIST
        self._asked = frozenset(asked)
        self._under: dict[str, frozenset[str]] = {}
        sets: dict[frozenset[str], frozenset[str]] = {}  # one object for each different set
        for written, under, studies in self._lines():
            if written > rows:
                self._under = {}
                with contextlib.suppress(OSError):
                    self._path.unlink()
                return
            for study in studies:
                known = self._under.get(study, frozenset()) | under
                self._under[study] = sets.setdefault(known, known)

    def __contains__(self, study: object) -> bool:
        return self._asked <= self._under.get(str(study), frozenset())

    def add(self, studies: list[str], rows: int) -> None:
        """Note studies whose rows are on the disk, where ``rows`` are now."""
        if studies:
            line = {"rows": rows, "asked": sorted(self._asked), "studies": studies}
            with contextlib.suppress(OSError), self._path.open("a", encoding="ascii") as file:
                file.write(json.dumps(line) + "\n")

    def _lines(self) -> list[tuple[int, frozenset[str], list[str]]]:
        lines = []
        with contextlib.suppress(OSError):
            for text in self._path.read_text(encoding="ascii", errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # a line cut off by a kill
                    line = json.loads(text)
                    lines.append((int(line["rows"]), frozenset(line["asked"]), [str(s) for s in line["studies"]]))
        return lines

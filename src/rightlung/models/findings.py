"""Which of a model's classes a finding or a phrase names, for models with a fixed list of findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rightlung.core import Phrase
from rightlung.core.errors import InputError, unknown_name
from rightlung.lexicon import find
from rightlung.lexicon.findings import broader_findings

_WORD = re.compile(r"[^\W_]+(?:[-/'][^\W_]+)*")
_LONGEST_NAME = 6  # words


class FindingColumns:
    """The columns of ``findings``: canonical names, or the labels of a data set."""

    def __init__(self, findings: Sequence[str]) -> None:
        if not findings:
            raise InputError("findings must name at least one finding")
        if repeated := next((name for name in findings if findings.count(name) > 1), None):
            raise InputError(f"findings: {repeated!r} is given more than once")
        self.findings = tuple(findings)
        self._columns = {name: column for column, name in enumerate(findings)}
        self._by_meaning = {
            meaning.name: column for name, column in self._columns.items() if (meaning := find(name)) is not None
        }

    def column(self, name: str, broader: bool = False) -> int | None:
        """Return the column of a finding or, with ``broader``, of the nearest broader one: a mass is a lung lesion."""
        if name in self._columns:
            return self._columns[name]
        if (meaning := find(name)) is None:
            return None
        steps = (meaning.name, *(broader_findings(meaning.name) if broader else ()))
        return next((self._by_meaning[step] for step in steps if step in self._by_meaning), None)

    def scores(self, values: Tensor, names: Sequence[str]) -> Tensor:
        """Return the columns (n, names) of values (n, findings), NaN for unknown ones; at least one must be known."""
        found = values.new_full((len(values), len(names)), torch.nan)
        for name, column in self.known_columns(names).items():
            found[:, names.index(name)] = values[:, column]
        return found

    def known_columns(self, names: Sequence[str]) -> dict[str, int]:
        """Return the columns of the findings that are known; it is an error if none is."""
        known = {name: column for name in names if (column := self.column(name)) is not None}
        if names and not known:
            raise unknown_name("finding of this model", names[0], self.findings)
        return known

    def of_phrase(self, phrase: Phrase | str) -> list[int]:
        """Return the columns of a phrase's findings: those it carries, else those its words name."""
        if isinstance(phrase, Phrase) and phrase.findings:
            names = list(phrase.findings)
        else:
            names = findings_named(phrase.text if isinstance(phrase, Phrase) else phrase)
        columns = (self.column(name, broader=True) for name in names)
        return sorted({column for column in columns if column is not None})


class FixedFindings:
    """A model with a fixed list of findings."""

    config: Any
    columns: FindingColumns

    @property
    def findings(self) -> tuple[str, ...]:
        """The findings, in the order of the logits."""
        names: tuple[str, ...] = self.config.findings
        return names

    def knows(self, finding: str) -> bool:
        """Return whether a finding is in the list."""
        return self.columns.column(finding) is not None


def findings_named(text: str) -> list[str]:
    """Return the canonical findings whose names or synonyms occur in a text, the longest name at each position."""
    words = _WORD.findall(text)
    found: list[str] = []
    start = 0
    while start < len(words):
        for length in range(min(_LONGEST_NAME, len(words) - start), 0, -1):
            meaning = find(" ".join(words[start : start + length]))
            if meaning is not None:
                found.append(meaning.name)
                start += length
                break
        else:
            start += 1
    return found

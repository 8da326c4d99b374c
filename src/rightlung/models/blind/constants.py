"""Image-blind baselines of detection and of text: the median box, and the most frequent text.

Both answer about a patient with what they learned from **other patients**: those outside the patient's fold. If they
are fitted on other studies, pass None for the patient, and everything counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from rightlung.core import Box
from rightlung.models.blind.prior import FOLDS, fold_of
from rightlung.scoring.language import bleu_statistics, corpus_bleu, token_rule

CANDIDATES, REFERENCES = 40, 200
"""Of how many equally frequent texts the best is taken, and against how many texts it is judged."""


@dataclass
class MedianBoxes:
    """The box of median corners by name: of a finding, or of the findings and the side that a phrase names."""

    folds: int = FOLDS
    _corners: dict[Hashable, list[tuple[int, tuple[float, ...]]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: Hashable, patient: str, corners: Sequence[float]) -> None:
        """Learn from one box."""
        self._corners[name].append((fold_of(patient, self.folds), tuple(corners)))

    def box(self, names: Sequence[Hashable], patient: str | None) -> Box | None:
        """Return the median box of the first name that other patients have a box of, None if there is none."""
        held_out = None if patient is None else fold_of(patient, self.folds)
        for name in names:
            known = [corners for fold, corners in self._corners.get(name, ()) if fold != held_out]
            if known:
                return Box(*np.median(np.array(known), axis=0).tolist())
        return None


@dataclass
class ConstantText:
    """The most frequent text; of equally frequent ones, the one with the highest BLEU-4 against the others."""

    folds: int = FOLDS
    _texts: list[tuple[int, str]] = field(default_factory=list)
    _known: dict[int | None, str | None] = field(default_factory=dict)

    def add(self, patient: str, text: str) -> None:
        """Learn from one text."""
        self._texts.append((fold_of(patient, self.folds), text))
        self._known = {}

    def text(self, patient: str | None) -> str | None:
        """Return the text for a patient, None if other patients have none."""
        held_out = None if patient is None else fold_of(patient, self.folds)
        if held_out not in self._known:
            self._known[held_out] = most_typical([text for fold, text in self._texts if fold != held_out])
        return self._known[held_out]


def most_typical(texts: Sequence[str]) -> str | None:
    """Return the most frequent text; of equally frequent ones, that with the highest BLEU-4 against the others."""
    counts = Counter(texts)
    most = max(counts.values(), default=0)
    frequent = [text for text, count in counts.items() if count == most][:CANDIDATES]
    if len(frequent) < 2:
        return frequent[0] if frequent else None
    split = lru_cache(maxsize=None)(token_rule("marks"))
    references = [split(text) for text in texts[:REFERENCES]]

    def bleu(text: str) -> float:
        rows = [bleu_statistics(split(text), reference) for reference in references]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return float(corpus_bleu(columns, np.ones((1, len(rows))), order=4)[0])

    return max(frequent, key=bleu)

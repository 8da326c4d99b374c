"""Corpus BLEU of generated reports, from statistics of each report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COUNTED = [f"bleu_{what}_{n}" for n in range(1, 5) for what in ("matches", "total")]
BLEU_COLUMNS = (*_COUNTED, "answer_words", "reference_words")


def bleu_statistics(answer: str, reference: str) -> dict[str, float]:
    """Return clipped n-gram matches, totals and both lengths, over lower-case words and punctuation marks."""
    words, true = (re.findall(r"\w+|[^\w\s]", text.lower()) for text in (answer, reference))
    found = {"answer_words": float(len(words)), "reference_words": float(len(true))}
    for n in range(1, 5):
        said, known = (Counter(zip(*(some[i:] for i in range(n)), strict=False)) for some in (words, true))
        found |= {f"bleu_matches_{n}": float((said & known).total()), f"bleu_total_{n}": float(said.total())}
    return found


def corpus_bleu(columns: Mapping[str, NDArray[Any]], counts: NDArray[np.float64], order: int) -> NDArray[np.float64]:
    """Return BLEU of n-grams up to ``order``, ``(resamples,)``: 0 if an n has no match, NaN without instances."""
    there = ~np.isnan(np.asarray(columns["answer_words"], np.float64))
    counts = counts[:, there]
    names = (*_COUNTED[: 2 * order], "answer_words", "reference_words")
    sums = counts @ np.stack([np.asarray(columns[name], np.float64)[there] for name in names], axis=1)
    matches, totals, (answer, reference) = sums[:, :-2:2], sums[:, 1:-2:2], sums[:, -2:].T
    precisions = np.where(matches > 0, matches, 1.0) / np.maximum(totals, 1.0)
    brevity = np.minimum(0.0, 1.0 - reference / np.maximum(answer, 1.0))
    bleu = np.where((matches > 0).all(axis=1), np.exp(brevity + np.log(precisions).mean(axis=1)), 0.0)
    return np.where(counts.sum(axis=1) > 0, bleu, np.nan)

"""Which sentences a report keeps: no near-duplicates and no contradictions (ChEX, supp. D.4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

from rightlung.core import Sentence
from rightlung.lexicon import sides_in
from rightlung.lexicon.labeller import read_sentence


def choose_sentences(
    candidates: Sequence[Sentence], embeddings: Tensor, max_sentences: int = 10, similarity: float = 0.9
) -> tuple[Sentence, ...]:
    """Return the sentences to keep, the highest score first, at most ``max_sentences``.

    A sentence is left out if one with a higher score resembles it (the cosine of their ``embeddings`` (s, d), of unit
    length, is above ``similarity``), or says the contrary: that one negates a finding which the other affirms, on the
    same side or without a side.
    """
    order = sorted(range(len(candidates)), key=lambda one: -(candidates[one].score or 0.0))
    kept: list[int] = []
    for one in order:
        text = candidates[one].text
        if len(kept) == max_sentences:
            break
        similar = any(float(embeddings[one] @ embeddings[other]) > similarity + 1e-6 for other in kept)  # rounding
        if not similar and not any(contradict(text, candidates[other].text) for other in kept):
            kept.append(one)
    return tuple(candidates[one] for one in kept)


def contradict(one: str, other: str) -> bool:
    """Return whether one sentence negates what the other affirms, on a side that both are about.

    >>> contradict("there is a left pleural effusion", "no pleural effusion"), contradict("no mass", "no effusion")
    (True, False)
    """
    first, second = (_stated(text) for text in (one, other))
    sides = [set(sides_in(text)) for text in (one, other)]
    if all(sides) and not sides[0] & sides[1]:
        return False
    pairs = (first[name] is not second[name] for name in first.keys() & second.keys())
    return any(pairs)


@lru_cache(maxsize=1 << 14)  # each sentence is compared with all that are kept
def _stated(text: str) -> dict[str, bool]:
    """Return which findings a sentence affirms (True) or negates (False)."""
    return {name: kind != "negative" for name, kind in read_sentence(text).findings.items()}

"""Which sentences a report keeps: no near-duplicates and no contradictions (ChEX, supp. D.4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from torch import Tensor

from rightlung.core import Sentence
from rightlung.lexicon import sides_in
from rightlung.lexicon.labeller import read_sentence

SAME_PLACE = 0.7
"""IoU of the best boxes from which on two sentences about the same findings are one."""
Choice = Literal["kept", "duplicate", "contradiction", "surplus"]


def choose_sentences(
    candidates: Sequence[Sentence], embeddings: Tensor, max_sentences: int = 10, similarity: float = 0.9
) -> tuple[Sentence, ...]:
    """Return the sentences to keep by `judge_sentences`, the highest score first."""
    judged = judge_sentences(candidates, embeddings, max_sentences, similarity)
    return kept_sentences(candidates, judged)


def kept_sentences(candidates: Sequence[Sentence], judged: Sequence[Choice]) -> tuple[Sentence, ...]:
    """Return the sentences that are kept, the highest score first."""
    kept = [sentence for sentence, choice in zip(candidates, judged, strict=True) if choice == "kept"]
    return tuple(sorted(kept, key=_by_score))


def judge_sentences(
    candidates: Sequence[Sentence], embeddings: Tensor, max_sentences: int = 10, similarity: float = 0.9
) -> list[Choice]:
    """Return for each sentence whether it is kept, or why not; at most ``max_sentences`` are.

    A sentence is left out if one with a higher score

    - resembles it: the cosine of their ``embeddings`` (s, d), of unit length, is above ``similarity``, and it states no
      finding that the other does not (negations of different findings resemble each other);
    - says the same of the same findings at the same place: the IoU of their best boxes is at least `SAME_PLACE`;
    - says the contrary: one negates a finding which the other affirms, on the same side or without a side.
    """
    order = sorted(range(len(candidates)), key=lambda one: _by_score(candidates[one]))
    judged: list[Choice] = ["surplus"] * len(candidates)
    kept: list[int] = []
    for one in order:
        if len(kept) == max_sentences:
            break
        similar = any(
            float(embeddings[one] @ embeddings[other]) > similarity + 1e-6  # rounding
            and _states_no_more(candidates[one].text, candidates[other].text)
            for other in kept
        )
        if similar or any(_same_at_the_same_place(candidates[one], candidates[other]) for other in kept):
            judged[one] = "duplicate"
        elif any(contradict(candidates[one].text, candidates[other].text) for other in kept):
            judged[one] = "contradiction"
        else:
            judged[one] = "kept"
            kept.append(one)
    return judged


def _by_score(sentence: Sentence) -> float:
    return -(sentence.score or 0.0)


def _same_at_the_same_place(sentence: Sentence, better: Sentence) -> bool:
    """Return whether all findings that a sentence states are stated by a better one with almost the same best box."""
    if not _stated(sentence.text) or not _states_no_more(sentence.text, better.text):
        return False
    if not sentence.boxes or not better.boxes:
        return False
    return sentence.boxes[0].iou(better.boxes[0]) >= SAME_PLACE


def _states_no_more(text: str, better: str) -> bool:
    """Return whether all that a text says of findings is said by a better one, too."""
    return _stated(text).items() <= _stated(better).items()


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

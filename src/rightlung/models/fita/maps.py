"""Where the sentences of a report are seen: the distiller's attention, followed back to the image.

The map of a sentence is the mean over its finding words of the attention on patches, plus the attention on each symptom
times the symptom's saliency. What falls on the words written before is the abstention: a word that follows from the
text alone is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import Extent, Heatmap, Report, Sentence
from rightlung.explain import BoxRule, boxes_of
from rightlung.lexicon.labeller import read_sentence
from rightlung.lexicon.rules import entity_spans
from rightlung.models.base import WordSources
from rightlung.models.fita.vocabulary import FULL_STOP, SIDES, readable, sentences_of

NOTHING_WRITTEN = "No report was generated."
BOXES = BoxRule(score="mean")


def finding_words(words: Sequence[str]) -> list[int]:
    """Return the places of the words that name a finding, a structure or a region; of all words if none does.

    >>> finding_words("there is a small left pleural effusion .".split())
    [5, 6]
    """
    text, begins, length = " ".join(words), [], 0
    for word in words:
        begins.append(length)
        length += len(word) + 1
    spans = entity_spans(text)
    found = [place for place, begin in enumerate(begins) if any(first <= begin < last for first, last in spans)]
    return found or [place for place, word in enumerate(words) if word != FULL_STOP] or [0]


def kinds_of_words(words: Sequence[str]) -> list[str]:
    """Return whether each word names a side, a finding (or a structure or region), or something else.

    >>> kinds_of_words("small left pleural effusion .".split())
    ['other', 'side', 'finding', 'finding', 'other']
    """
    named = set(finding_words(words)) if entity_spans(" ".join(words)) else set()
    return ["side" if word in SIDES else "finding" if place in named else "other" for place, word in enumerate(words)]


def word_sources(words: Sequence[str], attention: Tensor, patches: int, symptoms: int) -> list[WordSources]:
    """Return the shares of the attention (t, p + k + t) of a report's words on each source, by kind of word."""
    kinds = kinds_of_words(words)
    image, seen = attention[:, :patches].sum(-1), attention[:, patches : patches + symptoms].sum(-1)
    found = []
    for kind in dict.fromkeys(kinds):
        own = [place for place, one in enumerate(kinds) if one == kind]
        shares = [float(part[own].float().mean()) for part in (image, seen, 1 - image - seen)]
        found.append(WordSources(kind, shares[0], shares[1], shares[2], len(own)))
    return found


def attention_map(attention: Tensor, patches: int, saliency: Tensor | None) -> tuple[Tensor, float]:
    """Return the map (p,) of the attention of some words, (w, p + k + t), and the abstention.

    ``saliency`` (k, p) is that of the symptoms; None if there are none.
    """
    mean = attention.float().mean(0)
    found, symptoms = mean[:patches], 0 if saliency is None else len(saliency)
    if saliency is not None:
        found = found + mean[patches : patches + symptoms] @ saliency.float()
    return found, float(mean[patches + symptoms :].sum().clamp(0, 1))


def as_heatmap(found: Tensor, abstention: float, grid: tuple[int, int], extent: Extent) -> Heatmap:
    """Return a map (p,) as a heatmap."""
    values: NDArray[np.float32] = found.reshape(grid).cpu().numpy()
    return Heatmap(values, extent, abstention)


def states_finding(text: str) -> bool:
    """Return whether a sentence says that a finding is, or may be, present."""
    return any(mention.polarity != "negative" for mention in read_sentence(text).mentions)


def grounded_report(
    words: Sequence[str], scores: Tensor, attention: Tensor, saliency: Tensor | None, grid: tuple[int, int],
    extent: Extent,
) -> Report:  # fmt: skip
    """Return a report whose sentences have a map each, and boxes where they say that a finding is present.

    ``scores`` (t,) are the log-probabilities of the words and ``attention`` (t, p + k + t) is that of the distiller
    when it wrote them. A sentence's score is the geometric mean of its words' probabilities.
    """
    sentences = []
    for begin, end in sentences_of(words):
        own = words[begin:end]
        rows = torch.tensor([begin + place for place in finding_words(own)], device=attention.device)
        found, abstention = attention_map(attention[rows], grid[0] * grid[1], saliency)
        heatmap, text = as_heatmap(found, abstention, grid, extent), readable(own)
        boxes = tuple(one.box for one in boxes_of(heatmap, BOXES)[:2]) if states_finding(text) else ()
        sentences.append(Sentence(text, boxes, float(scores[begin:end].mean().exp()), heatmap=heatmap))
    text = " ".join(one.text for one in sentences)
    return Report(text or NOTHING_WRITTEN, {"findings": text} if text else {}, tuple(sentences))

"""Find the clinical entities of a sentence: findings, structures and regions that the lexicon knows.

"That's the Wrong Lung!" masks such words in training and finds them with SciSpaCy's entity linker; here the labeller's
rules find them. A side alone ("left") is not an entity; a region with its side ("left lower lobe") is one.
"""

from __future__ import annotations

from functools import lru_cache

from rightlung.lexicon.phrase_table import word_places
from rightlung.lexicon.rules import rules


@lru_cache(maxsize=1 << 16)
def entity_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the character spans ``(begin, end)`` of a sentence's entities, in order.

    >>> text = "Small left pleural effusion at the lung base."
    >>> [text[begin:end] for begin, end in entity_spans(text)]
    ['pleural effusion', 'lung base']
    """
    known = rules()
    words = word_places(text)
    forms = [form for form, _, _ in words]
    found = [
        (first, last) for first, last, (kind, _) in known.phrases.find_all(forms) if kind in ("mention", "structure")
    ]
    found += [(first, last) for first, last, place in known.places.find_all(forms) if place.regions or place.zone]
    spans: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if spans and first < spans[-1][1]:  # the region and the finding of "left lung opacity" share a word
            spans[-1] = spans[-1][0], max(last, spans[-1][1])
        else:
            spans.append((first, last))
    return tuple((words[first][1], words[last - 1][2]) for first, last in spans)

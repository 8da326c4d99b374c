"""Where a sentence names something clinical: findings, structures and regions by the lexicon.

"That's the Wrong Lung!" hides such words in training and takes them from SciSpaCy's entity linker; these come from the
rules that reports are read by. A side alone ("left") is no entity; a region with its side ("left lower lobe") is one.
"""

from __future__ import annotations

from functools import lru_cache

from rightlung.lexicon.rules import MENTION, STRUCTURE, rules
from rightlung.lexicon.wording import word_places


@lru_cache(maxsize=1 << 16)
def entity_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the entities of a sentence as places of their first and after their last character, in order.

    >>> text = "Small left pleural effusion at the lung base."
    >>> [text[begin:end] for begin, end in entity_spans(text)]
    ['pleural effusion', 'lung base']
    """
    known = rules()
    words = word_places(text)
    forms = [form for form, _, _ in words]
    found = [(first, last) for first, last, (kind, _) in known.phrases.find_all(forms) if kind in (MENTION, STRUCTURE)]
    found += [(first, last) for first, last, place in known.places.find_all(forms) if place.regions or place.zone]
    spans: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if spans and first < spans[-1][1]:  # "left lung opacity" is a region and a finding with a word in common
            spans[-1] = spans[-1][0], max(last, spans[-1][1])
        else:
            spans.append((first, last))
    return tuple((words[first][1], words[last - 1][2]) for first, last in spans)

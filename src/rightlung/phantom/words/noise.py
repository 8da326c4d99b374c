"""Typing errors that leave the meaning unchanged.

An error swaps two adjacent letters or drops one, inside a word that names no side, negation, hedge, finding or device.
The result is neither a word of the phrase bank nor a word for a side.
"""

from __future__ import annotations

import re

from rightlung.core.keyed import Stream
from rightlung.lexicon import sides_in
from rightlung.phantom.words.bank import finding_vocabulary, vocabulary

_WORD = re.compile(r"(?<![\w-])[a-z]{5,}(?![\w-])")
_MEANING = frozenset({
    "without", "neither", "cannot", "exclude", "excluded", "suspected", "possible", "possibly", "questionable", "could",
    "might", "perhaps", "equivocal", "negative", "absent", "clear", "normal", "normally", "unremarkable", "unchanged",
    "stable", "intact", "bilateral", "bilaterally", "within", "limits", "increased", "decreased", "upper", "lower",
    "middle", "lingula", "lingular", "apical", "basal", "basilar", "difficult", "question", "suspicious",
})  # fmt: skip


def slip(text: str, stream: Stream) -> str:
    """Return the text with one typing error, or unchanged if no word allows one."""
    kept = _MEANING | finding_vocabulary()
    words = [match for match in _WORD.finditer(text) if match[0] not in kept and not sides_in(match[0])]
    if not words:
        return text
    match = stream.choice(words)
    word = match[0]
    place = stream.integer(1, len(word) - 2)
    if stream.chance(0.5):
        changed = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    else:
        changed = word[:place] + word[place + 1 :]
    if changed == word or changed in vocabulary() or sides_in(changed):
        return text
    return text[: match.start()] + changed + text[match.end() :]

"""Words of a sentence in normal form, and the table that finds phrases among them.

Each word is looked up once, so the time does not grow with the number of rules, as it would with one large regular
expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

from rightlung.core.errors import InputError

Payload = TypeVar("Payload")

# Short forms with a slash are words; a hyphen separates words ("right-sided"). Any other mark is a word of its own,
# also a full stop without a space after it ("no effusion.pneumothorax"), which the splitter leaves within its sentence.
_WORD = re.compile(r"(?:s/p|h/o|w/o|r/o|c/w)\b|[^\W_]+|[,;:()\[\]/?]|(?<=[^\W\d_]{3})\.(?=[^\W\d_]{3})")
_WORD_ANY_CASE = re.compile(_WORD.pattern, re.IGNORECASE)
_PART = re.compile(r"\(([^()]*)\)|([^()]+)")

_IRREGULAR = {
    "(": "[", ")": "]",  # in templates, round brackets give a choice
    ".": ";",
    "hila": "hilum", "apices": "apex", "bases": "base", "bullae": "bulla", "vertebrae": "vertebra",
    "diagnoses": "diagnosis", "metastases": "metastasis", "atelectases": "atelectasis", "bronchi": "bronchus",
    "pneumothoraces": "pneumothorax", "hydropneumothoraces": "hydropneumothorax", "hemithoraces": "hemithorax",
    "granulomata": "granuloma", "foci": "focus", "sulci": "sulcus", "pleurae": "pleura",
    "masses": "mass", "processes": "process", "indices": "index", "prostheses": "prosthesis",
}  # fmt: skip
_BRITISH = (("oedema", "edema"), ("haem", "hem"), ("tumour", "tumor"), ("goitre", "goiter"), ("fibre", "fiber"),
            ("isation", "ization"), ("aeration", "aeration"), ("catheteris", "catheteriz"))  # fmt: skip
_KEPT = ("ss", "us", "is", "as", "os")


@lru_cache(maxsize=50_000)
def normal_form(word: str) -> str:
    """Return the form in which a lower-case word is compared: singular, American spelling.

    >>> normal_form("opacities"), normal_form("oedema"), normal_form("pneumothoraces"), normal_form("is")
    ('opacity', 'edema', 'pneumothorax', 'is')
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 3:
        for british, american in _BRITISH:
            word = word.replace(british, american)
        if word.endswith("ies") and len(word) > 4:
            return word[:-3] + "y"
        if word.endswith("s") and not word.endswith(_KEPT):
            return word[:-1]
    return word


def words_of(text: str) -> list[str]:
    """Return the words and punctuation marks of a text in normal form.

    >>> words_of("Right-sided opacities; no oedema.")
    ['right', 'sided', 'opacity', ';', 'no', 'edema']
    """
    return [normal_form(word) for word in _WORD.findall(text.lower().replace("’", "'").replace("n't", " not"))]


def word_places(text: str) -> list[tuple[str, int, int]]:
    """Return the words and punctuation marks of a text in normal form, each with its character span.

    >>> word_places("No oedema.")
    [('no', 0, 2), ('edema', 3, 9)]
    """
    return [(normal_form(match[0].lower()), match.start(), match.end()) for match in _WORD_ANY_CASE.finditer(text)]


def expand_phrase(template: str) -> Iterator[str]:
    """Yield every phrase of a template in which ``(one|another|)`` is a choice; brackets are not nested.

    >>> list(expand_phrase("no (evidence|sign|) of"))
    ['no evidence of', 'no sign of', 'no  of']
    """
    parts = list(_PART.finditer(template))
    if "".join(part[0] for part in parts) != template:
        raise InputError(f"the phrase {template!r} has unbalanced or nested brackets")
    for chosen in product(*(part[1].split("|") if part[2] is None else [part[2]] for part in parts)):
        yield "".join(chosen)


Node = dict[str, object]
_HERE = ""  # no word is empty: a node holds the meaning of a phrase that ends there under this key


class PhraseTable(Generic[Payload]):
    """Phrases with their meanings, as a tree of words in which the longest match is found."""

    def __init__(self) -> None:
        self.first: Node = {}

    def add(self, template: str, payload: Payload) -> None:
        """Add every phrase of a template; a phrase added before gets the new meaning."""
        for phrase in expand_phrase(template):
            node = self.first
            words = words_of(phrase)
            if not words:
                raise InputError(f"the phrase {template!r} can be empty")
            for word in words:
                following = node.setdefault(word, {})
                assert isinstance(following, dict)
                node = following
            node[_HERE] = payload

    def find_all(self, words: list[str]) -> list[tuple[int, int, Payload]]:
        """Return (start, end, meaning) of the longest non-overlapping phrases from left to right."""
        found: list[tuple[int, int, Payload]] = []
        first = self.first
        position, count = 0, len(words)
        while position < count:
            node = first.get(words[position])
            if node is None:
                position += 1
                continue
            at, end, meaning = position + 1, 0, None
            while True:
                here = node.get(_HERE)  # type: ignore[attr-defined]
                if here is not None:
                    end, meaning = at, here
                node = node.get(words[at]) if at < count else None  # type: ignore[attr-defined]
                if node is None:
                    break
                at += 1
            if end:
                found.append((position, end, meaning))  # type: ignore[arg-type]
                position = end
            else:
                position += 1
        return found

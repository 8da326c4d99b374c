"""Templates of sentences: ``(one|another|)`` chooses, ``{slot}`` is filled, ``a/an`` agrees with what follows.

>>> from rightlung.core.keyed import Stream
>>> polish(expand("there is {np}", Stream(0), {"np": "a/an effusion"}))
'There is an effusion.'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from rightlung.core.errors import InputError
from rightlung.core.keyed import Stream

_TOKEN = re.compile(r"[()|]|\{[a-z_ ]+\}|[^()|{}]+")
_SPACES = re.compile(r"\s+")
_BEFORE_STOP = re.compile(r"\s+([,.;])")
_ARTICLE = re.compile(r"\b([Aa])/an (\S+)")
# Said letter by letter, these begin with a vowel: "an ET tube", "an NG tube", "an LLL opacity".
_VOWEL_LETTERS = "AEFHILMNORSX"
_CONSONANT_SOUND = ("uni", "use", "one", "eu")


class _Choice:
    __slots__ = ("options",)

    def __init__(self, options: list[list[object]]) -> None:
        self.options = options


class _Slot:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


@cache
def _parse(template: str) -> list[object]:
    tokens = _TOKEN.findall(template)
    if "".join(tokens) != template:
        raise InputError(f"the template {template!r} has a stray brace")
    stack: list[list[list[object]]] = [[[]]]
    for token in tokens:
        if token == "(":
            stack.append([[]])
        elif token == "|" and len(stack) > 1:
            stack[-1].append([])
        elif token == ")" and len(stack) > 1:
            options = stack.pop()
            stack[-1][-1].append(_Choice(options))
        elif token in ("|", ")"):
            raise InputError(f"the template {template!r} has a stray {token!r}")
        else:
            stack[-1][-1].append(_Slot(token[1:-1]) if token[0] == "{" else token)
    if len(stack) > 1:
        raise InputError(f"the template {template!r} leaves a bracket open")
    return stack[0][0]


def expand(template: str, stream: Stream, slots: Mapping[str, str]) -> str:
    """Return one of the texts that a template stands for."""
    parts: list[str] = []
    _write(_parse(template), stream, slots, parts)
    return "".join(parts)


def _write(nodes: list[object], stream: Stream, slots: Mapping[str, str], parts: list[str]) -> None:
    for node in nodes:
        if isinstance(node, str):
            parts.append(node)
        elif isinstance(node, _Slot):
            parts.append(slots[node.name])
        elif isinstance(node, _Choice):
            _write(stream.choice(node.options), stream, slots, parts)


@cache
def slots_of(template: str) -> frozenset[str]:
    """Return the names of the slots of a template."""
    return frozenset(re.findall(r"\{([a-z_ ]+)\}", template))


def _article(match: re.Match[str]) -> str:
    word = match[2]
    if re.match(r"[A-Z]{2}", word):
        vowel = word[0] in _VOWEL_LETTERS
    elif word[0].isdigit():
        vowel = word[0] == "8" or re.match(r"1[18](?!\d)", word) is not None
    else:
        vowel = word[0].lower() in "aeiou" and not word.lower().startswith(_CONSONANT_SOUND)
    return f"{match[1]}{'n' if vowel else ''} {word}"


def phrase(text: str) -> str:
    """Return the text with single spaces and articles that agree."""
    text = _BEFORE_STOP.sub(r"\1", _SPACES.sub(" ", text).strip())
    return _ARTICLE.sub(_article, text)


def polish(text: str) -> str:
    """Return the text as a sentence: first letter large, full stop at the end."""
    text = phrase(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")

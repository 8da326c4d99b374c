"""Templates of sentences: ``(one|another|)`` is a choice, ``{slot}`` is filled in, ``a/an`` agrees with the next word.

>>> from rightlung.core.keyed import RandomStream
>>> polish(expand("there is {np}", RandomStream(0), {"np": "a/an effusion"}))
'There is an effusion.'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from rightlung.core.errors import InputError
from rightlung.core.keyed import RandomStream

_TOKEN = re.compile(r"[()|]|\{[a-z_ ]+\}|[^()|{}]+")
_SPACES = re.compile(r"\s+")
_BEFORE_STOP = re.compile(r"\s+([,.;])")
_ARTICLE = re.compile(r"\b([Aa])/an (\S+)")
# Spelled letter by letter, these begin with a vowel: "an ET tube", "an NG tube", "an LLL opacity".
_VOWEL_LETTERS = "AEFHILMNORSX"
_CONSONANT_SOUND = ("uni", "use", "one", "eu")


Node = str | tuple[str] | list[list["Node"]]  # a piece of a template: plain words, the name of a slot, or a choice


@cache
def _parse(template: str) -> list[Node]:
    tokens = _TOKEN.findall(template)
    if "".join(tokens) != template:
        raise InputError(f"the template {template!r} has an unmatched brace")
    stack: list[list[list[Node]]] = [[[]]]
    for token in tokens:
        if token == "(":
            stack.append([[]])
        elif token == "|" and len(stack) > 1:
            stack[-1].append([])
        elif token == ")" and len(stack) > 1:
            choice = stack.pop()
            stack[-1][-1].append(choice)
        elif token in ("|", ")"):
            raise InputError(f"the template {template!r} has an unmatched {token!r}")
        else:
            stack[-1][-1].append((token[1:-1],) if token[0] == "{" else token)
    if len(stack) > 1:
        raise InputError(f"the template {template!r} has an unclosed bracket")
    return stack[0][0]


def expand(template: str, stream: RandomStream, slots: Mapping[str, str]) -> str:
    """Return one of the texts that a template generates."""
    return _written(_parse(template), stream, slots)


def _written(nodes: list[Node], stream: RandomStream, slots: Mapping[str, str]) -> str:
    return "".join(
        node if isinstance(node, str)
        else slots[node[0]] if isinstance(node, tuple)
        else _written(stream.choice(node), stream, slots)
        for node in nodes
    )  # fmt: skip


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
    """Return the text as a sentence: capitalised, with a full stop."""
    text = phrase(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", ".")) else ".")

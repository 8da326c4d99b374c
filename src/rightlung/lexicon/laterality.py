"""Left and right in words: swap them, find them, and mirror a phrase together with its targets.

Swapping by substring turns "upright" into "upleft"; here whole words are swapped and their case is kept. The swap is
its own inverse for every text, so that a text mirrored twice is the text.

What is left alone: "R" and "L" on their own (L is also lumbar), upper-case "RT" and "LT" (radiotherapy, respiratory
therapy), RML (the left lung has no middle lobe). "Left" as a verb cannot be told from the side and is swapped.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from rightlung.lexicon.regions import REGIONS

if TYPE_CHECKING:
    from rightlung.core import Phrase

Side = Literal["left", "right"]

# A word ends where a letter or digit does; an underscore divides words ("left_lung", "___right").
_START, _END = r"(?<![^\W_])", r"(?![^\W_])"


def _side_words() -> tuple[tuple[str, str], ...]:
    """Return the pairs (left, right) of words that name a side."""
    directions = ("", "s", "ward", "wards", "most", "sided")
    curves = ("", "scoliosis", "scoliotic", "position", "positioned", "positioning", "convex", "convexity",
              "rotation", "rotated", "rotatory", "curvature", "curve", "cardia", "version")  # fmt: skip
    # Lobes and zones, jugular and subclavian lines, extremities, quadrants. Not the oblique views: Rao is a name.
    letters = ("ul", "ll", "uz", "mz", "lz", "ij", "sc", "ue", "le", "uq", "lq")
    return (
        *((f"left{ending}", f"right{ending}") for ending in directions),
        *((f"levo{ending}", f"dextro{ending}") for ending in curves),
        *((f"l{rest}", f"r{rest}") for rest in letters),
        ("lt", "rt"),
    )


_PAIRS = _side_words()
_OTHER = {**dict(_PAIRS), **{right: left for left, right in _PAIRS}}
_SIDE: dict[str, Side] = {**{left: "left" for left, _ in _PAIRS}, **{right: "right" for _, right in _PAIRS}}

# The words are matched in ASCII: otherwise "ſ" would count as an s and a dotless "ı" as an i, with no case to keep.
_WORD = re.compile(f"{_START}(?ai:{'|'.join(sorted(_OTHER, key=len, reverse=True))}){_END}")
_RIGHT_ONLY = re.compile(f"{_START}(?ai:rml){_END}")
_BOTH = re.compile(
    _START + r"(?ai:bilateral(?:ly)?|bibasilar|bibasal|biapical|bihilar|"
    r"both[\s-]+(?:[a-z]+[\s-]+)?(?:lungs?|sides?|bases|apices|hila|hemithora\w*|hemidiaphragms?|costophrenic|pleural|clavicles|lobes|upper|lower|zones|breasts|shoulders))"
    + _END
)


def _swap_word(word: str) -> str:
    """Return the word for the other side with the case pattern kept, or the word itself where that cannot be undone.

    The two words differ in length ("left", "right"), so there are more ways to write one than the other, and not every
    odd pattern can have a partner. The shorter word's pattern goes to the longer one by repeating its last
    letter's case; a longer word whose surplus letters differ in case ("righT") stays as it is. Lower, Capitalised and
    UPPER all have partners.
    """
    other = _OTHER[word.lower()]
    if word in ("LT", "RT"):
        return word
    upper = [letter.isupper() for letter in word]
    shorter = min(len(word), len(other))
    if any(case != upper[shorter - 1] for case in upper[shorter:]):
        return word
    upper.extend([upper[-1]] * (len(other) - len(word)))
    return "".join(letter.upper() if case else letter for letter, case in zip(other, upper[: len(other)], strict=True))


def swap_sides(text: str) -> str:
    """Return the text with left and right exchanged, its own inverse.

    >>> swap_sides("Right-sided effusion, upright. LEFT lung clear, bilateral scarring.")
    'Left-sided effusion, upright. RIGHT lung clear, bilateral scarring.'
    """
    return _WORD.sub(lambda match: _swap_word(match[0]), text)


def sides_in(text: str) -> frozenset[Side]:
    """Return the sides that a text names; "bilateral" and the like name both.

    >>> sorted(sides_in("Bibasilar atelectasis"))
    ['left', 'right']
    """
    sides: set[Side] = {_SIDE[match[0].lower()] for match in _WORD.finditer(text) if match[0] not in ("LT", "RT")}
    if _BOTH.search(text):
        sides.update(("left", "right"))
    if _RIGHT_ONLY.search(text):
        sides.add("right")
    return frozenset(sides)


def side_of(text: str) -> Literal["left", "right", "both"] | None:
    """Return the one side that a text names, ``both``, or None where it names none."""
    sides = sides_in(text)
    if len(sides) == 2:
        return "both"
    return next(iter(sides), None)


def _mirror_name(name: str) -> str:
    # Not mirror_region, which takes aliases and would give "left lower lobe" back as "right lower lung zone".
    return REGIONS[name].mirror if name in REGIONS else swap_sides(name)


def mirror_phrase(phrase: Phrase) -> Phrase:
    """Return the phrase for the image flipped left to right: words, boxes, mask and region names together.

    Flipping pixels without the words teaches a model that left and right are the same (ChEX did, p = 0.5).
    """
    return replace(
        phrase,
        text=swap_sides(phrase.text),
        boxes=tuple(box.mirrored() for box in phrase.boxes),
        mask=None if phrase.mask is None else phrase.mask.mirrored(),
        regions=tuple(_mirror_name(name) for name in phrase.regions),
    )

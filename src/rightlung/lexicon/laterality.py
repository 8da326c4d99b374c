"""Left and right in texts: swap them, find them, and mirror a phrase together with its targets.

Whole words are swapped and keep their case: swapping substrings would turn "upright" into "upleft". Swapping or
mirroring twice restores every text. ``docs/lexicon.md`` lists what is swapped and what is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from rightlung.lexicon.data_files import check_text
from rightlung.lexicon.regions import REGIONS

if TYPE_CHECKING:
    from rightlung.core import Phrase

Side = Literal["left", "right"]

# A word ends with its last letter or digit; an underscore separates words ("left_lung", "___right").
_START, _END = r"(?<![^\W_])", r"(?![^\W_])"


_ENDINGS = {
    ("left", "right"): ("", "s", "ward", "wards", "most", "sided"),
    ("levo", "dextro"): ("", "scoliosis", "scoliotic", "position", "positioned", "positioning", "convex", "convexity",
                         "rotation", "rotated", "rotatory", "curvature", "curve", "cardia", "version"),
    # Lobes and zones, jugular and subclavian lines, extremities, quadrants. Not oblique views: Rao is also a name.
    ("l", "r"): ("ul", "ml", "ll", "uz", "mz", "lz", "ij", "sc", "ue", "le", "uq", "lq", "-sided", "t"),
}  # fmt: skip
_PAIRS = {left + ending: right + ending for (left, right), endings in _ENDINGS.items() for ending in endings}
_OTHER = _PAIRS | {right: left for left, right in _PAIRS.items()}
_SIDE: dict[str, Side] = {word: "left" if word in _PAIRS else "right" for word in _OTHER}

# Words are matched in ASCII: otherwise "ſ" would count as an s and a dotless "ı" as an i, which have no matching case.
_WORD = re.compile(f"{_START}(?ai:{'|'.join(sorted(_OTHER, key=len, reverse=True))}){_END}")
_LEFT_ONLY = re.compile(f"{_START}(?ai:lingular?){_END}")
_PAIRED = (
    "lungs?|sides?|bases|apices|hila|hemithora[a-z]*|hemidiaphragms?|costophrenic|pleural|clavicles|lobes|upper|lower|"
    "zones|breasts|shoulders"
)
_BOTH = re.compile(
    f"{_START}(?ai:bilateral(?:ly)?|bi-?(?:basilar|basal|apical|hilar)|"
    rf"both[\s-]+(?:of\s+(?:the\s+|these\s+)?)?(?:[a-z]+[\s-]+)?(?:{_PAIRED})){_END}"
)
# "left atrium", "left and right ventricles"; but the first of "on the right and left atrial enlargement" is a side.
_FIRST = r"(?:left|right)(?:\s+(?:and|or)\s+|/)"
_SECOND = r"(?:left|right|[lr]t\.?)[\s-]+"
_CHAMBER = (
    rf"{_START}(?ai:(?:{_FIRST})?{_SECOND}(?:atria|ventricles)|"
    rf"(?:(?<!on the )(?<!to the ){_FIRST})?{_SECOND}(?:atrium|atrial|ventricle|ventricular)){_END}"
)
_WORD_OR_CHAMBER = re.compile(f"(?P<chamber>{_CHAMBER})|{_WORD.pattern}")


def _swap_word(word: str) -> str:
    """Return the word for the other side in the same case pattern, or the word itself if that could not be undone.

    "Left" and "right" differ in length. The case of the shorter word's last letter is repeated for the longer one; a
    longer word whose extra letters differ in case ("righT") stays. Lower, Capitalised and UPPER all have counterparts.
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
    """Return the text with left and right exchanged; applying it twice restores the text.

    >>> swap_sides("Right-sided effusion, upright. LEFT lung clear, bilateral scarring.")
    'Left-sided effusion, upright. RIGHT lung clear, bilateral scarring.'
    """
    return _WORD.sub(lambda match: _swap_word(match[0]), check_text(text, "the text to swap sides in"))


def _mirror_text(text: str) -> str:
    """Return the text with its sides exchanged except for the names of heart chambers."""
    return _WORD_OR_CHAMBER.sub(lambda match: match[0] if match["chamber"] else _swap_word(match[0]), text)


def sides_in(text: str) -> frozenset[Side]:
    """Return the sides that a text names; "bilateral" and the like name both, the lingula is left.

    >>> sorted(sides_in("Bibasilar atelectasis"))
    ['left', 'right']
    """
    check_text(text, "the text to find sides in")
    sides: set[Side] = {_SIDE[match[0].lower()] for match in _WORD.finditer(text) if match[0] not in ("LT", "RT")}
    if _BOTH.search(text):
        sides.update(("left", "right"))
    if _LEFT_ONLY.search(text):
        sides.add("left")
    return frozenset(sides)


def side_of(text: str) -> Literal["left", "right", "both"] | None:
    """Return the side that a text names: left, right, both, or None."""
    sides = sides_in(text)
    return "both" if len(sides) == 2 else next(iter(sides), None)


def _mirror_names(names: Iterable[str]) -> tuple[str, ...]:
    # Not mirror_region, which resolves aliases and would turn "left lower lobe" into "right lower lung zone".
    return tuple(REGIONS[name].mirror if name in REGIONS else _mirror_text(name) for name in names)


def mirror_phrase(phrase: Phrase) -> Phrase:
    """Return the phrase for the mirrored image: words, boxes, mask and region names together.

    Flipping pixels without the words teaches a model that left and right are the same (ChEX did, p = 0.5).
    """
    return replace(
        phrase,
        text=_mirror_text(phrase.text),
        boxes=tuple(box.mirrored() for box in phrase.boxes),
        mask=None if phrase.mask is None else phrase.mask.mirrored(),
        regions=_mirror_names(phrase.regions),
        locations={finding: _mirror_names(regions) for finding, regions in phrase.locations.items()},
    )

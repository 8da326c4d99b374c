"""Changes to a phrase's words with known truth: swap the side, remove it, or mirror everything."""

from __future__ import annotations

import re
from functools import lru_cache

from rightlung.core import Phrase
from rightlung.lexicon.laterality import mirror_phrase, sides_in, swap_sides

# "on the left" as a whole if no place follows ("on the left side", but not "on the left lung base").
_PLACE = re.compile(
    r",?\s*\b(?:on|at|in|to)\s+the\s+(?:left|right)(?:\s+side)?\b(?=\s*(?:[,.;:]|$|and\b|with\b|is\b|are\b|may\b))",
    re.IGNORECASE,
)
_SIDE = re.compile(r"\b(?:left|right)(?:[\s-]+sided)?\b\s*", re.IGNORECASE)
# Letter codes of lobes and zones: "RUL" without its side is the upper lobe.
_LETTERS = re.compile(r"\b[RL]([UML])([LZ])\b")
_PARTS = {"U": "upper", "M": "middle", "L": "lower"}
# Places and organs that are on one side without naming it: in a mirrored image they would be misplaced. For the heart,
# which nearly every report names, see docs/training.md.
_ONE_SIDED = re.compile(
    r"\b(?:middle[\s-]+lob(?:e|es|ar)|[rl]ml|lingular?|azygo(?:s|us)|(?:minor|horizontal)\s+fissur(?:e|es|al)|"
    r"situs|heterotax\w*|isomerism|kartagener\w*|(?:dextro|levo)(?:cardia|version|position\w*)|retro-?cardiac|"
    r"aort(?:a|ic)\s+(?:arch|knob|knuckle|bulb)|arch\s+of\s+the\s+aorta|descending\s+(?:thoracic\s+)?aorta|"
    r"aorto-?pulmonary|ap\s+window|(?:superior|inferior)\s+vena\s+cava|svc|ivc|cavo-?atrial|innominate|"
    r"gastric|stomach|(?:hiatal|hiatus)\s+hernia|splen\w+|spleen|liver|hepat\w+|gall\s?bladder|cholecyst\w+|"
    r"(?:naso|oro)-?(?:gastric|enteric)|(?:enteric|feeding)\s+tubes?|dob-?hoff|ngt|ogt|[no]g[\s-]+tubes?)\b",
    re.IGNORECASE,
)
# Letters that may mean a side or something else (lumbar, radiotherapy), and heart chambers in letters.
_LETTER = re.compile(r"(?<![^\W_])(?:[LRlr](?!-sided)|LT|RT|[LR](?:A|V|VH|VAD))(?![^\W_])")
_ARTICLE = re.compile(r"\b(an?)\s+(?=([a-z]))", re.IGNORECASE)


@lru_cache(maxsize=1 << 16)
def without_side(text: str) -> str | None:
    """Return a text without the words for its side, None if that is impossible.

    >>> without_side("A left upper lobe opacity."), without_side("Fluid on the right."), without_side("Lingular scar.")
    ('An upper lobe opacity.', 'Fluid.', None)
    """
    changed = _SIDE.sub("", _PLACE.sub("", text))
    changed = _LETTERS.sub(_spelt_out, changed)
    changed = with_articles(" ".join(changed.split()))
    changed = re.sub(r"\s+([,.;:])", r"\1", changed).strip()
    if not changed or changed == text or sides_in(changed) or not re.search(r"[a-z]{3}", changed, re.IGNORECASE):
        return None
    return changed[0].upper() + changed[1:] if text[0].isupper() else changed


def with_articles(text: str) -> str:
    """Return a text with "a" or "an" as the following word needs it.

    >>> with_articles("An small effusion")
    'A small effusion'
    """
    return _ARTICLE.sub(_agreeing, text)


def _spelt_out(match: re.Match[str]) -> str:
    words = f"{_PARTS[match[1]]} {'lobe' if match[2] == 'L' else 'zone'}"
    return words.upper() if match.string.isupper() else words


def _agreeing(match: re.Match[str]) -> str:
    following = match.string[match.end() :].lower()
    right = "an" if following.startswith((*"aeio", "up", "un", "ul")) else "a"
    article = right.upper() if match[1].isupper() and len(match[1]) > 1 else right
    return (article[0].upper() + article[1:] if match[1][0].isupper() else article) + " "


@lru_cache(maxsize=1 << 16)
def with_sides_exchanged(text: str) -> str | None:
    """Return a text about one side as one about the other, None if it does not name exactly one."""
    if len(sides_in(text)) != 1:
        return None
    changed = swap_sides(text)
    return changed if changed != text and sides_in(changed).isdisjoint(sides_in(text)) else None


@lru_cache(maxsize=1 << 17)
def mirrored(text: str) -> str | None:
    """Return what a text says about the mirrored image, None if words cannot say it.

    >>> mirrored("Left basal opacity."), mirrored("Clear lungs."), mirrored("Lingular opacity.")
    ('Right basal opacity.', 'Clear lungs.', None)
    """
    if _ONE_SIDED.search(text) or _LETTER.search(text):
        return None
    changed = mirror_phrase(Phrase(text)).text
    other = {"left": "right", "right": "left"}
    return changed if sides_in(changed) == {other[side] for side in sides_in(text)} else None

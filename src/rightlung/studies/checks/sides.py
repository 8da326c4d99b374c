"""Check whether boxes are where their words and regions say, one by one and all together.

The patient's left is on the image's right. One box on the other side may be a slip; if most are, the images or
coordinates are mirrored, and if heights fit better as widths, x and y are swapped. A sign test decides: among the boxes
for which two interpretations differ, how many support each.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rightlung.core import Box
from rightlung.lexicon import REGIONS, find, sides_in
from rightlung.studies.checks.coordinates import Numbers
from rightlung.studies.checks.issue import HINT, Ledger, Origin
from rightlung.studies.checks.targets import Item, LintTarget, region_name
from rightlung.studies.files import shown

_BEYOND = 0.08
"""How far from the midline a box must be to be on a side: patients are rotated and off-centre."""
_UNDECIDED = 0.05
# Structures that have a side in their name but are near the midline or cross it; and directions.
_NO_PLACE = re.compile(
    r"\b(?:shift\w*|deviat\w*|rotat\w*|toward\w*|scolio\w*|convex\w*|curv\w*|tips?|terminat\w*|picc|catheters?|lines?|"
    r"tubes?|tubing|ports?|port-a-cath|leads?|pacemakers?|pacer|icd|wires?|defibrillator|electrodes?|stents?|grafts?|"
    r"swan|ganz|jugular|subclavian|ij|atri\w*|ventric\w*|heart|cardi\w*|aort\w*|trachea\w*|mediastin\w*|paratracheal|"
    r"paraspinal|vertebra\w*|spine|hernia\w*|main\s?stem|mainstem|bronch\w*|arteries|artery|vein|svc|compar\w*|than|"
    r"contralateral|other|opposite|unlike|views?|decubitus|lateral decubitus|oblique|position\w*|patient)\b",
    re.IGNORECASE,
)
_SAYS_MORE = re.compile(
    r"[;]|\.\s+\S|\b(?:no|not|without|clear|normal|unremarkable|negative|free|resolved|absen\w+|rather|but)\b",
    re.IGNORECASE,
)
"""In such a sentence the side may belong to something else than the box."""
_UPPER = re.compile(r"\b(?:upper|apical|apex|apices|supraclavicular)\b", re.IGNORECASE)
_LOWER = re.compile(r"\b(?:lower|basal|basilar|bibasilar|bibasal|bases?|costophrenic|infrahilar)\b", re.IGNORECASE)
_HIGH = {"upper", "apical", "trachea", "clavicle"}
_LOW = {"lower", "costophrenic", "hemidiaphragm", "abdomen", "cardiac", "diaphragm"}

_SIDES = {1: "left", -1: "right"}
_ENOUGH = 6
_RARE = 0.02
"""Against even odds; correct data is far from this, because nearly all votes support the given interpretation."""
_ENOUGH_IN_ONE = 8
"""Votes in one study from which its regions are judged as a whole."""


class Expectation(NamedTuple):
    """Where a box should be: ``side`` 1 for the image's right (the patient's left), ``level`` 1 for below the middle.

    ``shape`` is 1 for wider than tall, -1 for taller than wide. 0 always means unknown.
    """

    side: int = 0
    level: int = 0
    shape: int = 0


def expectation(target: LintTarget) -> Expectation:
    """Return what a target's region names, words and findings say about its place."""
    side = _side_in_words(target.text)
    names = _known_regions(target)
    if target.kind == "region":
        return _region_expectation(names[0]) if names else Expectation(side)
    sides = {_side_of_region(name) for name in names}
    if side and -side in sides:
        side = 0  # words and regions disagree, or describe both sides
    elif not side and len(sides) == 1 and not _NO_PLACE.search(target.text):
        side = sides.pop()
    level = bool(_LOWER.search(target.text)) - bool(_UPPER.search(target.text))
    found = {named.name for name in target.findings if (named := find(name)) is not None}
    if found == {"cardiomegaly"}:
        return Expectation(side, level=1, shape=1)
    return Expectation(side, 1 if not level and found == {"pleural effusion"} else level)


def _known_regions(target: LintTarget) -> list[str]:
    return [name for given in target.regions if (name := region_name(given)) is not None]


def _side_of_region(name: str) -> int:
    return {"left": 1, "right": -1}.get(REGIONS[name].side, 0)


def _region_expectation(name: str) -> Expectation:
    words = set(name.split())
    level = 1 if words & _LOW else -1 if words & _HIGH else 0
    shape = -1 if name in ("left lung", "right lung", "trachea", "spine") else 0
    return Expectation(_side_of_region(name), level, shape)


def _side_in_words(text: str) -> int:
    sides = sides_in(text)
    if len(sides) != 1 or _NO_PLACE.search(text) or _SAYS_MORE.search(text):
        return 0
    return 1 if "left" in sides else -1


_READINGS: dict[str, Callable[[float, float, float, float], Numbers]] = {
    "mirrored left to right": lambda x0, y0, x1, y1: (1 - x1, y0, 1 - x0, y1),
    "in the order y0, x0, y1, x1": lambda x0, y0, x1, y1: (y0, x0, y1, x1),
    "upside down": lambda x0, y0, x1, y1: (x0, 1 - y1, x1, 1 - y0),
    "x, y, width, height": lambda x0, y0, x1, y1: (x0, y0, x0 + x1, y0 + y1),
}


def _sign(value: float, dead: float) -> int:
    return 0 if abs(value) <= dead else 1 if value > 0 else -1


def votes(expected: Expectation, box: Numbers) -> tuple[int, int, int]:
    """Return for side, level and shape whether a box is as expected (1), not (-1), or unclear (0)."""
    x0, y0, x1, y1 = box
    wide = math.log(max(x1 - x0, 1e-9) / max(y1 - y0, 1e-9))
    return (
        expected.side * _sign((x0 + x1) / 2 - 0.5, _UNDECIDED),
        expected.level * _sign((y0 + y1) / 2 - 0.5, _UNDECIDED),
        expected.shape * _sign(wide, 0.15),
    )


def _compared(expected: Expectation, box: Numbers) -> Iterator[tuple[str, int]]:
    """Yield for each alternative interpretation 1 if it fits better than the given one, -1 if worse."""
    given = votes(expected, box)
    for name, reading in _READINGS.items():
        other = reading(*box)
        if max(other) > 1.02:  # a box outside the image contradicts the interpretation
            yield name, -1
            continue
        for before, after in zip(given, votes(expected, other), strict=True):
            if before * after == -1:
                yield name, after


def binomial_tail(count: int, total: int, share: float) -> float:
    """Return the probability of at least ``count`` of ``total`` events that have probability ``share`` each."""
    from scipy.stats import binom

    return float(binom.sf(count - 1, total, share))


class SideChecks:
    """The boxes of a source compared with their words."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.wins: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()

    def check(self, item: Item) -> None:
        """Check the boxes of one study."""
        wins: Counter[str] = Counter()
        losses: Counter[str] = Counter()
        for target in item.targets:
            self._check_words(item.place, target)
            expected = expectation(target)
            for _, box in target.boxes:
                for name, vote in _compared(expected, box.as_tuple()):
                    (wins if vote > 0 else losses)[name] += 1
            self._check_side(item.place, target, expected, item.void)
        for name in _READINGS:
            # Regions of one study are not independent, so a study has one vote.
            balance = wins[name] - losses[name]
            self.wins[name] += balance > 0
            self.losses[name] += balance < 0
        found = _best(wins, losses, _ENOUGH_IN_ONE, 0.004)
        if found is not None and losses[found] == 0:
            message = f"{wins[found]} boxes of this study fit their names better if read as {found}, none worse"
            self.ledger.add("box-layout", item.place, "regions" if item.study.regions else "boxes", message)

    def _check_words(self, place: Origin, target: LintTarget) -> None:
        if target.kind == "region" or not target.regions:
            return
        said = _side_in_words(target.text)
        names = _known_regions(target)
        if said and names and all(_side_of_region(name) == -said for name in names):
            told = f"the words say {_SIDES[said]}, but the regions are {_SIDES[-said]}"
            message = f"{told}: {shown(target.text, 72)}, {', '.join(names)}"
            self.ledger.add("box-side", place, f"{target.field}.regions", message)

    def _check_side(self, place: Origin, target: LintTarget, expected: Expectation, void: frozenset[str]) -> None:
        boxes = [(name, box) for name, box in target.boxes if name not in void]
        # A mask's box is used only without boxes, because decoding is expensive.
        if expected.side:
            wrong = [(name, box) for name, box in boxes if _is_beyond(box, -expected.side)]

            partly = len(wrong) < len(boxes)
            for name, box in wrong if not partly or _is_plain(target.text) else ():
                self._report_side(place, name, target, expected.side, box, partly)
        if target.kind == "region" and expected.level:
            for name, box in boxes:
                if box.y1 < 0.35 if expected.level > 0 else box.y0 > 0.65:
                    where = "top" if expected.level > 0 else "bottom"
                    self.ledger.add("box-level", place, name, f"{target.text!r} is at the {where} of the image")

    def check_mask(self, item: Item, target: LintTarget, box: Box) -> bool:
        """Check the side of a mask without boxes; ``box`` is its bounding box. Return whether it is wrong."""
        expected = expectation(target)
        if expected.side and target.mask is not None and not target.boxes and _is_beyond(box, -expected.side):
            self._report_side(item.place, target.mask[0], target, expected.side, box, False)
            return True
        return False

    def _report_side(self, place: Origin, name: str, target: LintTarget, side: int, box: Box, partly: bool) -> None:
        word = _SIDES[side]
        message = (
            f"{shown(target.text, 72)} is on the patient's {word}, but the box is on the image's {word} "
            f"(x from {box.x0:.2f} to {box.x1:.2f}), which is the patient's {_SIDES[-side]}"
        )
        self.ledger.add("box-side", place, name, message, HINT if partly else None)

    def finish(self, place: Origin) -> None:
        """Report whether all boxes together fit better with another interpretation."""
        found = _best(self.wins, self.losses, _ENOUGH, _RARE)
        if found is not None:
            wins, losses = self.wins[found], self.losses[found]
            message = (
                f"the boxes look {'' if found[0] in 'mu' else 'like '}{found}: by the sides, heights and shapes that "
                f"words, labels and regions predict, {wins:,} of {wins + losses:,} studies fit better so and "
                f"{losses:,} worse"
            )
            self.ledger.add("box-layout", place, None, message)


def _is_plain(text: str) -> bool:
    """Whether a text describes only one thing."""
    return len(text.split()) <= 8 and not re.search(r"[,;]|\b(?:and|with|or)\b", text)


def _is_beyond(box: Box, side: int) -> bool:
    """Whether a box is on the image's right (1) or left (-1), with hardly any of it on the other side."""
    centre = box.centre[0]
    if side > 0:
        return centre > 0.5 + _BEYOND and box.x0 > 0.5 - 0.2 * box.width
    return centre < 0.5 - _BEYOND and box.x1 < 0.5 + 0.2 * box.width


def _best(wins: Counter[str], losses: Counter[str], enough: int, rare: float) -> str | None:
    """Return the interpretation that the counts clearly support, the clearest if there are several."""
    clear = [
        name
        for name in _READINGS
        if wins[name] >= enough
        and wins[name] >= 6 * losses[name]
        and binomial_tail(wins[name], wins[name] + losses[name], 0.5) < rare
    ]
    return max(clear, key=lambda name: wins[name] - losses[name], default=None)

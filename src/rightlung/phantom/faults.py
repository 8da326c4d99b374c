"""Faults planted in synthetic data, to show that an audit detects them. ``docs/phantom.md`` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rightlung.core.box import Box
from rightlung.core.errors import InputError, unknown_name
from rightlung.core.keyed import RandomStream, key_uniform
from rightlung.core.mask import Mask
from rightlung.core.study import Image
from rightlung.lexicon import find
from rightlung.phantom.config import FINDING_ORDER
from rightlung.phantom.image.marks import lettering
from rightlung.phantom.scene import Device, Scene, Side
from rightlung.phantom.truth import present_findings

SHORTCUTS: Mapping[str, str] = {"marker": "pneumonia", "tube": "pneumothorax", "border": "cardiomegaly"}
"""The shortcuts, each with its default finding."""

PAINTED: tuple[str, ...] = ("marker", "border")
"""The shortcuts whose sign is painted over the image."""

SHARES: tuple[str, ...] = ("mirrored", "shuffled", "wrong-boxes")
"""Faults that affect a share of the studies, whatever they show."""

FAULT_NAMES: tuple[str, ...] = (*SHORTCUTS, *SHARES)

_MARKER = "ICU"
_TUBE = "chest tube"
_BLOCK = 64  # reports are exchanged within blocks of this many studies, so that a study does not depend on the count


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of planted fault; ``finding`` is the one that a shortcut correlates with, empty for the others."""

    name: str
    strength: float
    finding: str = ""

    def __post_init__(self) -> None:
        if self.name not in FAULT_NAMES:
            raise unknown_name("shortcut", str(self.name), FAULT_NAMES)
        number = isinstance(self.strength, int | float) and not isinstance(self.strength, bool)
        if not number or not 0.0 <= self.strength <= 1.0:
            raise InputError(f"shortcut {self.name}: the strength must be a number from 0 to 1; got {self.strength!r}")
        if self.name in SHARES and self.finding:
            raise InputError(f"shortcut {self.name} takes no finding; got {self.finding!r}")
        if self.name in SHORTCUTS:
            given = self.finding or SHORTCUTS[self.name]
            meant = find(given) if given.strip() else None
            if meant is None or meant.name not in FINDING_ORDER:
                raise unknown_name(f"finding for shortcut {self.name}:", given, FINDING_ORDER)
            object.__setattr__(self, "finding", meant.name)
        object.__setattr__(self, "strength", float(self.strength))

    def __str__(self) -> str:
        goes_with = f":{self.finding}" if self.finding else ""
        return f"{self.name}{goes_with}={self.strength:g}"


def parse_fault(text: str) -> Fault:
    """Parse ``NAME=STRENGTH`` or ``NAME:FINDING=STRENGTH``; a colon may replace the equals sign.

    >>> parse_fault("marker:effusion=0.9")
    Fault(name='marker', strength=0.9, finding='pleural effusion')
    """
    head, separator, number = text.rpartition("=" if "=" in text else ":")
    if not separator:
        raise InputError(f"a shortcut is NAME=STRENGTH, such as marker=0.9; got {text!r}")
    name, _, finding = (part.strip() for part in head.partition(":"))
    try:
        strength = float(number)
    except ValueError:
        raise InputError(f"shortcut {name}: the strength must be a number from 0 to 1; got {number!r}") from None
    return Fault(name, strength, finding)


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """Parse several faults, each name at most once, and return them in a fixed order."""
    faults: dict[str, Fault] = {}
    for text in texts:
        fault = parse_fault(text)
        if fault.name in faults:
            raise InputError(f"shortcut {fault.name} is given twice")
        faults[fault.name] = fault
    return tuple(faults[name] for name in FAULT_NAMES if name in faults)


def find_fault(faults: Sequence[Fault], name: str) -> Fault | None:
    """Return the fault of this name, if it is planted."""
    return next((fault for fault in faults if fault.name == name), None)


def shows_sign(fault: Fault, scene: Scene) -> bool:
    """Whether a shortcut's sign appears in this study."""
    there = fault.finding in present_findings(scene)
    probability = (1.0 + fault.strength) / 2.0 if there else (1.0 - fault.strength) / 2.0
    return key_uniform(scene.seed, scene.index, "fault", fault.name) < probability


def painted_signs(scene: Scene, faults: Sequence[Fault]) -> dict[str, bool]:
    """Return whether each planted sign that is painted over the image appears in this study."""
    return {fault.name: shows_sign(fault, scene) for fault in faults if fault.name in PAINTED}


def strikes(fault: Fault, seed: int, index: int) -> bool:
    """Whether a fault that affects a share of the studies affects this one."""
    return key_uniform(seed, index, "fault", fault.name) < fault.strength


def plant_tube(scene: Scene, faults: Sequence[Fault]) -> Scene:
    """Return the scene with a chest tube added or removed as the fault requires; the report will mention it."""
    fault = find_fault(faults, "tube")
    if fault is None:
        return scene
    others = tuple(device for device in scene.devices if device.kind != _TUBE)
    if not shows_sign(fault, scene):
        return replace(scene, devices=others)
    if len(others) < len(scene.devices):
        return scene
    stream = RandomStream(scene.seed, scene.index, "fault", "tube", "device")
    sides: list[Side] = [
        lesion.side
        for lesion in scene.lesions
        if lesion.finding in (fault.finding, "pneumothorax", "pleural effusion") and lesion.side in ("left", "right")
    ]
    side: Side = sides[0] if sides else stream.choice(("left", "right"))
    tube = Device(_TUBE, side, stream.choice(("apex", "base")), stream.uniform(0.3, 0.9), True, stream.seed())
    return replace(scene, devices=(*others, tube))


def paint(image: Image, scene: Scene, faults: Sequence[Fault], signs: Mapping[str, bool] | None = None) -> Image:
    """Return the image with its marker and border, mirrored last; ``signs`` overrules whether one of them appears."""
    shown = painted_signs(scene, faults) | {**(signs or {})}
    mirrored = find_fault(faults, "mirrored")
    painted = image
    if shown.get("marker"):
        painted = _marked(painted, RandomStream(scene.seed, scene.index, "fault", "marker", "place"))
    if shown.get("border"):
        painted = _framed(painted)
    if mirrored is not None and strikes(mirrored, scene.seed, scene.index):
        painted = np.ascontiguousarray(painted[:, ::-1])
    return painted


def _marked(image: Image, stream: RandomStream) -> Image:
    """Burn a word into a lower corner, inside the collimator's borders, where no side letter ever is."""
    size = image.shape[0]
    letters = lettering(_MARKER, max(7, round(size * 0.04)))
    height, width = letters.shape
    inset = round(size * stream.uniform(0.08, 0.11))
    left = inset if stream.chance(0.5) else size - inset - width
    top = size - inset - height
    marked = image.copy()
    window = marked[top : top + height, left : left + width]
    np.maximum(window, np.float32(0.97) * letters, out=window)
    return marked


def _framed(image: Image) -> Image:
    width = max(2, round(image.shape[0] * 0.015))
    framed = np.full_like(image, 0.9)
    framed[width:-width, width:-width] = image[width:-width, width:-width]
    return framed


def report_donor(index: int, seed: int, faults: Sequence[Fault]) -> int | None:
    """Return the index of the study whose report this one has received in exchange, None if it has its own."""
    fault = find_fault(faults, "shuffled")
    if fault is None:
        return None
    block, place = divmod(index, _BLOCK)
    order = RandomStream(seed, "fault", "shuffled", block).shuffled(range(_BLOCK))
    at = order.index(place)
    first, second = order[at - at % 2], order[at - at % 2 + 1]
    if key_uniform(seed, "fault", "shuffled", block, min(first, second)) >= fault.strength:
        return None
    return block * _BLOCK + (second if place == first else first)


def wrong_targets(
    seed: int, index: int, targets: Sequence[str], size: int
) -> tuple[tuple[Box, ...], NDArray[np.bool_]]:
    """Return random boxes instead of the targets, equal for equal targets, and their mask."""
    boxes = []
    for target in targets:
        stream = RandomStream(seed, index, "fault", "wrong-boxes", target)
        width, height = stream.uniform(0.08, 0.4), stream.uniform(0.08, 0.4)
        x, y = stream.uniform(0.0, 1.0 - width), stream.uniform(0.0, 1.0 - height)
        boxes.append(Box(round(x, 4), round(y, 4), round(x + width, 4), round(y + height, 4)))
    return tuple(boxes), Mask.from_boxes(boxes, (size, size)).pixels


def planted(scene: Scene, faults: Sequence[Fault], report_of: str) -> dict[str, dict[str, object]]:
    """Return the faults planted in a study by name: a shortcut with its finding, a foreign report with its study."""
    found: dict[str, dict[str, object]] = {}
    for fault in faults:
        if fault.name in SHORTCUTS and shows_sign(fault, scene):
            found[fault.name] = {"finding": fault.finding}
        elif fault.name == "shuffled" and report_donor(scene.index, scene.seed, faults) is not None:
            found[fault.name] = {"report_of": report_of}
        elif fault.name in ("mirrored", "wrong-boxes") and strikes(fault, scene.seed, scene.index):
            found[fault.name] = {}
    return found

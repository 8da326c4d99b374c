"""Simulated gaze: a scan path in the order that is taught, dwelling on lesions.

The eye rests on a lesion after the nearest station, longer the more severe it is, and follows a device to its tip. The
path is plausible but not measured on anyone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rightlung.core.box import Box
from rightlung.core.keyed import RandomStream
from rightlung.phantom.scene import Scene

SCAN: tuple[str, ...] = (
    "mediastinum", "trachea", "right apical zone", "left apical zone", "right upper lung zone", "left upper lung zone",
    "right mid lung zone", "left mid lung zone", "right hilar structures", "left hilar structures",
    "right lower lung zone", "left lower lung zone", "cardiac silhouette", "aortic arch", "right costophrenic angle",
    "left costophrenic angle", "right hemidiaphragm", "left hemidiaphragm", "right clavicle", "left clavicle", "spine",
    "abdomen",
)  # fmt: skip
"""The stations of the scan path, regions of Chest ImaGenome."""

_SELDOM = ("right clavicle", "left clavicle", "spine", "abdomen", "aortic arch", "trachea")
_SELDOM_SHARE = 0.6
_LEAST_DWELL, _DWELL = 0.4, 2.6  # seconds on the mildest lesion, and the additional seconds at full severity
_FIXATION = 0.35  # seconds of one fixation on a lesion
_TIP_DWELL = 0.3

Fixation = tuple[float, float, float]  # x and y in fractions of the image, and seconds


def fixations(
    scene: Scene, regions: Mapping[str, Box], lesion_masks: NDArray[np.bool_], device_tips: Sequence[Sequence[float]]
) -> list[Fixation]:
    """Return the scan path of a scene in order; ``lesion_masks`` is ``(lesions, h, w)``, a mask may be empty."""
    return [fixation for fixation, _ in scan_path(scene, regions, lesion_masks, device_tips)]


def scan_path(
    scene: Scene, regions: Mapping[str, Box], lesion_masks: NDArray[np.bool_], device_tips: Sequence[Sequence[float]]
) -> list[tuple[Fixation, str]]:
    """Return the fixations in order, each with what it rests on: a station, ``lesion 0``…, or ``device``."""
    stream = RandomStream(scene.seed, scene.index, "gaze")
    stations = [name for name in SCAN if name not in _SELDOM or stream.chance(_SELDOM_SHARE)]
    pauses: dict[str, list[tuple[Fixation, str]]] = {}
    for number, (lesion, mask) in enumerate(zip(scene.lesions, lesion_masks, strict=True)):
        held = _dwell(mask, lesion.severity, RandomStream(scene.seed, scene.index, "gaze", lesion.seed))
        if held:
            named = [(fixation, f"lesion {number}") for fixation in held]
            pauses.setdefault(_nearest(held[0], stations, regions), []).extend(named)
    for tip in device_tips:
        if all(math.isfinite(value) and 0.0 <= value <= 1.0 for value in tip):
            glance = (float(tip[0]), float(tip[1]), _TIP_DWELL)
            pauses.setdefault(_nearest(glance, stations, regions), []).append((glance, "device"))
    path: list[tuple[Fixation, str]] = []
    for name in stations:
        x, y = regions[name].centre
        reach_x, reach_y = regions[name].width / 6, regions[name].height / 6
        seconds = 0.16 + 0.14 * stream.random() + 0.1 * stream.random()
        path.append(((x + stream.normal(0.0, reach_x), y + stream.normal(0.0, reach_y), seconds), name))
        path.extend(pauses.get(name, ()))
    # Inside the image, with the precision of eye trackers.
    return [
        ((round(min(max(x, 0.0), 1.0), 4), round(min(max(y, 0.0), 1.0), 4), round(seconds, 3)), name)
        for (x, y, seconds), name in path
    ]


def _dwell(mask: NDArray[np.bool_], severity: float, stream: RandomStream) -> list[Fixation]:
    """Return fixations inside a lesion; none if it is not visible."""
    rows, columns = np.nonzero(mask)
    if not len(rows):
        return []
    seconds = _LEAST_DWELL + _DWELL * severity
    count = max(1, round(seconds / _FIXATION))
    chosen = [int(stream.random() * len(rows)) for _ in range(count)]
    height, width = mask.shape
    return [((columns[at] + 0.5) / width, (rows[at] + 0.5) / height, seconds / count) for at in chosen]


def _nearest(fixation: Fixation, stations: Sequence[str], regions: Mapping[str, Box]) -> str:
    x, y, _ = fixation
    return min(stations, key=lambda name: math.dist(regions[name].centre, (x, y)))

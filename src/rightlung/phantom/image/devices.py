"""Tubes, lines and implants: their paths through the body, their density, and the positions of their tips."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core.errors import unknown_name
from rightlung.phantom.image.anatomy import Thorax, at
from rightlung.phantom.image.deformation import SIGN
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.randomness import Floats, seeds_of, uniforms
from rightlung.phantom.image.strokes import Strokes
from rightlung.phantom.image.vessels import bronchi
from rightlung.phantom.scene import Device

DEVICE_STREAM = 51


Chain = tuple[Floats, float, float]  # points, their radius, and their density in centimetres of bone


Path = tuple[list[Chain], Floats | None]  # a device in centimetres: its chains, and its tip if it has one


@dataclass(frozen=True, slots=True)
class Patient:
    """One study of a batch, with the anatomy that device paths need."""

    thorax: Thorax
    study: int
    airways: Floats  # (3, p, 2): trachea, right and left main bronchus

    def x(self, table: Floats, y: float) -> float:
        """Interpolate one of the thorax's tables for this study."""
        return float(at(table[self.study : self.study + 1], np.array([y]))[0])

    def cava(self, y: float) -> tuple[float, float]:
        """Return the centre of the superior vena cava at height ``y``."""
        return self.x(self.thorax.inner[0], y) + 1.0, y

    def atrium(self) -> tuple[float, float]:
        """Return the centre of the right atrium."""
        y = float(self.thorax.heart_middle[self.study])
        return self.x(self.thorax.inner[0], y) + 2.0, y

    def lung(self, side: str, across: float, down: float) -> tuple[float, float]:
        """Return a position in a lung."""
        thorax, left = self.thorax, side == "left"
        apex, dome = float(thorax.apex[self.study]), float(thorax.dome[left][self.study])
        y = apex + down * (dome - apex)
        inner, outer = self.x(thorax.inner[left], y), self.x(thorax.outer[left], y)
        return inner + across * (outer - inner), y


def curve(points: list[tuple[float, float]], count: int = 40) -> Floats:
    """Return a smooth curve through points, ``(count, 2)`` (Catmull-Rom spline)."""
    given = np.array([points[0], *points, points[-1]], dtype=np.float64)
    place = np.linspace(0, len(points) - 1, count)
    low = np.minimum(place.astype(np.int64), len(points) - 2)
    t = (place - low)[:, None]
    before, first, second, after = (given[low + step] for step in range(4))
    result: Floats = 0.5 * (
        2 * first
        + (second - before) * t
        + (2 * before - 5 * first + 4 * second - after) * t**2
        + (3 * first - before - 3 * second + after) * t**3
    )
    return result


def shorten(points: Floats, length: float) -> Floats:
    """Cut off a chain after a length."""
    steps = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    reach = min(max(length, 1e-3), float(steps[-1]))
    kept = np.linspace(0, reach, max(2, math.ceil(reach / 0.8)))
    return np.stack([np.interp(kept, steps, points[:, axis]) for axis in range(2)], axis=1)


def chain_length(points: Floats) -> float:
    """Return the length of a chain."""
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def endotracheal_tube(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return a tube down the trachea that ends ``depth`` above the carina, or below it in the right main bronchus."""
    trachea, bronchus = patient.airways[0], patient.airways[1]
    way = np.concatenate([trachea, bronchus[1:]])
    way = shorten(way, chain_length(trachea) - device.depth)
    return [(way, 0.42, 0.8), (way + np.array([0.12, 0.0]), 0.09, 1.6)], way[-1]


def nasogastric_tube(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return a tube behind trachea and heart, below the left dome into the stomach."""
    thorax = patient.thorax
    dome = float(thorax.dome[1][patient.study])
    middle = patient.x(thorax.middle, 0.0)
    way = curve(
        [
            (0.3, -22.0),
            (patient.x(thorax.middle, -10) + 0.5, -10.0),
            (middle + 0.2 + 0.4 * chance[0], -2.0),
            (middle + 0.8, dome - 3.0),
            (middle + 1.6, dome + 1.8),
            (middle + 3.8, dome + 4.2),
            (middle + 6.5 + 2 * chance[1], dome + 4.6),
        ],
        60,
    )
    way = shorten(way, chain_length(way) * device.depth)
    return [(way, 0.22, 1.5)], way[-1]


def central_line(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return a catheter from the neck or below the clavicle through the superior vena cava."""
    carina = float(patient.thorax.carina[patient.study, 1])
    high, low = patient.cava(carina - 2.0), patient.cava(carina + 1.0 + 1.6 * device.depth)
    if device.side == "left":
        way = [(15.5, -9.5), (11.0, -11.2), (6.0, -10.6), (2.4, -9.3), (-0.6, -8.6)]
        stop = (-0.2, -8.7)
    elif chance[0] < 0.6:
        way = [(-5.0, -19.5), (-4.2, -15.5), (-3.0, -11.5), (high[0], -9.5)]
        stop = (-3.0, -10.8)
    else:
        way = [(-15.5, -9.5), (-11.5, -11.4), (-6.5, -10.9), (-3.4, -9.9)]
        stop = (-3.6, -10.0)
    match device.tip:
        case "brachiocephalic vein":
            way = [*way[:-1], stop]
        case "cavoatrial junction":
            way = [*way, high, patient.cava(carina + 4.2)]
        case "right atrium":
            way = [*way, high, patient.cava(carina + 3.5), patient.atrium()]
        case _:
            way = [*way, high, low]
    points = curve(way, 50)
    return [(points, 0.15, 2.0)], points[-1]


def chest_tube(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return a drain that enters between lower ribs at the side and ends at the apex or the base."""
    sign = SIGN[device.side]
    entry = patient.lung(device.side, 1.0, 0.62 + 0.15 * chance[0])
    outside = (entry[0] + sign * 5.0, entry[1] + 3.0)
    if device.tip == "apex":
        way = [outside, entry, patient.lung(device.side, 0.8, 0.4), patient.lung(device.side, 0.55, 0.12)]
    else:
        way = [outside, entry, patient.lung(device.side, 0.7, 0.85), patient.lung(device.side, 0.3, 0.92)]
    points = curve(way, 36)
    return [(points, 0.38, 0.9), (points, 0.1, 1.8)], points[-1]


def pacemaker(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return a generator below the clavicle, with a lead to the right ventricle and possibly one to the atrium."""
    thorax = patient.thorax
    sign = SIGN[device.side] or 1.0
    box = (sign * (9.6 + chance[0]), -8.3 + 0.8 * chance[1])
    outline = np.array([(box[0] - 0.6, box[1] - 0.3), (box[0] + 0.6, box[1] - 0.3), (box[0] + 0.3, box[1] + 0.6)])
    carina = float(thorax.carina[patient.study, 1])
    start = [(box[0] - sign * 0.6, box[1] - 2.0), (sign * 7.5, -10.6), (sign * 3.4, -10.0)]
    if sign > 0:
        start.append((-0.4, -8.8))
    start += [patient.cava(carina - 1.5), patient.cava(carina + 2.5)]
    heart = float(thorax.heart_middle[patient.study])
    floor = float(thorax.dome[1][patient.study])
    apex_x = patient.x(thorax.middle, heart) + 0.62 * float(thorax.heart_left[patient.study])
    floor_of_heart = (patient.x(thorax.middle, heart) + 0.8, heart + 3.0)
    ventricle = curve([*start, patient.atrium(), floor_of_heart, (apex_x, min(heart + 3.4, floor - 0.6))], 60)
    chains = [(outline, 1.75, 9.0), (ventricle, 0.13, 2.6)]
    if "atrium" in device.tip:
        atrium = patient.atrium()
        chains.append(
            (curve([*start, (atrium[0], atrium[1] - 0.5), (atrium[0] + 1.4, atrium[1] - 1.4)], 50), 0.13, 2.6)
        )
    return chains, ventricle[-1]


def electrodes(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return electrodes on the skin with wires that leave the image."""
    chains: list[Chain] = []
    for number, (x, y) in enumerate([(-11.0, -9.0), (11.0, -9.0), (-11.5, 7.0), (11.5, 7.0), (3.5, -2.0)]):
        spot = (x + 3 * (chance[2 * number] - 0.5), y + 3 * (chance[2 * number + 1] - 0.5))
        chains.append((np.array([spot, (spot[0] + 0.05, spot[1])]), 0.55, 0.7))
        chains.append((np.array([spot, (spot[0] + 0.05, spot[1])]), 0.25, 3.0))
        away = 1.0 if chance[10] > 0.5 else -1.0
        bow = (spot[0] * 0.5 + away * 7, spot[1] + 4 * (chance[11 + number] - 0.3))
        chains.append((curve([spot, bow, (away * 20.0, spot[1] * 0.4 - 2)], 36), 0.1, 1.1))
    return chains, None


def sternal_wires(patient: Patient, device: Device, chance: Floats) -> Path:
    """Return the loops that close the sternum after open-heart surgery."""
    thorax = patient.thorax
    chains: list[Chain] = []
    angle = np.linspace(0, 2 * math.pi, 13)
    for number, y in enumerate(np.linspace(-8.2, 3.2, 6)):
        x = patient.x(thorax.middle, float(y)) * 0.6 + 0.4 * float(thorax.sternum[patient.study])
        wide, tall = 0.75 + 0.2 * chance[number], 0.32 + 0.12 * chance[number + 6]
        loop = np.stack([x + wide * np.cos(angle), y + tall * np.sin(angle) + 0.2 * np.cos(angle)], axis=1)
        chains.append((loop, 0.08, 3.5))
        chains.append((np.array([(x, y + tall), (x + 0.25, y + tall + 0.35)]), 0.13, 4.0))
    return chains, None


DEVICES: dict[str, Callable[[Patient, Device, Floats], Path]] = {
    "endotracheal tube": endotracheal_tube,
    "nasogastric tube": nasogastric_tube,
    "central venous line": central_line,
    "chest tube": chest_tube,
    "pacemaker": pacemaker,
    "ECG leads": electrodes,
    "sternal wires": sternal_wires,
}
"""The function that lays out each kind of device."""


def lay_devices(
    thorax: Thorax, frame: Frame, size: int
) -> tuple[Strokes | None, NDArray[np.int32], NDArray[np.float32], Floats]:
    """Lay out all devices of a batch, study by study.

    Returns the strokes of ``c`` chains, each on its own plane (None without devices), the study and device of each
    chain ``(c, 2)``, the density of each ``(c,)``, and the tips ``(devices, 2)`` in fractions, NaN for none.
    """
    items = [(study, item) for study, scene in enumerate(thorax.scenes) for item in scene.devices]
    airways = bronchi(thorax)[0]
    draws = uniforms(seeds_of([item.seed for _, item in items], DEVICE_STREAM), 24)
    paths: list[Path] = []
    for (study, item), chance in zip(items, draws, strict=True):
        if item.kind not in DEVICES:
            raise unknown_name("device", item.kind, DEVICES)
        paths.append(DEVICES[item.kind](Patient(thorax, study, airways[study]), item, chance))
    hosts = np.array([study for study, _ in items], dtype=np.int64)
    owner = np.repeat(np.arange(len(paths)), [len(chains) for chains, _ in paths])
    chains = [chain for path, _ in paths for chain in path]
    tips = np.array([(math.nan, math.nan) if tip is None else tip for _, tip in paths]).reshape(-1, 2)
    return (
        _strokes(frame, chains, hosts[owner], size) if chains else None,
        np.stack([hosts[owner], owner], axis=1).astype(np.int32),
        np.array([density for _, _, density in chains], dtype=np.float32),
        frame.take(hosts).to_fractions(tips),
    )


def draw_devices(depth: Tensor, chains: Tensor, density: Tensor, studies: int, devices: int) -> tuple[Tensor, Tensor]:
    """Return the devices' density in centimetres of bone ``(n, size, size)`` and their masks ``(devices, size, size)``.

    ``depth (c, size, size)`` is the depth of each pixel inside each chain, ``chains (c, 2)`` its study and device.
    """
    study, owner = chains.unbind(1)
    hits = depth.new_zeros((devices, *depth.shape[1:]))
    hits.index_add_(0, owner, (depth > 0.0).float())
    total = depth.new_zeros((studies, *depth.shape[1:]))
    total.index_add_(0, study, (depth * 3.0).clamp_max_(1.0).mul_(density[:, None, None]))
    return total, hits > 0


def _strokes(frame: Frame, chains: list[Chain], studies: NDArray[np.int64], size: int) -> Strokes:
    """Convert chains of any length, each with one radius and its own plane, to pixels."""
    plane = np.repeat(np.arange(len(chains)), [len(points) for points, _, _ in chains])
    pixels = frame.take(studies[plane]).to_fractions(np.concatenate([points for points, _, _ in chains])) * size
    radius = (np.array([thick for _, thick, _ in chains]) * frame.scale[studies] * size)[plane]
    start = np.flatnonzero(plane[1:] == plane[:-1])  # the last point of a chain starts no stroke
    return Strokes(pixels[start], pixels[start + 1], np.stack([radius[start], radius[start + 1]], axis=1), plane[start])

"""The outlines of a chest, as tables in centimetres.

The image is a square of 33.5 cm at zoom 1 with the origin in its centre; x points to the patient's left (the image's
right), y down. Curves ``x(y)`` bound lungs, heart and skin, a curve ``y(x)`` the diaphragm; each is a table over a
fixed axis. Everything else (vessels, lesions, region boxes) is placed relative to these tables. The average adult is
based on upright posterior-anterior radiographs: inner chest width about 26 cm, right dome about 1.5 cm above the left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rightlung.phantom.image.deformation import Deformation, deformation_of
from rightlung.phantom.image.randomness import Floats, seeds_of, uniforms
from rightlung.phantom.scene import Scene

FIELD = 33.5  # width of the image in centimetres at zoom 1
AXIS = np.linspace(-24.0, 24.0, 385)  # x and y axis of the tables, eight values per centimetre
APEX = -13.6

BODY_STREAM = 11

Outline = tuple[Floats, Floats]
Pair = tuple[Floats, Floats]  # of the right side and the left


@dataclass(frozen=True, slots=True)
class Thorax:
    """The outlines of ``n`` chests. Tables are ``(n, len(AXIS))``, other arrays ``(n,)``; all in centimetres."""

    scenes: tuple[Scene, ...]
    deformations: tuple[Deformation, ...]
    width: Floats  # scale of the chest across and along the body
    height: Floats
    outer: Pair  # x of the lateral lung border, over y
    inner: Pair  # x of the mediastinal lung border, over y
    middle: Floats  # x of the middle of the mediastinum, over y
    spine: Floats  # x of the spine, over y
    skin: Floats  # half width of the body, over y
    diaphragm: Floats  # y of the diaphragm, over x
    apex: Floats
    dome: Pair
    heart_middle: Floats  # y at which the heart is widest
    heart_left: Floats  # reach of the heart from the middle to the left
    carina: Floats  # (n, 2)
    sternum: Floats  # x midway between the medial ends of the clavicles
    hilum: Pair  # each (n, 2)
    supine: Floats  # 1 for an AP view
    turn: Floats  # sine of the rotation; positive moves anterior structures to the patient's left
    chance: Floats  # (n, 48) random numbers in 0 to 1 for small variations

    def __len__(self) -> int:
        return len(self.scenes)


def profile(positions: Floats, values: Floats, smoothing: float) -> Floats:
    """Return tables through control points ``(n, p)``, linear between them and smoothed over ``smoothing`` centimetres.

    Unlike a spline, a smoothed polygon cannot overshoot, so an outline never folds over.
    """
    tables = np.stack([np.interp(AXIS, at, value) for at, value in zip(positions, values, strict=True)])
    return rounded(tables, smoothing)


def rounded(tables: Floats, smoothing: float) -> Floats:
    """Smooth tables along their axis with two passes of a moving average."""
    reach = max(1, round(smoothing / (AXIS[1] - AXIS[0]) / 2))
    for _ in range(2):
        padded = np.pad(tables, ((0, 0), (reach, reach)), mode="edge")
        tables = sum(padded[:, step : step + len(AXIS)] for step in range(2 * reach + 1)) / (2 * reach + 1)
    return tables


def at(tables: Floats, positions: Floats) -> Floats:
    """Interpolate tables ``(n, len(AXIS))`` at positions ``(n, ...)``."""
    place = np.clip((positions - AXIS[0]) / (AXIS[1] - AXIS[0]), 0, len(AXIS) - 1.001)
    low = place.astype(np.int64)
    share = place - low
    low += (np.arange(len(tables)) * len(AXIS)).reshape(-1, *[1] * (positions.ndim - 1))
    flat = np.ascontiguousarray(tables).reshape(-1)
    first: Floats = flat.take(low)
    first += (flat.take(low + 1) - first) * share
    return first


def _right_border(down: Floats, level: Floats, wide: Floats, reach: Floats, vena: Floats, bulge: Floats) -> Outline:
    """Return control points (y, x) of the right mediastinal border: the great veins, then the right atrium."""
    ones = np.ones_like(down)
    upper_y = np.array([[-24, -13.6, -13.0, -12.0, -10.0, -7.0, -4.5]]) * down
    heart_y = level + np.array([[-4.4, -2.6, -0.6, 1.4, 3.4, 5.5, 20.0]]) * down
    upper_x = [
        *(4.3 * ones, 4.0 * ones, 2.9 * ones, 1.9 * ones + 0.3 * wide),
        *(vena - 0.2 + 0.8 * wide, vena + 0.3 + wide, vena + 0.2 + wide, vena + 0.4 + 0.5 * wide),
    ]
    heart_x = np.array([[0.98, 1.0, 0.93, 0.8, 0.5]]) * reach
    return np.hstack([upper_y, heart_y]), np.hstack([*upper_x, (0.84 + 0.05 * bulge) * reach, heart_x])


def _left_border(down: Floats, level: Floats, wide: Floats, reach: Floats, knob: Floats, globe: Floats) -> Outline:
    """Return control points (y, x) of the left mediastinal border: aortic knob, waist, left ventricle."""
    ones = np.ones_like(down)
    upper_y = np.array([[-24, -13.6, -13.0, -12.0, -9.6, -8.3, -7.0, -5.9, -5.0]]) * down
    heart_y = level + np.array([[-5.9, -4.4, -2.6, -0.6, 1.4, 3.0, 4.6, 20.0]]) * down
    waist = 0.1 * (reach - 7.0) + 0.5 * wide
    upper_x = [
        *(4.3 * ones, 4.0 * ones, 2.9 * ones, 2.0 * ones + 0.3 * wide, 1.9 * ones + 0.8 * wide),
        *(0.93 * knob + wide, knob + wide, 0.9 * knob + wide, 2.9 * ones + wide),
    ]
    heart_x = [
        *(3.2 * ones + waist, 3.5 * ones + waist, (0.52 + 0.06 * globe) * reach + 1.2, (0.85 + 0.05 * globe) * reach),
        *(0.98 * reach, reach, (0.95 - 0.04 * globe) * reach, 0.6 * reach),
    ]
    return np.hstack([upper_y, heart_y]), np.hstack([*upper_x, *heart_x])


def _diaphragm(width: Floats, flat: Floats, right_dome: Floats, left_dome: Floats, chance: Floats) -> Floats:
    """Return y of the diaphragm, over x: two domes with the heart between them, and the costophrenic angles."""
    across = np.array(
        [-24.0, -13.2, -12.6, -11.6, -10.0, -7.6, -5.4, -3.0, 0.0, 3.0, 5.4, 7.6, 10.0, 11.6, 12.6, 13.2, 24.0]
    )
    drop = np.array([6.0, 5.2, 4.0, 2.4, 1.0, 0.1, 0.0, 0.6, 1.8, 1.2, 0.3, 0.0, 0.9, 2.3, 4.0, 5.2, 6.0])
    blend = 1 / (1 + np.exp(-across / 0.6))[None]
    dome = right_dome[:, None] * (1 - blend) + left_dome[:, None] * blend
    relief = drop[None] * (1 - 0.5 * flat[:, None] * (drop[None] < 2.5)) * (0.92 + 0.16 * chance[:, 7:8])
    relief = relief - 0.8 * flat[:, None] * (drop[None] > 2.5)
    return profile(across[None] * width[:, None], dome + relief, 1.0)


def _skin(down: Floats, width: Floats, fat: Floats, supine: Floats, chance: Floats) -> Floats:
    """Return the half width of the body over y: neck, shoulders, trunk."""
    lean = 1.9 + 3.2 * fat
    side = np.array([-24, -18.0, -16.6, -15.2, -13.8, -12.4, -11.0, -9.0, -6.5, -4.0, -1.0, 6.0, 10.0, 14.0, 24.0])
    wall = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0.2, 0.7, 1, 1, 1, 1, 1.0])[None]
    trunk = np.array([6, 6.0, 6.4, 8.4, 12.5, 16.8, 19.2, 20.0, 18.2, 14.6, 12.9, 13.2, 13.2, 13.4, 14.0])[None]
    broad = (0.9 + 0.1 * width + 0.06 * fat)[:, None] * (1 - wall) + width[:, None] * wall
    # Shoulders are raised, especially in bed, or hang; raised ones fill the upper corners of the image.
    shrug = (2.6 * chance[:, 25:26] + 0.8 * supine[:, None] + 1.0 * fat[:, None] - 1.3) * np.clip(
        (-side[None] - 6.0) / 4.0, 0, 1
    )
    return profile(side[None] * down - shrug, trunk * broad + wall * lean[:, None], 1.6)


def build(scenes: Sequence[Scene]) -> Thorax:
    """Compute the chest outlines of every scene."""
    found = tuple(deformation_of(scene) for scene in scenes)
    chance = uniforms(seeds_of([scene.body.seed for scene in scenes], BODY_STREAM), 48)

    def column(values: Sequence[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    width = column([scene.body.width for scene in scenes])
    height = column([scene.body.height for scene in scenes])
    fat = column([scene.body.fat for scene in scenes])
    aorta = column([scene.body.aorta for scene in scenes])
    supine = column([float(scene.exposure.view == "AP") for scene in scenes])
    shift = column([change.shift for change in found])
    widened = column([change.widened for change in found])
    flat = column([change.flat for change in found])
    breath = column([(scene.exposure.inspiration - 0.7) * 5.0 for scene in scenes])
    # In a PA view the detector is in front: if the left side is close to it, anterior structures move to the right.
    turn = column(
        [math.sin(math.radians(s.exposure.rotation)) * (1.0 if s.exposure.view == "AP" else -1.0) for s in scenes]
    )
    apex = APEX * height + chance[:, 0] * 0.6
    right_dome = 5.6 * height + breath + column([change.right_dome for change in found]) + 1.6 * chance[:, 1] - 0.8
    left_dome = (
        right_dome + column([change.left_dome - change.right_dome for change in found]) + 0.6 + 1.6 * chance[:, 2]
    )
    inner_width = 26.0 * width
    ratio = column([change.heart for change in found])
    heart_total = ratio * inner_width
    heart_right = heart_total * (0.34 + 0.12 * (chance[:, 3] - 0.5))
    heart_left = heart_total - heart_right
    # The heart rests on the diaphragm and lies flatter if that is high.
    heart_middle = 2.6 * height + 0.55 * ((right_dome + left_dome) / 2 - 6.6 * height)
    heart_middle = heart_middle + 6.0 * (ratio - 0.45) + 1.2 * (chance[:, 20] - 0.5)
    # Globular hearts fill their upper border; an athlete's heart or a long left ventricle points down and left.
    globe = 2.0 * chance[:, 21:22] - 1.0
    bulge = 2.0 * chance[:, 22:23] - 1.0

    down = height[:, None]
    # Lateral border: from the dome of the pleura over the widest point at the eighth rib to the costophrenic angle.
    shoulder_y = np.array([-24, -13.6, -13.3, -12.6, -11.6, -10.0, -7.0, -3.0, 2.0, 6.0, 9.0, 12.0, 24.0])[None] * down
    shoulder_x = np.array([4.4, 4.6, 6.0, 7.4, 8.4, 9.4, 10.9, 12.1, 12.8, 13.05, 13.1, 12.9, 12.5]) * width[:, None]
    barrel = flat[:, None] * np.array([0, 0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.6, 0.4, 0.2, 0, 0, 0])[None]
    uneven = 1.2 * (chance[:, 4:5] - 0.5)
    outer = profile(shoulder_y, shoulder_x + barrel, 0.9)

    # Hardly any spine is quite straight.
    curve = column([change.curve for change in found])[:, None] + 0.9 * (chance[:, 23:24] + chance[:, 24:25] - 1.0)
    phase = (AXIS[None] / height[:, None] - 1.0) / 13.0
    bend = curve * (1.3 * np.exp(-((phase * 2.1) ** 2)) - 0.35)
    spine = bend - 6.0 * turn[:, None]
    # Depths in front of the axis of rotation: heart 4 cm, vessels of the upper mediastinum 2 cm.
    heart_share = np.clip((AXIS[None] + 4.0) / 6.0, 0, 1)
    middle = shift[:, None] * (0.55 + 0.45 * heart_share) + (1.5 + 2.5 * heart_share) * turn[:, None] + 0.45 * bend

    level, wide = heart_middle[:, None], widened[:, None]
    vena = 1.9 + 0.6 * chance[:, 5:6] + 0.5 * supine[:, None]
    knob = 2.9 + 1.5 * aorta[:, None] + 0.3 * chance[:, 6:7]
    right_y, right_x = _right_border(down, level, wide, heart_right[:, None], vena, bulge)
    left_y, left_x = _left_border(down, level, wide, heart_left[:, None], knob, globe)
    inner_right = middle - profile(right_y, right_x * np.sqrt(width)[:, None], 1.1)
    inner_left = middle + profile(left_y, left_x * np.sqrt(width)[:, None], 0.9)

    rise = at(rounded(middle, 0.2), -5.6 * height)
    carina = np.stack([rise + 0.3 + 0.5 * turn, -5.4 * height + 0.3 * breath * 0.4], axis=1)
    hila = []
    for border, beyond, hilum_y in ((inner_right, -0.9, -2.0 * height), (inner_left, 0.7, -3.0 * height)):
        hilum_y = hilum_y + 0.25 * breath
        hila.append(np.stack([at(border, hilum_y) + beyond, hilum_y], axis=1))
    return Thorax(
        scenes=tuple(scenes), deformations=found, width=width, height=height, middle=middle,
        outer=(-outer - uneven + 0.3 * bend, outer - uneven + 0.3 * bend), inner=(inner_right, inner_left), spine=spine,
        skin=_skin(down, width, fat, supine, chance),
        diaphragm=_diaphragm(width, flat, right_dome, left_dome, chance),
        apex=apex, dome=(right_dome, left_dome), heart_middle=heart_middle, heart_left=heart_left, carina=carina,
        sternum=8.0 * turn + 0.2 * shift, hilum=(hila[0], hila[1]), supine=supine, turn=turn,
        chance=chance,
    )  # fmt: skip

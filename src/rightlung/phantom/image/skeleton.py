"""Bones: ribs, clavicles, scapulae, humeri and the spine, as bone thickness in centimetres."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rightlung.phantom.image.anatomy import Thorax, at
from rightlung.phantom.image.columns import ColumnTensors
from rightlung.phantom.image.maps import AnatomyMaps, enlarge, smooth_step
from rightlung.phantom.image.randomness import Floats, seeds_of, uniforms
from rightlung.phantom.image.strokes import Chain

RIBS = 10
POINTS = 27  # of each rib
BACK, FRONT, GIRDLE, SCAPULAE = 0, 1, 2, 3  # layers: posterior ribs, anterior ribs, clavicles and humeri, scapulae
LAYERS = 4
RIB_STREAM = 12

Key = tuple[int, int]  # a study of the batch, and which of its lesions


def ribs(thorax: Thorax) -> tuple[Floats, Floats]:
    """Return the axes of all ribs, ``(n, 2, RIBS, POINTS, 2)`` (right then left), and their radii.

    A rib is half a tilted ring: from the front, it leaves the spine almost horizontally, drops around the side of the
    chest, and runs steeply down and inwards to its cartilage.
    """
    count = len(thorax)
    varied = uniforms(seeds_of([scene.body.seed for scene in thorax.scenes], RIB_STREAM), 2, RIBS, 3)
    height = thorax.height[:, None, None]
    order = np.arange(RIBS, dtype=np.float64)[None, None]
    origin = (-13.4 + 2.22 * order) * height + 0.25 * (varied[..., 0] - 0.5)
    drop = np.array([4.4, 6.2, 7.6, 8.8, 9.8, 10.6, 11.2, 11.6, 11.8, 11.6])[None, None] * height
    drop = drop * (0.9 + 0.2 * thorax.chance[:, 8, None, None]) + 0.4 * (varied[..., 1] - 0.5)
    side_y = origin + drop / 2
    outer = np.stack([-at(thorax.outer[0], side_y[:, 0]), at(thorax.outer[1], side_y[:, 1])], axis=1) + 0.25
    outer[:, :, 0] = np.minimum(outer[:, :, 0], 7.4 * thorax.width[:, None])
    ends = np.array([3.6, 3.6, 3.9, 4.2, 4.8, 5.6, 6.6, 8.0, 9.6, 11.0])[None, None]
    first = np.arcsin(np.clip(1.6 / outer, 0, 0.9))
    last = math.pi - np.arcsin(np.clip(ends * thorax.width[:, None, None] / outer, 0, 0.98))
    share = np.linspace(0, 1, POINTS)
    angle = first[..., None] + (last - first)[..., None] * share
    sign = np.array([-1.0, 1.0])[None, :, None, None]
    y = origin[..., None] + drop[..., None] * (1 - np.cos(angle)) / 2
    # The neck of the rib rises to the transverse process before the shaft descends.
    y = y - 0.55 * np.sin(np.clip(share * 5, 0, 1) * math.pi) + 0.3 * np.clip(1 - share * 5, 0, 1)
    spine = at(thorax.spine, y.reshape(count, -1)).reshape(y.shape)
    behind = np.clip(np.cos(angle), -1, 1)
    x = sign * outer[..., None] * np.sin(angle) + spine * np.clip(behind, 0, 1) ** 2
    x = x + 6.0 * thorax.turn[:, None, None, None] * np.clip(-behind, 0, 1)
    radius = (0.44 + 0.16 * share) * (0.95 + 0.12 * varied[..., 2:3]) * np.sqrt(height[..., None])
    radius = radius * (1 - 0.12 * (np.sin(angle) > 0.97))
    axes: Floats = np.stack([x, y], axis=-1)
    return axes, np.array(np.broadcast_to(radius, x.shape), dtype=np.float64)


def _bend(points: list[tuple[float, float]], count: int = 9) -> Floats:
    """Return a smooth curve through a few points, ``(count, 2)``."""
    given = np.array(points, dtype=np.float64)
    at_given = np.linspace(0, 1, len(given))
    dense = np.linspace(0, 1, count)
    powers = np.polynomial.polynomial.polyfit(at_given, given, len(given) - 1)
    return np.asarray(np.polynomial.polynomial.polyval(dense, powers), dtype=np.float64).T


CLAVICLE = _bend([(1.7, -10.0), (5.0, -10.7), (9.5, -12.3), (14.6, -12.9)], 12)
SCAPULA = _bend([(11.6, -10.6), (11.9, -6.5), (12.6, -2.5), (13.9, 0.3)], 8)
SCAPULA_SIDE = _bend([(13.9, 0.3), (14.9, -3.0), (15.6, -6.5), (15.9, -8.8)], 8)
SCAPULA_SPINE = _bend([(11.7, -9.2), (13.6, -10.6), (15.8, -12.0), (17.6, -12.4)], 8)
HUMERUS = _bend([(17.6, -9.2), (18.4, -4.5), (19.2, 0.5), (20.0, 6.0)], 8)


def girdle(thorax: Thorax) -> list[Chain]:
    """Return clavicles, scapular borders and humeri as chains ``(n, 2, p, 2)`` with radii and layer."""
    count = len(thorax)
    sign = np.array([-1.0, 1.0])[None, :, None]
    parts = []
    lift = thorax.chance[:, 9] - 0.5
    for name, shape, radius in (
        ("clavicle", CLAVICLE, np.linspace(0.72, 0.6, len(CLAVICLE))),
        ("scapula", SCAPULA, np.full(len(SCAPULA), 0.22)),
        ("scapula", SCAPULA_SIDE, np.linspace(0.3, 0.5, len(SCAPULA_SIDE))),
        ("scapula", SCAPULA_SPINE, np.linspace(0.3, 0.6, len(SCAPULA_SPINE))),
        ("humerus", HUMERUS, np.concatenate([[2.2, 1.6], np.full(len(HUMERUS) - 2, 1.15)])),
    ):
        x = np.broadcast_to(shape[None, None, :, 0] * thorax.width[:, None, None] ** 0.6, (count, 2, len(shape)))
        y = np.broadcast_to(shape[None, None, :, 1] * thorax.height[:, None, None], (count, 2, len(shape)))
        if name == "clavicle":
            # Lordotic and supine views project the clavicles higher and flatter.
            rise = (1.3 * thorax.supine + 1.2 * lift)[:, None, None]
            y = y - rise * np.linspace(1.0, 0.5, len(shape))
            inner = np.linspace(1, 0, len(shape))
            x = sign * x + thorax.sternum[:, None, None] * inner
        else:
            # In a PA view the arms are rolled forward, which moves the scapulae off the lungs; not so at the bedside.
            x = sign * (
                x - (2.4 * thorax.supine - 0.8 * (thorax.chance[:, 10] - 0.4))[:, None, None] * (name == "scapula")
            )
            y = y + 0.8 * lift[:, None, None]
        layer = SCAPULAE if name == "scapula" else GIRDLE
        parts.append((np.stack([x, y], axis=-1), np.broadcast_to(radius, x.shape), layer))
    return parts


def break_ribs(thorax: Thorax, axes: Floats, radii: Floats) -> dict[Key, Floats]:
    """Displace broken ribs in place and return where they broke, by ``(study, number of the lesion)``.

    The ends are cut squarely with a gap between them; the distal part steps down by up to a rib's width and returns to
    its course a few centimetres further on.
    """
    found: dict[Key, Floats] = {}
    for study, scene in enumerate(thorax.scenes):
        for number, lesion in enumerate(scene.lesions):
            if lesion.finding != "rib fracture":
                continue
            side = int(lesion.side == "left")
            name = lesion.form.removeprefix("rib ")
            rib = min(max(int(name) - 1, 0), RIBS - 1) if name.isdigit() else int(1 + lesion.place[1] * (RIBS - 2))
            # From the front, a rib's x is the sine of the angle around the chest.
            way = math.asin(min(max(lesion.place[0], 0.0), 1.0)) / math.pi * POINTS
            spot = min(max(round(way - 2.5), 3), POINTS // 2 - 4)
            axis, radius = axes[study, side, rib], radii[study, side, rib]
            middle = (axis[spot + 1] + axis[spot + 2]) / 2
            along = (axis[spot + 2] - axis[spot + 1]) / np.linalg.norm(axis[spot + 2] - axis[spot + 1])
            # Four points close the two ends: a chain whose radius drops to zero ends squarely.
            gap = 0.12 + 0.22 * lesion.severity
            for offset, place in enumerate((-gap, -gap + 0.02, gap - 0.02, gap)):
                axis[spot + offset] = middle + place * along
            radius[spot + 1 : spot + 3] = 0.0
            axis[spot + 2 :, 1] += (0.35 + 0.75 * lesion.severity) * np.exp(-np.arange(POINTS - spot - 2) / 2.5)
            found[study, number] = (axis[spot] + axis[spot + 3]) / 2
    return found


def bone_chains(thorax: Thorax) -> tuple[list[Chain], dict[Key, Floats]]:
    """Return all bones except the spine, and where ribs are broken."""
    axes, radii = ribs(thorax)
    breaks = break_ribs(thorax, axes, radii)
    axes, radii = axes.reshape(len(thorax), 2 * RIBS, POINTS, 2), radii.reshape(len(thorax), 2 * RIBS, POINTS)
    turn = POINTS // 2  # where a rib passes from the back to the front
    back = axes[:, :, : turn + 1], radii[:, :, : turn + 1], BACK
    front = axes[:, :, turn:], radii[:, :, turn:], FRONT
    return [back, front, *girdle(thorax)], breaks


def columns(thorax: Thorax) -> dict[str, Floats]:
    """Return the columns for drawing bones, besides strokes and maps."""
    return {
        "calcium": np.array([1.05 - 0.004 * max(scene.body.age - 45, 0) for scene in thorax.scenes]),
        "vertebrae": thorax.chance[:, 11] * 2,
        "scapula_width": thorax.width**0.6,
        "scapula_inward": 2.4 * thorax.supine - 0.8 * (thorax.chance[:, 10] - 0.4),
        "scapula_lift": thorax.chance[:, 9] - 0.5,
    }


def bone_thickness(studies: ColumnTensors, anatomy: AnatomyMaps, layers: Tensor, coverage: Tensor) -> Tensor:
    """Return all bone along the beam, ``(n, size, size)``, from the depth on its four layers and the spine.

    Ribs are faint through heart and liver, where scatter dominates, so they count less outside the lungs' ``coverage
    (n, size, size)``.
    """
    size = coverage.shape[-1]
    ribs_behind = hollow(layers[:, BACK], 0.8)
    ribs_front = hollow(layers[:, FRONT], 0.8)
    shoulders = hollow(layers[:, GIRDLE], 0.72) * 1.7 + hollow(layers[:, SCAPULAE], 0.5) * 0.7
    # At the side of the chest the beam follows ribs and muscle, which give the lung a bright rim.
    rim = torch.exp(-((anatomy.wall + 0.35) / 0.45).square()) * smooth_step(anatomy.down, 0.0, 0.2)
    rim = rim * smooth_step(anatomy.diaphragm, -3.5, 1.0) * 0.75
    smooth = enlarge(spine_bone(studies, anatomy) + scapula_plate(studies, anatomy) + rim, size)
    ribs_seen = (ribs_behind * 1.08 + ribs_front * 0.5) * (0.45 + 0.55 * coverage)
    return (ribs_seen + shoulders + smooth) * studies["calcium"]


def hollow(depth: Tensor, marrow: float) -> Tensor:
    """Return bone along the beam through a tube, as a share of its diameter: bright edges, darker centre."""
    rod = (depth * (2.0 - depth)).clamp_min(0).sqrt()
    inside = ((depth - 0.26) * (1.0 / 0.74)).clamp_min(0)
    return rod - marrow * 0.74 * (inside * (2.0 - inside)).clamp_min(0).sqrt()


def spine_bone(studies: ColumnTensors, anatomy: AnatomyMaps) -> Tensor:
    """Return the bone of the spine: vertebral bodies with end plates, discs, pedicles and spinous processes."""
    x, y = anatomy.spine, anatomy.y
    height = studies["height"]
    step = 2.1 + 0.045 * (y / height + 14.0)  # lower vertebrae are larger
    phase = (y / height + 14.0 + studies["vertebrae"]) / step
    place = (phase - phase.floor()) - 0.5
    waist = 1.35 + 0.022 * (y / height + 14.0) + 1.3 * place.square()
    body = ((waist - x.abs()) * 4.0).clamp(0, 1)
    disc = smooth_step(place.abs(), 0.37, 0.46)
    plate = smooth_step(place.abs(), 0.28, 0.36) * (1 - disc)
    pedicle = torch.hypot((x.abs() - 1.05) / 0.36, (place + 0.12) * step / 0.55)
    ring = torch.exp(-((pedicle - 0.85) * 4.0).square()) * 0.25
    process = torch.exp(-(torch.hypot(x / 0.28, (place - 0.22) * step / 0.6) - 0.7).mul(3.0).square()) * 0.22
    return body * (0.62 - 0.3 * disc + 0.18 * plate + ring + process)


def scapula_plate(studies: ColumnTensors, anatomy: AnatomyMaps) -> Tensor:
    """Return the thin blade of the scapulae, a triangle between its three borders."""
    x = anatomy.x.abs() / studies["scapula_width"] + studies["scapula_inward"]
    y = anatomy.y / studies["height"] - 0.8 * studies["scapula_lift"]
    medial = x - 11.6 - 0.017 * (y + 10.6).square()
    lateral = 15.9 - (y + 8.8).clamp_min(0) * 0.22 - x
    top = y + 9.2 + (x - 11.7) * 0.55
    inside = torch.minimum(torch.minimum(medial, lateral), torch.minimum(top + 1.0, 0.3 - y))
    return (inside * 2.5).clamp(0, 1) * 0.2

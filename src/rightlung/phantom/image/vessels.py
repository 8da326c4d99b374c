"""Pulmonary vessels: trees that leave the hila, branch, and thin out before they reach the pleura."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from rightlung.phantom.image.anatomy import Thorax, at
from rightlung.phantom.image.randomness import Floats, seeds_of, uniforms
from rightlung.phantom.image.strokes import Chain, round_profile

STEMS = 8
LEVELS = (3, 3, 3, 2)  # steps before each division
VESSEL_STREAM = 13
LARGEST = 0.44  # radius of a stem at the hilum, cm


def trees(thorax: Thorax) -> tuple[list[Floats], list[Floats]]:
    """Return chains of points ``(n, k, p, 2)`` and radii, level by level, for both lungs of every study."""
    count = len(thorax)
    seeds = seeds_of([scene.body.seed for scene in thorax.scenes], VESSEL_STREAM)
    sizes = [STEMS * 2**level for level in range(len(LEVELS))]
    drawn = uniforms(seeds, 2, sum(sizes), 8)
    calibre = np.array([change.vessels for change in thorax.deformations])[:, None, None]
    upper = np.array([change.cephalised for change in thorax.deformations])[:, None, None]
    sign = np.array([-1.0, 1.0])[None, :, None]
    hila = np.stack(thorax.hilum, axis=1)  # (n, 2, 2)
    floor = np.stack(thorax.dome, axis=1)
    span = (floor - thorax.apex[:, None])[..., None] / 20.0  # vessels are crowded in shallow lungs
    # Directions fan out from straight up, over sideways, to straight down; more point down, where there is more lung.
    fan = np.array([-78.0, -62, -38, -8, 22, 46, 64, 80])[None, None]
    first = drawn[:, :, :STEMS]
    angle = np.radians(fan + 24 * (first[..., 0] - 0.5))
    favoured = 1.0 + upper * np.where(angle < 0, 0.5, -0.35)
    radius = LARGEST * (0.7 + 0.5 * first[..., 1]) * np.where(angle > 0.3, 1.15, 0.75) * favoured * calibre
    start = np.stack(
        [
            # Stems leave along the whole hilum, the lower ones from the tail of the interlobar artery.
            hila[..., None, 0] + sign * (0.9 * (first[..., 2] - 0.6) + 0.5 * np.clip(np.sin(angle), 0, 1)),
            hila[..., None, 1] + np.where(angle > 0, 4.2, 2.0) * np.sin(angle) * (0.35 + 0.65 * first[..., 3]),
        ],
        axis=-1,
    )
    chains, radii = [], []
    offset = 0
    for level, steps in enumerate(LEVELS):
        chance = drawn[:, :, offset : offset + sizes[level]]
        offset += sizes[level]
        # The distance to the pleura is divided among the levels, so that trees fill small and large lungs equally.
        length = (1.28 - 0.1 * level) * (0.75 + 0.5 * chance[..., 4])
        curl = 0.42 * (chance[..., 5] - 0.5)
        points, thick = [start], [radius]
        for step in range(steps):
            heading = angle + curl * (step + 1)
            move = np.stack([sign * np.cos(heading), np.sin(heading) * span], axis=-1) * length[..., None]
            points.append(points[-1] + move)
            thick.append(thick[-1] * 0.915)
        angle = angle + curl * steps
        chains.append(np.stack(points, axis=3).reshape(count, -1, steps + 1, 2))
        radii.append(np.stack(thick, axis=3).reshape(count, -1, steps + 1))
        fork = np.stack([-(0.25 + 0.45 * chance[..., 6]), 0.25 + 0.45 * chance[..., 7]], axis=-1)
        angle = (angle[..., None] + fork).reshape(count, 2, -1)
        angle = np.clip(angle, -math.pi * 0.55, math.pi * 0.55)
        thinner = np.stack([0.62 + 0.22 * chance[..., 6], 0.84 - 0.22 * chance[..., 6]], axis=-1)
        radius = (thick[-1][..., None] * thinner).reshape(count, 2, -1)
        start = np.repeat(points[-1], 2, axis=2)
    return chains, radii


def bronchi(thorax: Thorax) -> tuple[Floats, Floats]:
    """Return trachea and main bronchi as chains ``(n, 3, p, 2)``; the right one is shorter, wider and steeper."""
    count = len(thorax)
    carina = thorax.carina
    points = np.empty((count, 3, 8, 2))
    share = np.linspace(0, 1, 8)
    y = -22.0 + (carina[:, None, 1] + 22.0) * share
    x = at(thorax.middle, y)
    # Only the lower trachea lies next to the aorta and is pushed to the right by it.
    points[:, 0] = np.stack([x * share + carina[:, None, 0] * share**3 * 0.4 - 0.25 * share**2, y], axis=-1)
    bottom = points[:, 0, -1]
    for index, hilum, away in ((1, thorax.hilum[0], 0.9), (2, thorax.hilum[1], 1.0)):
        end = bottom + (hilum - bottom) * away + np.array([0.0, 0.9 if index == 2 else 0.5])
        bow = np.sin(share * math.pi)[None, :, None] * np.array([0.0, -0.25])
        points[:, index] = bottom[:, None] + (end - bottom)[:, None] * share[None, :, None] + bow
    width = 0.86 * np.sqrt(thorax.width)[:, None, None]
    return points, width * np.stack([np.ones(8), np.linspace(0.78, 0.5, 8), np.linspace(0.68, 0.42, 8)])


def airway_chains(thorax: Thorax, layer: int) -> list[Chain]:
    """Return the trachea on one layer and the main bronchi on the next."""
    points, radius = bronchi(thorax)
    return [(points[:, :1], radius[:, :1], layer), (points[:, 1:], radius[:, 1:], layer + 1)]


def draw_airways(depth: Tensor, width: Tensor) -> Tensor:
    """Return the air in trachea and main bronchi along the beam, ``(n, size, size)``, in centimetres.

    ``depth (n, 2, size, size)`` is the depth of a pixel inside each, ``width (n, 1, 1)`` the patient's scale.
    """
    trachea, main = round_profile(depth).unbind(1)
    # Deeper than wide: the trachea is nearly round, and the display curve reduces its low contrast.
    return torch.maximum(trachea * 2.5, main * 1.2) * width


def minor_fissure(thorax: Thorax) -> tuple[Floats, Floats]:
    """Return the fissure above the middle lobe, a fine line from right hilum to wall, shown by half of the patients."""
    share = np.linspace(0.05, 0.97, 10)[None]
    y = (thorax.hilum[0][:, 1] + 0.6 + 1.2 * (thorax.chance[:, 17] - 0.5))[:, None] - 0.5 * np.sin(share * math.pi)
    inner, outer = at(thorax.inner[0], y), at(thorax.outer[0], y)
    shown = np.where(thorax.chance[:, 18] < 0.5, 0.06, 1e-4)[:, None]
    return np.stack([inner + share * (outer - inner), y], axis=-1)[:, None], np.broadcast_to(shown, y.shape)[:, None]


def vessel_chains(thorax: Thorax, layer: int) -> list[Chain]:
    """Return the trees on three successive layers, and the minor fissure on the last of them."""
    levels = enumerate(zip(*trees(thorax), strict=True))
    return [*((*tree, layer + min(level, 2)) for level, tree in levels), (*minor_fissure(thorax), layer + 2)]


def draw_vessels(depth: Tensor) -> Tensor:
    """Return the blood in pulmonary vessels along the beam, ``(n, size, size)``, in centimetres.

    Stems and finer branches are on separate planes, ``depth (n, 3, size, size)``, which are added like vessels that
    cross in depth; within a plane the thickest vessel wins, so that joints are invisible.
    """
    return (round_profile(depth) * _shares(depth.device)[None, :, None, None]).sum(1)


@cache
def _shares(device: torch.device) -> Tensor:
    """Return the weight of each layer's vessels; cached, because a copy to the device waits for its pending work."""
    return torch.tensor([1.05, 0.8, 0.5], device=device)

"""Soft tissue and air along the beam outside the findings, in centimetres of water."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.anatomy import Thorax
from rightlung.phantom.image.columns import ColumnTensors
from rightlung.phantom.image.maps import AnatomyMaps, smooth_step
from rightlung.phantom.image.physics import NOISE_STREAM
from rightlung.phantom.image.randomness import Floats, low_bits, seeds_of

TISSUE_STREAM = 21
BOWEL_STREAM = 22
CLOUDS = {"body": (7, 4), "grain": (28, 3), "gas": (12, 2)}  # cells across the image and octaves of each texture


def columns(thorax: Thorax) -> dict[str, Floats]:
    """Return the columns for drawing soft tissue, besides the maps."""
    chance, scenes, changes = thorax.chance, thorax.scenes, thorax.deformations
    # Breasts differ in size, and one woman in twenty has lost one.
    lost = np.where(chance[:, 29] < 0.025, -1.0, np.where(chance[:, 29] > 0.975, 1.0, 0.0))
    uneven = 0.5 * (chance[:, 30] - 0.5)
    return {
        "fat": np.array([scene.body.fat for scene in scenes]),
        "breasts": np.array([scene.body.breasts for scene in scenes]),
        "male": np.array([float(scene.body.sex == "M") for scene in scenes]),
        "aorta": np.array([scene.body.aorta for scene in scenes]),
        "aorta_edge": np.array([2.4 + 0.5 * scene.body.aorta for scene in scenes]),
        "upright": np.array([float(scene.exposure.view == "PA") for scene in scenes]),
        "left_arm": 16.6 + 4.6 * chance[:, 19],
        "right_arm": 16.6 + 4.6 * chance[:, 28],
        "breast_level": 2.0 + 4.0 * chance[:, 12],
        "left_breast": (1 + uneven) * (lost <= 0),
        "right_breast": (1 - uneven) * (lost >= 0),
        "right_behind": np.array([change.right_behind for change in changes]),
        "left_behind": np.array([change.left_behind for change in changes]),
        "calibre": np.array([change.vessels for change in changes]),
        "bubble_x": 5.6 + 2.4 * chance[:, 13],
        "bubble_y": thorax.dome[1] + 1.9 + 0.9 * chance[:, 14],
        "bubble": (0.9 + 2.2 * chance[:, 15]) * (chance[:, 14] > 0.15),
        "gas": np.clip(chance[:, 16] * 2 - 0.6, 0, 1),
        "right_hilum_x": thorax.hilum[0][:, 0],
        "right_hilum_y": thorax.hilum[0][:, 1],
        "left_hilum_x": thorax.hilum[1][:, 0],
        "left_hilum_y": thorax.hilum[1][:, 1],
    }


def seeds(thorax: Thorax) -> NDArray[np.int32]:
    """Return the seeds of each cloud in the order of ``CLOUDS``, then of the detector's noise, ``(n, 4)``."""
    own = [scene.body.seed for scene in thorax.scenes]
    found = [seeds_of(own, stream) for stream in (TISSUE_STREAM + 5, TISSUE_STREAM, BOWEL_STREAM)]
    found.append(seeds_of([scene.exposure.seed for scene in thorax.scenes], NOISE_STREAM))
    return low_bits(np.stack(found, axis=1))


def body_thickness(studies: ColumnTensors, anatomy: AnatomyMaps, cloud: Tensor) -> Tensor:
    """Return the thickness of the body along the beam: trunk, shoulders, arms, breasts and axillary folds."""
    x, y = anatomy.x, anatomy.y
    fat = studies["fat"]
    level = y / studies["height"]
    half = (anatomy.skin + x.abs()).clamp_min(1.0)
    edge = (1.0 - (x.abs() / half).clamp(0, 1).pow(7.0)).sqrt()
    front_to_back = 15.6 + 1.4 * smooth_step(level, -16.5, -10.0) + 3.6 * smooth_step(level, -11.0, 2.0)
    front_to_back = front_to_back + 1.5 * smooth_step(level, 3.0, 9.0) + 2.5 * smooth_step(level, 9.0, 13.0)
    trunk = front_to_back * (0.86 + 0.36 * fat) * edge
    # Arms hang beside the chest or are held away from it.
    hang = torch.where(x > 0, studies["left_arm"], studies["right_arm"])
    arm = torch.hypot((x.abs() - hang - 0.1 * (level + 4.0)).div_(4.4 + 1.2 * fat), (level + 4.0).div_(16.0))
    arm = 10.5 * (1.0 - arm.square()).clamp_min_(0).sqrt_() * smooth_step(level, -13.0, -8.0)
    total = torch.maximum(trunk, arm)
    # Pectoral and shoulder muscles thicken the upper outer quadrant; their lower edge is the axillary fold.
    fold = torch.hypot((x.abs() - 12.5) / 5.0, (level + 7.5) / 5.5)
    total = total + (1.0 - fold.square()).clamp_min_(0) * (1.2 + 1.6 * studies["male"])
    total = total * (1.0 + 0.012 * cloud)
    return total + breast_thickness(studies, anatomy, level)


def breast_thickness(studies: ColumnTensors, anatomy: AnatomyMaps, level: Tensor) -> Tensor:
    """Return the breasts: full and sharp below, fading above."""
    breasts = studies["breasts"]
    centre = studies["breast_level"] + 1.5 * breasts
    middle = 8.2 * studies["width"]
    aside = (anatomy.x.abs() - middle) / (4.4 + 2.4 * breasts)
    along = level - centre - 0.25 * (anatomy.x.abs() - middle)
    along = torch.where(along > 0, along / (2.6 + 1.4 * breasts), along / (6.5 + 2.0 * breasts))
    inside = (1.0 - aside.square() - along.square()).clamp_min_(0)
    own = torch.where(anatomy.x > 0, studies["left_breast"], studies["right_breast"])
    return own * breasts * 5.2 * inside.sqrt_() * (0.55 + 0.45 * smooth_step(along, -1.0, 0.2))


def hidden_air(studies: ColumnTensors, anatomy: AnatomyMaps) -> Tensor:
    """Return the lung behind heart and domes, which makes both darker than white."""
    x = anatomy.spine
    beside = torch.where(x > 0, x - studies["aorta_edge"], -x - 1.9)
    back = smooth_step(beside, -0.15, 0.5) * (2.6 + 3.4 * smooth_step(beside, 0.0, 4.5))
    below = smooth_step(anatomy.diaphragm, -4.5, 0.5)
    level = smooth_step(anatomy.down, 0.12, 0.45)
    back = back * torch.where(anatomy.is_left, studies["left_behind"], studies["right_behind"])
    return 0.73 * back * below * level * smooth_step(anatomy.wall, 0.0, 3.0)


def bowel_air(studies: ColumnTensors, anatomy: AnatomyMaps, gas: Tensor) -> Tensor:
    """Return the gastric bubble below the left dome, with a fluid level if upright, and some bowel gas."""
    x, y = anatomy.x, anatomy.y
    centre_x, centre_y, reach = studies["bubble_x"], studies["bubble_y"], studies["bubble"]
    bubble = torch.hypot((x - centre_x) / (1.35 * reach + 0.05), (y - centre_y) / (0.85 * reach + 0.05))
    level = centre_y + 0.35 * reach - y
    air = (1.0 - bubble.square()).clamp_min_(0).sqrt_() * 3.2
    air = air * torch.where(studies["upright"] > 0, (level * 6).clamp(0, 1), torch.ones_like(level))
    deep = 1 - smooth_step(anatomy.diaphragm, -5.5, -3.0)
    inside = smooth_step(anatomy.skin, 2.5, 4.5) * smooth_step(x, -6.0, 3.0)
    pockets = (gas - 0.75).clamp_min_(0).mul_(2.2).clamp_max_(1.8) * deep * inside * studies["gas"]
    return (air + pockets) * (1 - smooth_step(anatomy.diaphragm, -0.7, -0.35))


def central_vessels(studies: ColumnTensors, anatomy: AnatomyMaps) -> Tensor:
    """Return the additional thickness of the hila and the great vessels, in centimetres of water."""
    x, y = anatomy.x, anatomy.y
    total = torch.zeros_like(x)
    for side, lean in (("right", 1.0), ("left", -1.0)):
        out = (x - studies[f"{side}_hilum_x"]) * -lean  # towards the chest wall
        dy = y - studies[f"{side}_hilum_y"]
        # A comma: a head where the upper arteries and veins cross, and a descending tail, the interlobar artery.
        head = (out / 1.25).square() + (dy / 1.5).square()
        tail = ((out - 0.35 - 0.12 * dy) / (0.95 - 0.09 * dy).clamp(0.45, 1.0)).square()
        tail = torch.exp(-tail) * smooth_step(dy, -2.0, 1.6) * (1 - smooth_step(dy, 1.2, 5.5))
        total = total + (torch.exp(-head) * 1.6 + tail * 1.7) * studies["calibre"]
    prominence = studies["aorta"]
    level = anatomy.y / studies["height"]
    knob = torch.hypot((anatomy.middle - 1.6) / (1.5 + 1.1 * prominence), (level + 7.0) / (1.5 + 0.4 * prominence))
    return total + (1.0 - knob.square()).clamp_min_(0).sqrt_() * (0.8 + 1.0 * prominence)

"""Findings inside the lung: consolidation and similar, collapse, edema, emphysema, nodules and masses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rightlung.phantom.image.columns import Columns
from rightlung.phantom.image.finding import Drawn, Group, Own, in_forms, over_share, reach
from rightlung.phantom.image.maps import smooth_step
from rightlung.phantom.image.randomness import Floats
from rightlung.phantom.scene import Lesion


def ellipse(usual: float, flattening: float) -> Own:
    """Return the columns of an ellipse with random axes."""

    def columns(lesions: Sequence[Lesion], chance: Floats) -> Columns:
        return {
            "reach": reach(lesions, usual),
            "ratio": 1.0 - flattening * chance[:, 0],
            "lean": (chance[:, 1] - 0.5) * 1.6,
        }

    return columns


def _radius(group: Group) -> Tensor:
    """Return the distance from the centre relative to the ellipse."""
    half, lean = group.own["reach"], group.own["lean"]
    along, aside = torch.cos(lean), torch.sin(lean)
    u = group.dx * along + group.dy * aside
    v = group.dy * along - group.dx * aside
    return torch.hypot(u / half, v / (half * group.own["ratio"]))


def consolidation(group: Group) -> Drawn:
    """Draw filled air spaces: dense, fluffy at the edge, with black bronchi inside."""
    coarse, fine = group.clouds
    edge = 1.0 - _radius(group) + 0.16 * coarse
    body = smooth_step(edge, -0.05, 0.75) * (1.0 + 0.06 * fine) * group.coverage
    fill = body * (0.36 + 0.42 * group.severity)
    return Drawn(extent=over_share(fill), fill=fill, fade=1.55 * body * (0.45 + 0.55 * group.severity))


def pneumonia(group: Group) -> Drawn:
    """Draw patches: several small confluent foci."""
    (patchy,) = group.clouds
    near = 1.0 - _radius(group)
    edge = near + 0.3 * patchy * smooth_step(near, -0.35, 0.2)
    body = smooth_step(edge, 0.0, 0.95) * (0.85 + 0.22 * patchy).clamp(0.3, 1.3) * group.coverage
    fill = (body * (0.27 + 0.4 * group.severity)).clamp_max(0.85)
    return Drawn(extent=over_share(fill), fill=fill, fade=0.8 * body)


def haze(group: Group) -> Drawn:
    """Draw a shapeless opacity through which vessels are visible."""
    edge = 1.0 - _radius(group) + 0.12 * group.clouds[0]
    body = smooth_step(edge, 0.0, 0.8) * group.coverage
    fill = body * (0.18 + 0.38 * group.severity)
    return Drawn(extent=over_share(fill), fill=fill)


def edema(group: Group) -> Drawn:
    """Draw perihilar fluid in a bat-wing pattern, and thickened septa at the bases (Kerley B lines)."""
    anatomy = group.anatomy
    wing = torch.exp(-((anatomy.across - 0.25) / 0.46).square()) * smooth_step(anatomy.down, 0.1, 0.4)
    wing = wing * (1 - 0.45 * smooth_step(anatomy.down, 0.8, 1.0))
    body = wing * (1.0 + 0.2 * group.clouds[0]).clamp(0.3, 1.6) * group.coverage
    # Fluid in the septa precedes fluid in the air spaces: lines first, then haze.
    septal = group.own["interstitial"]
    fill = (body * (0.12 + 0.42 * group.severity) * (1 - 0.35 * septal)).clamp_max(0.8)
    near = 1 - smooth_step(anatomy.wall, 1.6, 2.4)
    rows = torch.cos((anatomy.y + 0.25 * anatomy.wall) * (2 * math.pi / 0.85)).clamp_min(0).pow(6)
    septa = rows * near * smooth_step(anatomy.down, 0.68, 0.8) * group.coverage
    water = septa * (0.15 + 0.4 * group.severity) * (1 + 0.8 * septal)
    return Drawn(extent=over_share(wing * group.coverage, 0.4), fill=fill, water=water)


def atelectasis_columns(lesions: Sequence[Lesion], chance: Floats) -> Columns:
    """Return a plate's angle and size, and a collapsed lobe's position."""
    zone = np.array([_zone(lesion.region, lesion.place[1]) for lesion in lesions])
    return {
        "reach": reach(lesions, 6.0),
        "lean": (chance[:, 0] - 0.5) * 0.7,
        "upper": (zone == 0).astype(np.float64),
        "mid": (zone == 1).astype(np.float64),
        **in_forms("lobar")(lesions, chance),
    }


def atelectasis(group: Group) -> Drawn:
    """Draw plates as thin bands and lobes as wedges bounded by a fissure; volume loss itself moves the anatomy."""
    anatomy = group.anatomy
    severity = group.severity
    lean, half = group.own["lean"], group.own["reach"]
    u = group.dx * torch.cos(lean) + group.dy * torch.sin(lean)
    v = group.dy * torch.cos(lean) - group.dx * torch.sin(lean) + 0.02 * u.square()
    thick = 0.2 + 0.3 * severity
    band = torch.exp(-(v / thick).square()) * smooth_step(1.0 - u.abs() / half, 0.0, 0.25) * group.coverage
    line = torch.where(
        group.own["upper"] > 0,
        (0.43 - anatomy.down) - 0.24 * (anatomy.across - 0.2) + 0.1 * anatomy.across.square(),
        torch.where(
            group.own["mid"] > 0,
            0.16 - (anatomy.down - 0.68).abs() - 0.14 * anatomy.across,
            (anatomy.down - 0.46) - 0.72 * anatomy.across,
        ),
    )
    wedge = smooth_step(line + 0.012 * group.clouds[0], 0.0, 0.09) * group.coverage
    lobar = group.own["lobar"]
    plate = band * (1 - lobar)
    fill = wedge * lobar * (0.34 + 0.45 * severity)
    water = plate * (0.9 + 1.6 * severity)
    amount = plate + wedge * lobar
    return Drawn(extent=over_share(amount), fill=fill, water=water, fade=0.9 * wedge * lobar)


def _zone(region: str, down: float) -> int:
    """Return the lobe of a region: 0 upper, 1 middle, 2 lower."""
    if "upper" in region or "apical" in region:
        return 0
    if "mid" in region and "mediast" not in region:
        return 1
    if "lower" in region or "costophrenic" in region or "diaphragm" in region:
        return 2
    return 0 if down < 0.4 else 2


def nodule(group: Group) -> Drawn:
    """Draw a ball: its chord along the beam, slightly textured."""
    half = group.own["reach"]
    ball = (1.0 - (torch.hypot(group.dx, group.dy) / half).square()).clamp_min(0).sqrt()
    ball = ball * (1.0 + 0.06 * group.clouds[0]) * group.coverage
    return Drawn(extent=over_share(ball), water=ball * (0.6 + 2 * half) * (1.0 + 1.0 * group.severity))


def mass_columns(lesions: Sequence[Lesion], chance: Floats) -> Columns:
    """Return its size, and the angles of its lobes and spicules."""
    phases = chance * 2 * math.pi
    return {
        "reach": reach(lesions, 4.5),
        **in_forms("spiculated")(lesions, chance),
        **{f"phase_{number}": phases[:, number] for number in range(4)},
    }


def mass(group: Group) -> Drawn:
    """Draw a large ball, lobulated or with spicules that extend into the lung."""
    half = group.own["reach"]
    distance = torch.hypot(group.dx, group.dy)
    angle = torch.atan2(group.dy, group.dx)
    wave = sum(
        (torch.cos(order * angle + group.own[f"phase_{index}"]) for index, order in enumerate((2, 3, 5))),
        torch.zeros_like(angle),
    )
    spiky = group.own["spiculated"]
    outline = half * (1.0 + (0.065 - 0.03 * spiky) * wave)
    ball = (1.0 - (distance / outline).square()).clamp_min(0).sqrt()
    rays = (torch.cos(11 * angle + group.own["phase_3"] + 2 * wave)).clamp_min(0).pow(5)
    rays = rays * (1 - smooth_step(distance / half, 0.85, 1.45)) * smooth_step(distance / half, 0.5, 0.95)
    body = (ball + 0.22 * spiky * rays) * (1.0 + 0.05 * group.clouds[0]) * group.coverage
    water = body * (2 * half).clamp_max(7.0) * (0.6 + 0.5 * group.severity)
    return Drawn(extent=over_share(body), water=water, fade=0.5 * ball * group.coverage)


def emphysema(group: Group) -> Drawn:
    """Draw lost lung tissue: darker, especially in patches of the upper zones."""
    down = group.anatomy.down
    only_upper = group.own["upper"]
    everywhere, high = 1.0 - 0.4 * smooth_step(down, 0.3, 0.9), 1.0 - smooth_step(down, 0.3, 0.55)
    upper = torch.where(only_upper > 0, high, everywhere)
    extent = torch.where(only_upper > 0, torch.minimum(group.inside, (0.45 - down) * 20.0), group.inside)
    lost = (0.5 + 0.35 * group.clouds[0]).clamp(0.1, 1.0) * upper * group.coverage
    return Drawn(extent=extent, fill=-0.08 * lost * (0.3 + group.severity), fade=0.45 * lost * group.severity)


def whole_lung(group: Group) -> Drawn:
    """Draw nothing: the finding is the shape of the lungs."""
    return Drawn(extent=group.inside)

"""Findings of the pleural space and outside the lung: fluid, air, thickening, hernia, and changes of shape."""

from __future__ import annotations

import torch
from torch import Tensor

from rightlung.phantom.image.finding import Drawn, Group, over_share
from rightlung.phantom.image.maps import smooth_step


def effusion(group: Group) -> Drawn:
    """Draw free fluid: it blunts the angle, rises along the chest wall, and finally whitens the hemithorax."""
    anatomy = group.anatomy
    severity = group.severity
    angle = torch.where(anatomy.is_left, group.common["left_dome"], group.common["right_dome"]) + 5.0
    height = 2.4 + 10.0 * severity + 38.0 * (severity - 0.62).clamp_min(0)
    climb = 2.6 * torch.exp(-anatomy.wall.clamp_min(0) / 1.1) + 0.5 * torch.exp(-anatomy.across.clamp_min(0) / 0.08)
    above = angle - height - anatomy.y + 0.9 - climb * (1 - 0.6 * smooth_step(severity, 0.75, 1.0))
    free = 1 - smooth_step(above + 0.12 * group.clouds[0], -1.5, 0.7)
    lens = 1.0 - ((anatomy.wall + 0.5) / (1.4 + 2.2 * severity)).square() - (group.dy / (3.0 + 3.0 * severity)).square()
    trapped = group.own["loculated"]
    body = torch.where(trapped > 0, smooth_step(lens, 0.0, 0.5), free) * group.coverage
    # In a supine patient fluid also spreads behind the lung and veils it, mostly its lower part.
    veil = (
        group.common["supine"] * (1 - trapped) * smooth_step(anatomy.down, 0.25, 1.0) * group.coverage * 0.35 * severity
    )
    fill = 1 - (1 - 0.93 * body) * (1 - veil)
    # At the angle there is little air to replace, but fluid separates dome and wall.
    return Drawn(extent=over_share(body, 0.35), fill=fill, water=0.6 * body, fade=body)


def pneumothorax(group: Group) -> Drawn:
    """Draw air outside a retracted lung: darker, without vessels, bounded by the fine line of the visceral pleura."""
    anatomy = group.anatomy
    severity = group.severity
    tension, apical = group.own["tension"], group.own["apical"]
    free = _from_wall_and_apex(group)
    taper = 1.2 - (0.65 + 1.1 * apical * (1 - severity) - 0.4 * tension) * anatomy.down.clamp(0, 1)
    # Most are at most a finger's breadth wide; only the most severe leave a large space.
    width = (0.6 + 2.2 * severity + 2.2 * severity.square() + 2.0 * tension * severity) * taper
    gap = width - free + 0.08 * group.clouds[0]
    body = smooth_step(gap, -0.15, 0.15) * group.coverage
    collapsed = (1 - smooth_step(gap, -0.3, 0.0)) * group.coverage
    # Lung in front of and behind the space makes it darker but rarely black; ribs cross it.
    fill = -(0.16 + 0.1 * severity + 0.08 * tension) * body + (0.04 + 0.22 * severity) * collapsed * (
        0.6 + 0.4 * tension
    )
    here = torch.where(group.inside > -1.0, gap, torch.full_like(gap, 9.0))
    return Drawn(extent=torch.minimum(gap, group.inside + 0.05), fill=fill, fade=body, gap=here)


def _below_apex(group: Group) -> Tensor:
    return group.anatomy.y - group.common["apex"]


def _from_wall_and_apex(group: Group) -> Tensor:
    """Return the distance from the parietal pleura, rounded at the corner between wall and apex."""
    return 0.6 - torch.logaddexp(-0.9 * group.anatomy.wall, -0.75 * _below_apex(group)) / 0.9


def thickening(group: Group) -> Drawn:
    """Draw a rind along the chest wall, or an apical cap."""
    anatomy = group.anatomy
    thick = 0.35 + 0.8 * group.severity + 0.1 * group.clouds[0]
    # A cap thins out down the wall.
    cap = 0.45 + thick * 1.2 - _from_wall_and_apex(group) - 1.6 * smooth_step(anatomy.down, 0.06, 0.28)
    along = smooth_step(anatomy.down, 0.2, 0.4) * (1 - 0.3 * smooth_step(anatomy.down, 0.9, 1.0))
    rind = thick * along - anatomy.wall
    edge = torch.where(group.own["apical"] > 0, cap, rind)
    body = smooth_step(edge, -0.1, 0.35) * group.coverage
    # There is little air to replace at the wall, but the beam follows the rind for centimetres.
    water = body * (1.0 + 1.8 * group.severity)
    return Drawn(extent=torch.minimum(edge, group.inside), fill=body * (0.65 + 0.3 * group.severity), water=water)


def hernia(group: Group) -> Drawn:
    """Draw the stomach behind the heart: a round density with an air-fluid level."""
    anatomy = group.anatomy
    size = group.own["reach"] * (0.7 + 0.5 * group.severity)
    dx = anatomy.middle - 0.9
    dy = anatomy.y - (group.common["mean_dome"] - 0.45 * size)
    inside = 1.0 - torch.hypot(dx / (1.15 * size), dy / size).square()
    body = inside.clamp_min(0).sqrt()
    level = 0.1 * size
    air = smooth_step(1.0 - torch.hypot(dx / (0.98 * size), dy / (0.84 * size)), 0.0, 0.12) * ((level - dy) * 4).clamp(
        0, 1
    )
    water = body * (2.4 + 1.6 * group.severity) * (1.0 - 2.1 * air)
    return Drawn(extent=inside, water=water, where="anywhere")


def heart(group: Group) -> Drawn:
    """Draw nothing: an enlarged heart is the heart itself."""
    return Drawn(extent=group.anatomy.heart, where="between")


def mediastinum(group: Group) -> Drawn:
    """Draw nothing: the finding is the widened mediastinum, above the heart or down to it."""
    anatomy = group.anatomy
    lowest = torch.where(group.own["upper"] > 0, group.common["below_carina"], group.common["heart_middle"])
    upper = torch.minimum(_below_apex(group) - 2.0, lowest - anatomy.y)
    return Drawn(extent=torch.minimum(-anatomy.inner, upper), where="between")


def spine(group: Group) -> Drawn:
    """Draw nothing: the curved spine is drawn with the bones."""
    return Drawn(extent=2.1 - group.anatomy.spine.abs(), where="anywhere")

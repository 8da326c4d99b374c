"""The localisation measures for tensors, in batches on their device.

Uses the same packed sort; agrees with the array version up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.scoring.localisation.settings import Settings

CHUNK = 1 << 23
"""Pixels scored at once: bounds the memory (about 150 bytes a pixel)."""


def score_tensors(maps: Tensor, masks: Any, settings: Settings) -> dict[str, Any]:
    """Score ``maps`` (n, height, width) against ``masks`` of the same shape; see `score`."""
    if isinstance(masks, np.ndarray) and not masks.flags.writeable:
        masks = masks.copy()  # a tensor cannot be read-only
    masks = torch.as_tensor(masks, device=maps.device)
    if maps.ndim != 3 or 0 in maps.shape[1:]:
        raise InputError(f"maps must have shape (n, height, width); got {tuple(maps.shape)}")
    if maps.shape != masks.shape:
        raise InputError(f"maps {tuple(maps.shape)} and masks {tuple(masks.shape)} differ in shape")
    if masks.dtype != torch.bool:
        if not ((masks == 0) | (masks == 1)).all():
            raise InputError(f"masks must hold booleans, or zeros and ones only; got {masks.dtype}")
        masks = masks.bool()
    if maps.is_complex() or maps.dtype == torch.bool:
        raise InputError(f"maps must hold floats; got {maps.dtype}")
    maps = maps.detach()
    if maps.dtype in (torch.float16, torch.bfloat16):
        maps = maps.float()
    elif maps.dtype not in (torch.float32, torch.float64):
        maps = maps.double()
    bad = ~((maps >= 0) & (maps < torch.inf))
    if bad.any():
        index, row, column = (int(place) for place in bad.nonzero()[0])
        value = maps[index, row, column].item()
        raise InputError(f"map {index} must be finite and non-negative; got {value} at row {row}, column {column}")
    step = max(1, CHUNK // (maps.shape[1] * maps.shape[2]))
    parts = [
        _score_chunk(maps[start : start + step], masks[start : start + step], settings)
        for start in range(0, len(maps), step)
    ]
    empty = torch.empty(0, dtype=torch.float64, device=maps.device)
    result: dict[str, Any] = {
        name: torch.cat([values[name] for values, _ in parts]) if parts else empty for name in settings.metrics
    }
    result["reason"] = np.array([reason for _, reasons in parts for reason in reasons], dtype=np.str_)
    return result


class _SortedMaps:
    """Each map's pixels in ascending order, with the limits of their ties."""

    def __init__(self, values: Tensor, labels: Tensor) -> None:
        count, self.pixels = values.shape
        integer, lowest = (torch.int32, -(2**31)) if values.dtype == torch.float32 else (torch.int64, -(2**63))
        packed = (values.view(integer) << 1) | labels.to(integer)
        keys = (packed ^ lowest).sort(dim=1)[0]  # flipping the top bit makes the signed order the unsigned one
        self.labels = keys & 1
        scores = keys >> 1
        places = torch.arange(self.pixels, device=values.device).expand(count, -1)
        edge = torch.ones(count, 1, dtype=torch.bool, device=values.device)
        new = torch.cat([edge, scores[:, 1:] != scores[:, :-1]], dim=1)
        last = torch.cat([new[:, 1:], edge], dim=1)
        self.start = torch.where(new, places, 0).cummax(dim=1)[0]
        self.end = torch.where(last, places + 1, self.pixels).flip(1).cummin(dim=1)[0].flip(1)
        zero = torch.zeros(count, 1, dtype=torch.int64, device=values.device)
        self.positives_before = torch.cat([zero, self.labels.cumsum(dim=1, dtype=torch.int64)], dim=1)
        self.positives = self.positives_before[:, -1]

    def before(self, places: Tensor) -> Tensor:
        """Return the number of positives before each of ``places`` (n, k)."""
        return self.positives_before.gather(1, places)


def _score_chunk(maps: Tensor, masks: Tensor, settings: Settings) -> tuple[dict[str, Tensor], list[str]]:
    wants = settings.wants
    values, labels = (maps + 0.0).flatten(1), masks.flatten(1)
    pixels = values.shape[1]
    positives = labels.sum(dim=1)
    partial = (positives > 0) & (positives < pixels)
    found: dict[str, Tensor] = {}
    reasons: list[tuple[Tensor, str]] = [
        (positives == 0, "mask is empty"),
        (positives == pixels, "mask covers every pixel"),
    ]
    lowest, highest = values.amin(dim=1).double(), values.amax(dim=1).double()
    raw = values.double()
    doubles = raw / torch.where(highest > 0, highest, 1.0)[:, None]  # no measure of these depends on the scale
    total = doubles.sum(dim=1)
    if wants("entropy"):
        shares = doubles / total[:, None]
        found["entropy"] = -torch.where(shares > 0, shares * shares.log(), 0.0).sum(dim=1).clamp(max=0.0)
        found["entropy"][total == 0] = torch.nan
        reasons.insert(0, (total == 0, "map is zero everywhere (entropy)"))
    if wants("auroc", "average_precision", "iou@", "precision@", "dice@"):
        found |= _ranked(_SortedMaps(values, labels), settings)
    if wants("pointing"):
        found["pointing"] = _pointing(maps, masks, highest, settings.tolerance)
    if wants("cnr"):
        found["cnr"] = _contrast_to_noise(doubles, labels)
        reasons.append((partial & found["cnr"].isnan(), "no variance inside or outside (cnr)"))
    if wants("mass_inside"):
        found["mass_inside"] = (doubles * labels).sum(dim=1) / total
        reasons.append((partial & (total == 0), "map is zero everywhere (mass_inside)"))
    if wants("miou", "mdice"):
        normalised, possible = _normalised(raw, lowest, highest, settings.normalisation)
        overlaps = []
        for threshold in settings.thresholds:
            above = normalised >= threshold
            hits, count = (above & labels).sum(dim=1).double(), above.sum(dim=1).double()
            overlaps.append((hits / (count + positives - hits), 2 * hits / (count + positives)))
        for name, columns in zip(("miou", "mdice"), zip(*overlaps, strict=True), strict=True):
            found[name] = torch.where(possible, torch.stack(columns).mean(dim=0), torch.nan)
        constant = (lowest == highest) & (highest > 0)
        for kind, rows in (("constant", constant), ("zero everywhere", ~constant)):
            text = f"map is {kind}, so {settings.normalisation} is not defined (miou, mdice)"
            reasons.append((partial & ~possible & rows, text))
    for name, column in found.items():
        if name != "entropy":
            column[~partial] = torch.nan
    texts = [(rows.tolist(), text) for rows, text in reasons]
    joined = ["; ".join(text for rows, text in texts if rows[index]) for index in range(len(maps))]
    return {name: found[name].double() for name in settings.metrics}, joined


def _ranked(order: _SortedMaps, settings: Settings) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    positives, pixels = order.positives.double(), order.pixels
    below, up_to = order.before(order.start), order.before(order.end)
    if settings.wants("auroc"):
        wins = (order.labels * ((order.start - below) + (order.end - up_to))).sum(dim=1)
        found["auroc"] = wins.double() / (2 * positives * (pixels - positives))
    if settings.wants("average_precision"):
        precision = (order.positives[:, None] - below).double() / (pixels - order.start)
        found["average_precision"] = (order.labels * precision).sum(dim=1) / positives
    for share in settings.shares if settings.wants("iou@", "precision@", "dice@") else ():
        count = share / 100 * pixels
        place = pixels - int(np.ceil(count))
        low, high = order.start[:, place, None], order.end[:, place, None]
        tied_positives = (order.before(high) - order.before(low))[:, 0]
        above = pixels - high[:, 0]
        hits = (
            order.positives - order.before(high)[:, 0] + (count - above) * tied_positives / (high - low)[:, 0].double()
        )
        found[f"iou@{share:g}"] = hits / (count + positives - hits)
        found[f"precision@{share:g}"] = hits / count
        found[f"dice@{share:g}"] = 2 * hits / (count + positives)
    return found


def _pointing(maps: Tensor, masks: Tensor, highest: Tensor, tolerance: float) -> Tensor:
    if tolerance > 0:
        reach = int(tolerance)
        offsets = torch.arange(-reach, reach + 1, device=maps.device)
        disk = (offsets[:, None] ** 2 + offsets[None, :] ** 2 <= tolerance**2).float()
        near = torch.nn.functional.conv2d(masks[:, None].float(), disk[None, None], padding=reach)
        masks = near[:, 0] > 0.5
    peaks = maps.double() == highest[:, None, None]
    return (peaks & masks).sum(dim=(1, 2)).double() / peaks.sum(dim=(1, 2))


def _contrast_to_noise(values: Tensor, labels: Tensor) -> Tensor:
    means, variances = [], []
    for side in (labels, ~labels):
        count = side.sum(dim=1)
        mean = (values * side).sum(dim=1) / count
        variance = ((values - mean[:, None]).square() * side).sum(dim=1) / count
        low = torch.where(side, values, torch.inf).amin(dim=1)
        high = torch.where(side, values, -torch.inf).amax(dim=1)
        means.append(torch.where(low == high, low, mean))
        variances.append(torch.where(low == high, 0.0, variance))
    variance = variances[0] + variances[1]
    return torch.where(variance > 0, (means[0] - means[1]) / variance.sqrt(), torch.nan)


def _normalised(values: Tensor, lowest: Tensor, highest: Tensor, normalisation: str) -> tuple[Tensor, Tensor]:
    """Return the normalised maps, and for which maps the normalisation is defined."""
    if normalisation == "minmax":
        return (values - lowest[:, None]) / (highest - lowest)[:, None], highest > lowest
    if normalisation == "none":
        return values, torch.ones_like(highest, dtype=torch.bool)
    return values / (highest if normalisation == "max" else values.sum(dim=1))[:, None], highest > 0

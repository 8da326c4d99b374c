"""`score` and `score_grid`: many maps against many masks, on all cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.checks import as_booleans
from rightlung.core.errors import InputError
from rightlung.core.resampling import positions
from rightlung.scoring.localisation import measures
from rightlung.scoring.localisation.measures import Normalisation
from rightlung.scoring.localisation.ranking import Floats, Ranking
from rightlung.scoring.localisation.settings import SHARES, THRESHOLDS, Settings
from rightlung.scoring.localisation.sums import Sums
from rightlung.scoring.threads import in_threads, usable_cores

if TYPE_CHECKING:
    import torch

Scores = dict[str, Any]
"""Measures by name, each ``(n,)``, and ``reason``, an array of texts."""


LARGE = 1 << 18
"""Number of mask pixels above which `score_grid` uses threads."""


def score(
    maps: ArrayLike | torch.Tensor,
    masks: ArrayLike | torch.Tensor,
    *,
    metrics: Iterable[str] | None = None,
    shares: Sequence[float] = SHARES,
    tolerance: float = 0.0,
    thresholds: Sequence[float] = THRESHOLDS,
    normalisation: Normalisation = "minmax",
    workers: int | None = None,
) -> Scores:
    """Score maps against masks: arrays ``(n, height, width)`` to a dict of ``(n,)`` arrays.

    Maps are non-negative finite floats, masks booleans (or zeros and ones). The result holds ``metrics`` (default: all
    of `METRICS`) and ``reason``: why a value of that row is NaN. With an empty or full mask only the entropy is
    defined. Tensors are scored on their device and returned as tensors (``reason`` stays an array).

    ``shares`` are the percentages of ``iou@…``, ``precision@…`` and ``dice@…``; ``tolerance`` is the distance in pixels
    at which a peak still hits the mask. ``miou`` and ``mdice`` average over ``thresholds`` of the map normalised by
    ``minmax``, ``max``, ``sum`` or ``none``. ``workers`` is the number of threads, by default all usable cores.

    >>> result = score([[[0.1, 0.9], [0.2, 0.3]]], [[[0, 1], [0, 0]]])
    >>> float(result["auroc"][0]), float(result["pointing"][0])
    (1.0, 1.0)
    """
    settings = Settings.checked(metrics, shares, tolerance, thresholds, normalisation)
    if _is_tensor(maps):
        from rightlung.scoring.localisation.tensors import score_tensors

        return score_tensors(cast("torch.Tensor", maps), masks, settings)
    checked_maps, checked_masks = _as_maps(cast(ArrayLike, maps)), _as_masks(cast(ArrayLike, masks))
    if checked_maps.shape != checked_masks.shape:
        raise InputError(f"maps {checked_maps.shape} and masks {checked_masks.shape} differ in shape")

    return _score_all(lambda index: checked_maps[index], checked_masks, settings, workers)


def score_grid(
    grids: ArrayLike,
    masks: ArrayLike,
    *,
    extents: ArrayLike | None = None,
    metrics: Iterable[str] | None = None,
    shares: Sequence[float] = SHARES,
    tolerance: float = 0.0,
    thresholds: Sequence[float] = THRESHOLDS,
    normalisation: Normalisation = "minmax",
    workers: int | None = None,
) -> Scores:
    """Score maps on their grid ``(n, rows, cols)`` against masks ``(n, height, width)``.

    ``extents`` ``(n, 4)`` says where each grid lies in its image; by default the whole image. Equal to `score` on maps
    upsampled by the nearest cell, zero outside the extent. By default several threads are used for large masks only.
    """
    settings = Settings.checked(metrics, shares, tolerance, thresholds, normalisation)
    checked_grids, checked_masks = _as_maps(grids), _as_masks(masks)
    if len(checked_grids) != len(checked_masks):
        raise InputError(f"expected one mask per map; got {len(checked_grids)} maps and {len(checked_masks)} masks")
    (rows, columns), (height, width) = checked_grids.shape[1:], checked_masks.shape[1:]
    corners = _as_extents(extents, len(checked_grids))
    for index, grid in enumerate(checked_grids):
        _check_values(grid, index)

    cells_of = lru_cache(maxsize=64)(_cells)

    def upsampled(index: int) -> Floats:
        x0, y0, x1, y1 = corners[index]
        (inside_y, down), (inside_x, across) = cells_of(height, rows, y0, y1), cells_of(width, columns, x0, x1)
        found: Floats = checked_grids[index].take(down, axis=0).take(across, axis=1)
        if len(down) == height and len(across) == width:
            return found
        pixels: Floats = np.zeros((height, width), dtype=checked_grids.dtype)
        pixels[np.ix_(inside_y, inside_x)] = found
        return pixels

    large = height * width > LARGE
    return _score_all(upsampled, checked_masks, settings, workers or (None if large else 1))


def _cells(pixels: int, cells: int, low: float, high: float) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which pixels of an axis lie on the grid, and the cell of each of these."""
    where = positions(pixels, cells, low, high)
    inside = (where >= 0) & (where < cells)
    return inside, where[inside].astype(np.intp)


def _score_all(
    map_of: Callable[[int], Floats], masks: NDArray[np.bool_], settings: Settings, workers: int | None
) -> Scores:
    count = len(masks)
    results: Scores = {name: np.full(count, np.nan) for name in settings.metrics}
    reasons = [""] * count

    step = max(1, min(64, count // (4 * max(workers or usable_cores(), 1))))

    def work(task: int) -> None:
        for index in range(task * step, min((task + 1) * step, count)):
            values = map_of(index)
            found, reasons[index] = _measure(values, masks[index], _check_values(values, index), settings)
            for name, value in found.items():
                results[name][index] = value

    for _ in in_threads(work, -(-count // step), workers):
        pass
    results["reason"] = np.array(reasons, dtype=np.str_)
    return results


def _measure(
    pixels: Floats, mask: NDArray[np.bool_], extremes: tuple[float, float], settings: Settings
) -> tuple[dict[str, float], str]:
    """Return the requested measures that are defined, and why the others are not."""
    ranking, wants = Ranking.of(pixels.ravel(), mask.ravel()), settings.wants
    found: dict[str, float] = {}
    reasons = []
    lowest, highest = extremes
    if wants("entropy", "mass_inside", "cnr", "miou", "mdice", "pointing"):
        sums = Sums.of(pixels.ravel(), mask.ravel(), highest)
    if wants("entropy"):
        if highest > 0:
            found["entropy"] = sums.entropy()
        else:
            reasons.append("map is zero everywhere (entropy)")
    if not 0 < ranking.positives < ranking.pixels:
        reasons.append("mask is empty" if not ranking.positives else "mask covers every pixel")
        return found, "; ".join(reasons)
    negatives = ranking.pixels - ranking.positives
    if wants("auroc"):
        found["auroc"] = ranking.curve().wins / (2 * ranking.positives * negatives)
    if wants("average_precision"):
        found["average_precision"] = ranking.curve().precision / ranking.positives
    if wants("iou@", "precision@", "dice@"):
        counts = np.array(settings.shares) / 100 * ranking.pixels
        for share, count, hits in zip(
            settings.shares, counts.tolist(), ranking.positives_in_top(counts).tolist(), strict=True
        ):
            found[f"iou@{share:g}"] = hits / (count + ranking.positives - hits)
            found[f"precision@{share:g}"] = hits / count
            found[f"dice@{share:g}"] = 2 * hits / (count + ranking.positives)
    if wants("pointing"):
        found["pointing"] = measures.pointing(pixels, mask, sums, highest, settings.tolerance)
    if wants("cnr"):
        found["cnr"] = sums.contrast_to_noise(ranking.positives, negatives)
        if math.isnan(found["cnr"]):
            reasons.append("no variance inside or outside (cnr)")
    if wants("mass_inside"):
        if highest > 0:
            found["mass_inside"] = sums.inside / sums.total
        else:
            reasons.append("map is zero everywhere (mass_inside)")
    if wants("miou", "mdice"):
        if measures.can_normalise(lowest, highest, settings.normalisation):
            levels = measures.levels_of(lowest, highest, sums.mass, settings.thresholds, settings.normalisation)
            iou, dice = measures.overlaps_at(ranking, levels)
            found["miou"], found["mdice"] = float(iou.mean()), float(dice.mean())
        else:
            kind = "constant" if lowest == highest and highest > 0 else "zero everywhere"
            reasons.append(f"map is {kind}, so {settings.normalisation} is not defined (miou, mdice)")
    return {name: value for name, value in found.items() if name in settings.metrics}, "; ".join(reasons)


def _is_tensor(value: object) -> bool:
    # Avoids importing torch, which takes longer than scoring a thousand maps.
    return type(value).__module__.partition(".")[0] == "torch"


def _as_array(values: ArrayLike, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of shape (n, height, width): {error}") from None
    if array.ndim != 3 or 0 in array.shape[1:]:
        raise InputError(f"{what} must have shape (n, height, width); got {array.shape}")
    return array


def _as_maps(maps: ArrayLike) -> Floats:
    array = _as_array(maps, "maps")
    if array.dtype.kind not in "fiu":
        raise InputError(f"maps must hold floats; got {array.dtype}")
    if array.dtype in (np.float32, np.float16):
        return array.astype(np.float32, copy=False)
    return array.astype(np.float64, copy=False)


def _as_masks(masks: ArrayLike) -> NDArray[np.bool_]:
    return as_booleans(_as_array(masks, "masks"), "masks")


def _as_extents(extents: ArrayLike | None, count: int) -> list[tuple[float, ...]]:
    if extents is None:
        return [(0.0, 0.0, 1.0, 1.0)] * count
    array = np.asarray(extents, dtype=np.float64)
    if array.shape != (count, 4):
        raise InputError(f"extents must have shape ({count}, 4); got {array.shape}")
    for index, (x0, y0, x1, y1) in enumerate(array.tolist()):
        if not (np.isfinite(array[index]).all() and x0 < x1 and y0 < y1):
            raise InputError(f"extent {index} must be finite with x0 < x1 and y0 < y1; got {(x0, y0, x1, y1)}")
    return [tuple(corners) for corners in array.tolist()]


def _check_values(grid: Floats, index: int) -> tuple[float, float]:
    lowest, highest = grid.min(), grid.max()
    if lowest >= 0 and highest < np.inf:  # false for NaN, too
        return float(lowest), float(highest)
    row, column = (int(place) for place in np.argwhere(~((grid >= 0) & (grid < np.inf)))[0])
    where = f"row {row}, column {column}"
    raise InputError(f"map {index} must be finite and non-negative; got {grid[row, column]} at {where}")

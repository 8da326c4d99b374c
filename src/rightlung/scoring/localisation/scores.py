"""`score` and `score_grid`: many maps against many masks, on all cores."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.checks import as_booleans
from rightlung.core.errors import InputError
from rightlung.core.resampling import positions
from rightlung.scoring.localisation import measures
from rightlung.scoring.localisation.measures import Normalisation, Weights
from rightlung.scoring.localisation.ranking import CellRanking, Floats, PixelRanking, Ranking
from rightlung.scoring.localisation.settings import SHARES, THRESHOLDS, Settings
from rightlung.scoring.threads import in_threads, usable_cores

if TYPE_CHECKING:
    import torch

Scores = dict[str, Any]
"""Measures by name, each ``(n,)``, and ``reason``, an array of texts."""


LARGE = 1 << 18
"""Number of mask pixels above which `score_grid` uses threads."""


@dataclass(slots=True)
class _Case:
    """One map and one mask: the ranking and, for measures that need them, the values and pixels."""

    ranking: Ranking
    lowest: float
    highest: float
    weights: Callable[[], tuple[Weights, Weights, Weights]]  # values; how many pixels inside, and outside, have each
    pixels: Callable[[], tuple[Floats, NDArray[np.bool_]]]  # map and mask as (height, width)


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

    - ``shares``: percentages for ``iou@…``, ``precision@…`` and ``dice@…``. The last pixel counts by its fraction;
      pixels tied at the cut share it.
    - ``tolerance``: distance in pixels at which a peak still hits the mask (``pointing``).
    - ``thresholds``, ``normalisation``: ``miou`` and ``mdice`` average over these thresholds of the map normalised by
      ``minmax``, ``max``, ``sum`` or ``none``. On raw attention such thresholds mean nothing.
    - ``workers``: number of threads; by default all usable cores.

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

    def case(index: int) -> _Case:
        grid, mask = checked_maps[index], checked_masks[index]

        def weights() -> tuple[Weights, Weights, Weights]:
            inside = mask.ravel().astype(np.float64)
            return grid.ravel().astype(np.float64), inside, 1 - inside

        extremes = _check_values(grid, index)
        return _Case(PixelRanking.of(grid.ravel(), mask.ravel()), *extremes, weights, lambda: (grid, mask))

    return _score_all(case, len(checked_maps), settings, workers)


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
    upsampled by the nearest cell, zero outside the extent, but the sort is over cells, not pixels. By default several
    threads are used for large masks only.
    """
    settings = Settings.checked(metrics, shares, tolerance, thresholds, normalisation)
    checked_grids, checked_masks = _as_maps(grids), _as_masks(masks)
    if len(checked_grids) != len(checked_masks):
        raise InputError(f"expected one mask per map; got {len(checked_grids)} maps and {len(checked_masks)} masks")
    (rows, columns), (height, width) = checked_grids.shape[1:], checked_masks.shape[1:]
    corners = _as_extents(extents, len(checked_grids))
    cells = functools.cache(_Cells)

    def case(index: int) -> _Case:
        grid, mask = checked_grids[index], checked_masks[index]
        _check_values(grid, index)
        x0, y0, x1, y1 = corners[index]
        down, across = cells(height, rows, y0, y1), cells(width, columns, x0, x1)
        ranking = CellRanking.of(*_counted(grid, mask, down, across))

        def weights() -> tuple[Weights, Weights, Weights]:
            inside = ranking.hits.astype(np.float64)
            return ranking.values.astype(np.float64), inside, ranking.counts - inside

        def pixels() -> tuple[Floats, NDArray[np.bool_]]:
            upsampled = np.zeros(mask.shape, dtype=grid.dtype)
            upsampled[down.inside, across.inside] = grid[np.ix_(down.cell_of, across.cell_of)]
            return upsampled, mask

        return _Case(ranking, float(ranking.values[0]), float(ranking.values[-1]), weights, pixels)

    large = height * width > LARGE
    return _score_all(case, len(checked_grids), settings, workers or (None if large else 1))


def _score_all(case: Callable[[int], _Case], count: int, settings: Settings, workers: int | None) -> Scores:
    results: Scores = {name: np.full(count, np.nan) for name in settings.metrics}
    reasons = [""] * count

    step = max(1, min(64, count // (4 * max(workers or usable_cores(), 1))))

    def work(task: int) -> None:
        for index in range(task * step, min((task + 1) * step, count)):
            values, reasons[index] = _measure(case(index), settings)
            for name, value in values.items():
                results[name][index] = value

    for _ in in_threads(work, -(-count // step), workers):
        pass
    results["reason"] = np.array(reasons, dtype=np.str_)
    return results


def _measure(case: _Case, settings: Settings) -> tuple[dict[str, float], str]:
    """Return the requested measures that are defined, and why the others are not."""
    ranking, wants = case.ranking, settings.wants
    found: dict[str, float] = {}
    reasons = []
    lowest, highest = case.lowest, case.highest
    if wants("entropy", "mass_inside", "cnr", "miou", "mdice"):
        raw, inside, outside = case.weights()
        values = raw / (highest or 1.0)  # no measure depends on the scale; avoids overflow
        inside_mass = measures.weighted_sum(values, inside)
        total = inside_mass + measures.weighted_sum(values, outside)
    if wants("entropy"):
        if total > 0:
            found["entropy"] = measures.entropy(values, inside + outside, total)
        else:
            reasons.append("map is zero everywhere (entropy)")
    if not 0 < ranking.positives < ranking.pixels:
        reasons.append("mask is empty" if not ranking.positives else "mask covers every pixel")
        return found, "; ".join(reasons)
    if wants("auroc"):
        found["auroc"] = measures.auroc(ranking)
    if wants("average_precision"):
        found["average_precision"] = measures.average_precision(ranking)
    if wants("iou@", "precision@", "dice@"):
        for share in settings.shares:
            count, hits = measures.expected_overlap(ranking, share / 100)
            found[f"iou@{share:g}"] = hits / (count + ranking.positives - hits)
            found[f"precision@{share:g}"] = hits / count
            found[f"dice@{share:g}"] = 2 * hits / (count + ranking.positives)
    if wants("pointing"):
        found["pointing"] = measures.pointing(*case.pixels(), highest, settings.tolerance)
    if wants("cnr"):
        found["cnr"] = measures.contrast_to_noise(values, inside, outside)
        if math.isnan(found["cnr"]):
            reasons.append("no variance inside or outside (cnr)")
    if wants("mass_inside"):
        if total > 0:
            found["mass_inside"] = inside_mass / total
        else:
            reasons.append("map is zero everywhere (mass_inside)")
    if wants("miou", "mdice"):
        if measures.can_normalise(lowest, highest, settings.normalisation):
            mass = measures.weighted_sum(raw, inside) + measures.weighted_sum(raw, outside)
            levels = measures.levels_of(lowest, highest, mass, settings.thresholds, settings.normalisation)
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


class _Cells:
    """One axis of pixels, each assigned to the cell at its centre (as in `Heatmap.to_size`) or to none."""

    def __init__(self, pixels: int, cells: int, low: float, high: float) -> None:
        position = positions(pixels, cells, low, high)
        reached = np.flatnonzero((position >= 0) & (position < cells))
        self.inside = slice(reached[0], reached[-1] + 1) if len(reached) else slice(0, 0)
        self.cell_of = position[self.inside].astype(np.int64)
        self.starts = np.flatnonzero(np.diff(self.cell_of, prepend=-1))
        self.cells = self.cell_of[self.starts]  # those that some pixel looks at
        self.counts = np.diff(np.append(self.starts, len(self.cell_of)))


def _counted(
    grid: Floats, mask: NDArray[np.bool_], down: _Cells, across: _Cells
) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct cells' values, their numbers of pixels and of positives; pixels outside count as zero."""
    counts = np.outer(down.counts, across.counts).ravel()
    values: Floats = grid[np.ix_(down.cells, across.cells)].ravel()
    if len(counts):
        seen = mask[down.inside, across.inside].view(np.uint8)
        hits = np.add.reduceat(seen, down.starts, axis=0, dtype=np.int64)
        hits = np.add.reduceat(hits, across.starts, axis=1).ravel()
    else:
        hits = counts
    if outside := mask.size - int(counts.sum()):
        values = cast(Floats, np.append(values, values.dtype.type(0)))
        counts = np.append(counts, outside)
        hits = np.append(hits, np.count_nonzero(mask) - int(hits.sum()))
    return values, counts, hits

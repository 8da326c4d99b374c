"""Rescore heatmaps: overlap at thresholds, the pointing game, contrast to noise, and pixels as scores.

Each map is upsampled and sorted once for each kind of upsampling; every convention is computed from its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np

from rightlung.core.resampling import resampling_matrix
from rightlung.diagnosis.conventions import Choices
from rightlung.diagnosis.means import Floats, Groups, Statistic, pooled
from rightlung.measuring.answered import Answered
from rightlung.measuring.curves import peak_distances
from rightlung.measuring.maps import to_pixels
from rightlung.scoring.localisation import score
from rightlung.scoring.localisation.measures import Normalisation, can_normalise, levels_of
from rightlung.scoring.localisation.ranking import Ranking

LEVELS = tuple(step / 20 for step in range(1, 20))
RANGES = {"0.1 to 0.5": (1, 10, 2), "0.1 to 0.7": (1, 14, 2), "0.1 to 0.9": (1, 18, 2)}
"""First and last place in `LEVELS`, and the step."""
TOP = {"top 5 %": 0.05, "top 10 %": 0.1, "top 30 %": 0.3}
OTSU = len(LEVELS)
_SCALINGS: Mapping[str, Normalisation] = {"minmax": "minmax", "max": "max", "raw": "none"}
_TOLERANCES: Mapping[str, Callable[[int], float]] = {
    "0": lambda _: 0.0,
    "15 pixels": lambda _: 15.0,
    "5 %": lambda h: h / 20,
}


class Heatmaps:
    """The statistics of all answers for one family, and numbers by any of its conventions."""

    def __init__(self, family: str, answers: Iterable[Answered]) -> None:
        of_map = {"heatmap-overlap": _areas, "pointing": _peaks, "contrast": _contrast, "pixels": _pixels}[family]
        self._statistic = getattr(self, f"_{family.replace('-', '_')}")
        phrases, rows = [], list[dict[Any, Any]]()
        for one in answers:
            phrases.append(one.phrase)
            pixels = {"bilinear": to_pixels([one.answer], one.mask.shape)[0], "nearest": _nearest(one)}
            rows.append({(how, *key): v for how, map_ in pixels.items() for key, v in of_map(map_, one.mask).items()})
        self.groups, self.patients = Groups(phrases), [one.patient for one in phrases]
        self._sums = {key: np.array([row[key] for row in rows], np.float64) for key in (rows or [{}])[0]}

    def statistic(self, choice: Choices) -> Statistic:
        """Return the number by a convention, as a function of counts."""
        found: Statistic = self._statistic(choice)
        return found

    def _heatmap_overlap(self, choice: Choices) -> Statistic:
        how, pixels, ties = choice["upsampling"], choice["pixels"], choice["ties"]
        if pixels in TOP:
            some = self._sums[how, "top", ties][:, [[*TOP].index(pixels)]]
        else:
            some = self._sums[how, choice["scaling"], "strict" if ties == "strict" else "inclusive"]
            some = some[:, _places(pixels)]
        taken, hits = some[..., 0].copy(), some[..., 1].copy()  # (instances, thresholds)
        positives, total = (self._sums[how, name][:, None] for name in ("positives", "total"))
        if choice["flat maps"] == "zero":
            taken, hits = np.nan_to_num(taken), np.nan_to_num(hits)
        parts = {
            "iou": [(hits, taken + positives - hits)],
            "dice": [(2 * hits, taken + positives)],
            "precision": [(hits, np.maximum(taken, 1e-9))],
            "with background": [
                (hits, taken + positives - hits), (total - taken - positives + hits, total - hits)
            ],
        }[choice["overlap"]]  # fmt: skip
        ratios = np.mean([above / below for above, below in parts], axis=0)
        if pixels == "best of each":
            best = np.nan_to_num(ratios, nan=-1.0).argmax(axis=1)[:, None]
            parts = [tuple(np.take_along_axis(one, best, axis=1) for one in pair) for pair in parts]  # type: ignore[misc]
            ratios = np.take_along_axis(ratios, best, axis=1)
        if pixels == "best" and not np.isnan(ratios).all():
            best_one = [int(np.nanmean(ratios, axis=0).argmax())]
            parts, ratios = [(above[:, best_one], below[:, best_one]) for above, below in parts], ratios[:, best_one]
        if choice["averaging"] == "pooled":
            each = [pooled(*part) for part in parts]
            return lambda counts: np.asarray(np.mean([one(counts) for one in each], axis=0))
        return self.groups.mean(ratios.mean(axis=1), choice["averaging"])

    def _pointing(self, choice: Choices) -> Statistic:
        how = choice["upsampling"]
        values = self._sums[how, choice["ties"], choice["tolerance"], choice["target"]]
        constant = self._sums[how, "constant"] > 0
        if choice["flat maps"] != "as they are":
            values = np.where(constant, 0.0 if choice["flat maps"] == "zero" else np.nan, values)
        return self.groups.mean(values, choice["averaging"])

    def _contrast(self, choice: Choices) -> Statistic:
        how = choice["upsampling"]
        inside, outside, whole = (self._sums[how, name] for name in ("inside", "outside", "whole"))  # mean, variance, n
        scale = [
            part[:, 2] / (part[:, 2] - 1) if choice["variance"] == "sample" else 1.0
            for part in (inside, outside, whole)
        ]
        with np.errstate(all="ignore"):
            noise = {
                "sum": scale[0] * inside[:, 1] + scale[1] * outside[:, 1],
                "mean": (scale[0] * inside[:, 1] + scale[1] * outside[:, 1]) / 2,
                "outside": scale[1] * outside[:, 1],
                "whole": scale[2] * whole[:, 1],
            }[choice["noise"]]
            values = (inside[:, 0] - outside[:, 0]) / np.sqrt(noise)
        values = np.where(np.isfinite(values), values, np.nan)
        return self.groups.mean(np.abs(values) if choice["sign"] == "absolute" else values, choice["averaging"])

    def _pixels(self, choice: Choices) -> Statistic:
        return self.groups.mean(self._sums[choice["upsampling"], choice["score"]], choice["averaging"])


def _places(pixels: str) -> list[int]:
    if pixels in RANGES:
        return [*range(*RANGES[pixels])]
    if pixels in ("best", "best of each"):
        return [*range(len(LEVELS))]
    return [OTSU if pixels == "otsu" else LEVELS.index(float(pixels))]


def _nearest(one: Answered) -> Any:
    """Return a map upsampled by the nearest cell, scaled to a maximum of one as `to_pixels` does."""
    if one.answer.values is None:
        return to_pixels([one.answer], one.mask.shape)[0]
    values, (x0, y0, x1, y1), (height, width) = one.answer.values.astype(np.float64), one.answer.extent, one.mask.shape
    down = resampling_matrix(height, values.shape[0], y0, y1, "nearest")
    across = resampling_matrix(width, values.shape[1], x0, x1, "nearest")
    return (down @ (values / (values.max() or 1.0)) @ across.T).astype(np.float32)


def _areas(pixels: Any, mask: Any) -> dict[Any, Any]:
    """Return (pixels chosen, hits) at every threshold, by scaling and ties; NaN where a map cannot be scaled."""
    ranking = Ranking.of(pixels.ravel(), mask.ravel())
    lowest, highest, total = float(pixels.min()), float(pixels.max()), float(pixels.sum())
    found: dict[Any, Any] = {("positives",): ranking.positives, ("total",): ranking.pixels}
    for scaling, ties in product(_SCALINGS, ("inclusive", "strict")):
        if not can_normalise(lowest, highest, _SCALINGS[scaling]):
            found[scaling, ties] = np.full((len(LEVELS) + 1, 2), np.nan)
            continue
        wanted = [*LEVELS, (_otsu(pixels, lowest, highest))]
        thresholds = wanted if ties == "inclusive" else [float(np.nextafter(one, np.inf)) for one in wanted]
        levels = levels_of(lowest, highest, total, thresholds, _SCALINGS[scaling])
        found[scaling, ties] = np.stack(ranking.at_least(levels), axis=1)
    counts = np.array([*TOP.values()]) * ranking.pixels
    cuts = np.sort(pixels, axis=None)[ranking.pixels - np.ceil(counts).astype(int)].astype(np.float64)
    found["top", "inclusive"] = np.stack([counts, ranking.positives_in_top(counts)], axis=1)
    found["top", "all"] = np.stack(ranking.at_least(cuts), axis=1)
    found["top", "strict"] = np.stack(ranking.at_least(np.nextafter(cuts, np.inf)), axis=1)
    return found


def _otsu(pixels: Any, lowest: float, highest: float) -> float:
    """Return Otsu's threshold of a map scaled to 0–255, as a fraction; pixels above it are chosen."""
    grey = ((pixels - lowest) / ((highest - lowest) or 1.0) * 255).astype(np.uint8)
    shares = np.bincount(grey.ravel(), minlength=256) / grey.size
    below, mean = np.cumsum(shares), np.cumsum(shares * np.arange(256))
    with np.errstate(all="ignore"):
        between = (mean[-1] * below - mean) ** 2 / (below * (1 - below))
    return float(np.nan_to_num(between, posinf=0.0).argmax() + 1) / 255


def _peaks(pixels: Any, mask: Any) -> dict[Any, float]:
    """Return whether the peak hits, by ties, tolerance and target."""
    rows, columns = np.nonzero(pixels == pixels.max())
    places, inside = np.stack([rows, columns], axis=1), np.argwhere(mask)
    low, high = inside.min(axis=0), inside.max(axis=0)
    distances = {
        "mask": peak_distances(pixels, mask),
        "box": np.hypot(*np.maximum(np.maximum(low - places, places - high), 0).T),
    }
    found: dict[Any, float] = {("constant",): float(pixels.min() == pixels.max())}
    for (target, distance), (tolerance, least) in product(distances.items(), _TOLERANCES.items()):
        hits = distance <= least(mask.shape[0])
        found["share", tolerance, target] = float(hits.mean())
        found["any", tolerance, target], found["first", tolerance, target] = float(hits.any()), float(hits[0])
    return found


def _contrast(pixels: Any, mask: Any) -> dict[Any, Any]:
    """Return mean, variance and number of pixels inside and outside of the target, and of all."""
    parts: dict[str, Floats] = {"inside": pixels[mask], "outside": pixels[~mask], "whole": pixels.ravel()}
    sums = {name: np.asarray(part, np.float64) for name, part in parts.items()}
    return {
        (name,): [one.mean(), one.var() if one.min() < one.max() else 0.0, one.size] if one.size else [np.nan] * 3
        for name, one in sums.items()
    }


def _pixels(pixels: Any, mask: Any) -> dict[Any, float]:
    names = ("auroc", "average_precision", "mass_inside")
    found = score(pixels[None], mask[None], metrics=names, workers=1)
    return {(name,): float(found[name][0]) for name in names}

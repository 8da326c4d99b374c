"""Curves of heatmaps against targets: IoU over the threshold, precision over recall, pointing over the tolerance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.measuring.answered import Answered
from rightlung.measuring.boxes import detections_of
from rightlung.measuring.maps import to_pixels
from rightlung.scoring.localisation.measures import can_normalise, levels_of, overlaps_at
from rightlung.scoring.localisation.ranking import Ranking

Floats = NDArray[np.float64]

THRESHOLDS = tuple(step / 20 for step in range(1, 20))
RECALLS = tuple(step / 10 for step in range(1, 11))
TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
"""Distances of the peak from the target that still hit, in fractions of the image's height."""
HIT = 0.5
"""IoU from which a predicted box hits a target box."""


def curves(answers: Iterable[Answered]) -> dict[tuple[str, str], dict[str, Floats]]:
    """Return the curves of each answer, by study and query; NaN where undefined.

    ``iou`` (thresholds), of the map scaled to 0–1; ``precision`` (recalls), of the smallest set of top pixels with that
    recall; ``pointing`` (tolerances); ``matched`` (1): IoU of as many top pixels as the target has; ``contours`` (1):
    share of the target's connected parts of which these pixels cover at least half; ``scores`` and ``hits`` (boxes).
    """
    return {one.key: _curves(one) for one in answers}


def _curves(one: Answered) -> dict[str, Floats]:
    from scipy.ndimage import label

    size = (one.mask.shape[0], one.mask.shape[1])
    pixels = to_pixels([one.answer], size)[0]
    ranking, positives = Ranking.of(pixels.ravel(), one.mask.ravel()), int(one.mask.sum())
    lowest, highest, total = float(pixels.min()), float(pixels.max()), float(pixels.sum())
    found: dict[str, Floats] = {"iou": np.full(len(THRESHOLDS), np.nan)}
    if can_normalise(lowest, highest, "minmax"):
        found["iou"] = overlaps_at(ranking, levels_of(lowest, highest, total, THRESHOLDS, "minmax"))[0]
    ranked = np.sort(pixels[one.mask].astype(np.float64))[::-1]
    levels = ranked[np.ceil(np.array(RECALLS) * positives).astype(int) - 1]
    taken, hits = ranking.at_least(levels)
    found["precision"] = hits / taken
    inside = float(ranking.positives_in_top([positives])[0])
    found["matched"] = np.array([inside / (2 * positives - inside)])
    parts, count = label(one.mask)
    top = pixels >= np.partition(pixels.ravel(), -positives)[-positives]
    covered = [top[parts == part].mean() >= 0.5 for part in range(1, count + 1)]
    found["contours"] = np.array([np.mean(covered) if lowest < highest else np.nan])
    distances = peak_distances(pixels, one.mask) / size[0]
    found["pointing"] = np.array([(distances <= tolerance).mean() for tolerance in TOLERANCES])
    detected = detections_of(one.answer.boxes or (), one.phrase.boxes)
    found["scores"] = np.array(detected.scores)
    hitting = [any(box.iou(target) >= HIT for target in detected.targets) for box in detected.boxes]
    found["hits"] = np.array(hitting, np.float64)
    return found


def peak_distances(pixels: Any, mask: NDArray[np.bool_]) -> Floats:
    """Return the distance of each tied peak from the target, in pixels; 0 inside."""
    from scipy.spatial import cKDTree

    rows, columns = np.nonzero(pixels == pixels.max())
    distances, _ = cKDTree(np.argwhere(mask)).query(np.stack([rows, columns], axis=1))
    return np.asarray(distances, np.float64)

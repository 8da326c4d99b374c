"""How many boxes an answer has, and how many of a phrase's targets they hit (IoU of at least `LEAST`)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from rightlung.core import Extent, Heatmap
from rightlung.explain.boxes import boxes_of
from rightlung.measuring.boxes import detections_of
from rightlung.measuring.targets import Targets
from rightlung.predictions import Batch
from rightlung.scoring.detection import Detections, match

LEAST = 0.3
COUNTS = ("regions_hit", "regions_called")
_boxes_of = lru_cache(maxsize=2048)(boxes_of)  # the prior gives the same map to many phrases


def with_regions(table: pa.Table, batches: Iterable[Batch], targets: Targets) -> pa.Table:
    """Add the columns `COUNTS` for unchanged phrases; NaN for other rows. Maps without boxes get the default ones."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for batch in batches:
        keys, detections = [], []
        for row, (key, boxes) in enumerate(zip(batch.keys, batch.column("boxes"), strict=True)):
            phrase = targets.phrases.get((key.study, key.query))
            if key.condition != "none" or phrase is None or (boxes is None and batch.maps[row] is None):
                continue
            one = detections_of(boxes or (), phrase.boxes)
            if boxes is None and (values := batch.maps[row]) is not None:
                made = _boxes_of(Heatmap(values, Extent(*batch.extents[row])))
                one = Detections([box.box for box in made], [box.score for box in made], one.targets)
            keys.append((key.study, key.query))
            detections.append(one)
        for at, hit, one in zip(keys, match(detections, (LEAST,)), detections, strict=True):
            found[at] = float(hit.sum()), float(len(one.boxes))
    rows = table.select(["study", "query", "condition"]).to_pylist()
    keys = [(row["study"], row["query"]) if row["condition"] == "none" else ("", "") for row in rows]
    known = np.array([found.get(key, (np.nan, np.nan)) for key in keys]).reshape(-1, 2)
    for name, column in zip(COUNTS, known.T, strict=True):
        table = table.append_column(name, pa.array(column))
    return table

"""Small instances tables for the tests, in the layout that measuring writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

TEXTS = (
    "study", "query", "condition", "target", "patient", "phrase", "polarity", "side_named", "side_told", "target_kind",
    "target_side", "target_size", "reason",
)  # fmt: skip
NUMBERS = (
    "auroc", "average_precision", "pointing", "peak_on_side", "abstention", "similarity_global", "similarity_local",
    "moved_mass", "moved_peak",
)  # fmt: skip
FLAGS = ("abstention_given", "one_lung", "exact_shuffled_differs")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.float64()) for name in NUMBERS),
        *((name, pa.bool_()) for name in FLAGS),
        *((name, pa.list_(pa.string())) for name in ("findings", "regions")),
    ]
)


def row(study: str, condition: str = "none", target: str = "own", **values: Any) -> dict[str, Any]:
    """Return a row about the first phrase of a study; numbers that are not given are undefined."""
    given = {"query": "phrase:0", "patient": f"patient of {study}", "target_kind": "mask", "reason": ""}
    known: dict[str, Any] = dict.fromkeys(NUMBERS, math.nan) | {"findings": [], "regions": []} | given
    return known | {"study": study, "condition": condition, "target": target} | values


def table(rows: Sequence[Mapping[str, Any]], protocol: str | None = None) -> pa.Table:
    """Return rows as a table, made under a protocol where that has a hash."""
    made = pa.Table.from_pylist(list(rows), SCHEMA)
    return made if protocol is None else made.replace_schema_metadata(
        {"rightlung.protocol": json.dumps({"hash": protocol})}
    )  # fmt: skip


def random_rows(generator: np.random.Generator, phrases: int = 40, better: float = 0.0) -> list[dict[str, Any]]:
    """Return rows of random phrases, as they stand and with sides swapped: every fourth has no target."""
    rows = []
    for number in range(phrases):
        facts: dict[str, Any] = {
            "patient": f"p{number % 13:02}",
            "findings": ["nodule"] if number % 3 else ["nodule", "effusion"],
            "regions": ["left lung", "Left Lung", "not a region"],
            "polarity": ("positive", "negative", "uncertain", None)[number % 4],
            "side_named": ("left", "right", "none")[number % 3],
            "side_told": ("image", "words", "device")[number % 3],
            "abstention_given": True,
            "one_lung": number % 2 == 0,
        }
        target = {"target_side": ("left", "both")[number % 2], "target_size": ("small", "large")[number % 2]}
        for condition in ("none", "swap-sides") if number % 5 else ("none",):
            scores = dict(zip(NUMBERS, generator.random(len(NUMBERS)).tolist(), strict=True))
            scores["average_precision"] += better
            if condition == "none":
                scores |= {"moved_mass": math.nan, "moved_peak": math.nan}
            if number % 4 == 3:
                scores |= dict.fromkeys(NUMBERS[:4], math.nan)
            rows.append(row(f"s{number:02}", condition, **facts, **scores, **(target if number % 4 != 3 else {})))
            rows[-1]["target_kind"] = "mask" if number % 4 != 3 else None
    return rows

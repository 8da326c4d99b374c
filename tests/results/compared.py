"""Instances tables with protocols, to be compared, whose numbers are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.measuring import Protocol, find_protocol, write_instances

AUDIT = replace(
    find_protocol("audit"), measures=("auroc", "pointing", "abstention_auroc"), source="cards", phrase_set="1234567890"
)
CLASSES = replace(find_protocol("classification"), measures=("finding_auroc", "finding_average_precision"))
DETECTION = replace(find_protocol("chex-od"), measures=("map", "map@50"))
QUICK_PHRASES = 40


def phrase_rows(better: float = 0.0, seed: int = 0, count: int = QUICK_PHRASES) -> list[dict[str, Any]]:
    """Return rows about phrases of 13 patients; the noise depends on the seed, the truth does not."""
    noise, rows = np.random.default_rng(seed), []
    for number in range(count):
        rows.append(
            {
                "study": f"s{number:02}", "query": "phrase:0", "condition": "none", "target": "own",
                "patient": f"p{number % 13:02}", "phrase": f"Phrase {number}.", "target_kind": "exact mask",
                "findings": ["nodule"] if number % 3 else ["nodule", "effusion"], "reason": "",
                "polarity": "negative" if number % 4 == 3 else "positive", "target_area": 0.1 + number / 1000,
                "auroc": 0.5 + better + 0.2 * noise.random(), "pointing": float(noise.random() < 0.5 + better),
                "abstention": noise.random(),
            }
        )  # fmt: skip
    return rows


def class_rows(strength: float, seed: int, scale: float = 1.0, patients: int = 20) -> list[dict[str, Any]]:
    """Return finding scores of two findings in images of some patients, two images to each."""
    noise, rows = np.random.default_rng(seed), []
    for number in range(2 * patients):
        for place, finding in enumerate(("edema", "mass")):
            label = float((number // 2 + place) % 3 == 0 or (number + 3 * place) % 7 == 0)
            rows.append(
                {
                    "study": f"s{number:02}", "query": "image", "condition": "none", "target": finding,
                    "patient": f"p{number // 2}", "reason": "", "finding_label": label,
                    "finding_score": scale * (strength * label + float(noise.normal())),
                }
            )  # fmt: skip
    return rows


def box_row(study: str, scores: Sequence[float], matches: Sequence[int], targets: float, **more: Any) -> dict[str, Any]:
    """Return a row of detection; a match of 127 is one at every threshold."""
    known = {"query": "image", "condition": "none", "target": "nodule", "patient": f"p {study}", "reason": ""}
    boxes = {"box_scores": [*scores], "box_matches": [*matches], "box_targets": targets}
    return {"study": study, "target_kind": "finding boxes on the image", **known, **boxes, **more}


_TYPES = {
    "findings": pa.list_(pa.string()), "box_scores": pa.list_(pa.float64()), "box_matches": pa.list_(pa.int64()),
}  # fmt: skip


def write(
    folder: Path, rows: Sequence[Mapping[str, Any]], protocol: Protocol = AUDIT, model: str = "", part: str = ""
) -> Path:
    """Write rows as the table of a result, and return its folder."""
    schema = pa.schema(
        [
            (name, _TYPES.get(name) or (pa.string() if isinstance(value, str) else pa.float64()))
            for name, value in rows[0].items()
        ]
    )
    folder.mkdir(exist_ok=True)
    name = f"instances-{part}.parquet" if part else "instances.parquet"
    write_instances(folder / name, pa.Table.from_pylist(list(rows), schema), protocol, model)
    return folder

"""A made-up study: an experiment folder whose measures are drawn by chance, and annotators who follow one of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SLUGS = {"plain": "GLoRIA Retrained", "no-attn": '+"No Attn" Token'}
SCORES = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip
FINDINGS: tuple[list[str], ...] = (["atelectasis"], ["pleural effusion"], ["atelectasis", "pleural effusion"], [])


def text_of(number: int) -> str:
    return f"Opacity number {number} in the left base."


def write_experiment(folder: Path, count: int = 80, seed: int = 0, slugs: Iterable[str] = SLUGS) -> Path:
    """Write ``count`` instances, three a patient (two of one study, one of another), and measures by chance."""
    generator = np.random.default_rng(seed)
    numbers = list(range(count))
    folder.mkdir(parents=True)
    instances = {
        "instance": pa.array(numbers, pa.int32()),
        "study": [f"s{2 * (number // 3) + (number % 3) // 2}" for number in numbers],
        "patient": [f"p{number // 3}" for number in numbers],
        "phrase": pa.array([(number % 3) % 2 for number in numbers], pa.int32()),
        "text": [text_of(number) for number in numbers],
        "abnormal": [number % 4 != 3 for number in numbers],
        "findings": [FINDINGS[number % 4] for number in numbers],
    }
    pq.write_table(pa.table(instances), folder / "instances.parquet")
    for slug in slugs:
        part = folder / "measures" / slug
        part.mkdir(parents=True)
        (part / "about.json").write_text(json.dumps({"slug": slug, "name": SLUGS.get(slug, slug)}))
        answers: list[dict[str, Any]] = []
        scores: list[dict[str, Any]] = []
        for number in numbers:
            for condition in ("none", "swap-sides"):
                row: dict[str, Any] = {"instance": number, "condition": condition, "entropy": generator.random() * 4}
                row |= {"abstention": generator.random(), "similarity_global": generator.random()}
                row |= {"similarity_local": None, "kl_random": generator.random() if condition == "none" else None}
                answers.append(row)
                for target in ("regions", "exact", "regions-random"):
                    drawn = dict(zip(SCORES, generator.random(len(SCORES)).tolist(), strict=True))
                    if number == 0 and target == "exact":
                        drawn["auroc"] = float("nan")
                    scores.append({"instance": number, "condition": condition, "target": target} | drawn)
        for name, rows in (("answers", answers), ("scores", scores)):
            table = pa.Table.from_pylist(rows)
            table = table.set_column(0, "instance", table.column("instance").cast(pa.int32()))
            pq.write_table(table, part / f"{name}.parquet")
    return folder


def fill_in(
    table: Path, key: Mapping[str, str], values: Mapping[str, Mapping[tuple[str, str], Mapping[str, float]]],
    measure: str = "iou@10 (regions)", seed: int = 1,
) -> None:  # fmt: skip
    """Judge every row: intuitiveness and precision follow the measure with noise, recall is by chance."""
    generator = np.random.default_rng(seed)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        value = values[key[row["model"]]][row["study"], row["phrase"]][measure]
        for name in ("intuitiveness", "precision"):
            row[name] = str(int(np.clip(np.rint(1 + 4 * value + generator.normal(0, 0.5)), 1, 5)))
        row["recall"] = str(generator.integers(1, 6))
        row["judged_at"] = "2024-05-17T09:30:00"
    write_rows(table, rows)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as CSV, with the columns of the first."""
    listed = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)
    return path


def row(annotator: str = "ann", study: str = "s0", phrase: str = "phrase:0", **changes: Any) -> dict[str, Any]:
    """Return a good row, changed."""
    good = {"version": 1, "annotator": annotator, "study": study, "phrase": phrase, "prompt": text_of(0)}
    return good | {"model": "A7", "recall": 3, "precision": 2, "intuitiveness": 4} | changes

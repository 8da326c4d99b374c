"""A made-up study: an experiment folder whose measures are drawn by chance, and annotators who follow one of them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.judgements import Measures

NAN = math.nan
SLUGS = {"plain": "GLoRIA Retrained", "no-attn": '+"No Attn" Token'}
SCORES = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip
FINDINGS: tuple[list[str], ...] = (["atelectasis"], ["pleural effusion"], ["atelectasis", "pleural effusion"], [])


def text_of(number: int) -> str:
    return f"Opacity number {number} in the left base."


def write_experiment(folder: Path, count: int = 80, seed: int = 0, slugs: Iterable[str] = SLUGS) -> Path:
    """Write ``count`` phrases, three of each patient (two of one study, one of another), and measures by chance."""
    generator = np.random.default_rng(seed)
    for order, slug in enumerate(slugs):
        part = folder / "measures" / slug
        part.mkdir(parents=True)
        write_about(folder, slug, order=order)
        rows: list[dict[str, Any]] = []
        for number in range(count):
            for condition in ("none", "swap-sides"):
                row = asked(number, condition) | {"grid_entropy": generator.random() * 4}
                row |= {"abstention": generator.random(), "similarity_global": generator.random()}
                row |= {"similarity_local": NAN, "kl_random": generator.random() if condition == "none" else NAN}
                for target in ("regions", "exact", "regions-random"):
                    drawn = dict(zip(SCORES, generator.random(len(SCORES)).tolist(), strict=True))
                    if number == 0 and target == "exact":
                        drawn["auroc"] = NAN
                    rows.append(row | {"target": target, "target_kind": "boxes"} | drawn)
        pq.write_table(pa.Table.from_pylist(rows), part / "instances.parquet")
    return folder


def write_about(folder: Path, slug: str, **facts: Any) -> None:
    """Write what an experiment says about one of its models."""
    about = {"slug": slug, "variant": slug, "name": SLUGS.get(slug, slug), "group": "paper", "comparable": True}
    (folder / "measures" / slug / "about.json").write_text(json.dumps(about | {"order": 0} | facts))


def asked(number: int, condition: str = "none") -> dict[str, Any]:
    """Return what a row of an instances table says about the question."""
    study, query = f"s{2 * (number // 3) + (number % 3) // 2}", f"phrase:{(number % 3) % 2}"
    row: dict[str, Any] = {"study": study, "query": query, "condition": condition, "patient": f"p{number // 3}"}
    row |= {"phrase": text_of(number), "findings": FINDINGS[number % 4], "reason": None}
    return row | {"polarity": "positive", "abnormal": number % 4 != 3}


def write_audit(folder: Path, count: int, values: Mapping[str, Any], model: str = "known") -> Path:
    """Write an audit of one model: some measures of ``count`` phrases, of which every third is negated."""
    rows = []
    for number in range(count):
        row = asked(number) | {"target": "own", "polarity": "negative" if number % 3 == 2 else "positive"}
        del row["abnormal"]
        rows.append(row | {name: float(column[number]) for name, column in values.items()})
    rows += [row | {"condition": "swap-sides"} for row in rows] + [rows[0] | {"query": "image"}]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"rightlung.model": model})
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "instances.parquet")
    return folder


def fill_in(
    table: Path, key: Mapping[str, str], measures: Measures, measure: str = "iou@10 (regions)", seed: int = 1
) -> None:
    """Judge every row: intuitiveness and precision follow the measure with noise, recall is by chance."""
    generator = np.random.default_rng(seed)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        value = measures.values(key[row["model"]], [(row["study"], row["phrase"])])[1][measure][0]
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

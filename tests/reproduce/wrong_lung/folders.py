"""Experiment folders with made-up numbers, written as the experiment writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CONDITIONS = ("none", "swap-sides", "random-sentence", "synthetic", "synthetic-swapped", "exchange-image")
MEASURES = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip
MOVED = ("regions-shuffled", "exact-shuffled", "regions-random", "exact-random")
ASKED = ("asked_swap_sides", "asked_random_sentence", "asked_synthetic", "asked_synthetic_swapped")

Row = dict[str, Any]
Level = Callable[[str, str, str, int], float]
"""From condition, target, measure and instance to a score."""


def instance_rows(count: int, each: int = 2) -> list[Row]:
    """Instances in studies of ``each`` phrases, a patient for every two studies; every third phrase names no side."""
    rows = []
    for place in range(count):
        study = place // each
        side = ("left", "right")[place % 2]
        abnormal = place % 4 != 3
        told = place % 3 != 0
        words = f"{side} opacity" if told else "opacity"
        rows.append(
            {
                "instance": place,
                "study": f"s{study}",
                "patient": f"p{study // 2}",
                "phrase": place % each,
                "text": words,
                "abnormal": abnormal,
                "one_lung": place % 5 != 0,
                "mdrb": place % 7 < 3,
                "has_exact": abnormal,
                "names_side": told,
                "exact_side": side if abnormal else "none",
                "findings": ["consolidation" if place % 8 < 4 else "pleural effusion"] if abnormal else [],
                "regions": [f"{side} lung"],
                "focal": abnormal,
                "asked_swap_sides": "swapped" if told else None,
                "asked_random_sentence": "another sentence",
                "asked_synthetic": "There is opacity.",
                "asked_synthetic_swapped": "There is edema." if abnormal else None,
                "partner": f"s{study + 1}",
                "regions_shuffled_differs": True,
                "exact_shuffled_differs": True if abnormal else None,
            }
        )
    return rows


def changed(row: Row, condition: str) -> bool:
    """Return whether a condition changes what is asked of an instance."""
    if condition == "none":
        return True
    return row["partner" if condition == "exchange-image" else f"asked_{condition.replace('-', '_')}"] is not None


def write_instances(folder: Path, rows: Sequence[Row], **about: Any) -> None:
    """Write ``instances.parquet`` and ``instances.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(
        [
            ("instance", pa.int32()), ("study", pa.string()), ("patient", pa.string()), ("phrase", pa.int32()),
            ("text", pa.string()),
            *((name, pa.bool_()) for name in ("abnormal", "one_lung", "mdrb", "has_exact", "names_side", "focal")),
            ("exact_side", pa.string()), ("findings", pa.list_(pa.string())), ("regions", pa.list_(pa.string())),
            *((name, pa.string()) for name in (*ASKED, "partner")),
            *((name, pa.bool_()) for name in ("regions_shuffled_differs", "exact_shuffled_differs")),
        ]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), folder / "instances.parquet")
    given = {
        "source": "phantom?count=8&seed=7",
        "seed": 7,
        "size": 224,
        "protocol": "abc1234567",
        "left_out": {"no region boxes": 3},
        **about,
    }
    (folder / "instances.json").write_text(json.dumps(given), encoding="utf-8")


def score_rows(rows: Sequence[Row], level: Level, conditions: Sequence[str] = CONDITIONS) -> list[Row]:
    """Scores of every instance under every condition and target that it has."""
    made = []
    for row in rows:
        for condition in conditions:
            if not changed(row, condition):
                continue
            targets = ["regions", "trimmed", "exact", *(MOVED if condition == "none" else ())]
            for target in targets:
                if target.startswith("exact") and not row["has_exact"]:
                    continue
                scores = {name: level(condition, target, name, row["instance"]) for name in MEASURES}
                made.append({"instance": row["instance"], "condition": condition, "target": target, **scores})
    return made


def answer_rows(
    rows: Sequence[Row], values: Callable[[str, int], Mapping[str, Any]], conditions: Sequence[str] = CONDITIONS
) -> list[Row]:
    """Answers to every instance under every condition that changes it."""
    made = []
    for row in rows:
        for condition in conditions:
            if changed(row, condition):
                plain = {
                    "entropy": 5.0, "abstention": 0.1, "similarity_global": 0.5, "similarity_local": 0.5,
                    "kl_random": 0.1 if condition == "none" else None, "peak_x": 0.5, "peak_y": 0.5,
                    "peak_side": "left", "error": None,
                }  # fmt: skip
                given = values(condition, row["instance"])
                made.append({"instance": row["instance"], "condition": condition, **plain, **given})
    return made


def write_model(folder: Path, slug: str, scores: Sequence[Row], answers: Sequence[Row], **about: Any) -> Path:
    """Write the measures of one model."""
    place = folder / "measures" / slug
    place.mkdir(parents=True, exist_ok=True)
    numbers = ("entropy", "abstention", "similarity_global", "similarity_local", "kl_random", "peak_x", "peak_y")
    schema = pa.schema(
        [
            ("instance", pa.int32()), ("condition", pa.string()), *((name, pa.float32()) for name in numbers),
            ("peak_side", pa.string()), ("error", pa.string()),
        ]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(list(answers), schema=schema), place / "answers.parquet")
    schema = pa.schema(
        [
            ("instance", pa.int32()), ("condition", pa.string()), ("target", pa.string()),
            *((name, pa.float32()) for name in MEASURES),
        ]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(list(scores), schema=schema), place / "scores.parquet")
    given = {
        "slug": slug, "variant": slug, "name": f"+{slug}", "group": "paper", "comparable": True, "seed": 1, "order": 0,
        "note": "", "weights": None, "sees": {"grid": [19, 19]}, "training": None, **about,
    }  # fmt: skip
    (place / "about.json").write_text(json.dumps(given), encoding="utf-8")
    return place


def plain_model(folder: Path, rows: Sequence[Row], slug: str, strength: float, draw: int = 0, **about: Any) -> Path:
    """Write a model of some strength: better scores, and larger losses when what is asked is changed."""
    generator = np.random.default_rng([draw, int(1000 * abs(strength)), len(slug)])
    noise = generator.normal(0, 0.08, size=(len(rows), 64))

    def level(condition: str, target: str, measure: str, instance: int) -> float:
        loss = {"swap-sides": 0.5, "random-sentence": 0.4, "exchange-image": 0.3, "synthetic-swapped": 0.1}
        value = 0.5 + strength * (1 - loss.get(condition, 0.0))
        value -= 0.1 if target.endswith(("shuffled", "random")) else 0.0
        value += {"trimmed": -0.04, "exact": 0.05}.get(target, 0.0)
        value += noise[instance, (7 * len(condition) + len(target) + 3 * len(measure)) % 64]
        if measure == "pointing":
            return float(value > 0.6)
        if measure != "auroc":
            value *= 0.6
        return float(np.clip(value, 0.01, 0.99))

    def answer(condition: str, instance: int) -> Mapping[str, Any]:
        near = noise[instance, 1 + len(condition)] + (strength if condition != "random-sentence" else 0.0)
        truth = rows[instance]["exact_side"]
        other = {"left": "right", "right": "left"}.get(truth, "middle")
        return {
            "entropy": 5.889 - strength * 0.3 + 0.1 * noise[instance, 2],
            "abstention": float(np.clip(0.3 - 0.2 * rows[instance]["abnormal"] + noise[instance, 3], 0, 1)),
            "similarity_global": near,
            "similarity_local": near + 0.5 * noise[instance, 4],
            "kl_random": abs(strength + noise[instance, 5]) if condition == "none" else None,
            "peak_side": truth if noise[instance, 6] + 2 * strength > 0.1 and truth in ("left", "right") else other,
        }

    return write_model(folder, slug, score_rows(rows, level), answer_rows(rows, answer), **about)

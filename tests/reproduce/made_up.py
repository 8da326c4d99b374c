"""Measured models with made-up numbers, as instances tables in the layout that measuring writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung.reproduce.claims import ClaimView, JudgedClaim, judge_all
from rightlung.reproduce.published import published_in
from rightlung.reproduce.wrong_lung.claims import claims
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.measured import Measured

COUNT = 80
NUMBER = np.arange(COUNT)
DRAWN = np.random.default_rng(1).random(COUNT)
NOISE = np.random.default_rng(0).normal(0, 0.02, size=(COUNT, 50))
FEW = BootstrapSettings(resamples=200, flips=2000)
PUBLISHED = published_in("rightlung.reproduce.wrong_lung")

ABNORMAL, ONE_LUNG, MDRB = NUMBER % 4 != 3, NUMBER % 5 != 0, NUMBER % 7 < 3
NAMES_SIDE = NUMBER % 3 != 0
SIDES = np.where(NUMBER % 2 == 0, "left", "right")
ASKED = {
    "none": NUMBER >= 0, "swap-sides": NAMES_SIDE, "random-sentence": NUMBER >= 0, "synthetic": NUMBER >= 0,
    "synthetic-swapped": ABNORMAL, "exchange-image": NUMBER >= 0,
}  # fmt: skip
TARGETS = ("regions", "trimmed", "exact", "regions-shuffled", "exact-shuffled", "regions-random", "exact-random")
SCORES = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip
PLAIN = {"grid_entropy": 5.0, "abstention": 0.0, "similarity_global": 0.5, "similarity_local": 0.5, "kl_random": 0.1}

FACTS: dict[str, Any] = {
    "study": [f"s{n // 2:02}" for n in range(COUNT)], "query": [f"phrase:{n % 2}" for n in range(COUNT)],
    "patient": [f"p{n // 4}" for n in range(COUNT)], "phrase": [f"{side} opacity" for side in SIDES],
    "findings": [
        [] if n % 4 == 3 else ["consolidation" if n % 8 < 4 else "pleural effusion"] for n in range(COUNT)
    ],
    "regions": [[f"{side} lung"] for side in SIDES], "side_named": np.where(NAMES_SIDE, SIDES, "none").tolist(),
    "target_kind": ["mask"] * COUNT, "target_side": SIDES.tolist(), "abnormal": ABNORMAL, "one_lung": ONE_LUNG,
    "mdrb": MDRB, "regions_shuffled_differs": [True] * COUNT, "exact_shuffled_differs": ABNORMAL,
    "reason": [""] * COUNT,
}  # fmt: skip
"""Two phrases a study, two studies a patient; what is abnormal has an exact mask."""

Levels = Mapping[Any, Any]
"""Numbers, or one for each phrase: by measure, else by condition, else by target, else ``level``.

``(measure, condition)`` comes before all of these. ``noise`` names the noise that is added to scores, ``None`` for
none; ``about`` is what ``about.json`` says.
"""


def level_of(slug: str, levels: Levels, measure: str, condition: str, target: str) -> NDArray[np.float64]:
    """Return a score of every phrase."""
    if measure == "peak_on_side":
        return np.broadcast_to(levels.get(measure, 0.5), COUNT)
    keys = [key for key in ((measure, condition), measure, condition, target, "level") if key in levels]
    value = np.broadcast_to(levels[keys[0]] if keys else 0.6, COUNT)
    name = levels.get("noise", slug)
    exact = name is None or np.ndim(levels[keys[0]] if keys else 0.6) > 0
    return value if exact else value + NOISE[:, (3 * len(name) + 5 * len(condition) + ord(name[0])) % 50]


def table(slug: str, levels: Levels, facts: Mapping[str, Any] | None = None) -> pa.Table:
    """Return the instances table of one model; ``facts`` change columns about the phrases."""
    parts = []
    for condition, asked in ASKED.items():
        for target in TARGETS if condition == "none" else TARGETS[:3]:
            there = np.flatnonzero(asked & (ABNORMAL if target.startswith("exact") else True))
            columns: dict[str, Any] = {"condition": [condition] * COUNT, "target": [target] * COUNT, **FACTS}
            columns |= {"asked": [f"opacity, {condition}"] * COUNT, **(facts or {})}
            for name, value in PLAIN.items():
                given = levels.get((name, condition), levels.get(name, value))
                columns[name] = np.broadcast_to(np.asarray(given, dtype=float), COUNT)
            for name in (*SCORES, "peak_on_side"):
                columns[name] = level_of(slug, levels, name, condition, target)
            parts.append(pa.table({name: pa.array(column).take(there) for name, column in columns.items()}))
    return pa.concat_tables(parts)


def about(slug: str, order: int, levels: Levels) -> dict[str, Any]:
    """Return what is said of a model; ``slug-seedN`` is another seed of ``slug``."""
    variant, _, seed = slug.partition("-seed")
    said = {"slug": slug, "variant": variant, "name": f"+{variant}", "group": "paper", "seed": int(seed or 1)}
    more = {"order": order, "comparable": slug != "uniter", "grid": [19, 19], "note": "", "training": None}
    return {**said, **more, **levels.get("about", {})}


def measured(models: Mapping[str, Levels], facts: Mapping[str, Any] | None = None) -> Measured:
    """Return models as they come from measuring."""
    tables = {slug: table(slug, levels, facts) for slug, levels in models.items()}
    said = {slug: about(slug, order, levels) for order, (slug, levels) in enumerate(models.items())}
    return Measured.of(tables, said)


def write(folder: Path, models: Mapping[str, Levels]) -> None:
    """Write models as an experiment folder holds them."""
    for order, (slug, levels) in enumerate(models.items()):
        place = folder / "measures" / slug
        place.mkdir(parents=True)
        pq.write_table(table(slug, levels), place / "instances.parquet")
        (place / "about.json").write_text(json.dumps(about(slug, order, levels)), encoding="utf-8")


def selects(share: float) -> dict[Any, Any]:
    """Return the similarities of a model that selects the right sentence for a share of the phrases."""
    own = (share > DRAWN).astype(float)
    return {f"similarity_{kind}": own for kind in ("global", "local")} | {
        (f"similarity_{kind}", "random-sentence"): 0.5 for kind in ("global", "local")
    }


def judge(
    names: str | Sequence[str], models: Mapping[str, Levels], judgements: Mapping[str, Any] | None = None
) -> dict[str, JudgedClaim]:
    """Judge claims, by name, of models with made-up numbers."""
    wanted = [claim for claim in claims(PUBLISHED) if claim.name in ([names] if isinstance(names, str) else names)]
    found = measured(models)
    view = ClaimView(found, found.estimator(FEW), PERTURBATIONS, judgements)
    return {one.claim.name: one for one in judge_all(wanted, view)}


def verdict(name: str, models: Mapping[str, Levels], target: str = "regions") -> str:
    """Return what becomes of one claim."""
    return judge(name, models)[name].verdict(target)

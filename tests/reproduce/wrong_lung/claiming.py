"""Measured models with levels as they are wanted, and what the claims make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.reproduce.wrong_lung.claims import Judged, judge_all
from rightlung.reproduce.wrong_lung.estimates import Estimator, Sureness
from rightlung.reproduce.wrong_lung.reading import read_results
from rightlung.reproduce.wrong_lung.tables import Measured
from tests.reproduce.wrong_lung.folders import answer_rows, instance_rows, score_rows, write_instances, write_model

ROWS = instance_rows(80)
WOBBLE = np.random.default_rng(0).normal(0, 0.02, size=(80, 50))
DRAWN = np.random.default_rng(1).random(80)
Levels = Mapping[str, Any]


def wobble(slug: str, condition: str, instance: int) -> float:
    return float(WOBBLE[instance, (3 * len(slug) + 5 * len(condition) + ord(slug[0])) % 50])


def write_one(folder: Path, slug: str, levels: Levels, order: int, **about: Any) -> None:
    """A model with the levels that are given: ``level`` for all, or by target or by condition."""
    noise = levels.get("noise", slug)

    def level(condition: str, target: str, measure: str, instance: int) -> float:
        if measure == "pointing":
            return float(DRAWN[instance] < levels.get("points", 0.5))
        found = levels.get(condition, levels.get(target, levels.get("level", 0.6)))
        return float(found + wobble(noise, condition, instance))

    def answer(condition: str, instance: int) -> dict[str, Any]:
        given: Callable[[str, int], dict[str, Any]] = levels.get("answer", lambda *_: {})
        own = 1.0 if DRAWN[instance] < levels.get("selects", 0.8) else 0.0
        return {
            "entropy": levels.get("entropy", 5.8) + wobble(noise, condition, instance),
            "similarity_global": 0.5 if condition == "random-sentence" else own,
            **given(condition, instance),
        }

    said = {"comparable": slug != "uniter", **levels.get("about", {}), **about}
    write_model(folder, slug, score_rows(ROWS, level), answer_rows(ROWS, answer), order=order, **said)


def make(folder: Path, models: Mapping[str, Levels], **about: Any) -> Measured:
    write_instances(folder, ROWS)
    for order, (slug, levels) in enumerate(models.items()):
        write_one(folder, slug, levels, order, **about)
    results = read_results(folder)
    return Measured(results, Estimator(results.instances.clusters, Sureness(resamples=300)))


def judged(measured: Measured) -> dict[str, Judged]:
    return {one.claim.name: one for one in judge_all(measured)}

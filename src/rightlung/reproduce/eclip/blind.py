"""Retrieval without an image: the most frequent reports first, and uniform chance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rightlung.core import InputError
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.scoring.retrieval import median_rank
from rightlung.scoring.text_retrieval import (
    CHANCE,
    FREQUENT,
    IMAGE_TO_TEXT,
    IMAGES_BY_CHANCE,
    TEXT_TO_IMAGE,
    Retrieved,
    TextPool,
    score,
)

LABELS = {
    IMAGE_TO_TEXT: {FREQUENT: "most frequent reports first (no image)", CHANCE: "uniform chance"},
    TEXT_TO_IMAGE: {IMAGES_BY_CHANCE: "uniform chance"},
}
Rows = Mapping[str, Mapping[str, Estimate]]


def blind_retrieval(prepared: PreparedStudies, settings: BootstrapSettings) -> Mapping[str, Rows]:
    """Return, for each direction and answer, its measures; no rows where there are too few distinct reports."""
    labels = [one for one in prepared.targets.labels.values() if one.report]
    texts, patients = [str(one.report) for one in labels], np.array([one.patient for one in labels], dtype=object)
    pool = TextPool.of(texts)
    nothing = np.ones((len(texts), 1)), np.ones((len(pool.texts), 1))
    try:
        found = score(nothing[0], texts, pool, nothing[1])
    except InputError:
        return {direction: {} for direction in LABELS}
    estimator = Estimator(patients, settings)
    return {
        direction: {label: _estimates(found[name], estimator) for name, label in names.items()}
        for direction, names in LABELS.items()
    }


def _estimates(found: Retrieved, estimator: Estimator) -> dict[str, Estimate]:
    made = {name: estimator.mean(column) for name, column in found.columns.items() if name != "rank"}
    made["recall@10_once"] = estimator.mean(found.column("recall@10", once=True))
    ranks = found.columns["rank"]

    def middle(counts: Floats) -> Floats:
        return median_rank(ranks, counts)

    made["median_rank"] = estimator.aggregate(middle, np.ones(len(ranks), bool), float(len(ranks)), "percentile")
    return made

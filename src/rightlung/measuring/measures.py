"""Measures by name: statistics of single instances, and how they become one number.

``statistics`` are computed once and kept in the instances table. ``aggregate`` makes a number of them from how often
each instance counts, so that a bootstrap resamples instances without computing anything again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from rightlung.core.registry import Registry
from rightlung.scoring.localisation import METRICS, score
from rightlung.scoring.recognition import SortedScores
from rightlung.scoring.text import corpus_bleu

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
"""Columns of the instances table, ``(instances,)`` each."""

Aggregate = Callable[[Columns, Floats], Floats]
"""From columns and counts ``(resamples, instances)`` to a number a resample ``(resamples,)``; NaN where undefined."""


@dataclass(frozen=True)
class MapsAndMasks:
    """Answers and targets of one size, ``(n, height, width)`` each: arrays, or tensors on a device."""

    maps: Any
    masks: Any
    workers: int | None = None


Statistics = Callable[[MapsAndMasks, Sequence[str]], Mapping[str, Any]]
"""From maps, masks and the names of measures to columns ``(n,)``, ``reason`` among them where one is undefined."""


@dataclass(frozen=True)
class Measure:
    """A measure by name, with its title, what it says, whether higher is better, and its range."""

    name: str
    title: str
    meaning: str
    better: Literal["higher", "lower"] | None
    range: tuple[float, float]
    published: tuple[str, ...] = ()
    """Names that papers use."""
    columns: tuple[str, ...] = ()
    """Columns of the instances table that the aggregate needs; by default the one named like the measure."""
    statistics: Statistics | None = None
    """Computes the column from maps and masks, for all measures that share it at once; None: every table has it."""
    aggregate: Aggregate | None = None
    """None: the mean over the instances where the column is defined."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or (self.name,))

    def of_counts(self, columns: Columns, counts: Floats) -> Floats:
        """Return the number for each row of counts ``(resamples, instances)``."""
        if self.aggregate is not None:
            return self.aggregate(columns, counts)
        values = np.asarray(columns[self.columns[0]], np.float64)
        there = ~np.isnan(values)
        return _ratio(counts[:, there] @ values[there], counts[:, there].sum(axis=1))

    def value(self, columns: Columns) -> float:
        """Return the number of all instances."""
        return float(self.of_counts(columns, np.ones((1, len(columns[self.columns[0]]))))[0])


MEASURES: Registry[Measure] = Registry("measure")
register_measure, find_measure = MEASURES.register, MEASURES.find


def localisation(pairs: MapsAndMasks, names: Sequence[str]) -> Mapping[str, Any]:
    """Score maps against masks by all of these measures at once."""
    return score(pairs.maps, pairs.masks, metrics=names, workers=pairs.workers)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)


def _abstention_auroc(columns: Columns, counts: Floats) -> Floats:
    """AUROC of abstention for telling negated phrases from asserted ones; phrases without a finding do not count."""
    abstention, polarity = np.asarray(columns["abstention"], np.float64), np.asarray(columns["polarity"])
    there = np.isin(polarity, ("positive", "uncertain", "negative")) & ~np.isnan(abstention)
    negated = (polarity[there] == "negative").astype(np.float64)
    return SortedScores(abstention[there], negated).auroc(counts[:, there])


def _over_findings(of_finding: Callable[[Floats, Floats, Floats], Floats]) -> Aggregate:
    """Return the mean over findings of what is computed from scores, labels and counts of one finding."""

    def aggregate(columns: Columns, counts: Floats) -> Floats:
        findings, labels = np.asarray(columns["target"]), np.asarray(columns["finding_label"], np.float64)
        scores = np.asarray(columns["finding_score"], np.float64)
        known = ~(np.isnan(labels) | np.isnan(scores))
        rows = [known & (findings == name) for name in sorted(set(findings[known].tolist()))]
        if not rows:
            return np.full(len(counts), np.nan)
        values = np.stack([of_finding(scores[row], labels[row], counts[:, row]) for row in rows])
        defined = ~np.isnan(values)
        return _ratio(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0).astype(np.float64))

    return aggregate


def matthews(scores: Floats, labels: Floats, counts: Floats, threshold: float = 0.5) -> Floats:
    """Matthews correlation coefficient of scores from ``threshold`` on, ``(resamples,)``; NaN with one class only."""
    called = (scores >= threshold).astype(np.float64)
    hits, positives, calls = counts @ (called * labels), counts @ labels, counts @ called
    total = counts.sum(axis=1)
    spread = positives * (total - positives) * calls * (total - calls)
    return _ratio(total * hits - positives * calls, np.sqrt(spread))


_AGGREGATES: dict[str, Aggregate] = {
    "abstention_auroc": _abstention_auroc,
    "finding_auroc": _over_findings(lambda scores, labels, counts: SortedScores(scores, labels).auroc(counts)),
    "finding_average_precision": _over_findings(
        lambda scores, labels, counts: SortedScores(scores, labels).average_precision(counts)
    ),
    "finding_mcc": _over_findings(matthews),
    "bleu_1": partial(corpus_bleu, order=1),
    "bleu_4": partial(corpus_bleu, order=4),
}

for _name, _entry in yaml.safe_load(Path(__file__).with_name("measures.yaml").read_text(encoding="utf-8")).items():
    _lists = {key: tuple(value) for key, value in _entry.items() if isinstance(value, list)}
    _shared = localisation if _name in METRICS else None
    register_measure(Measure(_name, **_entry | _lists, statistics=_shared, aggregate=_AGGREGATES.get(_name)))

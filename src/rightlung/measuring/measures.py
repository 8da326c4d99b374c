"""Measures by name: columns of the instances table, and how they become one number.

Columns are computed once for each instance. ``aggregate`` turns them into a number, given how often each instance
counts, so that a bootstrap resamples instances without computing the columns again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from rightlung.core.registry import Registry
from rightlung.lexicon.findings import canonical_finding
from rightlung.scoring.localisation import METRICS, score
from rightlung.scoring.recognition import SortedScores
from rightlung.scoring.text import bleu_statistics, corpus_bleu

if TYPE_CHECKING:
    from rightlung.measuring.targets import StudyLabels

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
"""Columns of the instances table, ``(instances,)`` each."""

Aggregate = Callable[[Columns, Floats], Floats]
"""From columns and counts ``(resamples, instances)`` to one number per resample ``(resamples,)``; NaN if undefined."""


@dataclass(frozen=True)
class MapsAndMasks:
    """Answers and targets of one size, ``(n, height, width)`` each: arrays, or tensors on a device."""

    maps: Any
    masks: Any
    workers: int | None = None


Statistics = Callable[[MapsAndMasks, Sequence[str]], Mapping[str, Any]]
"""From maps, masks and the names of measures to columns ``(n,)``, and ``reason`` for undefined values."""

ImageRows = Callable[[Mapping[str, Any], "StudyLabels"], Iterable[dict[str, Any]]]
"""From an answer about a whole image (columns of the predictions file) and the study's labels to rows of the table."""


@dataclass(frozen=True)
class Measure:
    """A measure with its name, title, meaning, direction (is higher better?) and range."""

    name: str
    title: str
    meaning: str
    better: Literal["higher", "lower"] | None
    range: tuple[float, float]
    published: tuple[str, ...] = ()
    """Names that papers use."""
    columns: tuple[str, ...] = ()
    """Columns of the instances table that the aggregate uses. Default: the one named like the measure."""
    statistics: Statistics | None = None
    """Computes the column from maps and masks, for all measures that share the function at once."""
    image_rows: ImageRows | None = None
    """Computes rows from answers about whole images, once for all measures that share the function."""
    aggregate: Aggregate | None = None
    """Default: the mean over the instances whose column is defined."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or (self.name,))

    def of_counts(self, columns: Columns, counts: Floats) -> Floats:
        """Return one number for each row of counts ``(resamples, instances)``."""
        if self.aggregate is not None:
            return self.aggregate(columns, counts)
        values = np.asarray(columns[self.columns[0]], np.float64)
        there = ~np.isnan(values)
        return _ratio(counts[:, there] @ values[there], counts[:, there].sum(axis=1))

    def value(self, columns: Columns) -> float:
        """Return the number over all instances."""
        return float(self.of_counts(columns, np.ones((1, len(columns[self.columns[0]]))))[0])


MEASURES: Registry[Measure] = Registry("measure")
register_measure, find_measure = MEASURES.register, MEASURES.find


def localisation(pairs: MapsAndMasks, names: Sequence[str]) -> Mapping[str, Any]:
    """Compute the localisation measures of these names."""
    return score(pairs.maps, pairs.masks, metrics=names, workers=pairs.workers)


def finding_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row for each finding that has a score and is known to be present or absent."""
    known = {canonical_finding(name): polarity for name, polarity in labels.findings.items()}
    for one in answer["finding_scores"] or ():
        name = canonical_finding(one["finding"])
        if known.get(name) in ("positive", "negative"):
            label = float(known[name] == "positive")
            columns = {"finding_score": one["score"], "finding_label": label}
            yield {"target": name, "target_kind": "image label", "reason": "", **columns}


def report_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row if the study has a report and the model wrote one or failed."""
    report, error = answer["report"], answer["error"]
    if labels.report is not None and (report is not None or error is not None):
        columns = {} if error is not None else bleu_statistics(report, labels.report)
        reason = "" if error is None else f"no answer: {error}"
        yield {"target": "report", "target_kind": "report", "reason": reason, **columns}


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)


def _abstention_auroc(columns: Columns, counts: Floats) -> Floats:
    """AUROC of abstention for negated against asserted phrases; phrases without a finding do not count."""
    abstention, polarity = np.asarray(columns["abstention"], np.float64), np.asarray(columns["polarity"])
    there = np.isin(polarity, ("positive", "uncertain", "negative")) & ~np.isnan(abstention)
    negated = (polarity[there] == "negative").astype(np.float64)
    return SortedScores(abstention[there], negated).auroc(counts[:, there])


def _over_findings(of_finding: Callable[[Floats, Floats, Floats], Floats]) -> Aggregate:
    """Return the aggregate that averages a function of scores, labels and counts over findings."""

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
    """Matthews correlation coefficient of ``scores >= threshold``, ``(resamples,)``; NaN with one class only."""
    called = (scores >= threshold).astype(np.float64)
    hits, positives, calls = counts @ (called * labels), counts @ labels, counts @ called
    total = counts.sum(axis=1)
    variance = positives * (total - positives) * calls * (total - calls)
    return _ratio(total * hits - positives * calls, np.sqrt(variance))


_COMPUTED: dict[str, tuple[ImageRows | None, Aggregate]] = {
    "abstention_auroc": (None, _abstention_auroc),
    "finding_auroc": (finding_rows, _over_findings(lambda scores, labels, n: SortedScores(scores, labels).auroc(n))),
    "finding_average_precision": (
        finding_rows, _over_findings(lambda scores, labels, n: SortedScores(scores, labels).average_precision(n)),
    ),
    "finding_mcc": (finding_rows, _over_findings(matthews)),
    "bleu_1": (report_rows, partial(corpus_bleu, order=1)),
    "bleu_4": (report_rows, partial(corpus_bleu, order=4)),
}  # fmt: skip

for _name, _entry in yaml.safe_load(Path(__file__).with_name("measures.yaml").read_text(encoding="utf-8")).items():
    _lists = {key: tuple(value) for key, value in _entry.items() if isinstance(value, list)}
    _rows, _aggregate = _COMPUTED.get(_name, (None, None))
    _shared = localisation if _name in METRICS else None
    register_measure(Measure(_name, **_entry | _lists, statistics=_shared, image_rows=_rows, aggregate=_aggregate))

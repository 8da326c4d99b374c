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
import pyarrow as pa
import yaml
from numpy.typing import NDArray

from rightlung.core.registry import Registry
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import boxes, retrieval, texts
from rightlung.scoring.clinical import GROUPS
from rightlung.scoring.detection import IOU_THRESHOLDS, Detections
from rightlung.scoring.language import corpus_bleu
from rightlung.scoring.localisation import METRICS, score
from rightlung.scoring.meteor import corpus_meteor
from rightlung.scoring.recognition import SortedScores, one_of_classes
from rightlung.scoring.retrieval import median_rank
from rightlung.scoring.text_retrieval import Candidates

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
"""From an answer about an image or region (columns of the predictions file) and its labels to rows of the table."""

BoxStatistics = Callable[[Sequence[Detections]], Mapping[str, Sequence[Any]]]
"""From predicted and target boxes of each row to columns."""

TextStatistics = Callable[[Sequence[str], Sequence[str], str], Mapping[str, Sequence[Any]]]
"""From generated texts, references and the name of a token rule to columns."""

PooledStatistics = Callable[[pa.Table, Mapping[str, Candidates]], Mapping[str, Sequence[Any]]]
"""From the whole table, and the texts to choose from under each condition, to columns."""

COLUMN_TYPES: dict[str, Any] = {
    retrieval.EMBEDDING: pa.list_(pa.float32()),
    "box_scores": pa.list_(pa.float64()),
    "box_matches": pa.list_(pa.int64()),
    **{
        f"{what}_{which}": pa.list_(pa.string())
        for what in ("labels", "uncertain", "pairs")
        for which in ("true", "called")
    },
    **dict.fromkeys(("answer_text", "reference_text"), pa.string()),
}
"""Types of columns that are not float64."""


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
    """Computes rows from answers about images or regions, once for all measures that share the function."""
    box_statistics: BoxStatistics | None = None
    """Computes columns from boxes: of the rows of ``image_rows`` or, without it, of phrases."""
    text_statistics: TextStatistics | None = None
    """Computes columns from all generated texts and references of a condition together."""
    pooled_statistics: PooledStatistics | None = None
    """Computes columns from the embeddings of all rows together."""
    aggregate: Aggregate | None = None
    """Default: the mean over the instances whose column is defined."""
    prepare: Callable[[Columns], Columns] | None = None
    """What the aggregate needs, computed from the columns once and not for every resample. Default: the columns."""
    ranked: str | None = None
    """The column of scores of which the aggregate uses nothing but the order, which differs in unit between models."""
    of_corpus: bool = False
    """Whether an instance's columns depend on the other instances, so that they cannot be compared on some of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or (self.name,))

    def statistic(self, columns: Columns) -> Callable[[Floats], Floats]:
        """Return the function from counts ``(resamples, instances)`` to one number for each resample."""
        if self.prepare is not None:
            columns = self.prepare(columns)
        return partial(self.aggregate or partial(_mean_of, self.columns[0]), columns)

    def of_counts(self, columns: Columns, counts: Floats) -> Floats:
        """Return one number for each row of counts ``(resamples, instances)``."""
        return self.statistic(columns)(counts)

    def value(self, columns: Columns) -> float:
        """Return the number over all instances."""
        return float(self.of_counts(columns, np.ones((1, len(columns[self.columns[0]]))))[0])


MEASURES: Registry[Measure] = Registry("measure")
register_measure, find_measure = MEASURES.register, MEASURES.find


def localisation(pairs: MapsAndMasks, names: Sequence[str]) -> Mapping[str, Any]:
    """Compute the localisation measures of these names."""
    return score(pairs.maps, pairs.masks, metrics=names, workers=pairs.workers)


def finding_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row for each finding that has a score and is known to be present or absent.

    For the place of a phrase, the findings that the phrase does not assert count as absent.
    """
    known = {canonical_finding(name): polarity for name, polarity in labels.findings.items()}
    for one in answer["finding_scores"] or ():
        name = canonical_finding(one["finding"])
        polarity = known.get(name, "negative" if labels.kind == "phrase" else None)
        if polarity in ("positive", "negative"):
            columns = {"finding_score": one["score"], "finding_label": float(polarity == "positive")}
            yield {"target": name, "target_kind": f"{labels.kind} label", "reason": "", **columns}


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)


def _abstention_auroc(columns: Columns, counts: Floats) -> Floats:
    """AUROC of abstention for negated against asserted phrases; phrases without a finding do not count."""
    abstention, polarity = np.asarray(columns["abstention"], np.float64), np.asarray(columns["polarity"])
    there = np.isin(polarity, ("positive", "uncertain", "negative")) & ~np.isnan(abstention)
    negated = (polarity[there] == "negative").astype(np.float64)
    return SortedScores(abstention[there], negated).auroc(counts[:, there])


def over_findings(of_finding: Callable[[Floats, Floats, Floats], Floats], weighted: bool = False) -> Aggregate:
    """Return the aggregate that averages a function of scores, labels and counts over findings.

    With ``weighted``, a finding counts as often as it is present.
    """

    def aggregate(columns: Columns, counts: Floats) -> Floats:
        findings, labels = np.asarray(columns["target"]), np.asarray(columns["finding_label"], np.float64)
        scores = np.asarray(columns["finding_score"], np.float64)
        known = ~(np.isnan(labels) | np.isnan(scores))
        rows = [known & (findings == name) for name in sorted(set(findings[known].tolist()))]
        if not rows:
            return np.full(len(counts), np.nan)
        values = np.stack([of_finding(scores[row], labels[row], counts[:, row]) for row in rows])
        weights = np.stack([counts[:, row] @ labels[row] for row in rows]) if weighted else np.ones(values.shape)
        weights = np.where(np.isnan(values), 0.0, weights)
        return _ratio((np.nan_to_num(values) * weights).sum(axis=0), weights.sum(axis=0))

    return aggregate


def matthews(scores: Floats, labels: Floats, counts: Floats, threshold: float = 0.5) -> Floats:
    """Matthews correlation coefficient of ``scores >= threshold``, ``(resamples,)``; NaN with one class only."""
    called = (scores >= threshold).astype(np.float64)
    hits, positives, calls = counts @ (called * labels), counts @ labels, counts @ called
    total = counts.sum(axis=1)
    variance = positives * (total - positives) * calls * (total - calls)
    return _ratio(total * hits - positives * calls, np.sqrt(variance))


def _auroc(scores: Floats, labels: Floats, counts: Floats) -> Floats:
    return SortedScores(scores, labels).auroc(counts)


def _average_precision(scores: Floats, labels: Floats, counts: Floats) -> Floats:
    return SortedScores(scores, labels).average_precision(counts)


def _one_of(columns: Columns, counts: Floats, place: int) -> Floats:
    """Accuracy (place 0) or macro-F1 (1) of the finding with the highest score, if each image has one of them."""
    (_, first, image), (names, finding) = (
        np.unique(np.asarray(columns["study"]), return_index=True, return_inverse=True),
        np.unique(np.asarray(columns["target"]), return_inverse=True),
    )
    scores, truth = np.full((len(first), len(names)), -np.inf), np.zeros((len(first), len(names)))
    scores[image, finding] = np.asarray(columns["finding_score"], np.float64)
    truth[image, finding] = np.asarray(columns["finding_label"], np.float64)
    return one_of_classes(scores, truth, counts[:, first])[place]


def _median_rank(columns: Columns, counts: Floats) -> Floats:
    return median_rank(np.asarray(columns["rank"], np.float64), counts)


def _once(aggregate: Aggregate) -> Aggregate:
    """Return an aggregate over the queries whose report occurs once."""

    def of_some(columns: Columns, counts: Floats) -> Floats:
        once = np.asarray(columns[retrieval.ONCE], np.float64) == 1
        return aggregate({name: np.asarray(values)[once] for name, values in columns.items()}, counts[:, once])

    return of_some


def _mean_of(name: str, columns: Columns, counts: Floats) -> Floats:
    values = np.asarray(columns[name], np.float64)
    there = ~np.isnan(values)
    return _ratio(counts[:, there] @ values[there], counts[:, there].sum(axis=1))


def _clinical(**options: Any) -> dict[str, Any]:
    of_labels = {name: options.pop(name) for name in ("group", "uncertain", "at_least") if name in options}
    return {
        "image_rows": texts.text_rows,
        "text_statistics": texts.label_columns,
        "prepare": partial(texts.clinical_matrices, **of_labels),
        "aggregate": partial(texts.clinical, **options),
    }


_VARIANTS: dict[str, dict[str, Any]] = {
    "ce_r2gen": {"average": "macro", "group": "14", "absent_as_zero": True},
    "ce_r2gen_micro": {"average": "micro", "group": "14"},
    "ce_promptmrg": {"average": "example", "group": "14"},
    "ce_organ": {"average": "weighted", "group": "14", "uncertain": "ones"},
    "ce_apart": {"average": "micro", "group": "14", "uncertain": "apart"},
}
"""How papers average precision, recall and F1 of CheXpert's observations (docs/score-reports.md)."""

_TEXT = {"image_rows": texts.text_rows}
_BOXES = {"image_rows": boxes.detection_rows, "box_statistics": boxes.match_columns, "ranked": "box_scores"}
_RANKS = {"image_rows": retrieval.embedding_rows, "pooled_statistics": retrieval.rank_columns, "of_corpus": True}
_SCORES = {"image_rows": finding_rows, "ranked": "finding_score"}
_BLEU = _TEXT | {"text_statistics": texts.bleu_columns}
_COMPUTED: dict[str, dict[str, Any]] = {
    **{name: {"statistics": localisation} for name in METRICS},
    "abstention_auroc": {"aggregate": _abstention_auroc, "ranked": "abstention"},
    "finding_auroc": _SCORES | {"aggregate": over_findings(_auroc)},
    "finding_auroc_weighted": _SCORES | {"aggregate": over_findings(_auroc, weighted=True)},
    "finding_average_precision": _SCORES | {"aggregate": over_findings(_average_precision)},
    "class_accuracy": {"image_rows": finding_rows, "aggregate": partial(_one_of, place=0)},
    "class_macro_f1": {"image_rows": finding_rows, "aggregate": partial(_one_of, place=1)},
    "finding_mcc": {"image_rows": finding_rows, "aggregate": over_findings(matthews)},
    **{f"bleu_{n}": _BLEU | {"aggregate": partial(corpus_bleu, order=n)} for n in range(1, 5)},
    "rouge_l": _TEXT | {"text_statistics": texts.rouge_columns},
    "cider": _TEXT | {"text_statistics": texts.cider_columns, "of_corpus": True},
    "sentence_bleu_2": _TEXT | {"text_statistics": texts.sentence_bleu_columns},
    **{name: _TEXT | {"text_statistics": texts.mpnet_columns} for name in texts.MODEL_MEASURES["mpnet"]},
    **dict.fromkeys((texts.COPIED_NEAREST, texts.COPIED_EXEMPLARS), _TEXT),
    "chexbert_cosine": _TEXT | {"text_statistics": texts.chexbert_columns},
    "meteor": _TEXT | {"text_statistics": texts.meteor_columns, "aggregate": corpus_meteor},
    **{f"{kind}_f1_{group}": _clinical(average=kind, group=group) for kind in ("micro", "macro") for group in GROUPS},
    "example_f1_14": _clinical(average="example", group="14"),
    "macro_mcc_13": _clinical(average="macro", group="13", measure="mcc"),
    "sided_f1": _clinical(average="micro", group="pairs"),
    "sided_precision": _clinical(average="micro", group="pairs", measure="precision"),
    "sided_recall": _clinical(average="micro", group="pairs", measure="recall"),
    "macro_mcc_10_positives": _clinical(average="macro", group="13", measure="mcc", at_least=10),
    **{
        f"{name}_{measure}": _clinical(measure=measure, **options)
        for name, options in _VARIANTS.items()
        for measure in ("precision", "recall", "f1")
    },
    **{f"{kind}_f1_5_ones": _clinical(average=kind, group="5", uncertain="ones") for kind in ("micro", "macro")},
    **dict.fromkeys(
        ("distinct_share", "most_frequent_share"), _TEXT | {"text_statistics": texts.repeat_columns, "of_corpus": True}
    ),
    "box_miou": {"box_statistics": boxes.overlap_columns, "aggregate": boxes.mean_overlap},
    "box_miou_pooled": {"box_statistics": boxes.overlap_columns, "aggregate": boxes.pooled_overlap},
    "sentence_map": {"box_statistics": boxes.sentence_columns},
    **{name: _RANKS for name in retrieval.RANKED if name != "rank"},
    "median_rank": _RANKS | {"aggregate": _median_rank},
    **{f"{name}_once": _RANKS | {"aggregate": _once(partial(_mean_of, name))} for name in retrieval.RANKED[1:]},
    "median_rank_once": _RANKS | {"aggregate": _once(_median_rank)},
    "map": _BOXES | {"aggregate": boxes.mean_average_precision},
    **{
        f"map@{100 * threshold:g}": _BOXES | {"aggregate": partial(boxes.mean_average_precision, place=place)}
        for place, threshold in enumerate(IOU_THRESHOLDS)
    },
}

for _name, _entry in yaml.safe_load(Path(__file__).with_name("measures.yaml").read_text(encoding="utf-8")).items():
    _lists = {key: tuple(value) for key, value in _entry.items() if isinstance(value, list)}
    register_measure(Measure(_name, **_entry | _lists, **_COMPUTED.get(_name, {})))

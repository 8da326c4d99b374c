"""Rescore findings of images by their scores, and generated texts by their labels and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from rightlung.diagnosis.conventions import Choices
from rightlung.diagnosis.means import Floats, Statistic
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import texts
from rightlung.measuring.measures import matthews, over_findings
from rightlung.measuring.targets import StudyLabels
from rightlung.scoring.language import corpus_bleu, sentence_bleu, token_rule
from rightlung.scoring.recognition import SortedScores

FREQUENT = 10
_CODES = {"positive": 1.0, "negative": 0.0, "uncertain": 2.0}
_UNNAMED = 3.0
_AS: Mapping[str, Mapping[str, float]] = {
    "uncertain": {"left out": np.nan, "positive": 1.0, "negative": 0.0},
    "unnamed": {"left out": np.nan, "negative": 0.0},
}


class ImageLabels:
    """Scores of findings against the labels of images, by any convention of the family."""

    def __init__(self, rows: Iterable[tuple[Mapping[str, Any], StudyLabels]]) -> None:
        kept = [(answer["finding_scores"], labels) for answer, labels in rows if answer["finding_scores"]]
        self.patients = [labels.patient for _, labels in kept]
        known = [{canonical_finding(name): said for name, said in labels.findings.items()} for _, labels in kept]
        pairs = [
            (place, name, one["score"], _CODES.get(said.get(name, ""), _UNNAMED))
            for place, ((scores, _), said) in enumerate(zip(kept, known, strict=True))
            for one in scores
            if (name := canonical_finding(one["finding"]))
        ]
        self._image, self._target, self._scores, self._labels = (
            np.array([pair[n] for pair in pairs]) for n in range(4)
        )

    def statistic(self, choice: Choices) -> Statistic:
        """Return the number by a convention, as a function of counts."""
        labels, target = self._labels.copy(), self._target
        for code, axis in ((_CODES["uncertain"], "uncertain"), (_UNNAMED, "unnamed")):
            labels[self._labels == code] = _AS[axis][choice[axis]]
        positives = {name: np.nansum(labels[target == name]) for name in np.unique(target)}
        least = FREQUENT if choice["findings"] == "frequent" else 1
        used = ~np.isnan(labels) & np.array([positives[name] >= least for name in target], bool)
        if choice["averaging"] == "micro":
            target = np.full(len(target), "all")
        columns = {"target": target[used], "finding_score": self._scores[used], "finding_label": labels[used]}
        mean = over_findings(partial(_of_finding, choice), weighted=choice["averaging"] == "weighted")
        return lambda counts: mean(columns, counts[:, self._image[used]])


def _of_finding(choice: Choices, scores: Floats, labels: Floats, counts: Floats) -> Floats:
    """Return the score of one finding, (rows,)."""
    if choice["score"] in ("auroc", "average_precision"):
        return np.asarray(getattr(SortedScores(scores, labels), choice["score"])(counts))
    of_calls = partial(matthews if choice["score"] == "mcc" else _f1, scores, labels)
    if choice["threshold"] == "0.5":
        return of_calls(counts)
    cuts, once = np.unique(scores), np.ones((1, len(scores)))
    values = [float(of_calls(once, threshold=float(cut))[0]) for cut in cuts]
    return of_calls(counts, threshold=float(cuts[int(np.nan_to_num(values, nan=-2.0).argmax())]))


def _f1(scores: Floats, labels: Floats, counts: Floats, threshold: float = 0.5) -> Floats:
    called = (scores >= threshold).astype(np.float64)
    hits, positives, calls = counts @ (called * labels), counts @ labels, counts @ called
    return np.where(positives > 0, 2 * hits / np.maximum(positives + calls, 1e-12), np.nan)


class Texts:
    """Generated texts against references cut to a section: labels or words, by any convention of the family."""

    def __init__(self, family: str, rows: Sequence[tuple[Mapping[str, Any], StudyLabels, Mapping[str, str]]]) -> None:
        said = [(next(texts.text_rows(answer, labels), {}), labels, sections) for answer, labels, sections in rows]
        said = [one for one in said if "answer_text" in one[0]]
        self.patients = [labels.patient for _, labels, _ in said]
        self._answers = [row["answer_text"] for row, _, _ in said]
        self._references = {"report": [row["reference_text"] for row, _, _ in said]}
        for section in ("findings", "impression"):
            self._references[section] = [sections.get(section) or "" for _, _, sections in said]
        self._statistic = self._by_labels if family == "text-labels" else self._by_words
        self._columns = cache(self._columns_of)

    def statistic(self, choice: Choices) -> Statistic:
        """Return the number by a convention, as a function of counts."""
        references = self._references[choice["section"]]
        there = np.array([place for place, text in enumerate(references) if text.strip()], np.intp)
        if not len(there):
            return lambda counts: np.full(len(counts), np.nan)
        of_some = self._statistic(choice, there)
        return lambda counts: of_some(counts[:, there])

    def _columns_of(self, section: str, kind: str, words: str = "whole") -> dict[str, Any]:
        """Return the columns of a kind of statistics, for the texts that have this section."""
        pairs = [pair for pair in zip(self._answers, self._references[section], strict=True) if pair[1].strip()]
        found: Mapping[str, Any] = getattr(texts, f"{kind}_columns")(*map(list, zip(*pairs, strict=True)), words)
        return {name: _array(values) for name, values in found.items()}

    def _by_labels(self, choice: Choices, there: Any) -> Statistic:
        columns = self._columns(choice["section"], "label")
        uncertain: Any = choice["uncertain"]
        made = texts.clinical_matrices(columns, group=choice["labels"], uncertain=uncertain)
        options: Any = {"average": choice["averaging"], "measure": choice["score"]}
        if options["average"] == "example" and options["measure"] == "mcc":
            return lambda counts: np.full(len(counts), np.nan)
        return partial(texts.clinical, made, absent_as_zero=choice["absent"] == "zero", **options)

    def _by_words(self, choice: Choices, there: Any) -> Statistic:
        kind, _, order = choice["score"].partition("_")
        if kind == "bleu" and choice["averaging"] == "corpus":
            return partial(corpus_bleu, self._columns(choice["section"], "bleu", choice["words"]), order=int(order))
        if kind == "bleu":
            split = token_rule(choice["words"])
            answers, references = self._answers, self._references[choice["section"]]
            values = np.array(
                [
                    sentence_bleu(split(answers[n] if answers[n].strip() else ""), split(references[n]), int(order))
                    for n in there
                ]
            )
        else:
            values = self._columns(choice["section"], kind, choice["words"])[choice["score"]]
        return lambda counts: counts @ values / np.maximum(counts.sum(axis=1), 1.0)


def _array(values: Sequence[Any]) -> Any:
    if len(values) and isinstance(values[0], list):
        found = np.empty(len(values), object)
        found[:] = values
        return found
    return np.asarray(values, np.float64)

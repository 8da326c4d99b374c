"""Batteries of texts: whether descriptions and reports keep to the image, and mirror with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.audit.batteries import BATTERIES, TrialResult
from rightlung.audit.blocks import rows_in_pieces
from rightlung.lexicon import swap_sides
from rightlung.predictions import IMAGE_QUERY, Key, Predictions
from rightlung.probes.wording import read_sentences
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator
from rightlung.results.on_disk import TableOnDisk
from rightlung.scoring.clinical import sided_findings

Texts = Mapping[Key, str]
Phrases = Mapping[tuple[str, str], tuple[str, str]]
"""Patient and words of each phrase, by study and query."""


def texts_of(predictions: Predictions, conditions: Iterable[str]) -> dict[Key, str]:
    """Return descriptions of phrases and reports of images under some conditions."""
    wanted, found = {*conditions}, {}
    for batch in predictions.batches():
        for key, report, sentences in zip(batch.keys, batch.column("report"), batch.column("sentences"), strict=True):
            if key.condition not in wanted:
                continue
            if key.query == IMAGE_QUERY and report is not None:
                found[key] = report
            elif key.query != IMAGE_QUERY and sentences is not None:
                found[key] = " ".join(one["text"] for one in sentences)
    return found


def phrases_of(table: pa.Table | TableOnDisk) -> Phrases:
    """Return patient and words of each phrase of an instances table, by study and query."""
    names = ("study", "query", "patient", "phrase")
    rows = (row for piece in rows_in_pieces(table, names) for row in piece)
    return {(row["study"], row["query"]): (row["patient"], row["phrase"]) for row in rows}


def text_trials(names: Sequence[str], texts: Texts, phrases: Phrases, settings: BootstrapSettings) -> list[TrialResult]:
    """Return the trials of descriptions and reports."""
    patients = {study: patient for (study, _), (patient, _) in phrases.items()}
    results = []
    for name in names:
        for kind, trials in BATTERIES[name].text_trials.items():
            for condition, expected in trials.items():
                rows = [_judged(key, texts, phrases, condition, expected) for key in texts if _plain(key, kind)]
                known = [(key, *found) for key, found in rows if found is not None and key.study in patients]
                if known:
                    estimator = Estimator([patients[key.study] for key, *_ in known], settings)
                    share, echoes = (np.array(column) for column in list(zip(*known, strict=True))[1:])
                    told = estimator.mean(echoes) if (~np.isnan(echoes)).any() else None
                    results.append(TrialResult(name, condition, kind, expected, estimator.mean(share), echoes=told))
    return results


def _plain(key: Key, kind: str) -> bool:
    return key.condition == "none" and (key.query == IMAGE_QUERY) == (kind == "report")


def _judged(
    key: Key, texts: Texts, phrases: Phrases, condition: str, expected: str
) -> tuple[Key, tuple[float, float] | None]:
    """Return how far a text behaves as expected (0 to 1) and whether it echoes contradicting words, None if unknown."""
    before, after = texts[key], texts.get(key._replace(condition=condition))
    if after is None:
        return key, None
    if expected == "mirror":
        return key, _agreement(sided_findings(before), sided_findings(swap_sides(after)))
    if key.query == IMAGE_QUERY:
        return key, _agreement(
            *({n for n, p in read_sentences(text).items() if p != "negative"} for text in (before, after))
        )
    _, phrase = phrases.get((key.study, key.query), ("", ""))
    asked = read_sentences(phrase)
    own, changed = read_sentences(before), read_sentences(after)
    about = [name for name in asked if name in own]
    if not about:
        return key, None
    other = {"positive": "negative", "uncertain": "negative", "negative": "positive"}
    echoes = any(own[name] != other[asked[name]] == changed.get(name) for name in about)
    kept = all(changed.get(name) == own[name] for name in about)
    return key, (float(kept), float(echoes) if condition == "opposite" else np.nan)


def _agreement(before: Iterable[Any], after: Iterable[Any]) -> tuple[float, float] | None:
    """Return the F1 of two sets of findings; None if both are empty."""
    one, two = {*before}, {*after}
    return (2 * len(one & two) / (len(one) + len(two)), float("nan")) if one or two else None

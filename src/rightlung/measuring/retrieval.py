"""Measures of retrieval: rows with embeddings, and ranks among all rows of a condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rightlung.scoring.retrieval import Floats
from rightlung.scoring.text_retrieval import (
    IMAGE_TO_TEXT,
    TEXT_TO_IMAGE,
    Candidates,
    TextPool,
    rank_images,
    stacked,
)

if TYPE_CHECKING:
    from rightlung.measuring.targets import StudyLabels

EMBEDDING = "embedding"
"""Column of a row's vector until the ranks are known."""
RANKED = ("rank", "recall@1", "recall@5", "recall@10")
PLAIN = "none"
_OTHER = {IMAGE_TO_TEXT: TEXT_TO_IMAGE, TEXT_TO_IMAGE: IMAGE_TO_TEXT}
ONCE = "text_occurs_once"
"""Column: 1 for a study whose report no other study of the source, or of the pool of candidates, has, else 0."""


def embedding_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row for the embedding of an image or of its report; each is a query and a candidate of the others."""
    for name, direction in (("image_embedding", IMAGE_TO_TEXT), ("text_embedding", TEXT_TO_IMAGE)):
        if labels.report is not None and answer[name] is not None:
            row = {"target": direction, "target_kind": "report", "reason": "", "reference_text": labels.report}
            yield row | {EMBEDDING: answer[name]}


def rank_columns(table: pa.Table, candidates: Mapping[str, Candidates]) -> dict[str, list[float]]:
    """Return rank and recall of each row's own report or image among those of all studies, by cosine, and `ONCE`.

    The candidates of an image are the distinct reports (but for case and spaces) of all studies, or else those given
    for its condition or for ``none``. Studies with the same report are relevant for each other. What a condition does
    not change is as under ``none``.
    """
    rows = table.select(["study", "condition", "target", "reference_text", EMBEDDING]).to_pylist()
    texts = [row["reference_text"] or "" for row in rows]
    told = dict.fromkeys((row["study"], text) for row, text in zip(rows, texts, strict=True))
    pool = candidates[PLAIN].pool if PLAIN in candidates else TextPool.of([text for _, text in told])
    columns = {name: [float("nan")] * len(rows) for name in RANKED}
    places = pool.places(texts).tolist()
    columns[ONCE] = [float(pool.counts[place] == 1) if place >= 0 else float("nan") for place in places]
    embedded: dict[tuple[str, str], dict[str, int]] = {}
    for number, row in enumerate(rows):
        if row[EMBEDDING] is not None:
            embedded.setdefault((row["condition"], row["target"]), {})[row["study"]] = number

    def of(numbers: Iterable[int]) -> tuple[Floats, list[str]]:
        return stacked([rows[number][EMBEDDING] for number in numbers]), [texts[number] for number in numbers]

    for condition, target in embedded:
        own, plain, changed = (
            embedded.get(key, {}) for key in ((condition, target), (PLAIN, _OTHER[target]), (condition, _OTHER[target]))
        )
        found: Mapping[str, Floats] = {}
        if target == TEXT_TO_IMAGE and plain | changed:
            found = rank_images(of(own.values()), of((plain | changed).values()), pool)
        elif target == IMAGE_TO_TEXT:
            given = candidates.get(condition, candidates.get(PLAIN))
            vectors: dict[int, list[float]] = {}
            for some in (plain if given is None else {}, changed):
                numbers = [number for number in reversed(some.values()) if places[number] >= 0]
                vectors |= {places[number]: rows[number][EMBEDDING] for number in numbers}  # the first of equal texts
            if given is not None:
                found = given.with_vectors(vectors).rank(*of(own.values()))
            elif vectors:
                found = Candidates.some(pool, vectors).rank(*of(own.values()))
        for name, values in found.items():
            for number, value in zip(own.values(), values.tolist(), strict=True):
                columns[name][number] = value
    return columns

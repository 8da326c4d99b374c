"""Measures of retrieval: rows with embeddings, and ranks among all rows of a condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rightlung.core import InputError
from rightlung.scoring.retrieval import retrieve
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT, TEXT_TO_IMAGE, without_case_and_spaces

if TYPE_CHECKING:
    from rightlung.measuring.targets import StudyLabels

EMBEDDING = "embedding"
"""Column of a row's vector until the ranks are known."""
RANKED = ("rank", "recall@1", "recall@5", "recall@10")
ONCE = "text_occurs_once"
"""Column: 1 for a study whose report no other study of the source has, else 0."""


def embedding_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row for the embedding of an image or of its report; each is a query and a candidate of the others."""
    for name, direction in (("image_embedding", IMAGE_TO_TEXT), ("text_embedding", TEXT_TO_IMAGE)):
        if labels.report is not None and answer[name] is not None:
            row = {"target": direction, "target_kind": "report", "reason": "", "reference_text": labels.report}
            yield row | {EMBEDDING: answer[name]}


def rank_columns(table: pa.Table) -> dict[str, list[float]]:
    """Return rank and recall of each row's own report or image among those of all studies, by cosine, and `ONCE`.

    The candidates of an image are the distinct reports (but for case and spaces). Studies with the same report are
    relevant for each other. What a condition does not change is as under ``none``.
    """
    rows = table.select(["study", "condition", "target", "reference_text", EMBEDDING]).to_pylist()
    numbers: dict[str, int] = {}
    for row in rows:
        row["group"] = numbers.setdefault(without_case_and_spaces(row["reference_text"] or ""), len(numbers))
    columns = {name: [float("nan")] * len(rows) for name in RANKED}
    studies: dict[int, set[str]] = {}
    for row in rows:
        studies.setdefault(row["group"], set()).add(row["study"])
    columns[ONCE] = [float(len(studies[row["group"]]) == 1) for row in rows]
    places: dict[tuple[str, str], dict[str, int]] = {}
    for place, row in enumerate(rows):
        if row[EMBEDDING] is not None:
            places.setdefault((row["condition"], row["target"]), {})[row["study"]] = place
    for (condition, target), own in places.items():
        other = TEXT_TO_IMAGE if target == IMAGE_TO_TEXT else IMAGE_TO_TEXT
        known = places.get(("none", other), {}) | places.get((condition, other), {})
        if target == IMAGE_TO_TEXT:
            known = {str(rows[place]["group"]): place for place in reversed(known.values())}
        asked, candidates = ([rows[place] for place in some.values()] for some in (own, known))
        if len(sizes := {len(row[EMBEDDING]) for row in (*asked, *candidates)}) > 1:
            raise InputError(f"images and texts must have embeddings of one dimension; got {sorted(sizes)}")
        vectors, known_vectors = ([row[EMBEDDING] for row in some] for some in (asked, candidates))
        groups, known_groups = ([row["group"] for row in some] for some in (asked, candidates))
        found = retrieve(vectors, known_vectors, (groups, known_groups)) if candidates else {}
        for name, values in found.items():
            for place, value in zip(own.values(), values.tolist(), strict=True):
                columns[name][place] = value
    return columns

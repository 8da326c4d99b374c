"""Predictions to a table of the schema's columns. The way back is `rightlung.predictions.batch`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.core import Box, Grounding, InputError
from rightlung.predictions.prediction import Prediction
from rightlung.predictions.schema import MODEL_KEY, RUN_KEY, SCHEMA, SCHEMA_VERSION, SOURCE_KEY, VERSION_KEY


def file_metadata(source: str, model: str, run: Mapping[str, object] | None) -> dict[bytes, bytes]:
    """Return the key-value metadata of every part."""
    metadata = {VERSION_KEY: str(SCHEMA_VERSION).encode(), SOURCE_KEY: source.encode(), MODEL_KEY: model.encode()}
    if run is not None:
        try:
            metadata[RUN_KEY] = json.dumps(dict(run), sort_keys=True, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"run must hold what JSON can write: {error}") from None
    return metadata


def to_table(predictions: Sequence[Prediction], metadata: Mapping[bytes, bytes] | None = None) -> Any:
    """Return a ``pyarrow.Table`` with one row for each prediction, in their order."""
    answers = [_row(prediction) for prediction in predictions]
    columns = [
        _maps([prediction.grounding for prediction in predictions])
        if field.name == "map"
        else pa.array([answer.get(field.name) for answer in answers], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA.with_metadata(dict(metadata or {})))


def _maps(groundings: Sequence[Grounding | None]) -> Any:
    """Lay all maps end to end; going through Python lists would be some fifty times as slow."""
    heatmaps = [grounding.heatmap if grounding is not None else None for grounding in groundings]
    flat = [heatmap.values.ravel() for heatmap in heatmaps if heatmap is not None]
    lengths = [0 if heatmap is None else heatmap.values.size for heatmap in heatmaps]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(np.concatenate(flat) if flat else np.zeros(0, np.float32)),
        mask=pa.array([heatmap is None for heatmap in heatmaps], pa.bool_()),
    )


def _row(prediction: Prediction) -> dict[str, object]:
    row: dict[str, object] = {
        "study": prediction.study,
        "query": prediction.query,
        "condition": prediction.condition,
        "phrase": prediction.asked.phrase,
        "box": _corners(prediction.asked.box),
        "similarity_global": prediction.similarity_global,
        "similarity_local": prediction.similarity_local,
        "report": prediction.report,
        "image_embedding": prediction.image_embedding,
        "text_embedding": prediction.text_embedding,
        "error": prediction.error,
    }
    grounding = prediction.grounding
    if grounding is not None:
        if grounding.has_boxes:
            row["boxes"] = [
                {**_named_corners(scored.box), "score": scored.score, "label": scored.label}
                for scored in grounding.boxes
            ]
        if grounding.heatmap is not None:
            row["map_rows"], row["map_cols"] = grounding.heatmap.grid
            row["extent"] = list(grounding.heatmap.extent.as_tuple())
            row["abstention"] = grounding.heatmap.abstention
    if prediction.sentences is not None:
        row["sentences"] = [
            {
                "text": sentence.text,
                "score": sentence.score,
                "prompt": sentence.prompt,
                "boxes": [_corners(box) for box in sentence.boxes],
            }
            for sentence in prediction.sentences
        ]
    if prediction.finding_scores is not None:
        row["finding_scores"] = [
            {"finding": finding, "score": score} for finding, score in prediction.finding_scores.items()
        ]
    return row


def _corners(box: Box | None) -> list[float] | None:
    return None if box is None else list(box.as_tuple())


def _named_corners(box: Box) -> dict[str, float]:
    return {"x0": box.x0, "y0": box.y0, "x1": box.x1, "y1": box.y1}

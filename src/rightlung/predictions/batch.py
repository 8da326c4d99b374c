"""Checked rows of a predictions file, as arrays or as `Prediction` values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.core import Box, Extent, Grounding, Heatmap, InputError, Query, ScoredBox, Sentence
from rightlung.core.problem import Problem, ProblemError
from rightlung.predictions.prediction import Key, Prediction
from rightlung.predictions.schema import MAP_COLUMNS, SCHEMA, unnest

_AS_THEY_ARE = (
    "study", "query", "condition", "similarity_global", "similarity_local", "report", "image_embedding",
    "text_embedding", "error",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked rows of one part: their numbers in its file, and a ``pyarrow.RecordBatch`` with the schema's columns."""

    part: str
    rows: NDArray[np.int64]
    columns: Any

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> Batch:
        """Return predictions as a batch, as if written and read again."""
        (columns,) = to_table(predictions).to_batches() or [pa.RecordBatch.from_pylist([], schema=SCHEMA)]
        return cls("memory", np.arange(len(predictions)), columns)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> list[Key]:
        """The key of each row."""
        return [Key(*texts) for texts in zip(*map(self.column, Key._fields), strict=True)]

    def column(self, name: str) -> list[Any]:
        """Return a column as Python values, None for null."""
        values: list[Any] = self.columns.column(name).to_pylist()
        return values

    @cached_property
    def maps(self) -> list[NDArray[np.float32] | None]:
        """Each row's map ``(rows, cols)``, a read-only view; None if there is none."""
        offsets, values = unnest(self.columns.column("map"))
        cells = values.to_numpy(zero_copy_only=True)
        grids = zip(self.column("map_rows"), self.column("map_cols"), strict=True)
        given = self.columns.column("map").is_valid().to_pylist()
        return [
            cells[start:stop].reshape(grid) if valid else None
            for start, stop, grid, valid in zip(offsets[:-1], offsets[1:], grids, given, strict=True)
        ]

    @cached_property
    def extents(self) -> NDArray[np.float64]:
        """The extent of each row's grid, ``(n, 4)``: x0, y0, x1, y1; the whole image if none is given."""
        given = [extent or (0.0, 0.0, 1.0, 1.0) for extent in self.column("extent")]
        return np.array(given, dtype=np.float64).reshape(-1, 4)

    @cached_property
    def abstentions(self) -> NDArray[np.float64]:
        """The abstention of each row, ``(n,)``, as `Grounding.abstention`; NaN if nothing was grounded."""
        given = pc.fill_null(self.columns.column("abstention"), 0.0).to_numpy(zero_copy_only=False)
        found = pc.list_value_length(self.columns.column("boxes")).to_numpy(zero_copy_only=False)  # NaN for null
        without_map = np.where(np.isnan(found), np.nan, found == 0)
        return np.where(self.columns.column("map").is_valid().to_numpy(zero_copy_only=False), given, without_map)

    def chosen(self, indices: Sequence[int]) -> Batch:
        """Return some of the rows."""
        return Batch(self.part, self.rows[list(indices)], self.columns.take(pa.array(indices, pa.int64())))

    def predictions(self) -> Iterator[Prediction]:
        """Yield each row as a `Prediction`."""
        rows = self.columns.drop_columns(list(MAP_COLUMNS)).to_pylist()
        for number, row, values in zip(self.rows.tolist(), rows, self.maps, strict=True):
            try:
                yield _prediction(row, values)
            except InputError as error:  # the checks missed something: name its place
                key = Key(*(row[name] for name in Key._fields))
                raise ProblemError(Problem(self.part, str(error), row=number, key=key)) from None


def _prediction(row: dict[str, Any], values: NDArray[np.float32] | None) -> Prediction:
    boxes, sentences, scores, grounding = row["boxes"], row["sentences"], row["finding_scores"], None
    if boxes is not None:
        boxes = [
            ScoredBox(Box(*(box[c] for c in ("x0", "y0", "x1", "y1"))), box["score"], box["label"]) for box in boxes
        ]
    if sentences is not None:
        sentences = tuple(
            Sentence(one["text"], tuple(Box(*corners) for corners in one["boxes"] or ()), one["score"], one["prompt"])
            for one in sentences
        )
    if values is not None or boxes is not None:
        extent = Extent(*row["extent"] or ())
        grounding = Grounding(None if values is None else Heatmap(values, extent, row["abstention"] or 0.0), boxes)
    return Prediction(
        **{name: row[name] for name in _AS_THEY_ARE},
        asked=Query(row["phrase"], None if row["box"] is None else Box(*row["box"])),
        grounding=grounding,
        sentences=sentences,
        finding_scores=None if scores is None else {item["finding"]: item["score"] for item in scores},
    )


def to_table(predictions: Sequence[Prediction], metadata: Mapping[bytes, bytes] | None = None) -> Any:
    """Return a ``pyarrow.Table`` with one row per prediction."""
    rows = [_row(prediction) for prediction in predictions]
    columns = [
        _maps(predictions) if field.name == "map" else pa.array([row.get(field.name) for row in rows], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA.with_metadata(dict(metadata or {})))


def _maps(predictions: Sequence[Prediction]) -> Any:
    """Concatenate all maps as arrays; Python lists would be about fifty times slower."""
    heatmaps = [None if one.grounding is None else one.grounding.heatmap for one in predictions]
    flat = [heatmap.values.ravel() for heatmap in heatmaps if heatmap is not None]
    return pa.ListArray.from_arrays(
        pa.array(np.cumsum([0, *(one.cells for one in predictions)]), pa.int32()),
        pa.array(np.concatenate(flat) if flat else np.zeros(0, np.float32)),
        mask=pa.array([heatmap is None for heatmap in heatmaps], pa.bool_()),
    )


def _row(prediction: Prediction) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(prediction, name) for name in _AS_THEY_ARE}
    row["phrase"] = prediction.asked.phrase
    row["box"] = None if prediction.asked.box is None else prediction.asked.box.as_tuple()
    grounding = prediction.grounding
    if grounding is not None and grounding.has_boxes:
        names = ("x0", "y0", "x1", "y1", "score", "label")
        boxes = [(*scored.box.as_tuple(), scored.score, scored.label) for scored in grounding.boxes]
        row["boxes"] = [dict(zip(names, box, strict=True)) for box in boxes]
    if grounding is not None and grounding.heatmap is not None:
        row["map_rows"], row["map_cols"] = grounding.heatmap.grid
        row["extent"], row["abstention"] = grounding.heatmap.extent.as_tuple(), grounding.heatmap.abstention
    if prediction.sentences is not None:
        row["sentences"] = [
            {"text": one.text, "score": one.score, "prompt": one.prompt, "boxes": [box.as_tuple() for box in one.boxes]}
            for one in prediction.sentences
        ]
    if prediction.finding_scores is not None:
        scores = prediction.finding_scores.items()
        row["finding_scores"] = [{"finding": finding, "score": score} for finding, score in scores]
    return row

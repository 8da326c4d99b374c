"""Checked rows of a predictions file: as arrays for whoever scores many, as `Prediction` for whoever wants one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.core import Box, Extent, FrozenMapping, Grounding, Heatmap, InputError, Query, ScoredBox, Sentence
from rightlung.core.problem import Problem, ProblemError
from rightlung.predictions.prediction import Key, Prediction
from rightlung.predictions.schema import SCHEMA, unnest


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked rows of one part. ``columns`` is a ``pyarrow.RecordBatch`` in exactly the schema's columns and types.

    ``rows`` numbers them within the part's file, from 0.
    """

    part: str
    rows: NDArray[np.int64]
    columns: Any

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> list[Key]:
        """The key of each row."""
        return [Key(*texts) for texts in zip(*map(self.column, Key._fields), strict=True)]

    def column(self, name: str) -> list[Any]:
        """Return a column as Python values, ``None`` for null."""
        values: list[Any] = self.columns.column(name).to_pylist()
        return values

    @cached_property
    def maps(self) -> list[NDArray[np.float32] | None]:
        """Each row's map ``(rows, cols)``, read-only views into the batch; ``None`` where there is none."""
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
        """Where each row's grid lies in the image, ``(n, 4)``: x0, y0, x1, y1; the whole image where none is given."""
        extents = np.tile(np.array([0.0, 0.0, 1.0, 1.0]), (len(self), 1))
        column = self.columns.column("extent")
        extents[column.is_valid().to_numpy(zero_copy_only=False)] = column.flatten().to_numpy().reshape(-1, 4)
        return extents

    @cached_property
    def abstentions(self) -> NDArray[np.float64]:
        """How much each row abstains, ``(n,)``, as `Grounding.abstention` has it; NaN where nothing was grounded."""
        given = pc.fill_null(self.columns.column("abstention"), 0.0).to_numpy(zero_copy_only=False)
        found = pc.list_value_length(self.columns.column("boxes")).to_numpy(zero_copy_only=False)  # NaN for null
        without_map = np.where(np.isnan(found), np.nan, found == 0)
        return np.where(self.columns.column("map").is_valid().to_numpy(zero_copy_only=False), given, without_map)

    def predictions(self) -> Iterator[Prediction]:
        """Yield each row as a `Prediction`."""
        texts = {name: self.column(name) for name in SCHEMA.names if name not in ("map", "map_rows", "map_cols")}
        for index, key in enumerate(self.keys):
            row = {name: values[index] for name, values in texts.items()}
            try:
                prediction = _prediction(key, row, self.maps[index])
            except (
                InputError
            ) as error:  # the checks find all the core refuses; should they not, the place is named here
                raise ProblemError(Problem(self.part, str(error), row=int(self.rows[index]), key=key)) from None
            yield prediction


def _prediction(key: Key, row: dict[str, Any], values: NDArray[np.float32] | None) -> Prediction:
    boxes, sentences, scores = row["boxes"], row["sentences"], row["finding_scores"]
    grounding = None
    if values is not None or boxes is not None:
        heatmap = None if values is None else Heatmap(values, _extent(row["extent"]), row["abstention"] or 0.0)
        grounding = Grounding(heatmap, None if boxes is None else [_scored_box(box) for box in boxes])
    return Prediction(
        *key,
        asked=Query(row["phrase"], None if row["box"] is None else Box(*row["box"])),
        grounding=grounding,
        similarity_global=row["similarity_global"],
        similarity_local=row["similarity_local"],
        sentences=None if sentences is None else tuple(_sentence(sentence) for sentence in sentences),
        finding_scores=None if scores is None else FrozenMapping({item["finding"]: item["score"] for item in scores}),
        error=row["error"],
    )


def _extent(corners: list[float] | None) -> Extent:
    return Extent() if corners is None else Extent(*corners)


def _scored_box(box: dict[str, Any]) -> ScoredBox:
    return ScoredBox(Box(box["x0"], box["y0"], box["x1"], box["y1"]), box["score"], box["label"])


def _sentence(sentence: dict[str, Any]) -> Sentence:
    boxes = tuple(Box(*corners) for corners in sentence["boxes"] or ())
    return Sentence(sentence["text"], boxes, sentence["score"], sentence["prompt"])

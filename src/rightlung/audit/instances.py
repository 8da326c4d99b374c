"""One row for every answer: what was asked, what is true, and every measure of the map, written as Parquet.

The predictions are read in whatever order they stand, twice where there are conditions: how far a map moves is measured
against the plain answer, which may come later (`movement`). The targets come from `targets.MaskStore`. Neither is ever
in memory as a whole.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.movement import PlainAnswers
from rightlung.audit.pixels import pixels_of, upsampled
from rightlung.audit.prior import LocationPrior
from rightlung.audit.sidedness import what_tells
from rightlung.audit.targets import MaskStore, Target, on_the_left
from rightlung.audit.words import WordKey, side_named, zones_in
from rightlung.core import OutputError
from rightlung.predictions import Batch, Predictions
from rightlung.scoring.localisation import METRICS, score

ROWS_AT_ONCE = 128
"""Rows whose maps are brought to pixels and scored together; at 256 x 256 pixels that is 34 MB of maps."""

PIXELS_AT_ONCE = ROWS_AT_ONCE * 256 * 256
KEPT_PRIOR_SCORES = 50_000

_TEXTS = (
    "study", "query", "condition", "patient", "phrase", "asked", "polarity", "side_named", "side_asked", "side_told",
    "target_kind", "target_side", "target_size", "peak_side", "reason",
)  # fmt: skip
_NUMBERS = (
    "target_area", "abstention", "similarity_global", "similarity_local", *METRICS, "peak_x", "peak_y", "peak_on_side",
    *(f"prior_{name}" for name in METRICS), "prior_peak_on_side", "moved_mass", "moved_peak",
)  # fmt: skip
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("findings", pa.list_(pa.string())),
        ("regions", pa.list_(pa.string())),
        ("zones_named", pa.list_(pa.string())),
        *((name, pa.float64()) for name in _NUMBERS),
        ("prior_support", pa.int64()),
        ("scored_pixels", pa.int64()),
        ("abstention_given", pa.bool_()),
    ]
)
"""The columns of ``instances.parquet``. NaN is never null here: a measure that is not defined is NaN, with a reason."""


@dataclass
class _Job:
    """One row on its way: its values so far and, where there is something to score, the map and its target."""

    row: dict[str, Any]
    target: Target
    key: WordKey
    values: NDArray[np.float32] | None = None
    extent: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    boxes: Sequence[Mapping[str, Any]] | None = None


def write_instances(
    path: Path,
    predictions: Predictions,
    targets: Mapping[tuple[str, str], Target],
    store: MaskStore,
    prior: LocationPrior | None,
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> int:
    """Score every row that asks a known phrase and write one row each; return how many."""
    scorer = _Scorer(store, prior, workers)
    notes = {"rightlung.note": NOT_A_MEDICAL_DEVICE, **(metadata or {})}
    written = read = 0
    beside = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            PlainAnswers() as plain,
            pq.ParquetWriter(beside, SCHEMA.with_metadata(notes), compression="zstd") as writer,
        ):
            plain.gather(predictions, targets.keys())
            for batch in predictions.batches():
                jobs = list(_jobs(batch, targets, plain, prior))
                for begin in range(0, len(jobs), ROWS_AT_ONCE):
                    chunk = jobs[begin : begin + ROWS_AT_ONCE]
                    scorer.finish(chunk)
                    writer.write_table(_table([job.row for job in chunk]))
                    written += len(chunk)
                read += len(batch)
                if progress is not None:
                    progress(read)
        beside.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: the instances cannot be written ({error.strerror or error})") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return written


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    return pa.Table.from_arrays([pa.array([row[f.name] for row in rows], f.type) for f in SCHEMA], schema=SCHEMA)


def _jobs(
    batch: Batch, targets: Mapping[tuple[str, str], Target], plain: PlainAnswers, prior: LocationPrior | None
) -> Iterator[_Job]:
    asked, boxes, errors, given = (batch.column(name) for name in ("phrase", "boxes", "error", "abstention"))
    similarities = [batch.column(name) for name in ("similarity_global", "similarity_local")]
    abstentions, extents = batch.abstentions.tolist(), batch.extents.tolist()
    for index, key in enumerate(batch.keys):
        target = targets.get((key.study, key.query))
        if target is None:
            continue
        text = asked[index] or target.text
        values = batch.maps[index]
        words = WordKey(target.findings, side_named(text), zones_in(text))
        row = _empty_row(key, target, text, words)
        row["side_told"] = _side_told(target, prior)
        row["abstention"] = abstentions[index]
        row["abstention_given"] = given[index] is not None or (values is None and boxes[index] == [])
        if key.condition != "none" and errors[index] is None:
            row.update(plain.movement((key.study, key.query), values, extents[index], boxes[index]))
        for name, column in zip(("similarity_global", "similarity_local"), similarities, strict=True):
            row[name] = np.nan if column[index] is None else column[index]
        job = _Job(row, target, words)
        if errors[index] is not None:
            row["reason"] = f"no answer: {errors[index]}"
        elif target.place is None:
            row["reason"] = "no target"
        elif values is not None:
            job.values, job.extent = values, tuple(extents[index])
        elif boxes[index] is not None:
            job.boxes = boxes[index]
        else:
            row["reason"] = "neither a map nor boxes"
        yield job


def _side_told(target: Target, prior: LocationPrior | None) -> str:
    """Return what tells the side of a phrase's target, by the source's words, not by those asked."""
    key = WordKey(target.findings, target.side_named, zones_in(target.text))
    return what_tells(key, *(None, None) if prior is None else (prior.sides, prior.held_out(target.patient)))


def _empty_row(key: Any, target: Target, text: str, words: WordKey) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(_NUMBERS, np.nan)
    return row | {
        "study": key.study,
        "query": key.query,
        "condition": key.condition,
        "patient": target.patient,
        "phrase": target.text,
        "asked": text,
        "findings": list(target.findings),
        "polarity": target.polarity,
        "regions": list(target.regions),
        "side_named": target.side_named,
        "side_asked": words.side,
        "zones_named": list(words.zones),
        "target_kind": target.kind,
        "target_side": target.side,
        "target_size": target.size,
        "target_area": target.area,
        "peak_side": None,
        "prior_support": None,
        "scored_pixels": None if target.place is None else target.place.size[0] * target.place.size[1],
        "reason": "",
    }


class _Scorer:
    """Fills in the measures of rows, the model's and the prior's."""

    def __init__(self, store: MaskStore, prior: LocationPrior | None, workers: int | None) -> None:
        self._store, self._prior, self._workers = store, prior, workers
        self._prior_scores: OrderedDict[Any, dict[str, float]] = OrderedDict()

    def finish(self, jobs: Sequence[_Job]) -> None:
        """Score those of the rows that have a map (or boxes) and a target, those of one mask size together."""
        by_size: dict[tuple[int, int], list[_Job]] = {}
        for job in jobs:
            if job.target.place is not None and (job.values is not None or job.boxes is not None):
                by_size.setdefault(job.target.place.size, []).append(job)
        for size, same in by_size.items():
            step = max(1, PIXELS_AT_ONCE // (size[0] * size[1]))
            for begin in range(0, len(same), step):
                self._finish_alike(same[begin : begin + step], size)

    def _finish_alike(self, jobs: Sequence[_Job], size: tuple[int, int]) -> None:
        masks = np.stack([self._store.read(job.target.place) for job in jobs if job.target.place is not None])
        maps = np.stack([pixels_of(job.values, job.extent, job.boxes, size) for job in jobs])
        for job, values in zip(jobs, self._measures(maps, masks, [job.target for job in jobs]), strict=True):
            job.row.update(values)
        self._finish_prior(jobs, masks, size)

    def _finish_prior(self, jobs: Sequence[_Job], masks: NDArray[np.bool_], size: tuple[int, int]) -> None:
        if self._prior is None:
            return
        folds = [self._prior.held_out(job.target.patient) for job in jobs]
        # The same words about the same target score the same, whatever the image: once is enough.
        names = [(job.target.place, job.target.midline, job.key, fold) for job, fold in zip(jobs, folds, strict=True)]
        fresh = {name: index for index, name in enumerate(names) if name not in self._prior_scores}
        if fresh:
            chosen = list(fresh.values())
            grids = [self._prior.values_of(jobs[index].key, folds[index]) for index in chosen]
            maps = np.stack([upsampled(grid, (0.0, 0.0, 1.0, 1.0), size) for grid in grids])
            scored = self._measures(maps, masks[chosen], [jobs[index].target for index in chosen])
            for name, values in zip(fresh, scored, strict=True):
                self._prior_scores[name] = {f"prior_{metric}": values[metric] for metric in (*METRICS, "peak_on_side")}
        for job, name, fold in zip(jobs, names, folds, strict=True):
            job.row.update(self._prior_scores[name])
            job.row["prior_support"] = self._prior.support(job.key, fold)
        while len(self._prior_scores) > KEPT_PRIOR_SCORES:
            self._prior_scores.popitem(last=False)

    def _measures(
        self, maps: NDArray[np.float32], masks: NDArray[np.bool_], targets: Sequence[Target]
    ) -> Iterator[dict[str, Any]]:
        scores = score(maps, masks, workers=self._workers)
        for index, target in enumerate(targets):
            values: dict[str, Any] = {name: float(scores[name][index]) for name in METRICS}
            yield values | peak_of(maps[index], target) | {"reason": str(scores["reason"][index])}


def peak_of(values: NDArray[np.float32], target: Target) -> dict[str, Any]:
    """Say where the peak lies and on whose side; of tied peaks the middle, and the share on the target's side.

    A map that is zero everywhere has no peak; its share on any side is one half, as for any constant map.
    """
    height, width = values.shape
    highest = values.max()
    if highest <= 0:
        known = target.side in ("left", "right")
        return {"peak_x": np.nan, "peak_y": np.nan, "peak_side": None, "peak_on_side": 0.5 if known else np.nan}
    rows, columns = np.divmod(np.flatnonzero(values.ravel() == highest), width)
    left = float(on_the_left(width, target.midline)[columns].mean())
    on_side = {"left": left, "right": 1 - left}.get(target.side or "", np.nan)
    return {
        "peak_x": float((columns.mean() + 0.5) / width),
        "peak_y": float((rows.mean() + 0.5) / height),
        "peak_side": "left" if left > 0.5 else "right" if left < 0.5 else "both",
        "peak_on_side": on_side,
    }

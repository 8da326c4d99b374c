"""The best and the worst cases in pictures: the radiograph, the true outline, the model's answer and the prior's."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rightlung.audit.prior import LocationPrior
from rightlung.core import Box, Extent, Grounding, Heatmap, InputError, Phrase, ScoredBox, Study
from rightlung.pages.overlays import Tile, draw
from rightlung.predictions import Predictions
from rightlung.studies import Source

SIDE = 240
NEARLY_FLAT = 0.97
"""A map is called nearly flat above this share of the highest entropy that its pixels allow, that of a constant map."""

BOXES_LABEL = "the model's boxes"
_EDGES = ("x0", "y0", "x1", "y1")
_COLUMNS = (
    "study", "query", "patient", "phrase", "findings", "side_named", "target_kind", "target_side", "target_size",
    "target_area", "average_precision", "prior_average_precision", "pointing", "auroc", "entropy", "abstention",
    "peak_side", "peak_on_side", "reason", "condition", "scored_pixels",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One answer to look at: its row, and pictures as data URIs with what each shows."""

    row: Mapping[str, Any]
    remarks: tuple[str, ...]
    pictures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Gallery:
    """Best and worst cases."""

    best: tuple[Case, ...] = ()
    worst: tuple[Case, ...] = ()


def choose(path: Path, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows with the highest and the lowest average precision, no study twice and findings in turn."""
    table = pq.read_table(path, columns=list(_COLUMNS), filters=[("condition", "=", "none")])
    values = table.column("average_precision").to_numpy()
    order = np.argsort(values, kind="stable")
    order = order[~np.isnan(values[order])]
    best = _varied(table, order[::-1], count, set())
    return best, _varied(table, order, count, {row["study"] for row in best})


def spread(path: Path, shares: Sequence[float], sided: bool = False) -> list[dict[str, Any]]:
    """Return rows at these shares of the order by average precision, no study or finding twice where that can be.

    With ``sided`` only phrases that name the side of what they are about are chosen from.
    """
    table = pq.read_table(path, columns=list(_COLUMNS), filters=[("condition", "=", "none")])
    if sided:
        sides = zip(table.column("side_named").to_pylist(), table.column("target_side").to_pylist(), strict=True)
        table = table.take([place for place, (named, on) in enumerate(sides) if named == on in ("left", "right")])
    values = table.column("average_precision").to_numpy()
    order = np.argsort(values, kind="stable")
    order = order[~np.isnan(values[order])]
    chosen: list[dict[str, Any]] = []
    for share in shares if len(order) else ():
        near = sorted(range(len(order)), key=lambda place: abs(place - share * (len(order) - 1)))
        rows = [table.slice(int(order[place]), 1).to_pylist()[0] for place in near[:40]]
        studies, findings = {row["study"] for row in chosen}, {tuple(row["findings"]) for row in chosen}
        fresh = [row for row in rows if row["study"] not in studies]
        varied = [row for row in fresh if tuple(row["findings"]) not in findings]
        chosen += (varied or fresh)[:1]
    return chosen


def _varied(table: Any, order: Iterable[int], count: int, taken: set[str]) -> list[dict[str, Any]]:
    """Take rows in order, a finding again only once every other has been looked for among the first few hundred."""
    candidates = [table.slice(int(index), 1).to_pylist()[0] for index in list(order)[: 60 * max(count, 1)]]
    chosen: list[dict[str, Any]] = []
    studies, findings = set(taken), set()
    for again in (False, True):
        for row in candidates:
            name = tuple(row["findings"])
            if len(chosen) < count and row["study"] not in studies and (again or name not in findings):
                chosen.append(row)
                studies.add(row["study"])
                findings.add(name)
    return sorted(chosen, key=lambda row: candidates.index(row))


def make_gallery(
    path: Path, predictions: Predictions, source: Source, prior: LocationPrior | None, count: int = 6
) -> Gallery:
    """Choose cases among the instances and draw them; a case whose image cannot be read stays without pictures."""
    best, worst = choose(path, count)
    answers = answers_of(predictions, [(row["study"], row["query"]) for row in (*best, *worst)])

    def case(row: Mapping[str, Any]) -> Case:
        pictures: tuple[tuple[str, str], ...] = ()
        answer = answers.get((row["study"], row["query"]))
        shown = (None, None) if answer is None else (answer.heatmap, answer.boxes)
        try:
            tiles = case_tiles(row, source, shown[0], prior, shown[1])
            pictures = tuple((label, _data_uri(tile)) for label, tile in tiles)
        except InputError as error:
            return Case(row, (*remarks(row), f"no picture: {error}"))
        return Case(row, remarks(row), pictures)

    return Gallery(tuple(map(case, best)), tuple(map(case, worst)))


def answers_of(
    predictions: Predictions, wanted: Sequence[tuple[str, str]], condition: str = "none"
) -> dict[tuple[str, str], Grounding]:
    """Return the maps or boxes of these (study, query) as they were asked under a condition, or under none."""
    missing, found = set(wanted), {}
    for batch in predictions.batches() if missing else ():
        boxes = batch.column("boxes")
        for index, key in enumerate(batch.keys):
            place = key.study, key.query
            if place not in missing or key.condition != condition:
                continue
            missing.discard(place)
            values = batch.maps[index]
            if values is not None:
                extent, abstention = Extent(*batch.extents[index].tolist()), float(batch.abstentions[index])
                found[place] = Grounding(Heatmap(values, extent, abstention=abstention))
            elif boxes[index] is not None:
                scored = [ScoredBox(Box(*(box[edge] for edge in _EDGES)), box["score"]) for box in boxes[index]]
                found[place] = Grounding(boxes=scored)
        if not missing:
            break
    return found


def maps_of(
    predictions: Predictions, wanted: Sequence[tuple[str, str]], condition: str = "none"
) -> dict[tuple[str, str], Heatmap]:
    """Return the maps of these (study, query) as they were asked under a condition, or under none."""
    answers = answers_of(predictions, wanted, condition)
    return {place: answer.heatmap for place, answer in answers.items() if answer.heatmap is not None}


def case_tiles(
    row: Mapping[str, Any],
    source: Source,
    heatmap: Heatmap | None,
    prior: LocationPrior | None,
    boxes: Sequence[ScoredBox] | None = None,
) -> list[tuple[str, Tile]]:
    """Return what to draw of a case: the image with its true outline, then with the model's map, then the prior's.

    Where the model gave boxes and no map, they are drawn in the map's place.
    """
    study: Study = source.study(row["study"])
    phrase: Phrase = study.phrases[int(row["query"].partition(":")[2])]
    truth = Tile(study.image, targets=phrase.boxes if phrase.mask is None else (), mask=phrase.mask)
    tiles = [("true outline", truth)]
    if heatmap is not None:
        tiles.append(("the model's map", replace(truth, heatmap=heatmap)))
    elif boxes is not None:
        label = BOXES_LABEL if boxes else "the model finds no box"
        tiles.append((label, replace(truth, predicted=[one.box for one in boxes])))
    if prior is not None:
        tiles.append(("the prior's map", replace(truth, heatmap=prior.map_of(phrase, patient=row["patient"]))))
    return tiles


def _data_uri(tile: Tile) -> str:
    buffer = io.BytesIO()
    draw(tile, SIDE).save(buffer, format="JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def remarks(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what went wrong or right in a case, as far as its numbers tell."""
    found = []
    if row["reason"]:
        found.append(row["reason"])
    if row["target_side"] in ("left", "right") and row["peak_on_side"] < 0.5:
        found.append(f"the peak is on the patient's {row['peak_side']}, the finding on the {row['target_side']}")
    elif row["pointing"] == 0:
        near = ", though on the correct side" if row["peak_on_side"] == 1 else ""
        found.append(f"the peak misses the target{near}")
    elif row["pointing"] == 1:
        found.append("the peak is inside the target")
    if row["entropy"] > NEARLY_FLAT * math.log(row["scored_pixels"]):
        found.append("the map is nearly flat")
    if row["abstention"] >= 0.5:
        found.append(f"the model abstains ({row['abstention']:.2f})")
    if row["target_size"] == "small":
        found.append(f"a small target ({100 * row['target_area']:.1f} % of the image)")
    if row["prior_average_precision"] > row["average_precision"]:
        found.append("the prior, which never looks, does better")
    return tuple(found)

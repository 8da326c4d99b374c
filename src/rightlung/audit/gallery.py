"""Choose cases by a score: typical, best and worst ones. Show them with the target, the model's and the prior's map.

The galleries of tasks choose theirs here, too (`rightlung.audit.task_gallery`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Grounding, InputError, Phrase, Polarity
from rightlung.models.blind.prior import LocationPrior
from rightlung.pages.content import Case, Gallery
from rightlung.pages.numbers import number
from rightlung.pages.overlays import Tile, draw
from rightlung.predictions import Prediction, Predictions
from rightlung.studies import Source

SIDE = 240
SCORE, KIND = "average_precision", "findings"
"""Columns by which cases of maps are ordered, and of which they have different values."""
NEARLY_FLAT = 0.97
"""A map is called nearly flat above this share of the entropy of a constant map."""

Row = Mapping[str, Any]


def galleries(
    table: Any, predictions: Predictions, source: Source, prior: LocationPrior | None, count: int = 6
) -> list[Gallery]:
    """Return galleries of a typical case and the best and worst cases.

    The typical case has the median average precision. A case whose image cannot be read has no pictures.
    """
    best, worst = choose(table, count)
    typical = at_shares(table, [0.5]) if count else []
    answers = answers_of(predictions, [(row["study"], row["query"]) for row in (*typical, *best, *worst)])
    colours = "Green: target. Orange: predicted boxes. The patient's right (R) is on the image's left."
    best_title = "Best: average precision, model − prior" if prior is not None else "Best: average precision"
    found = [
        ("typical", "Typical case", "A typical case (median average precision). Green: target.", typical),
        ("best", best_title, colours, best),
        ("worst", "Worst: average precision", colours, worst),
    ]
    return [
        Gallery(name, title, caption, [_case(row, answers, source, prior, name == "typical") for row in rows])
        for name, title, caption, rows in found
        if rows
    ]


def _case(
    row: Row, answers: Mapping[tuple[str, str], Prediction], source: Source, prior: LocationPrior | None, alone: bool
) -> Case:
    """Return a case with its pictures, or with the model's map alone."""
    scores = (
        f"average precision {number(row['average_precision'])} (prior {number(row.get('prior_average_precision'))})"
    )
    notes = ["; ".join([scores, *remarks(row)]) + f". Study {row['study']}, {row['query']}"]
    answer = answers.get((row["study"], row["query"]))
    grounding = None if answer is None else answer.grounding
    tiles = partial(case_tiles, row, source, grounding, None if alone else prior)
    case = pictured(row["phrase"], notes, tiles, 2 * SIDE if alone else SIDE)
    return replace(case, pictures=case.pictures[-1:]) if alone else case


def pictured(title: str, notes: Sequence[str], tiles: Callable[[], list[tuple[str, Tile]]], side: int = SIDE) -> Case:
    """Return a case with its tiles as pictures, or with a note that says why there are none."""
    try:
        return Case(title, [(label, partial(draw, tile, side)) for label, tile in tiles()], notes)
    except InputError as error:
        return Case(title, [], [*notes, f"no picture: {error}"])


def choose(table: Any, count: int, score: str = SCORE, kind: str = KIND) -> tuple[list[Row], list[Row]]:
    """Return the best and worst rows, with distinct studies and varied values of the column ``kind``.

    The best have the largest ``score`` above the prior's (where there is a prior), the worst the lowest.
    """
    ordered, most = _ordered(table, score), 60 * max(count, 1)
    gain = table.column(score).to_numpy()[ordered]
    if f"prior_{score}" in table.column_names:
        gain = gain - table.column(f"prior_{score}").to_numpy()[ordered]
    best = _varied(table.take(ordered[np.argsort(-gain, kind="stable")[:most]]).to_pylist(), count, kind, set())
    return best, _varied(table.take(ordered[:most]).to_pylist(), count, kind, {row["study"] for row in best})


def at_shares(
    table: Any, shares: Sequence[float], sided: bool = False, score: str = SCORE, kind: str = KIND
) -> list[Row]:
    """Return the rows at these quantiles of ``score``, with distinct studies and values of ``kind`` where possible.

    With ``sided``, only phrases that name the side of their target are candidates.
    """
    ordered = _ordered(table, score)
    if sided:
        pairs = [*zip(table.column("side_named").to_pylist(), table.column("target_side").to_pylist(), strict=True)]
        ordered = np.array([at for at in ordered if pairs[at][0] == pairs[at][1] in ("left", "right")], dtype=np.intp)
    chosen: list[Row] = []
    for share in shares:
        nearest = np.argsort(np.abs(np.arange(len(ordered)) - share * (len(ordered) - 1)), kind="stable")[:40]
        studies, kinds = {row["study"] for row in chosen}, {tuple(row[kind]) for row in chosen}
        fresh = [row for row in table.take(ordered[nearest]).to_pylist() if row["study"] not in studies]
        varied = [row for row in fresh if tuple(row[kind]) not in kinds]
        chosen += (varied or fresh)[:1]
    return chosen


def _ordered(table: Any, score: str) -> NDArray[np.intp]:
    """Return the numbers of the rows of the condition ``none`` that have a score, lowest first."""
    import pyarrow.compute as pc

    plain = np.flatnonzero(pc.equal(table.column("condition"), "none").to_numpy())
    values = table.column(score).to_numpy()[plain]
    order = np.argsort(values, kind="stable")
    return np.asarray(plain[order[~np.isnan(values[order])]])


def _varied(candidates: Sequence[Row], count: int, kind: str, taken: set[str]) -> list[Row]:
    """Take rows in order, repeating a value of ``kind`` only when no other is left."""
    chosen: list[Row] = []
    studies, kinds = set(taken), set()
    for again in (False, True):
        for row in candidates:
            name = tuple(row[kind])
            if len(chosen) < count and row["study"] not in studies and (again or name not in kinds):
                chosen.append(row)
                studies.add(row["study"])
                kinds.add(name)
    return sorted(chosen, key=candidates.index)


def answers_of(
    predictions: Predictions, wanted: Sequence[tuple[str, str]], condition: str = "none"
) -> dict[tuple[str, str], Prediction]:
    """Return the answers to these (study, query) pairs under a condition; failed ones are left out."""
    places, found = {(*one, condition) for one in wanted}, {}
    for batch in predictions.batches() if places else ():
        for one in batch.chosen([index for index, key in enumerate(batch.keys) if key in places]).predictions():
            if one.error is None:
                found[one.study, one.query] = one
    return found


def case_tiles(
    row: Row, source: Source, answer: Grounding | None, prior: LocationPrior | None
) -> list[tuple[str, Tile]]:
    """Return the tiles of a case: the image with its target, with the model's map (or boxes), with the prior's map."""
    study = source.study(row["study"])
    phrase = study.phrases[int(row["query"].partition(":")[2])]
    truth = Tile(study.image, targets=phrase.boxes if phrase.mask is None else (), mask=phrase.mask)
    tiles = [("target", truth)]
    if answer is not None and answer.heatmap is not None:
        tiles.append(("model's map", replace(truth, heatmap=answer.heatmap)))
    elif answer is not None:
        label = "model's boxes" if answer.boxes else "model predicts no box"
        tiles.append((label, replace(truth, predicted=[one.box for one in answer.boxes])))
    if prior is not None:
        words = Phrase(phrase.text, findings=dict.fromkeys(row["findings"], Polarity.POSITIVE))
        tiles.append(("prior's map", replace(truth, heatmap=prior.ground_blind([words], [row["patient"]])[0].heatmap)))
    return tiles


def remarks(row: Row) -> list[str]:
    """Return what the numbers of a case show, one remark each."""
    found = []
    if row["reason"]:
        found.append(row["reason"])
    if row["target_side"] in ("left", "right") and row["peak_on_side"] < 0.5:
        found.append(f"wrong side: peak on the patient's {row['peak_side']}, target on the {row['target_side']}")
    elif row["pointing"] == 0:
        near = " but is on the correct side" if row["peak_on_side"] == 1 else ""
        found.append(f"peak misses the target{near}")
    elif row["pointing"] == 1:
        found.append("peak inside the target")
    if row["entropy"] > NEARLY_FLAT * math.log(row["scored_pixels"]):
        found.append("map nearly flat")
    if row["abstention"] >= 0.5:
        found.append(f"model abstains ({row['abstention']:.2f})")
    if row["target_size"] == "small":
        found.append(f"small target ({100 * row['target_area']:.2g} % of the image)")
    if row.get("prior_average_precision", -1.0) > row["average_precision"]:
        found.append("the image-blind prior scores higher")
    return found

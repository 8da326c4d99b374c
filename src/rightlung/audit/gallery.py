"""The best and the worst cases in pictures: the radiograph, the true outline, the model's answer and the prior's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rightlung.core import Grounding, InputError, Phrase, Polarity
from rightlung.models.blind.prior import LocationPrior
from rightlung.pages.content import Case, Gallery
from rightlung.pages.numbers import number
from rightlung.pages.overlays import Tile, draw
from rightlung.predictions import Predictions
from rightlung.studies import Source

SIDE = 240
NEARLY_FLAT = 0.97
"""A map is called nearly flat above this share of the highest entropy that its pixels allow, that of a constant map."""

Row = Mapping[str, Any]


def galleries(
    table: Any, predictions: Predictions, source: Source, prior: LocationPrior | None, count: int = 6
) -> list[Gallery]:
    """Choose the best and the worst cases of an instances table; a case whose image cannot be read has no pictures."""
    best, worst = choose(table, count)
    answers = answers_of(predictions, [(row["study"], row["query"]) for row in (*best, *worst)])
    caption = "Green: the true outline. Orange: boxes. The patient's right (R) is on the image's left."
    return [
        Gallery(
            name,
            f"{name.title()} by average precision",
            caption,
            [_case(row, answers.get((row["study"], row["query"])), source, prior) for row in rows],
        )
        for name, rows in (("best", best), ("worst", worst))
        if rows
    ]


def _case(row: Row, answer: Grounding | None, source: Source, prior: LocationPrior | None) -> Case:
    scores = (
        f"average precision {number(row['average_precision'])} (prior {number(row.get('prior_average_precision'))}), "
        f"AUROC {number(row['auroc'])}, pointing {number(row['pointing'])}"
    )
    notes = [scores, *remarks(row), f"study {row['study']}, {row['query']}"]
    pictures: list[tuple[str, Callable[[], Any]]] = []
    try:
        for label, tile in case_tiles(row, source, answer, prior):
            pictures.append((label, partial(draw, tile, SIDE)))
    except InputError as error:
        notes.append(f"no picture: {error}")
    return Case(row["phrase"], pictures, notes)


def choose(table: Any, count: int) -> tuple[list[Row], list[Row]]:
    """Return the rows with the highest and the lowest average precision, no study twice and findings in turn."""
    plain, order = _ordered(table)
    best = _varied(plain, order[::-1], count, set())
    return best, _varied(plain, order, count, {row["study"] for row in best})


def at_shares(table: Any, shares: Sequence[float], sided: bool = False) -> list[Row]:
    """Return rows at these shares of the order by average precision, no study or finding twice where that can be.

    With ``sided`` only phrases that name the side of what they are about are chosen from.
    """
    if sided:
        pairs = zip(table.column("side_named").to_pylist(), table.column("target_side").to_pylist(), strict=True)
        table = table.take([place for place, (named, on) in enumerate(pairs) if named == on in ("left", "right")])
    plain, order = _ordered(table)
    chosen: list[Row] = []
    for share in shares if len(order) else ():
        near = sorted(range(len(order)), key=lambda place: abs(place - share * (len(order) - 1)))
        rows = [plain.slice(int(order[place]), 1).to_pylist()[0] for place in near[:40]]
        studies, findings = {row["study"] for row in chosen}, {tuple(row["findings"]) for row in chosen}
        fresh = [row for row in rows if row["study"] not in studies]
        varied = [row for row in fresh if tuple(row["findings"]) not in findings]
        chosen += (varied or fresh)[:1]
    return chosen


def _ordered(table: Any) -> tuple[Any, Any]:
    """Return the rows of the question as it stands, and their order by average precision."""
    import pyarrow.compute as pc

    plain = table.filter(pc.equal(table.column("condition"), "none"))
    values = plain.column("average_precision").to_numpy()
    order = np.argsort(values, kind="stable")
    return plain, order[~np.isnan(values[order])]


def _varied(table: Any, order: Iterable[int], count: int, taken: set[str]) -> list[Row]:
    """Take rows in order, a finding again only once every other has been looked for among the first few hundred."""
    candidates = [table.slice(int(index), 1).to_pylist()[0] for index in list(order)[: 60 * max(count, 1)]]
    chosen: list[Row] = []
    studies, findings = set(taken), set()
    for again in (False, True):
        for row in candidates:
            name = tuple(row["findings"])
            if len(chosen) < count and row["study"] not in studies and (again or name not in findings):
                chosen.append(row)
                studies.add(row["study"])
                findings.add(name)
    return sorted(chosen, key=lambda row: candidates.index(row))


def answers_of(
    predictions: Predictions, wanted: Sequence[tuple[str, str]], condition: str = "none"
) -> dict[tuple[str, str], Grounding]:
    """Return the groundings of these (study, query) as they were asked under a condition."""
    places, found = {(*one, condition) for one in wanted}, {}
    for batch in predictions.batches() if places else ():
        for one in batch.chosen([index for index, key in enumerate(batch.keys) if key in places]).predictions():
            if one.grounding is not None:
                found[one.study, one.query] = one.grounding
    return found


def case_tiles(
    row: Row, source: Source, answer: Grounding | None, prior: LocationPrior | None
) -> list[tuple[str, Tile]]:
    """Return what to draw of a case: the image with its true outline, then with the model's map, then the prior's.

    Where the model gave boxes and no map, they are drawn in the map's place.
    """
    study = source.study(row["study"])
    phrase = study.phrases[int(row["query"].partition(":")[2])]
    truth = Tile(study.image, targets=phrase.boxes if phrase.mask is None else (), mask=phrase.mask)
    tiles = [("true outline", truth)]
    if answer is not None and answer.heatmap is not None:
        tiles.append(("the model's map", replace(truth, heatmap=answer.heatmap)))
    elif answer is not None:
        label = "the model's boxes" if answer.boxes else "the model finds no box"
        tiles.append((label, replace(truth, predicted=[one.box for one in answer.boxes])))
    if prior is not None:
        words = Phrase(phrase.text, findings=dict.fromkeys(row["findings"], Polarity.POSITIVE))
        tiles.append(
            ("the prior's map", replace(truth, heatmap=prior.ground_blind([words], [row["patient"]])[0].heatmap))
        )
    return tiles


def remarks(row: Row) -> list[str]:
    """Say what went wrong or right in a case, as far as its numbers show."""
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
        found.append(f"a small target ({100 * row['target_area']:.2g} % of the image)")
    if row.get("prior_average_precision", -1.0) > row["average_precision"]:
        found.append("the prior, which never looks, does better")
    return found

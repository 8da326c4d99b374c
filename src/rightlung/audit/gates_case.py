"""One case of the gates: the model's map for the same words on its image, on its twins, and with something covered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rightlung.audit.gallery import answers_of, pictured
from rightlung.audit.gates_page import GATE_TITLES
from rightlung.core import InputError
from rightlung.pages.content import Gallery
from rightlung.pages.numbers import number
from rightlung.pages.overlays import Tile
from rightlung.predictions import Predictions
from rightlung.probes import Setting, find_probe
from rightlung.results.gates import ELSEWHERE
from rightlung.studies import Source

_SHOWN = ("none", "twin-removed", "twin-moved", "occlude-target", ELSEWHERE)
"""The conditions to show, at most `_MOST`."""
_MOST, _SIDE = 4, 300


def gate_case(table: Any, predictions: Predictions, source: Source, seed: int) -> list[Gallery]:
    """Return one case with the model's map on its image, on its twins, and with something covered.

    It has the median share of mass in the target among those that were asked under most of these conditions; small
    targets, which a reader would hardly see, come last.
    """
    asked: dict[tuple[str, str], dict[str, int]] = {}
    columns = table.select(["study", "query", "condition", "mass_inside", "target_size"]).to_pylist()
    for place, row in enumerate(columns):
        if row["condition"] in _SHOWN and not np.isnan(row["mass_inside"]):
            asked.setdefault((row["study"], row["query"]), {})[row["condition"]] = place
    most = max(map(len, asked.values()), default=0)
    if most < 2:
        return []
    rows = [columns[places["none"]] for places in asked.values() if len(places) == most and "none" in places]
    rows = [row for row in rows if row["target_size"] != "small"] or rows
    rows.sort(key=lambda row: (row["mass_inside"], row["study"]))
    row = rows[len(rows) // 2]
    key = row["study"], row["query"]
    names = [name for name in _SHOWN if name in asked[key]]
    if len(names) > _MOST:
        names.remove("occlude-target")
    tiles = partial(_case_tiles, key, names, predictions, source, seed)
    inside = {name: columns[place]["mass_inside"] for name, place in asked[key].items()}
    shares = [f"{GATE_TITLES[name]} {number(inside[name])}" for name in names]
    phrase = table.take([asked[key]["none"]])["phrase"][0].as_py()
    note = f"Share of the map in the target: {'; '.join(shares)}. Study {key[0]}, {key[1]}"
    case = pictured(phrase, [note], tiles, _SIDE)
    caption = "The map for the same words on changed images. Green: the target in the original image."
    return [Gallery("gates-case", "The same question, another image", caption, [case])]


def _case_tiles(
    key: tuple[str, str], names: Sequence[str], predictions: Predictions, source: Source, seed: int
) -> list[tuple[str, Tile]]:
    study = source.study(key[0])
    phrase = study.phrases[int(key[1].partition(":")[2])]
    truth = Tile(study.image, targets=phrase.boxes if phrase.mask is None else (), mask=phrase.mask)
    tiles = []
    for name in names:
        probed, answer = (
            find_probe(name).ask(study, phrase, Setting(seed)),
            answers_of(predictions, [key], name).get(key),
        )
        if probed is None or answer is None or answer.grounding is None:
            raise InputError(f"the condition {name} was not asked about {key[0]}, {key[1]}")
        image = study.image if probed.alter is None else probed.alter(study.image)
        tiles.append((GATE_TITLES[name], replace(truth, image=image, heatmap=answer.grounding.heatmap)))
    return tiles

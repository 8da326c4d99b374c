"""``rightlung demo``: the whole way from studies to numbers, on four grounders whose answer is known.

Each grounder is a few lines of arithmetic, no model: one looks at the image and reads the words, one only looks, one
only reads, one does neither. They ground every phrase twice, as it stands and with its sides swapped. The table shows
why a heatmap that looks right is not enough: the painter that never looks at the image scores well on AUROC, and only
swapping the sides tells the one that does not read from the one that does.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli import demo_cards
from rightlung.cli.output import print_json, say, say_table
from rightlung.core import Grounding, Heatmap, Image, Phrase, Query, Study
from rightlung.drawing import Tile, save_sheet
from rightlung.lexicon import side_of, swap_sides
from rightlung.predictions import Prediction, PredictionWriter, open_predictions, phrase_query
from rightlung.scoring.localisation import score
from rightlung.scoring.statistics import bootstrap, paired_difference
from rightlung.studies import Source, open_source

GRID = (40, 40)
METRICS = ("auroc", "pointing", "iou@5")
Conditions = dict[str, Callable[[str], str]]
CONDITIONS: Conditions = {"none": lambda text: text, "swap-sides": swap_sides}


def brightness(image: Image) -> NDArray[np.float64]:
    """Return how much brighter than its darkest tenth each lung pixel is: what the grounders that look can see."""
    lungs = demo_cards.lung("left") | demo_cards.lung("right")
    baseline = float(np.quantile(image[lungs], 0.1))
    return np.where(lungs, np.clip(image.astype(np.float64) - baseline, 0.0, None), 0.0)


def named_lung(text: str) -> NDArray[np.float64]:
    """Return the lung that the words name, both if they name none: what the grounders that read know."""
    side = side_of(text)
    fields = [demo_cards.lung(name) for name in demo_cards.LUNGS if side in (name, "both", None)]
    named: NDArray[np.float64] = np.any(fields, axis=0).astype(np.float64)
    return named


GROUNDERS: dict[str, Callable[[Image, str], NDArray[np.float64]]] = {
    "looks and reads": lambda image, text: brightness(image) * named_lung(text),
    "looks only": lambda image, text: brightness(image),
    "reads only": lambda image, text: named_lung(text),
    "neither": lambda image, text: np.ones_like(image, dtype=np.float64),
}


def run(out: Path, count: int, seed: int, json: bool) -> None:
    """Draw cards, ground their phrases, write predictions, score them, print the table and draw a sheet."""
    say(f"drawing {count} test cards (not radiographs) into {out / 'cards'}")
    demo_cards.write_cards(out / "cards", count, seed)
    # The whole path, so that the predictions of one folder belong to one source however it is called; and a question
    # mark at its end, so that one in the path does not begin the parameters.
    source = open_source(f"manifest:{(out / 'cards').resolve()}?")
    results = {}
    for name in GROUNDERS:
        folder = out / "predictions" / f"seed-{seed}-count-{count}" / name.replace(" ", "-")
        predict(name, source, folder)
        results[name] = summarise(source, folder)
    sheet = save_sheet(tiles(source), out / "demo.png", columns=1 + len(GROUNDERS), side=200)
    if json:
        print_json(
            {"cards": count, "seed": seed, "grounders": results, "picture": str(sheet), "note": NOT_A_MEDICAL_DEVICE}
        )
        return
    say_results(results)
    program = "rightlung" if shutil.which("rightlung") else sys.argv[0]
    say(f"\npicture: {sheet}\n\nwhat to try next:")
    say("  " + shlex.join([program, "predictions", str(folder)]))
    say("  " + shlex.join([program, "data", "show", f"manifest:{out / 'cards'}", "--sheet", str(out / "cards.png")]))
    say(f"\n{NOT_A_MEDICAL_DEVICE}")


def predict(name: str, source: Source, folder: Path) -> None:
    """Ground every phrase of every study under every condition; go on where an earlier call was stopped."""
    with PredictionWriter(folder, source=source.address, model=f"demo: {name}") as writer:
        for study in source:
            for index, phrase in enumerate(study.phrases):
                for condition, change in CONDITIONS.items():
                    asked = change(phrase.text)
                    if (study.id, phrase_query(index), condition) not in writer.done:
                        heatmap = Heatmap.from_pixels(GROUNDERS[name](study.image, asked), GRID)
                        writer.write(
                            Prediction(study.id, phrase_query(index), condition, Query(asked), Grounding(heatmap))
                        )


def summarise(source: Source, folder: Path) -> dict[str, Any]:
    """Score a predictions file against the exact masks of its source, with intervals clustered by patient."""
    rows: dict[str, dict[tuple[str, str], int]] = {condition: {} for condition in CONDITIONS}
    patients: dict[tuple[str, str], str | None] = {}
    maps: list[NDArray[np.float32]] = []
    masks: list[NDArray[np.bool_]] = []
    for prediction in open_predictions(folder):
        if prediction.phrase_index is None or prediction.grounding is None or prediction.grounding.heatmap is None:
            continue
        study = source.study(prediction.study)
        mask = study.phrases[prediction.phrase_index].mask
        if mask is not None:
            key = prediction.study, prediction.query
            rows[prediction.condition][key], patients[key] = len(maps), study.patient
            maps.append(prediction.grounding.heatmap.to_size(mask.size))
            masks.append(mask.pixels)
    scores = score(np.stack(maps), np.stack(masks), metrics=METRICS)
    both = [key for key in rows["none"] if key in rows["swap-sides"]]
    asked, swapped = ([rows[condition][key] for key in both] for condition in ("none", "swap-sides"))
    clusters = [patients[key] for key in both]
    summary: dict[str, Any] = {"phrases": len(both), "patients": len(set(clusters))}
    for name in METRICS:
        interval = bootstrap(scores[name][asked], clusters=clusters)
        summary[name] = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    change = paired_difference(scores["auroc"][swapped], scores["auroc"][asked], clusters=clusters)
    summary["auroc_change_when_sides_are_swapped"] = {
        "estimate": change.estimate, "low": change.low, "high": change.high, "shown": change.shown,
    }  # fmt: skip
    return summary


def say_results(results: dict[str, dict[str, Any]]) -> None:
    """Print the table: estimates with 95 % intervals, patients resampled."""

    def cell(value: dict[str, Any]) -> str:
        return f"{value['estimate']:.2f} ({value['low']:.2f} to {value['high']:.2f})"

    rows = []
    for name, result in results.items():
        change = result["auroc_change_when_sides_are_swapped"]
        verdict = cell(change) if change["shown"] else "no difference shown"
        rows.append([name, *(cell(result[metric]) for metric in METRICS), verdict])
    first = next(iter(results.values()))
    say(f"\n{first['phrases']} phrases of {first['patients']} made-up patients; 95 % intervals, patients resampled\n")
    say_table(["grounder", "AUROC", "pointing", "IoU@5 %", "change of AUROC, sides swapped"], rows)


def tiles(source: Source, cards: int = 3) -> Iterator[Tile]:
    """Yield a row of pictures for each of the first cards with a spot on both sides: the card, then every grounder."""
    both = [study for study in source if len(study.phrases) > 1] or [source[0]]
    for study in both[:cards]:
        phrase: Phrase = study.phrases[0]
        yield Tile(study.image, f"{study.id}: {phrase.text}", mask=phrase.mask)
        for name in GROUNDERS:
            yield Tile(study.image, name, _ground(name, study, phrase.text), mask=phrase.mask)


def _ground(name: str, study: Study, text: str) -> Heatmap:
    return Heatmap.from_pixels(GROUNDERS[name](study.image, text), GRID)

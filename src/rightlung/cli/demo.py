"""``rightlung demo``: the whole pipeline on synthetic patients and the shipped model.

The model is asked where it sees every sentence of the reports: unchanged, with left and right swapped, and on another
patient's image. Its heatmaps are scored against the exact masks and compared with an image-blind prior.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import rightlung
from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import Audit, audit
from rightlung.audit.gallery import answers_of, at_shares, case_tiles
from rightlung.cli.audit import say_audit
from rightlung.cli.output import finish, say, say_problems
from rightlung.cli.predict import ask_model
from rightlung.core import Grounding, InputError
from rightlung.core.progress import ProgressBars
from rightlung.lexicon import swap_sides
from rightlung.pages.overlays import Tile, save_sheet
from rightlung.predictions import Predictions, open_predictions
from rightlung.studies import Source, open_source
from rightlung.studies.sources import InMemorySource

SHOWN = (0.95, 0.75, 0.5, 0.1)
"""Quantiles of average precision whose cases are drawn, of phrases that name a side if there are any."""


def run(out: Path, model_name: str, count: int, seed: int, json: bool) -> None:
    """Generate studies, ask the model, audit its answers; print the table, write the page and a picture."""
    begun = time.monotonic()
    try:
        model = rightlung.load(model_name)
    except InputError as error:
        if model_name != "starter":
            raise
        raise InputError(f"the shipped model 'starter' cannot be loaded: {error}") from None
    say(f"Asking {model_name} where it sees every sentence of the reports of {count:,} synthetic studies.")
    with ProgressBars(say) as tell:
        source = InMemorySource(open_source(f"phantom?count={count}&seed={seed}"), tell)
        plain_name = re.sub(r"[\W_]", "-", model_name)[-40:].strip("-") or "model"
        folder = out / "predictions" / f"{plain_name}-seed-{seed}-count-{count}"
        summary = ask_model(model, source, folder, (), tell, queries=["phrases"], model_name=model_name)
        predictions = open_predictions(folder)
        steps = _next_steps(out, folder, source)
        done = audit(predictions, source, out, next_steps=steps, progress=tell)
        picture = _picture(done, predictions, source, out / "demo.png")
    problems = [*map(str, summary.failed), *summary.problems, *done.problems]

    def tell_people() -> None:
        say_audit(done)
        say_problems(problems, "questions or studies were left out")
        say(f"\nResults on synthetic patients say nothing about real ones. {time.monotonic() - begun:.0f} seconds.")
        say(f"page:    {done.page}\npicture: {picture}\n\nnext:")
        for step in steps:
            say(f"  {step}")
        say(f"\n{NOT_A_MEDICAL_DEVICE}")

    result = {**done.result, "problems": problems, "page": str(done.page), "picture": str(picture)}
    finish(json, result, tell_people, problems)


def _next_steps(out: Path, predictions: Path, source: Source) -> tuple[str, ...]:
    program = "rightlung" if shutil.which("rightlung") else sys.argv[0]
    return (
        f"{shlex.quote(program)} ground IMAGE 'opacity in the left lower lobe'   # your own image",
        shlex.join([program, "audit", str(predictions), "--out", str(out / "again")]),
        shlex.join([program, "data", "show", source.address, "--sheet", str(out / "studies.png")]),
        shlex.join([program, "audit", "MODEL", "manifest:/data/mine", "--out", str(out / "mine")]),
    )


def _picture(done: Audit, predictions: Predictions, source: Source, path: Path) -> Path:
    """Draw a row for each case: the true outline, the model's map, the map with sides swapped, and the prior's map."""
    rows = at_shares(done.table, SHOWN, sided=True) or at_shares(done.table, SHOWN)
    places = [(row["study"], row["query"]) for row in rows]
    answers, swapped = (
        {place: one.grounding for place, one in answers_of(predictions, places, condition).items()}
        for condition in ("none", "swap-sides")
    )
    tiles: list[Tile] = []
    for row, place in zip(rows, places, strict=True):
        of_case = dict(case_tiles(row, source, answers.get(place), done.prior))
        truth = of_case["target"]
        other = swap_sides(row["side_named"])
        captions = {
            "target": ("phrase and target", row["phrase"]),
            "model's map": ("model", f"AP {row['average_precision']:.2f}, {_abstains(answers.get(place))}"),
            "swapped": ("model, sides swapped", f"asked for “{other}”: {_abstains(swapped.get(place))}"),
            "prior's map": ("image-blind prior", f"AP {row['prior_average_precision']:.2f}"),
        }
        if swapped:
            changed = swapped.get(place)
            of_case["swapped"] = replace(truth, heatmap=None if changed is None else changed.heatmap)
        tiles += [
            replace(of_case[label], title=title, caption=caption)
            for label, (title, caption) in captions.items()
            if label in of_case
        ]
    return save_sheet(tiles, path, columns=4 if swapped else 3, side=224)


def _abstains(answer: Grounding | None) -> str:
    return "no map" if answer is None else f"abstains {answer.abstention:.2f}"

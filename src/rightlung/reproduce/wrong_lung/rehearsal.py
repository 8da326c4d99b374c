"""``--quick``: beside tiny models, grounders whose answers are known, and whether the figures say what they must.

A figure that moves the wrong way here is a fault of the machinery, so it ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.core import InputError
from rightlung.reproduce.wrong_lung.instances import Instances
from rightlung.reproduce.wrong_lung.known import ImageBlind, Mirrored, Oracle, TextBlind
from rightlung.reproduce.wrong_lung.measuring import is_measured, measure
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Results, read_results

_BY_NAME = {perturbation.name: perturbation for perturbation in PERTURBATIONS}
_WORDS = ("swap-sides", "random-sentence", "synthetic-swapped")


def measure_known(instances: Instances, out: Path, device: str) -> None:
    """Measure the grounders whose answers are known, as rows of the tables."""
    oracle = Oracle(instances)
    rows: dict[str, tuple[str, Any]] = {
        "oracle": ("Oracle: the truth of whatever the words say", oracle),
        "blind-to-text": ("Blind to the text", TextBlind()),
        "blind-to-image": ("Blind to the image", ImageBlind()),
        "mirrored": ("Oracle, the wrong way round", Mirrored(oracle)),
    }
    for order, (slug, (name, model)) in enumerate(rows.items()):
        folder = out / "measures" / slug
        if is_measured(folder, instances):
            continue
        about = {
            "slug": slug, "variant": slug, "name": name, "group": "reference", "comparable": True, "seed": None,
            "order": 900 + order, "note": "its answers are known beforehand", "training": None,
        }  # fmt: skip
        measure(model, instances, folder, about=about, device=device)


def check_known(out: Path) -> list[str]:
    """Return what was found of the known grounders, a sentence each; refuse figures that cannot be."""
    told = list(_checked(read_results(out)))
    if wrong := [sentence for right, sentence in told if not right]:
        raise InputError(f"{out}: the machinery is broken: {'; '.join(wrong)}")
    return [sentence for _, sentence in told]


def _checked(results: Results) -> Iterator[tuple[bool, str]]:
    perfect = results.score("oracle", "auroc", "exact")
    worst = float(np.nanmin(perfect))
    yield worst > 1 - 1e-5, f"the oracle's lowest AUROC on exact masks is {worst:.5f}"
    for name, perturbation in _BY_NAME.items():
        change = results.change("oracle", perturbation, "auroc", "exact")
        mean, most = float(np.nanmean(change)), float(np.nanmax(change))
        yield mean < -0.01 and most < 1e-5, f"the oracle changes by {mean:+.3f} under {name}"
    for name in _WORDS:
        most = float(np.nanmax(np.abs(results.change("blind-to-text", _BY_NAME[name], "auroc"))))
        yield most == 0, f"one blind to the text changes by at most {most:g} under {name}"
    most = float(np.nanmax(np.abs(results.change("blind-to-image", _BY_NAME["exchange-image"], "auroc"))))
    yield most == 0, f"one blind to the image changes by at most {most:g} when images are exchanged"
    gains = results.within(results.change("mirrored", _BY_NAME["swap-sides"], "auroc", "exact"), "one-lung")
    mean = float(np.nanmean(gains))
    yield mean > 0.1, f"one that is the wrong way round gains {mean:+.3f} when sides are swapped, on One Lung"

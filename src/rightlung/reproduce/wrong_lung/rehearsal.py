"""``--quick``: beside tiny models, grounders whose answers are known, and whether the figures say what they must.

A figure that moves the wrong way on made-up studies is a fault of the machinery, so it ends the run. Studies of one's
own may bear it (a sentence that stands twice in a report has two targets), so there it is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.core import InputError
from rightlung.reproduce.wrong_lung.instances import Instances
from rightlung.reproduce.wrong_lung.known import ImageBlind, Mirrored, Oracle, TextBlind
from rightlung.reproduce.wrong_lung.measuring import is_measured, measure
from rightlung.reproduce.wrong_lung.reading import read_results
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Floats, Results

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


def check_known(out: Path, ours: bool = True) -> list[str]:
    """Return what was found of the known grounders, a sentence each, and what could not be checked.

    Figures that cannot be are refused on studies that are ``ours``, and told on others.
    """
    told = list(_checked(read_results(out)))
    if ours and (wrong := [sentence for right, sentence in told if right is False]):
        raise InputError(f"{out}: the machinery is broken: {'; '.join(wrong)}")
    return [sentence if right is not False else f"{sentence}, which is unexpected" for right, sentence in told]


def _checked(results: Results) -> Iterator[tuple[bool | None, str]]:
    """Yield whether each figure is as it must be, None where no instance has one, and the figure in words."""
    for words, values, figure, right in _checks(results):
        there = values[~np.isnan(values)]
        if len(there):
            yield bool(right(there)), words.format(figure(there))
        else:
            yield None, f"not checked, as no instance allows it: {re.sub('{.*?}', '?', words)}"


Check = tuple[str, Floats, Callable[[Floats], float], Callable[[Floats], bool]]
"""Words with a place for the figure, the values, the figure of these, and whether they are as they must be."""


def _checks(results: Results) -> Iterator[Check]:
    def most(values: Floats) -> float:
        return float(np.abs(values).max())

    perfect = results.score("oracle", "auroc", "exact")
    yield "the oracle's lowest AUROC on exact masks is {:.5f}", perfect, np.min, lambda of: of.min() > 1 - 1e-5
    for name, perturbation in _BY_NAME.items():
        change = results.change("oracle", perturbation, "auroc", "exact")
        words = f"the oracle changes by {{:+.3f}} under {name}"
        yield words, change, np.mean, lambda of: of.mean() < -0.01 and of.max() < 1e-5
    for blind, names in (("text", _WORDS), ("image", ("exchange-image",))):
        for name in names:
            change = results.change(f"blind-to-{blind}", _BY_NAME[name], "auroc")
            words = f"one blind to the {blind} changes by at most {{:g}} under {name}"
            yield words, change, most, lambda of: most(of) == 0
    swapped = results.change("mirrored", _BY_NAME["swap-sides"], "auroc", "exact")
    words = "one that is the wrong way round gains {:+.3f} when sides are swapped, on One Lung"
    yield words, results.within(swapped, "one-lung"), np.mean, lambda of: of.mean() > 0.1

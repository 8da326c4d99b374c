"""The paper's image figures: 2 and 10 (perturbations of one instance), 7 (maps), 9 (measures), 12 (No Attn)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rightlung.core import Grounding, Mask
from rightlung.pages.content import Case, Gallery
from rightlung.pages.overlays import Tile, draw
from rightlung.predictions import Key
from rightlung.reproduce.examples import Examples

SHARES = (5, 10, 30)
_SIDE = 240
_HIT, _MISS = (80, 220, 120), (230, 80, 80)
_ASKED = {
    "swap-sides": "Swap Left Right",
    "random-sentence": "Random Sentence",
    "synthetic": "Synthetic",
    "synthetic-swapped": "Synthetic w/ Swapped Conditions",
}
_MOVED = {
    "regions": "region boxes",
    "regions-shuffled": "Shuffle in Report",
    "regions-random": "Random BBoxes",
    "exact": "exact mask (ours)",
}


def galleries(examples: Examples) -> Iterator[Gallery]:
    """Yield the counterparts of Figures 2 and 10, 7, 9 and 12."""
    yield _perturbed(examples)
    yield examples.gallery("figure-7", "Figure 7: example maps")
    yield _measures(examples)
    yield from _saturated(examples)


def _perturbed(examples: Examples) -> Gallery:
    cases = []
    for phrase in examples.phrases:
        tile = Tile(examples.prepared.source.study(phrase.study).image)
        pictures = [
            (title, partial(draw, replace(tile, mask=mask), _SIDE))
            for rule, title in _MOVED.items()
            if (mask := examples.mask(phrase, rule)) is not None
        ]
        notes = [f"{title}: {text}" for name, title in _ASKED.items() if (text := examples.text(phrase, name))]
        cases.append(Case(phrase.text, pictures, notes))
    caption = "How each perturbation changes the words of a phrase (listed) or its target (outlined)."
    return Gallery("figure-2", "Figures 2 and 10: perturbations of an instance", caption, cases)


def _measures(examples: Examples) -> Gallery:
    """Return which pixels the thresholded measures count, for one model's map of each phrase."""
    cases = []
    shown = [one for one in examples.models if one.variant in ("sided", "retrained")][:1]
    for model, phrase in ((model, phrase) for model in shown for phrase in examples.phrases):
        answer = examples.answers[model.slug].get(Key(phrase.study, phrase.query))
        target = examples.mask(phrase, "regions")
        if answer is None or answer.grounding is None or answer.grounding.heatmap is None or target is None:
            continue
        image = examples.prepared.source.study(phrase.study).image
        pictures = [
            (f"top {share} % of the pixels", partial(_thresholded, image, answer.grounding, target, share))
            for share in SHARES
        ]
        cases.append(Case(f"{phrase.text} ({model.label})", pictures))
    caption = "The highest pixels of a map. Green: inside the region boxes (true positives). Red: outside."
    return Gallery("figure-9", "Figure 9: pixels counted by the thresholded measures", caption, cases, folded=True)


def _thresholded(image: Any, grounding: Grounding, target: Mask, share: int) -> Any:
    import PIL.Image

    assert grounding.heatmap is not None
    values = grounding.heatmap.to_size((_SIDE, _SIDE), keep_mass=False)
    top = values >= np.quantile(values, 1 - share / 100)
    inside = target.resized((_SIDE, _SIDE)).pixels
    picture = np.asarray(draw(Tile(image, mask=target), _SIDE)).copy()
    shown = picture[-_SIDE:]  # below the strip with R and L
    for where, colour in ((top & inside, _HIT), (top & ~inside, _MISS)):
        shown[where] = 0.4 * shown[where] + 0.6 * np.array(colour)
    return PIL.Image.fromarray(picture.astype(np.uint8))


def _saturated(examples: Examples) -> Iterator[Gallery]:
    """Yield the example with the highest No-Attn score of any model."""
    found = [
        (answer.grounding.abstention, model, phrase)
        for model in examples.models
        for phrase in examples.phrases
        if (answer := examples.answers[model.slug].get(Key(phrase.study, phrase.query))) is not None
        and (answer.grounding is not None and answer.grounding.abstention > 0 and model.group != "reference")
    ]
    if found:
        share, model, phrase = max(found, key=lambda one: one[0])
        case = Case(phrase.text, [(model.label, partial(draw, examples.tile(model, phrase, "none"), _SIDE))])
        caption = (
            f"{100 * share:.0f} % of {model.label}'s attention is on the no-attention token, so its map is drawn faint."
        )
        yield Gallery("figure-12", "Figure 12: attention on the no-attention token", caption, [case], folded=True)

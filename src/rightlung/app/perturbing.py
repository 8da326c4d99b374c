"""Perturbations of one question, as a person asks for them: the words or the image change, and the model answers again.

The changes are those of `rightlung.probes`; here they apply to any text, not only to a source's phrases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote, urlencode

import numpy as np

from rightlung.app.errors import AppError
from rightlung.app.library import Entry
from rightlung.app.pixels import COVER_RADIUS, covered
from rightlung.core import Image, InputError, Phrase, Study
from rightlung.judgements.judgement import same_words
from rightlung.lexicon import negative_prompts, prompt, swap_sides
from rightlung.lexicon.labeller import read_sentence
from rightlung.phantom.twins import CHANGES
from rightlung.probes.images import NoiseImage, Occlusion, occlusion
from rightlung.probes.probe import Setting
from rightlung.probes.registry import nonsense_of
from rightlung.probes.twins import changed_finding

Kind = Literal[
    "swap-sides", "negate", "replace", "occlude-peak", "occlude-target", "twin-removed", "twin-moved", "twin-worse",
    "noise-image", "nonsense-prompt",
]  # fmt: skip
PARAMETERS = ("twin", "finding", "noise", "target", "cover")
"""Parameters of an image's address that change it."""
Parameters = tuple[tuple[str, str], ...]
SEED = 0


@dataclass(frozen=True, slots=True)
class Perturbed:
    """The changed question. ``parameters`` of the image's address give the changed image; empty: the study's own."""

    text: str
    parameters: Parameters = ()
    box: tuple[float, float, float, float] | None = None

    def address(self, entry: Entry) -> str | None:
        """Return the address of the changed image, None if it is the study's own."""
        if not self.parameters:
            return None
        return f"/api/v1/studies/{quote(entry.key, safe='')}/image.png?{urlencode(self.parameters)}"


def perturbed(
    study: Study, text: str, kind: Kind, replacement: str | None, finding: str | None, peak: Any
) -> Perturbed:
    """Return a perturbed question; the error says why there is none. ``peak`` is that of the unperturbed map."""
    if kind == "replace":
        return Perturbed(str(replacement))
    if kind in ("swap-sides", "negate", "nonsense-prompt"):
        return Perturbed(_words(study, text, kind))
    if kind == "noise-image":
        return Perturbed(text, (("noise", "1"),))
    if kind == "occlude-peak":
        if peak is None:
            raise _no_change("the map has no peak to cover")
        x, y = (round(float(value), 4) for value in peak)
        height, width = study.image.shape
        down, across = (COVER_RADIUS * min(height, width) / side for side in (height, width))
        box = (max(0.0, x - across), max(0.0, y - down), min(1.0, x + across), min(1.0, y + down))
        return Perturbed(text, (("cover", f"{x},{y}"),), box)
    if kind == "occlude-target":
        index = _index_of(study, text)
        if index is None or _cover(study, index) is None:
            raise _no_change("only a phrase of the study that has boxes or a mask has a target to cover")
        boxes = [box.as_tuple() for box in study.phrases[index].target_boxes]
        (x0, y0), (x1, y1) = (tuple(f(one[i] for one in boxes) for i in at) for f, at in ((min, (0, 1)), (max, (2, 3))))
        return Perturbed(text, (("target", str(index)),), (x0, y0, x1, y1))
    return _twin(study, text, kind.removeprefix("twin-"), finding)


def changed_image(study: Study, parameters: Parameters) -> Image:
    """Return the image that an address with these parameters shows, the same object for the same image."""
    return _changed(study, parameters) if parameters else study.image


@lru_cache(maxsize=4)
def _changed(study: Study, parameters: Parameters) -> Image:
    given = dict(parameters)
    if "twin" in given:
        change, finding = given["twin"], given.get("finding", "")
        if study.twins is None or change not in CHANGES or finding not in study.twins.findings(change):
            raise AppError(409, "no-twin", f"this study has no twin with {finding or 'no finding'} {change}")
        image = study.twin(change, finding).image
    elif "noise" in given:
        image = NoiseImage(SEED, study.id)(study.image)
    elif "target" in given:
        cover = _cover(study, int(given["target"][:9]) if given["target"][:9].isdecimal() else None)
        if cover is None:
            raise AppError(409, "no-change", "this phrase has no target to cover")
        image = cover(study.image)
    else:
        try:
            x, y = (float(value) for value in given["cover"].split(","))
        except (KeyError, ValueError):
            x = y = math.nan
        if not (0 <= x <= 1 and 0 <= y <= 1):
            message = "cover: expected x,y in fractions of the image, from 0 to 1"
            raise AppError(422, "invalid", message, "cover")
        image = covered(study.image, x, y)
    return np.ascontiguousarray(image, dtype=np.float32)


forget_changed = _changed.cache_clear
"""Forget the changed images that stay in memory, so that questions about one share the models' work on it."""


def _cover(study: Study, index: int | None) -> Occlusion | None:
    """Return what covers the target of a phrase, None if it has none."""
    phrase = None if index is None else next(iter(study.phrases[index:]), None)
    return None if phrase is None else occlusion(study, phrase, SEED, False)


@lru_cache(maxsize=1 << 14)
def negated(text: str) -> str | None:
    """Return a text that denies what the text asserts, or asserts what it denies; None if it names no finding.

    >>> negated("Small left pleural effusion."), negated("No pneumothorax.")
    ('No pleural effusion.', 'Pneumothorax.')
    """
    findings = read_sentence(text).findings
    present = [name for name, polarity in findings.items() if polarity != "negative"]
    try:
        if present:
            said = negative_prompts(present[0])[0]
        elif findings:
            said = prompt(next(iter(findings)))
        else:
            return None
    except (InputError, KeyError, IndexError):
        return None
    said = said[0].upper() + said[1:]
    return said if said.endswith(".") else f"{said}."


def _words(study: Study, text: str, kind: str) -> str:
    if kind == "nonsense-prompt":
        return nonsense_of(Phrase(text), Setting(SEED), study).text
    if kind == "swap-sides":
        changed: str | None = swap_sides(text)
        reason = "the phrase names no side"
    else:
        changed, reason = negated(text), "the phrase names no finding that is known here"
    if changed is None or changed == text:
        raise _no_change(reason)
    return changed


def _twin(study: Study, text: str, change: str, finding: str | None) -> Perturbed:
    if study.twins is None:
        raise AppError(409, "no-twin", "this study has no exact twins: only phantoms and painted studies have them")
    possible = study.twins.findings(change)
    if finding is None:
        index = _index_of(study, text)
        finding = None if index is None else changed_finding(study, study.phrases[index], change)
    if finding is None:
        said = read_sentence(text).findings.items()
        named = [name for name, polarity in said if polarity != "negative" and name in possible]
        finding = named[0] if len(named) == 1 else None
    if finding is None or finding not in possible:
        choice = f"it can be {change}: {', '.join(possible)}" if possible else f"nothing in it can be {change}"
        raise AppError(409, "no-twin", f"no single finding of the phrase has a twin in this study; {choice}")
    return Perturbed(text, (("twin", change), ("finding", finding)))


def _index_of(study: Study, text: str) -> int | None:
    words = same_words(text)
    return next((index for index, one in enumerate(study.phrases) if same_words(one.text) == words), None)


def _no_change(reason: str) -> AppError:
    return AppError(409, "no-change", f"this perturbation does not apply: {reason}")

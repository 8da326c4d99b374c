"""Perturbations of one question, as a person asks for them: the words or the image change, and the model answers again.

The changes are those of `rightlung.probes`; here they apply to any text, not only to a source's phrases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote, urlencode

from rightlung.app.errors import AppError
from rightlung.app.library import Entry
from rightlung.app.pixels import COVER_RADIUS, covered
from rightlung.core import Image, InputError, Phrase, Study
from rightlung.judgements.judgement import same_words
from rightlung.lexicon import negative_prompts, prompt, swap_sides
from rightlung.lexicon.labeller import read_sentence
from rightlung.phantom.twins import CHANGES
from rightlung.probes.images import NoiseImage, occlusion
from rightlung.probes.probe import Setting
from rightlung.probes.registry import nonsense_of
from rightlung.probes.twins import changed_finding

Kind = Literal[
    "swap-sides", "negate", "replace", "occlude-peak", "occlude-target", "twin-removed", "twin-moved", "twin-worse",
    "noise-image", "nonsense-prompt",
]  # fmt: skip
SEED = 0


@dataclass(frozen=True, slots=True)
class Perturbed:
    """The changed question. ``parameters`` of the image's address give the changed image; empty: the study's own."""

    text: str
    parameters: tuple[tuple[str, str], ...] = ()
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
        if index is None or occlusion(study, study.phrases[index], SEED, False) is None:
            raise _no_change("only a phrase of the study that has boxes or a mask has a target to cover")
        phrase = study.phrases[index]
        boxes = [box.as_tuple() for box in phrase.target_boxes]
        (x0, y0), (x1, y1) = (tuple(f(one[i] for one in boxes) for i in at) for f, at in ((min, (0, 1)), (max, (2, 3))))
        return Perturbed(text, (("target", str(index)),), (x0, y0, x1, y1))
    return _twin(study, text, kind.removeprefix("twin-"), finding)


def changed_image(study: Study, parameters: dict[str, str]) -> Image:
    """Return the image that an address with these parameters shows; of several, the first counts."""
    if "twin" in parameters:
        change, finding = parameters["twin"], parameters.get("finding", "")
        if study.twins is None or change not in CHANGES or finding not in study.twins.findings(change):
            raise AppError(409, "no-twin", f"this study has no twin with {finding or 'no finding'} {change}")
        return _twin_image(study, change, finding)
    if "noise" in parameters:
        return NoiseImage(SEED, study.id)(study.image)
    if "target" in parameters:
        index = int(parameters["target"]) if parameters["target"].isdecimal() else -1
        change_it = occlusion(study, study.phrases[index], SEED, False) if 0 <= index < len(study.phrases) else None
        if change_it is None:
            raise AppError(409, "no-change", "this phrase has no target to cover")
        return change_it(study.image)
    if "cover" in parameters:
        try:
            x, y = (float(value) for value in parameters["cover"].split(","))
        except ValueError:
            raise AppError(422, "invalid", "cover: expected x,y in fractions of the image", "cover") from None
        if not (0 <= x <= 1 and 0 <= y <= 1):
            raise AppError(422, "invalid", "cover: x and y must lie in the image, from 0 to 1", "cover")
        return covered(study.image, x, y)
    return study.image


@lru_cache(maxsize=64)
def _twin_image(study: Study, change: str, finding: str) -> Image:
    return study.twin(change, finding).image


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
        raise AppError(409, "no-twin", "this study has no exact twins: only the phantom can render them")
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

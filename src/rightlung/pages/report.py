"""A report as a page: the image, and sentences whose numbers and colours are those of their boxes."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.core import Box, Heatmap, Image, Report, Sentence
from rightlung.lexicon import side_of
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labeller import read_sentence

if TYPE_CHECKING:
    import PIL.Image

MAP_PIXELS, OPACITY = 160, 0.75
COLOURS = (
    "#ffb14e", "#4cc9f0", "#8ee65a", "#ff7eb6", "#c9a6ff", "#ffe45c", "#4ff0c4", "#ff8b6b", "#9db8ff", "#d9d9d9",
)  # fmt: skip
"""Colours of the sentences, legible on a radiograph; dark text is legible on them."""


def side_agrees(text: str, boxes: Sequence[Box]) -> bool | None:
    """Return whether a box reaches the half of the image that a text names; None if it names no single side.

    >>> side_agrees("left effusion", [Box(0.1, 0.5, 0.4, 0.9)]), side_agrees("effusion", [Box(0.1, 0.5, 0.4, 0.9)])
    (False, None)
    """
    side = side_of(text)
    if side not in ("left", "right") or not boxes:
        return None
    return any(box.x1 > 0.5 if side == "left" else box.x0 < 0.5 for box in boxes)


def wrong_side(text: str, boxes: Sequence[Box]) -> str:
    """Return a warning if a text names one side of the patient and its boxes lie on the other, else nothing."""
    lies = "its box lies" if len(boxes) == 1 else "its boxes lie"
    return f"{lies} on the other side" if side_agrees(text, boxes) is False else ""


def prompt_agrees(text: str, prompt: str | None) -> bool | None:
    """Return whether a sentence is about its prompt: the same finding, a broader or a narrower one, on the same side.

    None if they do not both name a finding or both name a single side.

    >>> prompt_agrees("a left effusion", "pneumothorax"), prompt_agrees("a left effusion", "right apical zone")
    (False, False)
    >>> prompt_agrees("no consolidation", "lung opacity"), prompt_agrees("the heart is enlarged", "left lung")
    (True, None)
    """
    sides = {side_of(prompt or ""), side_of(text)}
    asked, stated = (read_sentence(one).findings for one in (prompt or "", text))
    if sides == {"left", "right"}:
        return False
    if asked and stated:
        return any(
            one == other or one in broader_findings(other) or other in broader_findings(one)
            for one in asked
            for other in stated
        )
    return True if len(sides) == 1 and sides <= {"left", "right"} else None


def warnings_about(sentence: Sentence) -> list[str]:
    """Return the reasons to doubt a sentence: it is not about its prompt, or its boxes lie on the other side."""
    other = "it is not about what was asked" if prompt_agrees(sentence.text, sentence.prompt) is False else ""
    return [one for one in (other, wrong_side(sentence.text, sentence.boxes)) if one]


def map_png(heatmap: Heatmap, colour: str, shape: Sequence[int]) -> str:
    """Return a map as a PNG of one colour in base64, opaque where it is highest; fainter if the model abstains."""
    import PIL.Image

    size = (MAP_PIXELS, max(1, round(MAP_PIXELS * shape[1] / shape[0])))
    values = heatmap.to_size(size, keep_mass=False)
    strength = (1 - (heatmap.abstention or 0.0)) * OPACITY / max(float(values.max()), 1e-12)
    pixels = np.zeros((*size, 4), np.uint8)
    pixels[..., :3] = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    pixels[..., 3] = (255 * strength * values).round().clip(0, 255)
    return _png(PIL.Image.fromarray(pixels))


def _png(picture: PIL.Image.Image) -> str:
    content = io.BytesIO()
    picture.save(content, format="PNG")
    return base64.b64encode(content.getvalue()).decode("ascii")


def report_page(image: Image, report: Report, name: str, model: str, advice: str, notes: Sequence[str] = ()) -> str:
    """Return the page of an image and the report that a model wrote. It needs no network and escapes every text."""
    import PIL.Image
    from jinja2 import Environment, StrictUndefined

    maps = [
        (number, map_png(one.heatmap, COLOURS[(number - 1) % len(COLOURS)], image.shape))
        for number, one in enumerate(report.sentences, start=1)
        if one.heatmap is not None
    ]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template = files("rightlung.pages").joinpath("report.html").read_text(encoding="utf-8")
    boxes = [(number, box) for number, one in enumerate(report.sentences, start=1) for box in one.boxes]
    return environment.from_string(template).render(
        image=_png(PIL.Image.fromarray((image * 255).round().astype("uint8"))),
        maps=maps,
        width=image.shape[1],
        height=image.shape[0],
        report=report,
        # Small boxes lie on top of large ones, so that each can be pointed at.
        boxes=sorted(boxes, key=lambda one: -one[1].width * one[1].height),
        colours=COLOURS,
        warnings_about=warnings_about,
        looked_for=report.sections.get("looked for"),
        left_out=report.sections.get("left out"),
        notes=notes,
        name=name,
        model=model,
        advice=advice,
        notice=NOT_A_MEDICAL_DEVICE,
        version=__version__,
    )

"""A report as a page: the image, and sentences whose numbers and colours are those of their boxes."""

from __future__ import annotations

import base64
import io
from importlib.resources import files

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.core import Image, Report

COLOURS = (
    "#ffb14e", "#4cc9f0", "#8ee65a", "#ff7eb6", "#c9a6ff", "#ffe45c", "#4ff0c4", "#ff8b6b", "#9db8ff", "#d9d9d9",
)  # fmt: skip
"""Colours of the sentences, legible on a radiograph; dark text is legible on them."""


def report_page(image: Image, report: Report, name: str, model: str, advice: str) -> str:
    """Return the page of an image and the report that a model wrote. It needs no network and escapes every text."""
    import PIL.Image
    from jinja2 import Environment, StrictUndefined

    content = io.BytesIO()
    PIL.Image.fromarray((image * 255).round().astype("uint8")).save(content, format="PNG")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template = files("rightlung.pages").joinpath("report.html").read_text(encoding="utf-8")
    boxes = [(number, box) for number, one in enumerate(report.sentences, start=1) for box in one.boxes]
    return environment.from_string(template).render(
        image=base64.b64encode(content.getvalue()).decode("ascii"),
        width=image.shape[1],
        height=image.shape[0],
        report=report,
        # Small boxes lie on top of large ones, so that each can be pointed at.
        boxes=sorted(boxes, key=lambda one: -one[1].width * one[1].height),
        colours=COLOURS,
        looked_for=report.sections.get("looked for"),
        name=name,
        model=model,
        advice=advice,
        notice=NOT_A_MEDICAL_DEVICE,
        version=__version__,
    )

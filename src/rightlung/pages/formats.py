"""Convert matplotlib figures to inline SVG for HTML and to PNG for Markdown.

In the SVG, colours become variables of the page's style sheet, so that a figure follows the reader's light or dark
setting, and text stays searchable.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.pages.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from matplotlib.transforms import Bbox

_DPI = 144
_VARIABLES = {hexadecimal: f"var(--{name})" for name, hexadecimal in COLOURS.items()} | {"#000000": "var(--ink)"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def svg(drawing: Drawing, prefix: str) -> str:
    """Return a figure as an SVG element; its ids start with ``prefix``, and ``prefix``-caption labels it."""
    import matplotlib

    content = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        drawing.savefig(
            content, format="svg", bbox_inches=_extent(drawing, 0.03), transparent=True, metadata=_NO_METADATA
        )
    text = content.getvalue()
    text = text[text.index("<svg") :].replace("xlink:href", "href")
    head, body = text.split(">", 1)
    head = re.sub(r'\s(?:xmlns(?::\w+)?|version|height)="[^"]*"', "", head)
    named = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', body))
    used = {one for pair in named for one in pair if one}
    body = re.sub(r'\sid="([^"]*)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda m: _VARIABLES.get(m[0], m[0]), body)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    return f'{head} role="img" aria-labelledby="{prefix}-caption">{body.strip()}'


def png(drawing: Drawing) -> bytes:
    """Return a figure as PNG on white with few colours, with the medical-device notice below it."""
    import PIL.Image

    height = drawing.get_figheight()
    drawing.text(
        0.06 / drawing.get_figwidth(), -0.05 / height, NOT_A_MEDICAL_DEVICE, va="top", fontsize=7.5,
        color=COLOURS["soft"],
    )  # fmt: skip
    content, smaller = io.BytesIO(), io.BytesIO()
    drawing.savefig(content, format="png", dpi=_DPI, bbox_inches=_extent(drawing, 0.08), facecolor="white")
    with PIL.Image.open(content) as picture:
        picture.convert("RGB").quantize(64).save(smaller, format="PNG", optimize=True)
    return smaller.getvalue()


def _extent(drawing: Drawing, room: float) -> Bbox:
    """Return the extent of a figure in inches with padding; ``bbox_inches="tight"`` would draw it twice."""
    return drawing.get_tightbbox().padded(room)

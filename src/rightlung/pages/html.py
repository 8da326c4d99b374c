"""Render a page as one HTML file that needs no network, scripts or mouse."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.pages import formats
from rightlung.pages.content import FACTS_TITLE, MARKS, Figure, Gallery, Page, Table, slugs

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Template
    from markupsafe import Markup
    from PIL.Image import Image as Picture


def render_html(page: Page) -> str:
    """Return a page as HTML with style, figures and pictures embedded. All texts are escaped."""
    from markupsafe import Markup

    listed = [*page.shown, *(part for section in page.shown for part in section.parts)]
    ids = dict(zip(map(id, listed), slugs(["facts", "main", *(one.name for one in listed)])[2:], strict=True))

    def figure(part: Figure) -> Markup:
        return Markup(formats.svg(part.draw(), ids[id(part)]))

    style = files("rightlung.pages").joinpath("style.css").read_text(encoding="utf-8")
    return _template().render(
        page=page,
        anchor=lambda part: ids[id(part)],
        kind=lambda part: {Table: "table", Figure: "figure", Gallery: "gallery"}[type(part)],
        svg=figure,
        picture=_data_uri,
        polyline=polyline,
        marks=MARKS,
        style=Markup(style),
        facts_title=FACTS_TITLE,
        notice=NOT_A_MEDICAL_DEVICE,
        version=__version__,
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(files("rightlung.pages").joinpath("template.html").read_text(encoding="utf-8"))


def _data_uri(make: Callable[[], Picture]) -> str:
    content = io.BytesIO()
    make().convert("RGB").save(content, format="JPEG", quality=84)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode("ascii")


def polyline(points: Sequence[tuple[float, float]], width: int = 120, height: int = 24) -> str:
    """Return the points of a sparkline for the ``polyline`` element of an SVG of this size.

    >>> polyline([(0, 4.0), (100, 1.0)])
    '2.0,3.0 118.0,21.0'
    """
    steps, values = [step for step, _ in points], [value for _, value in points]
    across, down = (max(steps) - min(steps)) or 1.0, (max(values) - min(values)) or 1.0
    placed = (
        (2 + (width - 4) * (step - min(steps)) / across, height - 3 - (height - 6) * (value - min(values)) / down)
        for step, value in points
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)

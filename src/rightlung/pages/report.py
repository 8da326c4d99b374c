"""A report as a page: the image, and sentences that show their boxes when pointed at."""

from __future__ import annotations

import base64
import io
from importlib.resources import files

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.core import Image, Report


def report_page(image: Image, report: Report, title: str) -> str:
    """Return the page. It needs no network and escapes every text."""
    import PIL.Image
    from jinja2 import Environment, StrictUndefined

    content = io.BytesIO()
    PIL.Image.fromarray((image * 255).round().astype("uint8")).save(content, format="PNG")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    template = files("rightlung.pages").joinpath("report.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        image=base64.b64encode(content.getvalue()).decode("ascii"),
        width=image.shape[1],
        height=image.shape[0],
        report=report,
        title=title,
        notice=NOT_A_MEDICAL_DEVICE,
        version=__version__,
    )

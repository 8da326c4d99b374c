"""Write a page as HTML, Markdown with pictures, and JSON: all files or none."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightlung.core.files import plain, write_all
from rightlung.pages import formats
from rightlung.pages.content import Case, Figure, Gallery, Page, slugs
from rightlung.pages.html import render_html
from rightlung.pages.markdown import picture_key, render_markdown
from rightlung.pages.overlays import make_sheet, with_caption

_ACROSS = 6


def write_page(
    page: Page,
    folder: str | Path,
    *,
    html: str | None = "page.html",
    markdown: str | None = None,
    data: Mapping[str, Any] | None = None,
    json_name: str | None = None,
    figures: str = "figures",
) -> list[Path]:
    """Write a page into a folder and return the files.

    ``html``, ``markdown`` and ``json_name`` are file names; what has none is not written. ``data`` is what the JSON
    file holds, by default the page's own tables and figures (`Page.as_json`). The folder ``figures`` holds the
    pictures that the Markdown shows, and is written with it only. If anything fails, the old files stay.
    """
    folder = Path(folder)
    contents: dict[Path, bytes] = {}
    if html is not None:
        contents[folder / html] = render_html(page).encode()
    if markdown is not None:
        pictures = _pictures(page)
        paths = {name: f"{figures}/{file}" for name, (file, _) in pictures.items()}
        contents[folder / markdown] = render_markdown(page, paths).encode()
    if json_name is not None:
        kept = plain(page.as_json() if data is None else data)
        contents[folder / json_name] = json.dumps(kept, indent=1, allow_nan=False, ensure_ascii=False).encode()
    if markdown is not None:
        contents |= {folder / figures / file: content for file, content in pictures.values()}
    write_all(folder, contents)
    return list(contents)


def _pictures(page: Page) -> dict[str, tuple[str, bytes]]:
    """Return file name and content of each figure and of each gallery's case, by the names the Markdown asks for."""
    figures, galleries = page.parts(Figure), page.parts(Gallery)
    cases = {
        picture_key(gallery, place): case
        for gallery in galleries
        for place, case in enumerate(gallery.cases, start=1)
        if case.pictures
    }
    files = slugs([*(figure.name for figure in figures), *cases])
    found = {
        figure.name: (f"{file}.png", formats.png(figure.draw())) for figure, file in zip(figures, files, strict=False)
    }
    for (name, case), file in zip(cases.items(), files[len(figures) :], strict=True):
        found[name] = f"{file}.jpg", _case_sheet(case)
    return found


def _case_sheet(case: Case) -> bytes:
    pictures = [with_caption(make(), label) for label, make in case.pictures]
    content = io.BytesIO()
    make_sheet(pictures, min(_ACROSS, len(pictures))).save(content, format="JPEG", quality=84)
    return content.getvalue()

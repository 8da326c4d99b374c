"""Write a page as HTML, Markdown with pictures, and JSON. If anything fails, no file is replaced."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightlung.core.files import Content, plain, write_all
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
    further: Mapping[str, Content] | None = None,
) -> list[Path]:
    """Write a page into a folder and return the files.

    ``html``, ``markdown`` and ``json_name`` are file names; a format without one is not written. ``data`` is the
    content of the JSON file, by default the page's tables and figures (`Page.as_json`). The pictures of the Markdown
    go to the folder ``figures``. ``further`` are other files to write with them. If anything fails, the old files stay.
    """
    folder = Path(folder)
    contents: dict[Path, Content] = {folder / name: content for name, content in (further or {}).items()}
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
    """Return the file name and content of each figure and gallery case, by the names used in the Markdown."""
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

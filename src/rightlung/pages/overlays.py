"""Draw studies on sheets: the radiograph with a heatmap, the outline of the target and boxes, titles and a legend.

Every picture is marked with the patient's sides, R on the image's left and L on its right, to reveal mirrored images.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import Box, Heatmap, Image, Mask, OutputError
from rightlung.core.plotting import PREDICTED, TARGET, WORDS, font, headed, heated, paint, shortened

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageDraw import ImageDraw

CAPTION, LINE, MARGIN = 34, 15, 4
LEGEND = {
    "map": "heatmap, low to high, scaled to its own maximum; faint: the model abstains",
    "target": "target",
    "predicted": "predicted box; dashed: probably absent",
}
"""What a legend can explain."""
_SWATCH = 40


@dataclass(frozen=True, slots=True)
class Tile:
    """One picture of a sheet, with a title above it and a caption below it. Lines of a caption end with a newline."""

    image: Image
    caption: str = ""
    heatmap: Heatmap | None = None
    targets: Sequence[Box] = ()
    mask: Mask | None = None
    predicted: Sequence[Box] = ()
    title: str = ""
    labels: Sequence[str] = ()
    """A short text for each predicted box, such as the number of a sentence."""

    @property
    def legend(self) -> set[str]:
        """The keys of `LEGEND` that the tile needs."""
        shown = {"map": self.heatmap, "target": self.targets or self.mask, "predicted": self.predicted}
        return {name for name, there in shown.items() if there}


def draw(tile: Tile, side: int = 224) -> Picture:
    """Draw a tile: a strip with R, its title and L, the image letterboxed to ``side`` pixels, and its caption."""
    import PIL.Image
    import PIL.ImageDraw

    masks = () if tile.mask is None else (tile.mask,)
    shown = paint(tile.image, tile.heatmap, targets=tile.targets, masks=masks, predicted=tile.predicted, side=side)
    pen, face = PIL.ImageDraw.Draw(shown), font(max(12, side // 20))
    for box, label in zip(tile.predicted, tile.labels, strict=bool(tile.labels)):
        x, y, *_ = box.to_pixels((shown.height, shown.width))
        above = y >= sum(face.getmetrics())  # else there is no room above the box
        x = min(x + (0 if above else 4), shown.width - round(face.getlength(label)))
        place, anchor = ((x, y), "ld") if above else ((x, y + 2), "la")
        pen.text(place, label, PREDICTED, face, anchor, stroke_width=1, stroke_fill=(0, 0, 0))
    picture = PIL.Image.new("RGB", (side, side))
    left = (side - shown.width) // 2
    picture.paste(shown, (left, (side - shown.height) // 2))
    picture = headed(picture, tile.title, (left, left + shown.width))
    return with_caption(picture, tile.caption) if tile.caption else picture


def with_caption(picture: Picture, caption: str) -> Picture:
    """Return a picture with a caption below it; each of its lines is wrapped to at most two."""
    import PIL.Image
    import PIL.ImageDraw

    lines = [line for part in caption.split("\n") for line in _wrapped(part, picture.width - 2 * MARGIN, most=2)]
    taller = PIL.Image.new("RGB", (picture.width, picture.height + max(CAPTION, 4 + LINE * len(lines))))
    taller.paste(picture.convert("RGB"), (0, 0))
    _write(PIL.ImageDraw.Draw(taller), lines, picture.height + 3)
    return taller


def make_sheet(pictures: Sequence[Picture], columns: int | None = None, legend: Collection[str] = ()) -> Picture:
    """Return pictures in a grid, with the medical-device notice and a legend (keys of `LEGEND`) below."""
    import PIL.Image
    import PIL.ImageDraw

    columns = columns or max(1, math.ceil(math.sqrt(len(pictures))))
    rows = math.ceil(len(pictures) / columns)
    width = max((picture.width for picture in pictures), default=224) + MARGIN
    height = max((picture.height for picture in pictures), default=0) + MARGIN
    wide, top = columns * width - MARGIN, rows * height + MARGIN
    notice, keys = _wrapped(NOT_A_MEDICAL_DEVICE, wide), list(_legend_rows(legend, wide))
    below = LINE * (len(notice) + sum(len(row[0][2]) for row in keys))
    sheet = PIL.Image.new("RGB", (wide + 2 * MARGIN, top + MARGIN + below))
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (MARGIN + index % columns * width, MARGIN + index // columns * height))
    pen = PIL.ImageDraw.Draw(sheet)
    for row in keys:
        for name, left, lines in row:
            _draw_swatch(sheet, name, left, top)
            _write(pen, lines, top, left + _SWATCH + MARGIN)
        top += LINE * len(row[0][2])
    _write(pen, notice, top)
    return sheet


def save_sheet(tiles: Iterable[Tile], path: str | Path, columns: int | None = None, side: int = 224) -> Path:
    """Draw tiles on one sheet and save it as PNG, with a legend and the medical-device notice."""
    tiles = list(tiles)
    sheet = make_sheet([draw(tile, side) for tile in tiles], columns, set().union(*(tile.legend for tile in tiles)))
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sheet.save(path, format="PNG")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from error
    return path


def _legend_rows(names: Collection[str], width: int) -> Iterator[list[tuple[str, int, list[str]]]]:
    """Yield the rows of a legend: key, column and lines of text of each entry."""
    row: list[tuple[str, int, list[str]]] = []
    left = MARGIN
    for name in (name for name in LEGEND if name in names):
        room = width - _SWATCH - MARGIN
        lines = _wrapped(LEGEND[name], room)
        taken = _SWATCH + 3 * MARGIN + math.ceil(max(map(font().getlength, lines)))
        if row and (left + taken > width or len(lines) > 1):
            yield row
            row, left = [], MARGIN
        row.append((name, left, lines))
        left += taken if len(lines) == 1 else width
    if row:
        yield row


def _draw_swatch(sheet: Picture, name: str, left: int, top: int) -> None:
    """Draw what a legend explains: a bar of the map's colours on grey, or a line in the colour of a box."""
    import PIL.Image
    import PIL.ImageDraw

    if name == "map":
        share = np.tile(np.linspace(0, 1, _SWATCH), (LINE - 5, 1))
        bar = heated(np.full((*share.shape, 3), 90.0), share)
        sheet.paste(PIL.Image.fromarray(bar.astype(np.uint8)), (left, top + 2))
    else:
        colour = TARGET if name == "target" else PREDICTED
        PIL.ImageDraw.Draw(sheet).rectangle(
            (left, top + 3, left + _SWATCH - 1, top + LINE - 5), outline=colour, width=2
        )


def _write(pen: ImageDraw, lines: Iterable[str], top: int, left: int = MARGIN) -> None:
    for number, line in enumerate(lines):
        pen.text((left, top + LINE * number), line, fill=WORDS, font=font())


def _wrapped(text: str, width: int, most: int | None = None) -> list[str]:
    """Break a text into lines of at most ``width`` pixels; long words, and lines beyond ``most``, are cut off."""
    face, lines = font(), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if face.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1]} {lines[most]}"]
    return [shortened(line, width) for line in lines] if text else []

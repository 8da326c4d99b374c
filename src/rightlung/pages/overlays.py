"""Pictures of studies: the radiograph with a map over it, the target's outline, boxes, and which side is which.

Every picture carries the patient's sides, R on the image's left and L on its right, so that a mirrored one is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import Box, Heatmap, Image, Mask, OutputError
from rightlung.core.plotting import WORDS, font, overlay

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

CAPTION, LINE, MARGIN = 34, 15, 4


@dataclass(frozen=True, slots=True)
class Tile:
    """One picture of a sheet."""

    image: Image
    caption: str = ""
    heatmap: Heatmap | None = None
    targets: Sequence[Box] = ()
    mask: Mask | None = None
    predicted: Sequence[Box] = ()


def draw(tile: Tile, side: int = 224) -> Picture:
    """Draw a tile ``side`` pixels wide and high (the image letterboxed), with its caption below."""
    import PIL.Image

    shown = overlay(
        tile.image,
        tile.heatmap,
        targets=tile.targets,
        masks=() if tile.mask is None else (tile.mask,),
        predicted=tile.predicted,
        side=side,
    )
    picture = PIL.Image.new("RGB", (side, side))
    picture.paste(shown, ((side - shown.width) // 2, (side - shown.height) // 2))
    return with_caption(picture, tile.caption) if tile.caption else picture


def with_caption(picture: Picture, caption: str) -> Picture:
    """Return a picture with a strip below it that holds up to two lines of text."""
    import PIL.Image
    import PIL.ImageDraw

    taller = PIL.Image.new("RGB", (picture.width, picture.height + CAPTION))
    taller.paste(picture.convert("RGB"), (0, 0))
    pen = PIL.ImageDraw.Draw(taller)
    for line, text in enumerate(_wrapped(caption, picture.width - 2 * MARGIN, most=2)):
        pen.text((MARGIN, picture.height + 3 + LINE * line), text, fill=WORDS, font=font())
    return taller


def make_sheet(pictures: Sequence[Picture], columns: int | None = None) -> Picture:
    """Put pictures side by side in rows, with the line that this is not a medical device below them."""
    import PIL.Image
    import PIL.ImageDraw

    columns = columns or max(1, math.ceil(math.sqrt(len(pictures))))
    rows = math.ceil(len(pictures) / columns)
    width = max((picture.width for picture in pictures), default=224) + MARGIN
    height = max((picture.height for picture in pictures), default=0) + MARGIN
    notice = _wrapped(NOT_A_MEDICAL_DEVICE, columns * width - MARGIN)
    sheet = PIL.Image.new("RGB", (columns * width + MARGIN, rows * height + 2 * MARGIN + LINE * len(notice)))
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (MARGIN + index % columns * width, MARGIN + index // columns * height))
    pen = PIL.ImageDraw.Draw(sheet)
    for line, text in enumerate(notice):
        pen.text((MARGIN, rows * height + MARGIN + LINE * line), text, fill=WORDS, font=font())
    return sheet


def save_sheet(tiles: Iterable[Tile], path: str | Path, columns: int | None = None, side: int = 224) -> Path:
    """Draw many tiles on one sheet and save it as PNG, with the line that this is not a medical device."""
    sheet = make_sheet([draw(tile, side) for tile in tiles], columns)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sheet.save(path, format="PNG")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from error
    return path


def _wrapped(text: str, width: int, most: int | None = None) -> list[str]:
    """Break a text into lines of at most ``width`` pixels; what is beyond ``most`` lines is cut off, with an ellipsis.

    A single word that is too long for a line is left as it is.
    """
    face, lines = font(), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if face.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if most is not None and len(lines) > most:
        last = lines[most - 1]
        while last and face.getlength(f"{last} …") > width:
            last = last[:-1].rstrip()
        lines = [*lines[: most - 1], f"{last} …"]
    return lines if text else []

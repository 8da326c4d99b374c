"""Draw studies: the radiograph with a heatmap, the outline of the target, boxes, and side markers.

Every picture is marked with the patient's sides, R on the image's left and L on its right, to reveal mirrored images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import Box, Heatmap, Image, Mask, OutputError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageFont import FreeTypeFont

TARGET, PREDICTED, WORDS = (80, 220, 120), (255, 170, 60), (235, 235, 235)
HEAT = np.array([(0, 0, 0), (90, 20, 110), (200, 50, 70), (250, 150, 30), (255, 250, 170)], dtype=np.float64)
CAPTION, LINE, MARGIN = 34, 15, 4
FAINTEST = 0.1
"""How strong a map is drawn, at the least, however much its model abstains."""


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
    import PIL.ImageDraw

    height, width = tile.image.shape
    scale = side / max(height, width)
    shown = max(1, round(height * scale)), max(1, round(width * scale))
    grey = PIL.Image.fromarray((tile.image * 255).astype(np.uint8)).resize(shown[::-1], PIL.Image.Resampling.BILINEAR)
    colours = np.repeat(np.asarray(grey, dtype=np.float64)[:, :, None], 3, axis=2)
    if tile.heatmap is not None:
        seen = max(FAINTEST, 1.0 - tile.heatmap.abstention)
        colours = _heated(colours, tile.heatmap.to_size(shown, keep_mass=False), seen)
    if tile.mask is not None:
        colours[_outline(tile.mask.resized(shown).pixels, width=1 if side < 160 else 2)] = TARGET
    picture = PIL.Image.new("RGB", (side, side))
    top, left = (side - shown[0]) // 2, (side - shown[1]) // 2
    picture.paste(PIL.Image.fromarray(colours.clip(0, 255).astype(np.uint8)), (left, top))
    pen = PIL.ImageDraw.Draw(picture)
    for boxes, colour in ((tile.targets, TARGET), (tile.predicted, PREDICTED)):
        for box in boxes:
            x0, y0, x1, y1 = box.to_pixels(shown)
            pen.rectangle((left + x0, top + y0, left + x1 - 1, top + y1 - 1), outline=colour, width=2)
    for letter, x, anchor in (("R", left + 4, "la"), ("L", left + shown[1] - 4, "ra")):
        font = _font(max(12, side // 16))
        pen.text((x, top + 3), letter, WORDS, font, anchor, stroke_width=1, stroke_fill=(0, 0, 0))
    return with_caption(picture, tile.caption) if tile.caption else picture


def with_caption(picture: Picture, caption: str) -> Picture:
    """Return a picture with a caption of up to two lines below it."""
    import PIL.Image
    import PIL.ImageDraw

    taller = PIL.Image.new("RGB", (picture.width, picture.height + CAPTION))
    taller.paste(picture.convert("RGB"), (0, 0))
    pen = PIL.ImageDraw.Draw(taller)
    for line, text in enumerate(_wrapped(caption, picture.width - 2 * MARGIN, most=2)):
        pen.text((MARGIN, picture.height + 3 + LINE * line), text, fill=WORDS, font=_font())
    return taller


def make_sheet(pictures: Sequence[Picture], columns: int | None = None) -> Picture:
    """Return pictures in a grid, with the medical-device notice below."""
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
        pen.text((MARGIN, rows * height + MARGIN + LINE * line), text, fill=WORDS, font=_font())
    return sheet


def save_sheet(tiles: Iterable[Tile], path: str | Path, columns: int | None = None, side: int = 224) -> Path:
    """Draw tiles on one sheet and save it as PNG, with the medical-device notice."""
    sheet = make_sheet([draw(tile, side) for tile in tiles], columns)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sheet.save(path, format="PNG")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from error
    return path


def _heated(colours: NDArray[np.float64], values: NDArray[np.float32], seen: float) -> NDArray[np.float64]:
    """Lay a map, scaled to its own maximum, over the picture: the hotter, the less of the picture shows.

    ``seen`` is what is left beside the abstention: a map that is hardly meant is hardly to be seen.
    """
    share = values.astype(np.float64) / (values.max() or 1.0)
    steps = np.linspace(0, 1, len(HEAT))
    heat = np.stack([np.interp(share, steps, HEAT[:, channel]) for channel in range(3)], axis=2)
    weight = 0.65 * seen * share[:, :, None]
    blended: NDArray[np.float64] = (1 - weight) * colours + weight * heat
    return blended


def _outline(mask: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """Return the pixels of a mask that are within ``width`` of its edge."""
    inner = mask
    for _ in range(width):
        padded = np.pad(inner, 1)
        inner = inner & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    edge: NDArray[np.bool_] = mask & ~inner
    return edge


@lru_cache(maxsize=16)
def _font(size: int = 12) -> FreeTypeFont:
    """Return DejaVu Sans, which comes with matplotlib and has the signs that captions use."""
    import matplotlib
    import PIL.ImageFont

    return PIL.ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)


def _wrapped(text: str, width: int, most: int | None = None) -> list[str]:
    """Break a text into lines of at most ``width`` pixels; what is beyond ``most`` lines is cut off, with an ellipsis.

    A single word that is too long for a line is left as it is.
    """
    font, lines = _font(), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if most is not None and len(lines) > most:
        last = lines[most - 1]
        while last and font.getlength(f"{last} …") > width:
            last = last[:-1].rstrip()
        lines = [*lines[: most - 1], f"{last} …"]
    return lines if text else []

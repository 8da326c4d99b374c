"""Pictures of studies: the radiograph with a map over it, the target's outline, boxes, and which side is which.

Every picture carries the patient's sides, R on the image's left and L on its right, so that a mirrored one is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import Box, Heatmap, Image, Mask, OutputError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

TARGET, PREDICTED, WORDS = (80, 220, 120), (255, 170, 60), (235, 235, 235)
HEAT = np.array([(0, 0, 0), (90, 20, 110), (200, 50, 70), (250, 150, 30), (255, 250, 170)], dtype=np.float64)
CAPTION, MARGIN = 30, 4
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
        colours[_outline(tile.mask.resized(shown).pixels)] = TARGET
    picture = PIL.Image.new("RGB", (side, side + (CAPTION if tile.caption else 0)))
    top, left = (side - shown[0]) // 2, (side - shown[1]) // 2
    picture.paste(PIL.Image.fromarray(colours.clip(0, 255).astype(np.uint8)), (left, top))
    pen = PIL.ImageDraw.Draw(picture)
    for boxes, colour in ((tile.targets, TARGET), (tile.predicted, PREDICTED)):
        for box in boxes:
            x0, y0, x1, y1 = box.to_pixels(shown)
            pen.rectangle((left + x0, top + y0, left + x1 - 1, top + y1 - 1), outline=colour, width=2)
    pen.text((left + 3, top + 1), "R", fill=WORDS)
    pen.text((left + shown[1] - 9, top + 1), "L", fill=WORDS)
    for line, text in enumerate(_wrapped(tile.caption, side // 6)[:2]):
        pen.text((2, side + 2 + 13 * line), text, fill=WORDS)
    return picture


def save_sheet(tiles: Iterable[Tile], path: str | Path, columns: int | None = None, side: int = 224) -> Path:
    """Draw many tiles on one sheet and save it as PNG, with the line that this is not a medical device."""
    import PIL.Image
    import PIL.ImageDraw

    pictures = [draw(tile, side) for tile in tiles]
    columns = columns or max(1, math.ceil(math.sqrt(len(pictures))))
    rows = math.ceil(len(pictures) / columns)
    cell = side + MARGIN, max((picture.height for picture in pictures), default=side) + MARGIN
    sheet = PIL.Image.new("RGB", (columns * cell[0] + MARGIN, rows * cell[1] + MARGIN + 16))
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (MARGIN + index % columns * cell[0], MARGIN + index // columns * cell[1]))
    PIL.ImageDraw.Draw(sheet).text((MARGIN, sheet.height - 15), NOT_A_MEDICAL_DEVICE, fill=WORDS)
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


def _outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    inner = mask.copy()
    for axis in (0, 1):
        for step in (1, -1):
            inner &= np.roll(np.pad(mask, 1), step, axis)[1:-1, 1:-1]
    edge: NDArray[np.bool_] = mask & ~inner
    return edge


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, max_lines=2, placeholder=" …") if text else []

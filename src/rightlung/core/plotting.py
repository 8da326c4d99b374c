"""Draw studies and answers: as PIL images for pages and notebooks, and on matplotlib axes.

Every picture marks the patient's sides: R on the image's left, L on its right. The letters are above the image, so that
they do not cover text in its corners.
"""

from __future__ import annotations

import base64
import html
import io
import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core.box import Box
from rightlung.core.checks import Size
from rightlung.core.heatmap import Heatmap
from rightlung.core.mask import Mask
from rightlung.core.study import Image, Phrase, ScoredBox, check_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image as Picture
    from PIL.ImageFont import FreeTypeFont

TARGET, PREDICTED, WORDS = (80, 220, 120), (255, 170, 60), (235, 235, 235)
HEAT = np.array([(0, 0, 0), (90, 20, 110), (200, 50, 70), (250, 150, 30), (255, 250, 170)], dtype=np.float64)
FAINTEST = 0.1
"""Least opacity of a map, however much its model abstains."""
FAINTEST_BOX = 0.35
"""The same of a box, which must still be found."""
PROBABLY_ABSENT = 0.5
"""Abstention from which a phrase is called probably absent; its boxes are dashed."""
SIDE, LARGEST_SIDE = 320, 1024
"""Pixels on the longer side of a notebook's picture, and the most that are drawn on axes."""


def overlay(
    image: Image | None,
    heatmap: Heatmap | None = None,
    *,
    targets: Iterable[Box] = (),
    masks: Iterable[Mask] = (),
    predicted: Iterable[Box] = (),
    side: int = SIDE,
) -> Picture:
    """Return the image with a map, target boxes and masks, and predicted boxes, below a strip with R and L.

    The longer side of the image has ``side`` pixels. Without an image, black stands in for it.
    """
    return headed(paint(image, heatmap, targets=targets, masks=masks, predicted=predicted, side=side))


def paint(
    image: Image | None,
    heatmap: Heatmap | None = None,
    *,
    targets: Iterable[Box] = (),
    masks: Iterable[Mask] = (),
    predicted: Iterable[Box] = (),
    side: int = SIDE,
) -> Picture:
    """Return the picture of `overlay` without the strip.

    The more the model abstains, the fainter are the map and the predicted boxes.
    """
    import PIL.Image

    image = _canvas(image, heatmap)
    shown = _shown(image.shape, side)
    colours = _blended(image, heatmap, shown)
    for mask in masks:
        colours[_outline(mask.resized(shown).pixels, width=1 if side < 160 else 2)] = TARGET
    picture = PIL.Image.fromarray(colours.clip(0, 255).astype(np.uint8))
    abstention = 0.0 if heatmap is None else heatmap.abstention
    picture.paste(TARGET, mask=_ink(targets, shown))
    picture.paste(PREDICTED, mask=_ink(predicted, shown, abstention))
    return picture


def headed(picture: Picture, title: str = "", edges: tuple[int, int] | None = None) -> Picture:
    """Return a picture below a strip with R, a title and L.

    ``edges`` are the columns at which the radiograph begins and ends, if it is narrower than the picture.
    """
    import PIL.Image
    import PIL.ImageDraw

    left, right = edges or (0, picture.width)
    face = font(max(12, picture.width // 20))
    height = sum(face.getmetrics()) + 2
    taller = PIL.Image.new("RGB", (picture.width, picture.height + height))
    taller.paste(picture, (0, height))
    pen = PIL.ImageDraw.Draw(taller)
    for letter, x, anchor in (("R", left + 2, "la"), ("L", right - 2, "ra")):
        pen.text((x, 1), letter, WORDS, face, anchor)
    room = right - left - 4 * face.getlength("R")
    pen.text(((left + right) // 2, 1 + face.getmetrics()[0]), shortened(title, room), WORDS, font(), "ms")
    return taller


def shortened(text: str, width: float) -> str:
    """Return a text cut off to at most ``width`` pixels, with an ellipsis."""
    if font().getlength(text) <= width:
        return text
    low, high = 0, len(text)  # the longest beginning that fits; each step measures at most one text
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font().getlength(f"{text[:middle]}…") <= width else (low, middle - 1)
    return f"{text[:low].rstrip()}…"


def _ink(boxes: Iterable[Box], size: Size, abstention: float = 0.0) -> Picture:
    """Return the opacity of boxes' outlines; they are dashed if their phrase is probably absent."""
    import PIL.Image
    import PIL.ImageDraw

    ink = PIL.Image.new("L", size[::-1])
    pen = PIL.ImageDraw.Draw(ink)
    for box in boxes:
        x0, y0, x1, y1 = box.to_pixels(size)
        opacity = round(255 * max(FAINTEST_BOX, 1.0 - abstention))
        pen.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=opacity, width=2)
    if abstention < PROBABLY_ABSENT:
        return ink
    dash = max(3, max(size) // 48)
    rows, columns = np.indices(size)
    return PIL.Image.fromarray(np.where((rows + columns) // dash % 2, np.uint8(0), np.asarray(ink)))


def plot(
    image: Image | None,
    heatmap: Heatmap | None = None,
    *,
    targets: Sequence[Phrase] = (),
    predicted: Iterable[ScoredBox] = (),
    legend: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the same on matplotlib axes, in pixels of the image, and return the axes.

    With ``legend``, each target has a colour of its own, and its phrases are listed below the image.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    axes: Any = plt.subplots()[1] if ax is None else ax
    image = _canvas(image, heatmap)
    height, width = image.shape
    shown = _shown(image.shape, min(LARGEST_SIDE, max(image.shape)))
    axes.imshow(_blended(image, heatmap, shown).clip(0, 255).astype(np.uint8), extent=(0, width, height, 0))

    def draw(box: Box, colour: Any, **style: Any) -> Any:
        corner, size = (box.x0 * width, box.y0 * height), (box.width * width, box.height * height)
        return axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=1.5, **style))

    cycle = mpl.color_sequences["Set2"] if legend else [tuple(part / 255 for part in TARGET)]
    places: dict[Any, int] = {}
    for phrase in targets:
        place = places.setdefault((phrase.mask, phrase.boxes), len(places))
        colour = cycle[place % len(cycle)]
        pixels = np.pad(phrase.mask.resized(shown).pixels, 1) if phrase.mask else None  # padded: outlines close
        if pixels is None or not pixels.any():
            for box in phrase.boxes:
                draw(box, colour)
        else:
            down, across = ((np.arange(count) - 0.5) / (count - 2) for count in pixels.shape)
            axes.contour(across * width, down * height, pixels, levels=[0.5], colors=[colour], linewidths=1.5)
        if legend:
            axes.plot([], [], color=colour, label=textwrap.shorten(phrase.text, 70, placeholder=" …"))
    abstention = 0.0 if heatmap is None else heatmap.abstention
    alpha, absent = max(FAINTEST_BOX, 1.0 - abstention), abstention >= PROBABLY_ABSENT
    for scored in predicted:
        colour = tuple(part / 255 for part in PREDICTED)
        draw(scored.box, colour, alpha=alpha, linestyle="dashed" if absent else "solid")
        text = f"{scored.label or ''} {scored.score:.2g}{', probably absent' if absent else ''}".strip()
        style = {"color": colour, "alpha": alpha, "fontsize": "small", "va": "bottom"}
        axes.text(scored.box.x0 * width, scored.box.y0 * height, text, **style)
    for letter, x, align in (("R", 0, "left"), ("L", 1, "right")):
        axes.text(x, 1.01, letter, weight="bold", ha=align, va="bottom", transform=axes.transAxes)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    if legend and targets:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 0), frameon=False, fontsize="small")
    return axes  # type: ignore[no-any-return]


def as_html(picture: Picture | None, caption: str, lines: Sequence[str] = ()) -> str:
    """Return a picture as HTML for a notebook, with a caption and a list of lines, all escaped."""
    shown = ""
    if picture is not None:
        file = io.BytesIO()
        picture.save(file, format="PNG")
        shown = f'<img src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'
    listed = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    below = f"{html.escape(caption)}{f'<ul>{listed}</ul>' if listed else '<br>'}<small>{NOT_A_MEDICAL_DEVICE}</small>"
    return f"<figure>{shown}<figcaption>{below}</figcaption></figure>"


@lru_cache(maxsize=16)
def font(size: int = 12) -> FreeTypeFont:
    """Return DejaVu Sans, which comes with matplotlib and has the characters that captions use."""
    import matplotlib
    import PIL.ImageFont

    return PIL.ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)


def _canvas(image: Image | None, heatmap: Heatmap | None) -> Image:
    """Return the image, checked; without one, a black one in which the cells of the map are square."""
    if image is not None:
        return check_image(image, "the image to draw on")
    if heatmap is None:
        return np.zeros((SIDE, SIDE), dtype=np.float32)
    (rows, columns), extent = heatmap.grid, heatmap.extent
    shape = rows / (extent.y1 - extent.y0), columns / (extent.x1 - extent.x0)
    return np.zeros(_shown(shape, SIDE), dtype=np.float32)


def _shown(shape: tuple[float, ...], side: int) -> Size:
    scale = side / max(shape)
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def _blended(image: Image, heatmap: Heatmap | None, size: Size) -> NDArray[np.float64]:
    """Return the image at ``size`` with the map over it, ``(height, width, 3)`` from 0 to 255.

    The map is scaled to its own maximum. The hotter it is, the less of the image shows; the more the model abstains,
    the fainter the map.
    """
    import PIL.Image

    grey = PIL.Image.fromarray((image * 255).astype(np.uint8)).resize(size[::-1], PIL.Image.Resampling.BILINEAR)
    colours = np.repeat(np.asarray(grey, dtype=np.float64)[:, :, None], 3, axis=2)
    if heatmap is None:
        return colours
    values = heatmap.to_size(size, keep_mass=False)
    share = values.astype(np.float64) / (values.max() or 1.0)
    return heated(colours, share, max(FAINTEST, 1.0 - heatmap.abstention))


def heated(colours: NDArray[np.float64], share: NDArray[np.float64], opacity: float = 1.0) -> NDArray[np.float64]:
    """Return colours ``(height, width, 3)`` with a map from 0 to 1 over them."""
    steps = np.linspace(0, 1, len(HEAT))
    heat = np.stack([np.interp(share, steps, HEAT[:, channel]) for channel in range(3)], axis=2)
    weight = 0.65 * opacity * share[:, :, None]
    blended: NDArray[np.float64] = (1 - weight) * colours + weight * heat
    return blended


def _outline(mask: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """Return the pixels of a mask that are within ``width`` of its edge."""
    from scipy.ndimage import binary_erosion

    edge: NDArray[np.bool_] = mask & ~binary_erosion(mask, iterations=width)
    return edge

"""The outlines of lungs and heart on a film, as the anatomy model sees them: what painting needs of a film's anatomy.

They are found once a film and are small, so that they can be kept: in a folder, under a hash of weights and pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, InputError, Mask
from rightlung.core.files import write_whole
from rightlung.core.keyed import text_digest
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.models.anatomy.frontal import check, shipped_model

ROWS = 128
"""Rows and columns of the film at which its outlines are kept."""
LEAST_LUNG = 0.02
"""The share of the film that each lung must fill."""
MOST_UNEQUAL = 2.5
"""Larger lung by smaller one."""
FORMAT = 1
"""Increase when what is kept changes."""
LUNGS = ("right lung", "left lung")

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Outlines:
    """Outlines in fractions of the film; NaN where there is no lung. Sides are right, left."""

    lateral: Floats  # (2, ROWS) x of each lung's lateral border, by row
    medial: Floats  # (2, ROWS) x of its medial border
    floor: Floats  # (2, ROWS) y of its lowest point, by column
    heart: Floats  # (4,) corners of the heart
    domes: Floats  # (2, 2) of each hemidiaphragm, x of its medial end and y of its highest point
    regions: Floats  # (29, 4) boxes of Chest ImaGenome's regions; NaN for those that are not seen


def find_outlines(image: Image, what: str, folder: Path | None = None) -> Outlines:
    """Return the outlines of a film, kept in ``folder`` if one is given; an error says why there are none."""
    if folder is None:
        return _found(image, what)
    key = text_digest(FORMAT, _weights(), image.shape, image.tobytes(), size=16).hex()
    path = folder / key[:2] / f"{key}.npz"
    try:
        with np.load(path) as kept:
            return Outlines(**{name: kept[name] for name in Outlines.__slots__})
    except (OSError, ValueError, KeyError):
        pass  # not there yet, or damaged: it is found again
    outlines = _found(image, what)
    file = BytesIO()
    np.savez(file, **{name: getattr(outlines, name) for name in Outlines.__slots__})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, file.getvalue())
    return outlines


@cache
def _weights() -> str:
    """Return a digest of the anatomy model's weights."""
    parameters = shipped_model().state_dict()
    return text_digest(*(part for name in sorted(parameters) for part in (name, _bytes(parameters[name])))).hex()


def _bytes(tensor: Any) -> bytes:
    values: bytes = tensor.cpu().numpy().tobytes()
    return values


def _found(image: Image, what: str) -> Outlines:
    (reading,) = shipped_model().read([image])  # one by one, because a network's last digits depend on the batch
    seen = check(image, reading=reading)
    if seen.kind != "frontal":
        raise InputError(f"{what}: nothing is painted: {seen.sentence}")
    lungs = [reading.structures[name] for name in LUNGS]
    shares = [float(lung.pixels.mean()) for lung in lungs]
    if min(shares) < LEAST_LUNG or max(shares) > MOST_UNEQUAL * min(shares):
        raise InputError(
            f"{what}: its anatomy is not found: the right lung fills {shares[0]:.0%} of the film and the left "
            f"{shares[1]:.0%}"
        )
    names = ("cardiac silhouette", "right hemidiaphragm", "left hemidiaphragm")
    outlined = {name: reading.structures[name].box() for name in names}
    if missing := [name for name, box in outlined.items() if box is None]:
        raise InputError(f"{what}: its anatomy is not found: no {missing[0]}")
    heart, right, left = (np.array(box.as_tuple()) for box in outlined.values() if box is not None)
    domes = np.array([[right[2], right[1]], [left[0], left[1]]])
    boxes = np.full((len(IMAGENOME_REGIONS), 4), np.nan, dtype=np.float32)
    for row, name in enumerate(IMAGENOME_REGIONS):
        if name in reading.regions:
            boxes[row] = reading.regions[name].box.as_tuple()
    sides = [_borders(lung, side) for side, lung in enumerate(lungs)]
    lateral, medial, floor = (np.stack(part) for part in zip(*sides, strict=True))
    return Outlines(lateral, medial, floor, heart.astype(np.float32), domes.astype(np.float32), boxes)


def _borders(lung: Mask, left: int) -> tuple[Floats, Floats, Floats]:
    """Return the lateral and the medial border of a lung by row, and its lowest point by column."""
    height, width = lung.pixels.shape
    rows, columns = (((np.arange(ROWS) + 0.5) / ROWS * size).astype(int) for size in (height, width))
    by_row, by_column = lung.pixels[rows], lung.pixels[:, columns]
    first, last = by_row.argmax(1) / width, 1.0 - by_row[:, ::-1].argmax(1) / width
    low = 1.0 - by_column[::-1].argmax(0) / height
    there, under = by_row.any(1), by_column.any(0)
    borders = (np.where(there, last if left else first, np.nan), np.where(there, first if left else last, np.nan))
    return borders[0].astype(np.float32), borders[1].astype(np.float32), np.where(under, low, np.nan).astype(np.float32)

"""Masks of anatomical structures of phantom studies, from the outlines that the image is drawn with.

The renderer keeps only the masks of lungs and heart. These are computed again from the scene, so they cost nothing
where they are not used. Like the lungs' masks, they show the anatomy, not its opacities: a lung under an effusion is
whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rightlung.lexicon import STRUCTURES
from rightlung.phantom.image import anatomy, maps
from rightlung.phantom.image.columns import ColumnTensors, table
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.marks import exposed_field
from rightlung.phantom.image.skeleton import girdle
from rightlung.phantom.image.strokes import Strokes, draw_windows, windows
from rightlung.phantom.scene import Scene

_ZONES = {"upper lung zone": (-1.0, 0.34), "mid lung zone": (0.34, 0.66), "lower lung zone": (0.66, 9.0)}
"""Between which fractions of the height from apex to dome each zone lies, as the boxes of `image.regions`."""
_SURFACE = (-1.4, 0.4)
"""Height above the diaphragm in centimetres of the band that stands for a hemidiaphragm."""


def structure_masks(scenes: Sequence[Scene], size: int) -> Tensor:
    """Return the masks of `STRUCTURES` in the exposed field, ``(n, 12, size, size)`` bool.

    The three zones of a lung are disjoint and together the lung.
    """
    thorax = anatomy.build(scenes)
    frame = Frame.of([scene.exposure for scene in scenes])
    columns = maps.columns(thorax, frame, 2 * size)  # whose maps have half as many cells
    studies = ColumnTensors(tuple(columns), torch.from_numpy(table(columns, len(scenes))))
    found = maps.build(studies, torch.from_numpy(maps.outlines(thorax)), size)
    outside = (found.lungs <= 0).all(1)
    heart = (found.heart > 0) & outside
    height = torch.from_numpy(thorax.height.astype(np.float32))[:, None, None]
    between = (found.inner < 0) & (found.y > -13.0 * height) & (found.y < -1.0 * height)
    masks = {"cardiac silhouette": heart, "mediastinum": (between | heart) & outside}
    low, high = _SURFACE
    surface = (found.diaphragm > low) & (found.diaphragm < high) & (found.inner > 0) & (found.wall > 0)
    clavicles = _clavicles(thorax, frame, size)
    for place, side in enumerate(("right", "left")):
        dome = torch.from_numpy(thorax.dome[place].astype(np.float32))[:, None, None]
        down = (found.y - studies["apex"]) / (dome - studies["apex"])
        for zone, (first, last) in _ZONES.items():
            masks[f"{side} {zone}"] = (found.lungs[:, place] > 0) & (down >= first) & (down < last)
        masks[f"{side} hemidiaphragm"] = surface & (found.is_left == bool(place))
        masks[f"{side} clavicle"] = clavicles[:, place]
    left, top, right, bottom = torch.from_numpy(exposed_field(scenes, size))[:, :, None].unbind(1)
    cells = torch.arange(size)[None]
    exposed = ((cells >= top) & (cells < bottom))[:, :, None] & ((cells >= left) & (cells < right))[:, None]
    return torch.stack([masks[name] for name in STRUCTURES], dim=1) & exposed[:, None]


def _clavicles(thorax: anatomy.Thorax, frame: Frame, size: int) -> Tensor:
    """Return the masks of the right and the left clavicle, (n, 2, size, size) bool."""
    points, radius, _ = girdle(thorax)[0]
    sides = [(points[:, [place]], radius[:, [place]], place) for place in range(2)]
    strokes = windows(Strokes.join([frame.strokes(chain, 2, size) for chain in sides]), size)
    drawn = {side: torch.from_numpy(rows) for side, rows in strokes.items()}
    depth = draw_windows(drawn, 2 * len(thorax), size, torch.device("cpu"))
    return depth.view(len(thorax), 2, size, size) > 0

"""Paint scenes: radiographs, and for each the masks and boxes that are true of it by construction.

>>> from rightlung.phantom.render import render  # doctest: +SKIP
>>> rendering = render(scenes, size=256)  # doctest: +SKIP
>>> rendering.images.shape  # doctest: +SKIP
torch.Size([8, 256, 256])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rightlung.core.box import Box
from rightlung.core.errors import InputError
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import LEAST_PIXELS, MOST_PIXELS
from rightlung.phantom.image import anatomy, fields, physics, skeleton, tissue, vessels
from rightlung.phantom.image.devices import draw_devices
from rightlung.phantom.image.fields import LUNG_DENSITY, column, enlarge
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.lesions import draw_lesions
from rightlung.phantom.image.overlays import add_overlays, exposed_field
from rightlung.phantom.image.regions import region_boxes
from rightlung.phantom.scene import Scene

SMALLEST, LARGEST = LEAST_PIXELS, MOST_PIXELS
_PIXELS_AT_ONCE = {"cpu": 8 * 256 * 256, "cuda": 256 * 256 * 256}  # small enough for the cache, or for the memory


@dataclass(frozen=True)
class Rendering:
    """Pictures and their truth for ``n`` scenes, all on one device.

    What lies under a collimator's black border is not to be seen and so not true of the picture: masks and region boxes
    end at the exposed field. A lesion that lies wholly outside keeps its place in the list with an empty mask; a device
    tip outside is not a number, and a region outside has a box of hardly any extent at the field's edge.
    """

    images: Tensor  # (n, size, size) float32 in 0 to 1, bright bone and dark lung
    lungs: Tensor  # (n, 2, size, size) bool, the right lung and the left
    heart: Tensor  # (n, size, size) bool
    lesion_masks: list[Tensor]  # for each scene (lesions, size, size) bool, in the order of ``scene.lesions``
    device_masks: list[Tensor]  # for each scene (devices, size, size) bool, in the order of ``scene.devices``
    device_tips: list[Tensor]  # for each scene (devices, 2): x and y in fractions; not a number where no tip is seen
    regions: Tensor  # (n, 29, 4) boxes in fractions, in the order of ``IMAGENOME_REGIONS``

    def region_boxes(self, index: int) -> dict[str, Box]:
        """Return the region boxes of one scene by name."""
        return {
            name: Box(*(min(max(float(value), 0.0), 1.0) for value in row))
            for name, row in zip(IMAGENOME_REGIONS, self.regions[index].tolist(), strict=True)
        }


def render(scenes: Sequence[Scene], size: int = 256, device: str | torch.device = "cpu") -> Rendering:
    """Paint scenes as pictures of ``size`` pixels a side.

    A scene's picture depends on the scene and the size alone: not on its neighbours in the batch, and on the device
    only by rounding.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not SMALLEST <= size <= LARGEST:
        raise InputError(f"size must be a whole number of pixels between {SMALLEST} and {LARGEST}; got {size!r}")
    if not scenes:
        raise InputError("there are no scenes to render")
    where = torch.device(device)
    step = max(1, _PIXELS_AT_ONCE.get(where.type, _PIXELS_AT_ONCE["cpu"]) // (size * size))
    with torch.no_grad():  # not inference mode, whose tensors a training step could not use
        parts = [_render_part(scenes[begin : begin + step], size, where) for begin in range(0, len(scenes), step)]
    if len(parts) == 1:
        return parts[0]
    return Rendering(
        images=torch.cat([part.images for part in parts]),
        lungs=torch.cat([part.lungs for part in parts]),
        heart=torch.cat([part.heart for part in parts]),
        lesion_masks=[mask for part in parts for mask in part.lesion_masks],
        device_masks=[mask for part in parts for mask in part.device_masks],
        device_tips=[tip for part in parts for tip in part.device_tips],
        regions=torch.cat([part.regions for part in parts]),
    )


def _render_part(scenes: Sequence[Scene], size: int, device: torch.device) -> Rendering:
    thorax = anatomy.build(scenes)
    frame = Frame.of([scene.exposure for scene in scenes])
    coarse = fields.build(thorax, frame, size // 2, device)
    pixel = column(1.0 / (frame.scale * size), coarse.x)
    lungs = torch.stack([enlarge(coarse.lungs[:, side], size) for side in range(2)], dim=1)
    softness = enlarge(fields.border_softness(coarse), size)
    coverage = (lungs.amax(1) / (pixel + softness) + 0.5).clamp_(0, 1)
    bones, breaks = skeleton.draw_bones(thorax, frame, size, device)
    overlay = draw_lesions(thorax, frame, coarse, lungs, breaks, size)

    density = column([LUNG_DENSITY * (1 - change.lucent) for change in thorax.changes], coarse.x)
    air = coverage * enlarge(coarse.depth * (1 - density) * tissue.lung_grain(thorax, coarse), size)
    if overlay.keep is not None:
        air *= overlay.keep
    air += (1 - coverage) * enlarge(tissue.hidden_air(thorax, coarse), size)
    markings = vessels.draw_vessels(thorax, frame, size, device).mul_(coverage)
    if overlay.markings is not None:
        markings *= overlay.markings
    water = enlarge(
        tissue.body_thickness(thorax, coarse)
        + tissue.central_vessels(thorax, coarse)
        - tissue.bowel_air(thorax, coarse),
        size,
    )
    water -= air
    water += markings
    water -= vessels.draw_airways(thorax, frame, size, device)
    if overlay.water is not None:
        water += overlay.water
    bone = skeleton.bone_thickness(thorax, coarse, bones, coverage)
    if overlay.bone is not None:
        bone += overlay.bone
    metal, device_masks, tips = draw_devices(thorax, frame, size, device)
    if metal is not None:
        bone += metal
    attenuation = water.clamp_min_(0).mul_(physics.WATER).add_(bone, alpha=physics.BONE)
    images = physics.display(scenes, physics.expose(scenes, attenuation))
    field = exposed_field(scenes, size)
    seen = torch.from_numpy(field).to(device)
    cells = torch.arange(size, device=device)
    rows = (cells[None] >= seen[:, 1:2]) & (cells[None] < seen[:, 3:4])
    columns = (cells[None] >= seen[:, 0:1]) & (cells[None] < seen[:, 2:3])
    exposed = rows[:, :, None] & columns[:, None, :]
    for study, (left, top, right, bottom) in enumerate((field / size).tolist()):
        tip = tips[study]
        tip[~((tip >= (left, top)) & (tip <= (right, bottom))).all(axis=1)] = np.nan
    return Rendering(
        images=add_overlays(scenes, images),
        lungs=(lungs > 0) & exposed[:, None],
        heart=(enlarge(coarse.heart, size) > 0) & (lungs.amax(1) <= 0) & exposed,
        lesion_masks=[masks & own for masks, own in zip(overlay.masks, exposed, strict=True)],
        device_masks=[masks & own for masks, own in zip(device_masks, exposed, strict=True)],
        device_tips=[torch.from_numpy(tip).float().to(device) for tip in tips],
        regions=torch.from_numpy(region_boxes(thorax, frame, field / size)).float().to(device),
    )

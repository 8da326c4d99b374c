"""Render scenes as radiographs, with the masks and boxes that are exact by construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from rightlung.core.box import Box
from rightlung.core.errors import InputError
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import check_picture_size
from rightlung.phantom.image import maps, physics, skeleton, tissue, vessels
from rightlung.phantom.image.composite import draw_lesions
from rightlung.phantom.image.devices import draw_devices
from rightlung.phantom.image.maps import enlarge
from rightlung.phantom.image.marks import add_overlays
from rightlung.phantom.image.randomness import SmoothNoise, draw_noise
from rightlung.phantom.image.strokes import draw_windows
from rightlung.phantom.prepare import AIRWAYS, BONES, LAYERS, VESSELS, Prepared, SceneBatch, prepare
from rightlung.phantom.scene import Scene

_PIXELS_AT_ONCE = {"cpu": 8 * 256 * 256, "cuda": 256 * 256 * 256}  # fits into the CPU's cache, or the GPU's memory


@dataclass(frozen=True)
class Rendering:
    """Images and their ground truth for ``n`` scenes, all on one device.

    Masks and region boxes end at the exposed field, because nothing below a collimator's black border is visible. A
    lesion completely outside keeps its position in the list with an empty mask; a device tip outside is NaN, and a
    region outside has a tiny box at the field's edge.
    """

    images: Tensor  # (n, size, size) float32 in 0 to 1, bright bone and dark lung
    lungs: Tensor  # (n, 2, size, size) bool, the right lung and the left
    heart: Tensor  # (n, size, size) bool
    lesion_masks: list[Tensor]  # for each scene (lesions, size, size) bool, in the order of ``scene.lesions``
    device_masks: list[Tensor]  # for each scene (devices, size, size) bool, in the order of ``scene.devices``
    device_tips: list[Tensor]  # for each scene (devices, 2): x and y in fractions; NaN if no tip is visible
    regions: Tensor  # (n, 29, 4) boxes in fractions, in the order of ``IMAGENOME_REGIONS``

    def cpu(self) -> Rendering:
        """Return the rendering on the CPU."""
        moved: dict[str, Any] = {
            name: [one.cpu() for one in value] if isinstance(value, list) else value.cpu()
            for name, value in vars(self).items()
        }
        return replace(self, **moved)

    def region_boxes(self, index: int) -> dict[str, Box]:
        """Return the region boxes of one scene by name."""
        return {
            name: Box(*(min(max(float(value), 0.0), 1.0) for value in row))
            for name, row in zip(IMAGENOME_REGIONS, self.regions[index].tolist(), strict=True)
        }


def pictures_at_once(size: int, device: torch.device) -> int:
    """Return how many images are rendered together."""
    return max(1, _PIXELS_AT_ONCE.get(device.type, _PIXELS_AT_ONCE["cpu"]) // (size * size))


def render(scenes: Sequence[Scene], size: int = 256, device: str | torch.device = "cpu") -> Rendering:
    """Render scenes as images of ``size`` x ``size`` pixels.

    An image depends only on its scene and the size, not on the rest of the batch, and on the device only by rounding.
    """
    check_picture_size(size)
    if not scenes:
        raise InputError("there are no scenes to render")
    step = pictures_at_once(size, torch.device(device))
    parts = (prepare(scenes[begin : begin + step], size) for begin in range(0, len(scenes), step))
    return join([paint([part], device) for part in parts])


def join(parts: Sequence[Rendering]) -> Rendering:
    """Concatenate renderings of one size and device."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for entry in fields(Rendering):
        values = [getattr(part, entry.name) for part in parts]
        joined[entry.name] = torch.cat(values) if isinstance(values[0], Tensor) else list(chain(*values))
    return Rendering(**joined)


@torch.no_grad()  # not inference mode, because a training step could not use its tensors
def paint(parts: Sequence[Prepared], device: str | torch.device = "cpu") -> Rendering:
    """Render prepared parts together, in order."""
    batch = SceneBatch.of(parts, torch.device(device))
    size, studies, placed = batch.size, batch.studies, batch.placed
    count = len(studies)
    coarse = maps.build(studies, batch.outlines, size // 2)
    own = [
        SmoothNoise(batch.seeds[:, place], cells, octaves, size // 2)
        for place, (cells, octaves) in enumerate(tissue.CLOUDS.values())
    ]
    body, grain, gas, *clouds = draw_noise([*own, *placed.clouds(size // 2, size)])
    lungs = enlarge(coarse.lungs.flatten(0, 1), size).view(count, 2, size, size)
    outline = lungs.amax(1)
    softness = enlarge(maps.border_softness(coarse), size)
    coverage = (outline / (studies["pixel"] + softness) + 0.5).clamp_(0, 1)
    depth = draw_windows(batch.strokes, count * LAYERS + len(batch.chains), size, batch.outlines.device)
    layers = depth[: count * LAYERS].view(count, LAYERS, size, size)
    overlay = draw_lesions(placed, studies, coarse, outline, clouds)

    lung = coarse.depth * (1 - studies["density"]) * (1.0 + 0.028 * grain)
    air = coverage * enlarge(lung, size)
    air *= overlay.keep
    air += (1 - coverage) * enlarge(tissue.hidden_air(studies, coarse), size)
    markings = vessels.draw_vessels(layers[:, VESSELS:AIRWAYS]).mul_(coverage)
    markings *= overlay.markings
    water = enlarge(
        tissue.body_thickness(studies, coarse, body)
        + tissue.central_vessels(studies, coarse)
        - tissue.bowel_air(studies, coarse, gas),
        size,
    )
    water -= air
    water += markings
    water -= vessels.draw_airways(layers[:, AIRWAYS:], studies["airway_width"])
    water += overlay.water
    bone = skeleton.bone_thickness(studies, coarse, layers[:, BONES:VESSELS], coverage)
    bone += overlay.bone
    metal, device_masks = draw_devices(depth[count * LAYERS :], batch.chains, batch.density, count, len(batch.tips))
    bone += metal
    attenuation = water.clamp_min_(0).mul_(physics.WATER).add_(bone, alpha=physics.BONE)
    images = physics.display(studies, physics.expose(studies, batch.seeds[:, -1], attenuation))
    exposed = _exposed(batch)
    lesion_masks = overlay.masks & exposed[placed.study_of]
    device_masks &= exposed[batch.study_of_device]
    return Rendering(
        images=add_overlays(images, batch.ink, exposed),
        lungs=(lungs > 0) & exposed[:, None],
        heart=(enlarge(coarse.heart, size) > 0) & (outline <= 0) & exposed,
        lesion_masks=list(torch.split(lesion_masks, batch.lesion_counts)),
        device_masks=list(torch.split(device_masks, batch.devices)),
        device_tips=list(torch.split(batch.tips, batch.devices)),
        regions=batch.regions,
    )


def _exposed(batch: SceneBatch) -> Tensor:
    """Return the exposed fields of the images, ``(n, size, size)`` bool."""
    cells = torch.arange(batch.size, device=batch.field.device)[None]
    left, top, right, bottom = batch.field[:, :, None].unbind(1)
    rows = (cells >= top) & (cells < bottom)
    columns = (cells >= left) & (cells < right)
    return rows[:, :, None] & columns[:, None, :]

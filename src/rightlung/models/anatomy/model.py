"""The anatomy model: from radiographs of any shape to outlines and boxes in fractions of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, grid_sample

from rightlung.core import Box, Extent, Image, Mask, ScoredBox
from rightlung.lexicon import IMAGENOME_REGIONS, STRUCTURES
from rightlung.models.anatomy.config import LOSSES, POSITIONS, AnatomyConfig
from rightlung.models.anatomy.losses import box_loss, confidence_loss, mask_loss, spoilt
from rightlung.models.anatomy.network import Anatomy, AnatomyNetwork
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.encoders.configured import ConfiguredModel
from rightlung.models.inputs import Images, as_images
from rightlung.models.preprocessing import letterbox_batches, standardise

SPOILT = 4
"""One image in so many is also shown spoilt."""
LUNGS = {f"{side} lung": [n for n, name in enumerate(STRUCTURES) if name.startswith(side) and "zone" in name]
         for side in ("right", "left")}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AnatomyReading:
    """The anatomy of one image.

    ``regions`` has the box of each of Chest ImaGenome's 29 regions that is in the image, with the predicted IoU as its
    score; ``positions`` the probability of each of `POSITIONS`.
    """

    regions: dict[str, ScoredBox]
    structures: dict[str, Mask]
    positions: dict[str, float]


class AnatomyModel(ConfiguredModel):
    """Outlines, boxes and their confidence; every answer is the mean of the image's and of its mirror image's."""

    kind: ClassVar[str] = "anatomy"
    config_type = AnatomyConfig
    loss_names = LOSSES
    config: AnatomyConfig

    def __init__(self, config: AnatomyConfig) -> None:
        super().__init__()
        self.config = config
        self.network = AnatomyNetwork(config)

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name. No image is compared with another, so ``gather`` is not used.

        Images without known structures, such as real ones, count for the position only.
        """
        self.check_size(batch, "size", self.config.size)
        structures, regions = batch.target("structures"), batch.target("regions")
        known = structures["known"]
        levels = self.network.encode(standardise(batch.images))
        found = self.network([level[known] for level in levels])
        spoilt_images, wrong = spoilt(batch.images[batch.seed % SPOILT :: SPOILT], batch.seed)
        positions = torch.cat(
            [self.network.positions(levels), self.network.positions(self.network.encode(standardise(spoilt_images)))]
        )
        truth, present = regions["boxes"][known].float(), regions["present"][known]
        terms = {
            "mask": mask_loss(found.masks.float(), structures["shares"][known]),
            "box": box_loss(found.boxes, truth, present),
            "confidence": confidence_loss(found.confidence.float(), found.boxes, truth, present),
            "position": cross_entropy(positions.float(), torch.cat([wrong.new_zeros(len(levels[0])), wrong])),
        }
        return {name: terms[name] for name in self.config.losses}

    # ------------------------------------------------------------------ asking

    def regions(self, images: Images) -> list[dict[str, ScoredBox]]:
        """Return the box of each region by name, with the predicted IoU as its score."""
        return [reading.regions for reading in self.read(images)]

    def structures(self, images: Images) -> list[dict[str, Mask]]:
        """Return the masks of `STRUCTURES`, and of both lungs, at the size of each image."""
        return [reading.structures for reading in self.read(images)]

    def read(self, images: Images) -> list[AnatomyReading]:
        """Return regions, structures and positions of each image."""
        return list(self._read(as_images(images)))

    def _read(self, images: Sequence[Image]) -> Iterator[AnatomyReading]:
        done = 0
        with self.eval_mode():
            for squares, extents in letterbox_batches(images, self.config.size, self.device):
                both = [self.network(self.network.encode(standardise(one))) for one in (squares, squares.flip(-1))]
                found = both[0].mean(both[1].mirrored())
                for row, extent in enumerate(extents):
                    yield _reading(found, row, extent, images[done + row].shape)
                done += len(extents)


def _reading(found: Anatomy, row: int, extent: Extent, shape: tuple[int, ...]) -> AnatomyReading:
    x0, y0, x1, y1 = extent.as_tuple()
    corners = found.boxes[row].cpu() * torch.tensor([x1 - x0, y1 - y0] * 2) + torch.tensor([x0, y0] * 2)
    scores = found.confidence[row].sigmoid().tolist()
    boxes = {name: Box.clipped(*box) for name, box in zip(IMAGENOME_REGIONS, corners.tolist(), strict=True)}
    regions = {name: ScoredBox(box, score, name) for (name, box), score in zip(boxes.items(), scores, strict=True)
               if box is not None}  # fmt: skip
    masks = _at_size(_in_one_piece(found.masks[row].float().cpu(), found.boxes[row].cpu()), extent, shape) > 0
    structures = {name: Mask(mask) for name, mask in zip(STRUCTURES, masks, strict=True)}
    structures |= {name: Mask(masks[parts].any(0)) for name, parts in LUNGS.items()}
    chances = found.positions[row].float().softmax(-1).tolist()
    return AnatomyReading(regions, structures, dict(zip(POSITIONS, chances, strict=True)))


def _in_one_piece(logits: Tensor, boxes: Tensor) -> Tensor:
    """Return mask logits (12, rows, cols) with one piece of each structure: the one that fills most of its box.

    Gas in the stomach and clothes beside the chest look like lung; pieces there are cut off. ``boxes`` (29, 4) are
    those of the regions in the square.
    """
    from scipy.ndimage import label, sum_labels

    rows, columns = logits.shape[1:]
    down, across = (torch.arange(count) + 0.5 for count in (rows, columns))
    kept = logits.clone()
    for number, name in enumerate(STRUCTURES):
        pieces, count = label(logits[number].numpy() > 0)
        if count > 1:
            x0, y0, x1, y1 = (boxes[IMAGENOME_REGIONS.index(name)] * torch.tensor([columns, rows] * 2)).tolist()
            within = ((down > y0) & (down < y1))[:, None] & ((across > x0) & (across < x1))
            sizes = sum_labels(0.01 + within.numpy(), pieces, range(1, count + 1))
            kept[number][torch.from_numpy((pieces > 0) & (pieces != 1 + int(np.argmax(sizes))))] = -1.0
    return kept


def _at_size(logits: Tensor, extent: Extent, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return logits (k, rows, cols) of the square at the pixels of the image, (k, height, width)."""
    x0, y0, x1, y1 = extent.as_tuple()
    across, down = ((torch.arange(n, device=logits.device) + 0.5) / n for n in (shape[1], shape[0]))
    x, y = 2 * (across - x0) / (x1 - x0) - 1, 2 * (down - y0) / (y1 - y0) - 1
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)[None]
    sampled: NDArray[np.float32] = (
        grid_sample(logits[None].float(), grid, "bilinear", "border", align_corners=False)[0].cpu().numpy()
    )
    return sampled

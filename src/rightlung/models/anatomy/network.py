"""The network of the anatomy model: a U-Net (Ronneberger et al., MICCAI 2015) whose levels are added, not joined.

Outlines are logits at half of the image's resolution. The two corners of a box are the centres of mass of two heatmaps
at a quarter of it (integral regression, Sun et al., ECCV 2018), so a box moves with the image and needs few weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rightlung.lexicon import IMAGENOME_REGIONS, STRUCTURES, mirror_region
from rightlung.models.anatomy.config import POSITIONS, AnatomyConfig

REACH = 1.06
"""The range of a centre of mass, of the image's side: a box may end at the border, where no cell has its centre."""
OTHER_REGION = [IMAGENOME_REGIONS.index(mirror_region(name)) for name in IMAGENOME_REGIONS]
OTHER_STRUCTURE = [STRUCTURES.index(mirror_region(name)) for name in STRUCTURES]


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """What the network sees in ``n`` images; boxes are in fractions of the square."""

    masks: Tensor  # (n, 12, size / 2, size / 2) logits of `STRUCTURES`
    boxes: Tensor  # (n, 29, 4) of `IMAGENOME_REGIONS`, by corners
    confidence: Tensor  # (n, 29) logits of the predicted IoU
    positions: Tensor  # (n, 5) logits of `POSITIONS`

    def mirrored(self) -> Anatomy:
        """Return the anatomy of the mirrored images: the patient's other side."""
        x0, y0, x1, y1 = self.boxes[:, OTHER_REGION].unbind(-1)
        return Anatomy(
            self.masks[:, OTHER_STRUCTURE].flip(-1),
            torch.stack([1 - x1, y0, 1 - x0, y1], dim=-1),
            self.confidence[:, OTHER_REGION],
            self.positions,
        )

    def mean(self, other: Anatomy) -> Anatomy:
        """Return the mean of two predictions."""
        names = Anatomy.__slots__
        return Anatomy(**{name: (getattr(self, name) + getattr(other, name)) / 2 for name in names})


def _convolution(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.GroupNorm(8, outputs), nn.ReLU(inplace=True))


class AnatomyNetwork(nn.Module):
    """From standardised images (n, 1, size, size) to their `Anatomy`."""

    def __init__(self, config: AnatomyConfig) -> None:
        super().__init__()
        first, second, third, last = config.channels
        regions = len(IMAGENOME_REGIONS)
        self.down = nn.ModuleList(
            [
                nn.Sequential(_convolution(1, first, 2, 5), _convolution(first, first)),
                nn.Sequential(_convolution(first, second, 2), _convolution(second, second)),
                nn.Sequential(_convolution(second, third, 2), _convolution(third, third)),
                nn.Sequential(_convolution(third, last, 2), _convolution(last, last), _convolution(last, last)),
            ]
        )
        pairs = ((last, third), (third, second), (second, first))
        self.narrow = nn.ModuleList([nn.Conv2d(wide, narrow, 1) for wide, narrow in pairs])
        self.up = nn.ModuleList([_convolution(narrow, narrow) for _, narrow in pairs])
        self.mask_head = nn.Conv2d(first, len(STRUCTURES), 1)
        self.corner_head = nn.Conv2d(second, 2 * regions, 1)
        self.confidence_head = nn.Linear(last, regions)
        self.spread_weight = nn.Parameter(torch.full((regions, 2), -0.5))  # a wide heatmap is an uncertain corner
        self.position_head = nn.Linear(last, len(POSITIONS))

    def encode(self, images: Tensor) -> list[Tensor]:
        """Return the maps of all levels, the finest first."""
        levels = []
        for stage in self.down:
            images = stage(images)
            levels.append(images)
        return levels

    def positions(self, levels: list[Tensor]) -> Tensor:
        """Return the logits of `POSITIONS`, (n, 5)."""
        logits: Tensor = self.position_head(levels[-1].mean((2, 3)))
        return logits

    def forward(self, levels: list[Tensor]) -> Anatomy:
        """Return the anatomy of images from what `encode` returned."""
        maps, corners = levels[-1], None
        for narrow, up, level in zip(self.narrow, self.up, reversed(levels[:-1]), strict=True):
            maps = up(interpolate(narrow(maps), scale_factor=2, mode="nearest") + level)
            if maps.shape[1] == self.corner_head.in_channels and corners is None:
                corners = self.corner_head(maps)
        assert corners is not None
        boxes, spread = _corner_boxes(corners.float())
        pooled = levels[-1].mean((2, 3)).detach()  # so that the confidence does not change what it is about
        confidence = self.confidence_head(pooled) + (spread.detach().log() * self.spread_weight).sum(-1)
        return Anatomy(self.mask_head(maps), boxes, confidence, self.positions(levels))


def _corner_boxes(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return boxes (n, k, 4) and the spread (n, k, 2) of both corners, from heatmaps (n, 2 * k, rows, cols)."""
    count, channels, rows, columns = logits.shape
    weights = logits.flatten(2).softmax(-1).view(count, channels // 2, 2, rows, columns)
    down, across = weights.sum(-1), weights.sum(-2)
    places = [((torch.arange(n, device=logits.device) + 0.5) / n - 0.5) * REACH + 0.5 for n in (columns, rows)]
    means = [across @ places[0], down @ places[1]]  # x and y, (n, k, 2) each
    variances = [across @ places[0].square() - means[0].square(), down @ places[1].square() - means[1].square()]
    first, second = torch.stack(means, dim=-1).unbind(2)
    boxes = torch.cat([torch.minimum(first, second), torch.maximum(first, second)], dim=-1)
    return boxes, (variances[0] + variances[1]).clamp_min(1e-8).sqrt()

"""Image encoders: what the regions of a radiograph look like, and the whole of it.

Any of the backbones gives a pyramid of feature maps. The regions are one level of it (GLoRIA: the third of a ResNet) or
several added up on the finest of them, so that small findings keep their place and still know what is around them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rightlung.core.errors import InputError
from rightlung.core.frozen import FrozenMapping
from rightlung.models.encoders.pretrained import build_config, build_model, load_pretrained, own_options
from rightlung.models.preprocessing import standardise

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ImageKind = Literal["resnet", "convnext", "swin", "vit", "efficientnet"]


@dataclass(frozen=True)
class ImageEncoderConfig:
    """A backbone of `transformers` and which of its levels are the regions.

    ``options`` go to the backbone's configuration. ``pretrained`` names a folder or a hub id to take configuration and
    weights from; a saved model no longer needs it. ``levels`` count the resolutions from the finest (0), negative ones
    from the coarsest; several, the finest first, are projected and added up from the last to the first, whose grid is
    that of the regions. ``positions`` adds a learned vector for each cell of that grid.
    """

    kind: ImageKind = "resnet"
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    size: int = 224
    levels: tuple[int, ...] = (2,)
    positions: bool = False
    pretrained: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        if not 32 <= self.size <= 2048:
            raise InputError(f"size must be 32 to 2048 pixels; got {self.size}")
        if not self.levels:
            raise InputError("levels must name at least one level")


@dataclass(frozen=True, slots=True)
class ImageEmbeddings:
    """``n`` encoded images: patch embeddings (n, d, rows, cols) and global embedding (n, d)."""

    patch_embeddings: Tensor
    global_embedding: Tensor


class ImageEncoder(nn.Module):
    """A backbone with projections of its regions and of its pooled last level to ``dimension``."""

    def __init__(self, config: ImageEncoderConfig, dimension: int) -> None:
        super().__init__()
        backbone, channels = _backbone(config)
        options = {"num_channels": channels, **own_options(backbone.config)}
        self.config = replace(config, options=options, pretrained=None)
        self.backbone = backbone
        self.channels = channels
        try:
            with torch.no_grad():  # as in use: a blank picture must not enter the statistics of batch norms
                was = backbone.training
                backbone.train(False)
                levels, pooled = self._encode(torch.zeros(1, 1, config.size, config.size))
                shapes = [level.shape for level in levels]
                backbone.train(was)
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"an image of {config.size} pixels does not go through the {config.kind}: {error}"
            ) from None
        for level in config.levels:
            if not -len(shapes) <= level < len(shapes):
                raise InputError(f"levels must lie between {-len(shapes)} and {len(shapes) - 1}; got {level}")
        chosen = [shapes[level] for level in config.levels]
        self.grid = (int(chosen[0][2]), int(chosen[0][3]))
        self.patch_projections = nn.ModuleList(nn.Conv2d(int(shape[1]), dimension, 1) for shape in chosen)
        self.global_projection = nn.Linear(int(pooled.shape[1]), dimension)
        self.position = nn.Parameter(_smooth_positions(dimension, self.grid)) if config.positions else None

    def forward(self, images: Tensor) -> ImageEmbeddings:
        """Encode images (n, 1, size, size) in 0 to 1."""
        levels, pooled = self._encode(standardise(images))
        regions: Tensor | None = None
        for level, project in reversed(list(zip(self.config.levels, self.patch_projections, strict=True))):
            projected = project(levels[level])
            if regions is not None:
                grid = (projected.shape[2], projected.shape[3])
                projected = projected + interpolate(regions, grid, mode="bilinear", align_corners=False)
            regions = projected
        assert regions is not None
        if self.position is not None:
            regions = regions + self.position
        return ImageEmbeddings(regions, self.global_projection(pooled))

    def _encode(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """Feature maps (n, c, h, w), the last of each resolution, the finest first; and the pooled last one (n, c)."""
        if self.channels > 1:  # a backbone for colour pictures sees grey ones
            images = images.expand(-1, self.channels, -1, -1)
        answer = self.backbone(images, output_hidden_states=True)
        if self.config.kind == "vit":
            tokens = answer.last_hidden_state
            side = round((tokens.shape[1] - 1) ** 0.5)
            return [tokens[:, 1:].transpose(1, 2).reshape(len(tokens), -1, side, side)], tokens[:, 0]
        maps = answer.reshaped_hidden_states if self.config.kind == "swin" else answer.hidden_states
        by_resolution: dict[int, Tensor] = {features.shape[2]: features for features in maps}
        return list(by_resolution.values()), answer.pooler_output.flatten(1)


def _smooth_positions(dimension: int, grid: tuple[int, int], waves: int = 4, size: float = 0.1) -> Tensor:
    """Return a vector for each cell, (d, rows, cols), by chance but alike for neighbours: slow waves."""
    rows, columns = (
        torch.cos(torch.arange(waves)[:, None] * math.pi * (torch.arange(length) + 0.5) / length) for length in grid
    )
    weights = torch.randn(dimension, waves, waves)
    weights[:, 0, 0] = 0.0  # the same everywhere says nothing about where
    return size * torch.einsum("dij,ir,jc->drc", weights, rows, columns)


def _backbone(config: ImageEncoderConfig) -> tuple[PreTrainedModel, int]:
    if config.pretrained is not None:
        backbone = load_pretrained(config.pretrained, config.kind, "image encoder")
        return backbone, int(getattr(backbone.config, "num_channels", 3))
    options: dict[str, Any] = {"num_channels": 1, **config.options}
    if config.kind in ("vit", "swin"):
        options = {"image_size": config.size, **options}
    return build_model(build_config(config.kind, options, "image encoder"), "image encoder"), options["num_channels"]

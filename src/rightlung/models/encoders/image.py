"""Image encoders: a backbone of `transformers` with projections of its feature maps and of its pooled output.

A backbone gives a pyramid of feature maps. The patch embeddings are one level of it (GLoRIA: the third of a ResNet), or
several added up on the finest of them: small findings keep their position and still see what surrounds them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.core.frozen import FrozenMapping
from rightlung.models.encoders.pretrained import build_config, build_model, load_pretrained, own_options
from rightlung.models.preprocessing import standardise

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ImageKind = Literal["resnet", "convnext", "swin", "vit", "efficientnet"]
ImagePooling = Literal["separate", "shared", "mean"]


@dataclass(frozen=True)
class ImageEncoderConfig:
    """A backbone of `transformers` and the levels of its feature pyramid that become patch embeddings.

    - ``options``: fields of the backbone's configuration in `transformers`, such as ``hidden_sizes``.
    - ``size``: height and width of the images in pixels.
    - ``pyramid_levels``: resolutions of the feature maps, counted from the finest (0) or the coarsest (-1). Several
      levels, the finest first, are projected and added up on the grid of the first one.
    - ``position_embeddings``: add a learned vector to each cell of that grid.
    - ``pooling``: the global embedding is the backbone's pooled output (ViT: the class token) with a projection of its
      own (``separate``, GLoRIA) or with that of the patches (``shared``, CLIP), or it is the ``mean`` of the patch
      embeddings. With the last two, patches and whole images lie in one space.
    - ``projection_bias``: whether the projections have a bias.
    - ``pretrained``: a folder or a hub id to take configuration and weights from; a saved model no longer needs it.
    """

    kind: ImageKind = "resnet"
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    size: int = 224
    pyramid_levels: tuple[int, ...] = (2,)
    position_embeddings: bool = False
    pooling: ImagePooling = "separate"
    projection_bias: bool = True
    pretrained: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        check_limits(self.size, "size", 32, 2048)
        if not self.pyramid_levels:
            raise InputError("pyramid_levels must name at least one level")
        if self.pooling == "shared" and (len(self.pyramid_levels) > 1 or self.position_embeddings):
            raise InputError("pooling 'shared' needs one of pyramid_levels and no position_embeddings; or use 'mean'")


@dataclass(frozen=True, slots=True)
class ImageEmbeddings:
    """``n`` encoded images: patch embeddings (n, d, rows, cols) and global embedding (n, d)."""

    patch_embeddings: Tensor
    global_embedding: Tensor


class ImageEncoder(nn.Module):
    """A backbone with projections of its levels and of its pooled output to ``dimension``.

    Without ``global_embedding``, the pooled output is not projected, and only `patches` can be called.
    """

    def __init__(self, config: ImageEncoderConfig, dimension: int, global_embedding: bool = True) -> None:
        super().__init__()
        backbone, channels = _backbone(config)
        options = {"num_channels": channels, **own_options(backbone.config)}
        self.config = replace(config, options=options, pretrained=None)
        self.backbone = backbone
        self.channels = channels
        try:
            with torch.no_grad():  # in evaluation mode: a blank image must not enter the statistics of batch norms
                was_training = backbone.training
                backbone.train(False)
                levels, pooled = self._encode(torch.zeros(1, 1, config.size, config.size))
                shapes = [level.shape for level in levels]
                backbone.train(was_training)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"size: the {config.kind} cannot encode images of {config.size} pixels: {error}") from None
        for level in config.pyramid_levels:
            if not -len(shapes) <= level < len(shapes):
                raise InputError(f"pyramid_levels must lie between {-len(shapes)} and {len(shapes) - 1}; got {level}")
        chosen = [shapes[level] for level in config.pyramid_levels]
        self.grid = (int(chosen[0][2]), int(chosen[0][3]))
        if config.pooling == "shared" and chosen[0][1] != pooled.shape[1]:
            raise InputError(
                f"pooling 'shared' needs a level of {pooled.shape[1]} channels, as the pooled output has; level "
                f"{config.pyramid_levels[0]} of the {config.kind} has {chosen[0][1]}: set pyramid_levels to [-1], or "
                "use pooling 'mean'"
            )
        bias = config.projection_bias
        self.patch_projections = nn.ModuleList(nn.Conv2d(int(shape[1]), dimension, 1, bias=bias) for shape in chosen)
        separate = global_embedding and config.pooling == "separate"
        self.global_projection = nn.Linear(int(pooled.shape[1]), dimension, bias=bias) if separate else None
        self.position = nn.Parameter(smooth_positions(dimension, self.grid)) if config.position_embeddings else None

    def forward(self, images: Tensor, standardised: bool = False) -> ImageEmbeddings:
        """Encode images (n, 1, size, size) in 0 to 1 or, already ``standardised``, (n, 1 or channels, size, size)."""
        levels, pooled = self._encode(images if standardised else standardise(images))
        patches = self._project(levels)
        if self.config.pooling == "mean":
            return ImageEmbeddings(patches, patches.mean(dim=(2, 3)))
        if self.config.pooling == "shared":
            return ImageEmbeddings(patches, self.patch_projections[0](pooled[:, :, None, None]).flatten(1))
        assert self.global_projection is not None
        return ImageEmbeddings(patches, self.global_projection(pooled))

    def patches(self, images: Tensor) -> Tensor:
        """Return the patch embeddings (n, d, rows, cols) of images (n, 1, size, size) in 0 to 1."""
        return self._project(self._encode(standardise(images))[0])

    def _project(self, levels: list[Tensor]) -> Tensor:
        patches: Tensor | None = None
        for level, project in reversed(list(zip(self.config.pyramid_levels, self.patch_projections, strict=True))):
            projected = project(levels[level])
            if patches is not None:
                grid = (projected.shape[2], projected.shape[3])
                projected = projected + interpolate(patches, grid, mode="bilinear", align_corners=False)
            patches = projected
        assert patches is not None
        return patches if self.position is None else patches + self.position

    def _encode(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the last feature map (n, c, h, w) of each resolution, finest first, and the pooled output (n, c)."""
        if self.channels > 1:  # a backbone for colour images sees the same grey in every channel
            images = images.expand(-1, self.channels, -1, -1)
        output = self.backbone(images, output_hidden_states=True)
        if self.config.kind == "vit":
            tokens = output.last_hidden_state
            side = round((tokens.shape[1] - 1) ** 0.5)
            return [tokens[:, 1:].transpose(1, 2).reshape(len(tokens), -1, side, side)], tokens[:, 0]
        maps = output.reshaped_hidden_states if self.config.kind == "swin" else output.hidden_states
        levels = list({features.shape[2]: features for features in maps}.values())
        final_norm = getattr(self.backbone, "layernorm", None)
        if self.config.pooling != "separate" and final_norm is not None:  # patches as the pooled output sees them
            levels[-1] = final_norm(levels[-1].movedim(1, -1)).movedim(-1, 1)
        return levels, output.pooler_output.flatten(1)


def torchvision_name(name: str) -> str:
    """Return torchvision's name of a tensor of `transformers`' ResNet, for checkpoints that were trained with it.

    >>> torchvision_name("encoder.stages.2.layers.0.layer.1.normalization.running_mean")
    'layer3.0.bn2.running_mean'
    >>> torchvision_name("encoder.stages.0.layers.0.shortcut.convolution.weight")
    'layer1.0.downsample.0.weight'
    """
    name = name.replace("embedder.embedder.convolution", "conv1").replace("embedder.embedder.normalization", "bn1")
    name = re.sub(r"encoder\.stages\.(\d)\.layers\.", lambda found: f"layer{int(found[1]) + 1}.", name)
    name = name.replace("shortcut.convolution", "downsample.0").replace("shortcut.normalization", "downsample.1")
    kinds = {"convolution": "conv", "normalization": "bn"}
    return re.sub(r"layer\.(\d)\.(\w+)", lambda found: f"{kinds[found[2]]}{int(found[1]) + 1}", name)


def smooth_positions(dimension: int, grid: tuple[int, int], waves: int = 4, scale: float = 0.1) -> Tensor:
    """Return a random vector for each cell, (d, rows, cols), similar for neighbours: a sum of low frequencies."""
    rows, columns = (
        torch.cos(torch.arange(waves)[:, None] * math.pi * (torch.arange(length) + 0.5) / length) for length in grid
    )
    weights = torch.randn(dimension, waves, waves)
    weights[:, 0, 0] = 0.0  # a constant carries no position
    return scale * torch.einsum("dij,ir,jc->drc", weights, rows, columns)


def _backbone(config: ImageEncoderConfig) -> tuple[PreTrainedModel, int]:
    if config.pretrained is not None:
        backbone = load_pretrained(config.pretrained, config.kind, "image encoder")
        return backbone, int(getattr(backbone.config, "num_channels", 3))
    options: dict[str, Any] = {"num_channels": 1, **config.options}
    if config.kind in ("vit", "swin"):
        options = {"image_size": config.size, **options}
    return build_model(build_config(config.kind, options, "image encoder"), "image encoder"), options["num_channels"]

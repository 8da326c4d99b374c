"""A residual network for one-channel images (He et al., *Deep Residual Learning*, CVPR 2016), ResNet-18 by default.

Two departures serve its maps. The last stage may keep its resolution (``stride`` 16: a 224 px image has 14 x 14
positions, not 7 x 7). And the classifier scores every position before pooling, by the mean or by log-sum-exp (Wang et
al., *ChestX-ray8*, CVPR 2017, section 4.1): the mean of linear scores is the linear score of the mean, so that nothing
changes for the former, and the latter lets a small nodule outvote the empty rest of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import nn

from rightlung.core import InputError
from rightlung.core.errors import unknown_name

Norm = Literal["batch", "group"]
Pooling = Literal["average", "lse"]
STRIDES = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """What a network is built from."""

    outputs: int
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Channels of the four stages."""
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    """Residual blocks of the four stages."""
    norm: Norm = "batch"
    stride: int = 16
    """Pixels of the image to a position of the last feature map: 8, 16 or 32."""
    pooling: Pooling = "average"
    sharpness: float = 3.0
    """Of log-sum-exp pooling: towards 0 it is the mean, towards infinity the maximum."""
    dropout: float = 0.0
    """Share of feature channels dropped before the classifier in training."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        object.__setattr__(self, "blocks", tuple(self.blocks))
        for name, numbers in (("widths", self.widths), ("blocks", self.blocks)):
            if len(numbers) != 4 or not all(type(number) is int and number > 0 for number in numbers):
                raise InputError(f"network {name} must be four positive whole numbers; got {numbers!r}")
        if type(self.outputs) is not int or self.outputs < 1:
            raise InputError(f"network outputs must be a positive whole number; got {self.outputs!r}")
        for name, value, known in (("norm", self.norm, get_args(Norm)), ("pooling", self.pooling, get_args(Pooling))):
            if value not in known:
                raise unknown_name(f"network {name}", str(value), known)
        if self.stride not in STRIDES:
            raise InputError(f"network stride must be one of {STRIDES}; got {self.stride!r}")
        if not (math.isfinite(self.sharpness) and self.sharpness > 0):
            raise InputError(f"network sharpness must be a positive number; got {self.sharpness!r}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"network dropout must lie from 0 to below 1; got {self.dropout!r}")


def _norm(kind: Norm, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(math.gcd(channels, 16), channels)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            _norm(norm, outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            _norm(norm, outputs),
        )
        # Each block begins as its shortcut: the last scale is zero (Goyal et al. 2017, section 5.1).
        nn.init.zeros_(cast(nn.BatchNorm2d, self.residual[-1]).weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(norm, outputs))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        return torch.relu(self.shortcut(inputs) + self.residual(inputs))


class ResidualNetwork(nn.Module):
    """Standardised images (n, 1, h, w) to one logit for each output (n, k)."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = nn.Sequential(
            nn.Conv2d(1, config.widths[0], 7, 2, 3, bias=False),
            _norm(config.norm, config.widths[0]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        strides = (1, 2, 2 if config.stride >= 16 else 1, 2 if config.stride == 32 else 1)
        stages, inputs = [], config.widths[0]
        for width, blocks, stride in zip(config.widths, config.blocks, strides, strict=True):
            for number in range(blocks):
                stages.append(ResidualBlock(inputs, width, stride if number == 0 else 1, config.norm))
                inputs = width
        self.stages = nn.Sequential(*stages)
        self.dropout = nn.Dropout2d(config.dropout)
        self.classifier = nn.Conv2d(inputs, config.outputs, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module is not self.classifier:
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(cast(torch.Tensor, self.classifier.bias))

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, h, w) to the last feature map (n, c, h / stride, w / stride)."""
        return cast(torch.Tensor, self.stages(self.stem(images)))

    def position_logits(self, features: torch.Tensor) -> torch.Tensor:
        """Features to the logits of every position, (n, k, rows, cols)."""
        return cast(torch.Tensor, self.classifier(self.dropout(features)))

    def pool(self, position_logits: torch.Tensor) -> torch.Tensor:
        """Logits of positions (n, k, rows, cols) to those of images (n, k)."""
        if self.config.pooling == "average":
            return position_logits.mean(dim=(2, 3))
        flat = position_logits.flatten(2).float()  # exponentials of sharpened logits leave the range of half precision
        sharpness = self.config.sharpness
        return (torch.logsumexp(flat * sharpness, dim=2) - math.log(flat.shape[2])) / sharpness

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, h, w) to logits (n, k)."""
        return self.pool(self.position_logits(self.features(images)))

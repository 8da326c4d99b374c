"""A model that extends CLIP by a loss of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from rightlung.models.clip import Clip, ClipConfig
from rightlung.models.clip.losses import LOSSES, ClipLossInputs


class PatchNorm(nn.Module):
    def forward(self, inputs: ClipLossInputs) -> Tensor:
        return inputs.images.patch_embeddings.square().mean()


@dataclass(frozen=True)
class PatchConfig(ClipConfig):
    loss_types: ClassVar[Mapping[str, type[nn.Module]]] = {**LOSSES, "patches": PatchNorm}


class WithPatches(Clip):
    kind = "clip-with-patches"
    config_type = PatchConfig
    loss_names = tuple(PatchConfig.loss_types)

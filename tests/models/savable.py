"""A model with any tensors and files, to be saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from rightlung.core import Grounding, Heatmap, Image, Phrase


class Anything:
    """Points everywhere, and holds what it is given."""

    kind: ClassVar[str] = "anything"

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self.config, self.held, self.files = dict(config or {}), dict(tensors or {}), dict(files or {})

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [Grounding(Heatmap(np.ones((2, 2), dtype=np.float32))) for _ in images]

    def to_config(self) -> dict[str, Any]:
        return self.config

    def tensors(self) -> dict[str, Tensor]:
        return self.held

    def extra_files(self) -> dict[str, bytes]:
        return self.files

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        return cls(config, tensors, files)

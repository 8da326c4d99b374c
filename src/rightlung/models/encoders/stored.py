"""How a model with a configuration and a tokenizer becomes the parts of a model folder, and comes back from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rightlung.core.errors import InputError
from rightlung.core.settings import plain_settings
from rightlung.models.encoders.tokenizer import WordTokenizer

TOKENIZER_FILE = "tokenizer.json"


class StoredModel(nn.Module):
    """A model built from a configuration of ``config_type`` (with ``storage``) and the definition of a tokenizer."""

    kind: ClassVar[str]
    config_type: ClassVar[Any]
    config: Any
    tokenizer: WordTokenizer

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON values; pretrained folders are no longer needed."""
        plain: dict[str, Any] = plain_settings(self.config)
        return plain

    def tensors(self) -> dict[str, Tensor]:
        """Return all weights, matrices in the precision of ``storage``."""
        kind = {"float32": torch.float32, "float16": torch.float16}[self.config.storage]
        return {
            name: weight.to(kind) if weight.ndim > 1 and weight.is_floating_point() else weight
            for name, weight in self.state_dict().items()
        }

    def extra_files(self) -> dict[str, bytes]:
        """Return the tokenizer's file."""
        return {TOKENIZER_FILE: json.dumps(json.loads(self.tokenizer.definition), indent=0).encode()}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        """Build the model that `to_config`, `tensors` and `extra_files` describe."""
        if TOKENIZER_FILE not in files:
            raise InputError(f"a {cls.kind} needs the file {TOKENIZER_FILE}")
        model = cls(cls.config_type.from_mapping(config), files[TOKENIZER_FILE].decode())
        try:
            model.load_state_dict(dict(tensors))
        except RuntimeError as error:
            raise InputError(f"the weights do not fit the configuration: {' '.join(str(error).split())}") from None
        return model.eval()

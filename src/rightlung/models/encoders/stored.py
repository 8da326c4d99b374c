"""How a model with a configuration and a tokenizer becomes the parts of a model folder, and comes back from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rightlung.core.checks import check_text
from rightlung.core.errors import InputError
from rightlung.core.settings import plain_settings, read_settings
from rightlung.models.base import Reading
from rightlung.models.encoders.pretrained import load_tokenizer_file
from rightlung.models.encoders.tokenizer import WordTokenizer, train_tokenizer
from rightlung.models.hub import Pretrained

TOKENIZER_FILE = "tokenizer.json"


class StoredModel(nn.Module, Pretrained):
    """A model built from a configuration of ``config_type`` and the definition of a tokenizer.

    The configuration has ``storage``; it, or its part ``text``, has ``vocabulary`` and ``pretrained``.
    """

    kind: ClassVar[str]
    config_type: ClassVar[Any]
    config: Any
    tokenizer: WordTokenizer

    @classmethod
    def create(cls, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return an untrained model; the vocabulary is trained on ``texts`` unless a pretrained encoder brings one."""
        read = read_settings(cls.config_type, config)
        text = getattr(read, "text", read)
        tokenizer = (
            train_tokenizer(texts, text.vocabulary) if text.pretrained is None else load_tokenizer_file(text.pretrained)
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(read, tokenizer)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.parameters()).device

    def reads(self, text: str) -> Reading:
        """Return what is read of a text: at most ``max_length`` pieces of it."""
        return self.tokenizer.reading(check_text(text, "a text"))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Without gradients and as in evaluation, so that no answer depends on its batch; undone on leaving."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.train(training)

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
        model = cls(read_settings(cls.config_type, config), files[TOKENIZER_FILE].decode())
        try:
            model.load_state_dict(dict(tensors))
        except RuntimeError as error:
            raise InputError(f"the weights do not fit the configuration: {' '.join(str(error).split())}") from None
        return model.eval()

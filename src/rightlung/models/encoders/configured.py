"""Base classes of the shipped models, which are built, saved and loaded from a configuration and a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rightlung.core.checks import check_text
from rightlung.core.errors import InputError, unknown_name
from rightlung.core.settings import plain_settings, read_settings
from rightlung.lexicon import find
from rightlung.models.base import Reading, TrainingBatch
from rightlung.models.encoders.text import TextConfig
from rightlung.models.encoders.tokenizer import WordTokenizer
from rightlung.models.hub import Pretrained

TOKENIZER_FILE = "tokenizer.json"


def check_losses(losses: Sequence[str], known: Collection[str]) -> None:
    """Refuse a configuration without losses, or with one that the model does not have."""
    if not losses:
        raise InputError("losses must name at least one loss")
    for name in losses:
        if name not in known:
            raise unknown_name("loss", name, known)


def config_of_encoders(start: Any, config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return ``image``, ``text`` and ``dimension`` of a model whose encoders a new one of a ``kind`` starts from."""
    if not all(hasattr(start, name) for name in ("image_encoder", "text_encoder", "tokenizer")):
        raise InputError(f"a {kind} cannot start from a {type(start).__name__}, which has no image and text encoder")
    taken = {name: start.to_config()[name] for name in ("image", "text", "dimension")}
    for name in taken.keys() & config.keys():
        raise InputError(f"{name}: remove it; it is that of the model to start from")
    return taken


def tied_weights(model: nn.Module) -> dict[str, str]:
    """Return the names of weights that are the same tensor as an earlier one, and the name of that one."""
    first: dict[tuple[int, tuple[int, ...]], str] = {}
    names = {name: first.setdefault((weight.data_ptr(), tuple(weight.shape)), name)
             for name, weight in model.state_dict().items() if weight.numel()}  # fmt: skip
    return {name: one for name, one in names.items() if name != one}


class ConfiguredModel(nn.Module, Pretrained):
    """A model that is built from a configuration of ``config_type`` alone.

    The configuration has ``save_dtype`` and ``losses``, some of the class's ``loss_names``.
    """

    kind: ClassVar[str]
    config_type: ClassVar[Any]
    loss_names: ClassVar[tuple[str, ...]]
    config: Any

    @classmethod
    def create(cls, config: Mapping[str, Any], texts: Iterable[str], seed: int) -> Self:
        """Return an untrained model. ``texts`` are those to train a tokenizer on, for models that have one."""
        read = read_settings(cls.config_type, config)
        parts = cls._trained_parts(read, texts)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(read, *parts)

    @classmethod
    def _trained_parts(cls, config: Any, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the constructor's arguments after the configuration."""
        return ()

    @classmethod
    def _stored_parts(cls, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the same arguments from the files of a model folder."""
        return ()

    @staticmethod
    def check_size(batch: TrainingBatch, field: str, size: int) -> None:
        """Refuse images of another size than a field of the configuration says."""
        if (side := batch.images.shape[-1]) != size:
            raise InputError(
                f"data.image_size must equal model.config.{field}, {size} pixels; got images of {side} pixels"
            )

    def no_losses(self) -> dict[str, Tensor]:
        """Return zero for each configured loss of a batch without targets; all weights get a gradient of zero."""
        nothing = torch.stack([parameter.sum() for parameter in self.parameters()]).sum() * 0.0
        return dict.fromkeys(self.config.losses, nothing)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.parameters()).device

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """Disable gradients and switch to evaluation mode, so that no answer depends on its batch; undone on exit."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.train(training)

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON values. It no longer names pretrained folders."""
        plain: dict[str, Any] = plain_settings(self.config)
        return plain

    def tensors(self) -> dict[str, Tensor]:
        """Return all weights, matrices as ``save_dtype``; tied ones once."""
        dtype = {"float32": torch.float32, "float16": torch.float16}[self.config.save_dtype]
        tied = tied_weights(self)
        return {
            name: weight.to(dtype) if weight.ndim > 1 and weight.is_floating_point() else weight
            for name, weight in self.state_dict().items()
            if name not in tied
        }

    def extra_files(self) -> dict[str, bytes]:
        """Return further files of the model folder by name."""
        return {}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        """Build the model that `to_config`, `tensors` and `extra_files` describe."""
        model = cls(read_settings(cls.config_type, config), *cls._stored_parts(files))
        for name, weight in model.state_dict().items():
            if name in tensors and tensors[name].is_floating_point() != weight.is_floating_point():
                expected = "floating-point numbers" if weight.is_floating_point() else "integers"
                raise InputError(f"model.safetensors, tensor {name!r}: expected {expected}; got {tensors[name].dtype}")
        tied = {name: tensors[first] for name, first in tied_weights(model).items() if first in tensors}
        try:
            model.load_state_dict(tied | dict(tensors))
        except RuntimeError as error:
            raise InputError(f"the weights do not fit the configuration: {' '.join(str(error).split())}") from None
        return model.eval()


class ConfiguredTextModel(ConfiguredModel):
    """A model that is built from a configuration and a tokenizer's file.

    The configuration, or its part ``text``, has ``vocab_size``, ``max_length`` and ``pretrained``.
    """

    tokenizer: WordTokenizer

    @classmethod
    def _trained_parts(cls, config: Any, texts: Iterable[str]) -> tuple[str, ...]:
        text = getattr(config, "text", config)
        if not isinstance(text, TextConfig):
            text = TextConfig(vocab_size=text.vocab_size, pretrained=text.pretrained)
        return (text.tokenizer_file(texts),)

    @classmethod
    def _stored_parts(cls, files: Mapping[str, bytes]) -> tuple[str, ...]:
        if TOKENIZER_FILE not in files:
            raise InputError(f"{TOKENIZER_FILE} is missing; a {cls.kind} needs its tokenizer")
        try:
            return (files[TOKENIZER_FILE].decode(),)
        except UnicodeDecodeError as error:
            raise InputError(f"{TOKENIZER_FILE} is not UTF-8 text: {error.reason} at byte {error.start}") from None

    def reads(self, text: str) -> Reading:
        """Return how much of a text the model reads: at most ``max_length`` tokens."""
        return self.tokenizer.reading(check_text(text, "a text"))

    def knows(self, finding: str) -> bool:
        """Return whether there are prompts for a finding."""
        return find(finding) is not None

    def extra_files(self) -> dict[str, bytes]:
        """Return the tokenizer's file."""
        return {TOKENIZER_FILE: json.dumps(json.loads(self.tokenizer.definition), indent=0).encode()}

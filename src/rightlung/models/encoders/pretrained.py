"""Other people's backbones: a folder of `transformers` files, or a hub id where there is a network.

Weights are read from safetensors only: a pickle could run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rightlung.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def build_config(kind: str, options: Mapping[str, Any], what: str) -> PretrainedConfig:
    """Return the `transformers` configuration of a kind (``resnet``, ``bert``…) with these options."""
    from transformers import CONFIG_MAPPING

    configuration = CONFIG_MAPPING[kind]()
    for name in options:
        if not hasattr(configuration, name):
            raise unknown_name(f"option of {what} {kind!r}:", name, configuration.to_dict())
    try:
        return CONFIG_MAPPING[kind](**options)
    except (TypeError, ValueError) as error:
        raise InputError(f"the options of {what} {kind!r} do not go together: {' '.join(str(error).split())}") from None


def own_options(configuration: PretrainedConfig) -> dict[str, Any]:
    """Return what of a configuration differs from its kind's defaults, as JSON values."""
    defaults = type(configuration)().to_dict()
    passed_over = {"transformers_version", "_name_or_path", "architectures", "model_type", "dtype", "torch_dtype"}
    return {
        name: value
        for name, value in configuration.to_dict().items()
        if name not in passed_over and defaults.get(name) != value
    }


WITHOUT_POOLER = {"bert": {"add_pooling_layer": False}, "vit": {"add_pooling_layer": False}}
"""A pooling layer that nothing reads would have no gradient, which processes that train together cannot agree on."""


def build_model(configuration: PretrainedConfig, what: str) -> PreTrainedModel:
    """Return a backbone of this configuration with random weights."""
    from transformers import AutoModel

    kind = configuration.model_type
    try:
        return AutoModel.from_config(configuration, **WITHOUT_POOLER.get(kind, {}))  # type: ignore[no-untyped-call, no-any-return]
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError) as error:
        raise InputError(f"the options of {what} {kind!r} do not go together: {' '.join(str(error).split())}") from None


def build_bert(
    options: Mapping[str, Any], pretrained: str | None, what: str, **least: int
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Return a BERT, with random weights or a pretrained one, and the options that build it again.

    ``least`` are sizes that its tokenizer and its texts need; a pretrained one may have more.
    """
    if pretrained is not None:
        built = load_pretrained(pretrained, "bert", what)
    else:
        sizes = {name: number for name, number in least.items() if name != "type_vocab_size"}
        built = build_model(build_config("bert", {**sizes, **options}, what), what)
    found = {name: int(getattr(built.config, name)) for name in least}
    for name, number in least.items():
        if found[name] < number:
            more = ": max_length must not be more" if name == "max_position_embeddings" else ""
            raise InputError(f"the {what} needs a {name} of at least {number}; got {found[name]}{more}")
    # Sizes are said in any case: they must fit tokenizer and weights, whatever defaults a version of the library has.
    return built, {
        **own_options(built.config),
        **{name: found[name] for name in ("vocab_size", "max_position_embeddings")},
    }


def load_pretrained(name_or_folder: str, kind: str, what: str) -> PreTrainedModel:
    """Load a backbone from a folder, or by its hub id where the hub can be reached."""
    from transformers import AutoConfig, AutoModel

    try:
        found = AutoConfig.from_pretrained(name_or_folder).model_type
        if found != kind:
            raise InputError(f"the {what} is to be a {kind!r}, but {name_or_folder} holds a {found!r}")
        model: PreTrainedModel = AutoModel.from_pretrained(
            name_or_folder, use_safetensors=True, dtype=torch.float32, **WITHOUT_POOLER.get(kind, {})
        )
    except InputError:
        raise
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(_sentence(name_or_folder, what, reason)) from None
    return model


def load_tokenizer_file(name_or_folder: str) -> str:
    """Return the fast tokenizer of a pretrained text model as JSON."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_folder, use_fast=True)
        text: str = tokenizer.backend_tokenizer.to_str()
    except (OSError, ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(_sentence(name_or_folder, "tokenizer", reason)) from None
    return text


def _sentence(name_or_folder: str, what: str, reason: str) -> str:
    if Path(name_or_folder).exists():
        return f"{name_or_folder}: the pretrained {what} cannot be read from this folder ({reason})"
    return (
        f"the pretrained {what} {name_or_folder!r} is no folder here, and the hub did not give it ({reason}); "
        "without a network, name a folder that holds its files"
    )

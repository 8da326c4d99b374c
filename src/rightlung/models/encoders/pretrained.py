"""Models of `transformers`, from a configuration or from a folder or hub id of pretrained weights.

Weights are read from safetensors only: a pickle could run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from rightlung.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


Head = Literal["none", "masked", "causal"]
"""What predicts tokens on top of a transformer: nothing, masked language modelling, or the next token."""

# A pooling layer that nothing reads would have no gradient, which distributed training refuses.
_WITHOUT_POOLER = {kind: {"add_pooling_layer": False} for kind in ("bert", "vit")}
# Ids that lie outside a small vocabulary. Our own special tokens are the tokenizer's.
_WITHOUT_IDS = {kind: {"bos_token_id": 0, "eos_token_id": 0} for kind in ("gpt2", "clip_text_model")}


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
        raise _wrong_options(what, kind, error) from None


def _wrong_options(what: str, kind: str, error: Exception) -> InputError:
    return InputError(f"the options of {what} {kind!r} contradict each other: {' '.join(str(error).split())}")


def own_options(configuration: PretrainedConfig) -> dict[str, Any]:
    """Return the fields of a configuration that differ from the defaults of its kind, as JSON values."""
    defaults = type(configuration)().to_dict()
    ignored = {"transformers_version", "_name_or_path", "architectures", "model_type", "dtype", "torch_dtype"}
    return {
        name: value
        for name, value in configuration.to_dict().items()
        if name not in ignored and defaults.get(name) != value
    }


def _auto_class(head: Head) -> Any:
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    return {"none": AutoModel, "masked": AutoModelForMaskedLM, "causal": AutoModelForCausalLM}[head]


def build_model(configuration: PretrainedConfig, what: str, head: Head = "none") -> PreTrainedModel:
    """Return a model of this configuration with random weights."""
    kind = configuration.model_type
    arguments = _WITHOUT_POOLER.get(kind, {}) if head == "none" else {}
    try:
        return _auto_class(head).from_config(configuration, **arguments)  # type: ignore[no-any-return]
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError) as error:
        raise _wrong_options(what, kind, error) from None


def build_text_model(
    kind: str, options: Mapping[str, Any], pretrained: str | None, what: str, *, head: Head = "none", **sizes: int
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Return a random or pretrained transformer for texts, and the options that build it again.

    ``sizes`` are the least that its tokenizer and texts need; a pretrained one may have more.
    """
    if pretrained is not None:
        built = load_pretrained(pretrained, kind, what, head, {"is_decoder": True} if options.get("is_decoder") else {})
    else:
        given = {name: size for name, size in sizes.items() if name != "type_vocab_size"}
        built = build_model(build_config(kind, {**_WITHOUT_IDS.get(kind, {}), **given, **options}, what), what, head)
    found = {name: int(getattr(built.config, name)) for name in sizes}
    for name, size in sizes.items():
        if found[name] < size:
            more = ": reduce max_length" if name == "max_position_embeddings" else ""
            raise InputError(f"the {what} needs a {name} of at least {size}; got {found[name]}{more}")
    # Sizes are always written: the defaults of another version of the library must not change them.
    return built, {
        **own_options(built.config),
        **{name: found[name] for name in ("vocab_size", "max_position_embeddings")},
    }


def load_pretrained(
    name_or_folder: str, kind: str, what: str, head: Head = "none", changes: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Load a model from a folder or, with a network, by its hub id. ``changes`` replace fields of its configuration."""
    from transformers import AutoConfig

    try:
        configuration = AutoConfig.from_pretrained(name_or_folder)
        if kind == "clip_text_model" and configuration.model_type == "clip":  # both towers: the text tower is read
            configuration = configuration.text_config
        if configuration.model_type != kind:
            raise InputError(
                f"{name_or_folder}: expected a {kind!r} as the {what}; the folder holds a {configuration.model_type!r}"
            )
        for name, value in (changes or {}).items():
            setattr(configuration, name, value)
        arguments = _WITHOUT_POOLER.get(kind, {}) if head == "none" else {}
        model: PreTrainedModel = _auto_class(head).from_pretrained(
            name_or_folder, config=configuration, use_safetensors=True, dtype=torch.float32, **arguments
        )
    except InputError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(name_or_folder, what, error) from None
    return model


def load_tokenizer_file(name_or_folder: str) -> str:
    """Return the fast tokenizer of a pretrained text model as JSON."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_folder, use_fast=True)
        text: str = tokenizer.backend_tokenizer.to_str()
    except (OSError, ValueError, ImportError, AttributeError) as error:
        raise _unreadable(name_or_folder, "tokenizer", error) from None
    return text


def _unreadable(name_or_folder: str, what: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:300]
    if Path(name_or_folder).exists():
        return InputError(f"{name_or_folder}: cannot read the pretrained {what} from this folder ({reason})")
    return InputError(
        f"cannot find the pretrained {what} {name_or_folder!r}: there is no such folder, and the hub did not provide "
        f"it ({reason}); without a network, name a folder that holds its files"
    )

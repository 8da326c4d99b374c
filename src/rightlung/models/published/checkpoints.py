"""Reading other people's checkpoints: no code in them is run, and nothing in them is silently left out.

A ``.pt``, ``.pth`` or ``.ckpt`` file is a pickle. It is read with ``torch.load(weights_only=True)``, whose unpickler
builds tensors and plain containers and refuses everything else. Lightning's checkpoints also hold settings as objects
of OmegaConf and of Lightning itself; these are built as empty stand-ins (`ignored`), so that neither package is needed
and none of their code runs. A file that asks for anything else is an error.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rightlung.core.errors import InputError
from rightlung.models.encoders.pretrained import load_tokenizer_file
from rightlung.models.encoders.tokenizer import word_pieces

SETTINGS_PACKAGES = ("omegaconf", "pytorch_lightning", "lightning", "lightning_fabric", "argparse")
"""Packages whose objects are passed over in a checkpoint of Lightning."""
_SETTINGS_TYPES = (
    "typing.Any", "collections.defaultdict", *(f"builtins.{name}" for name in ("dict", "list", "int", "str", "float")),
)  # fmt: skip
_HEAD_SIZE = 64  # of every BERT that was published: the number of attention heads is not in a checkpoint


class _StandIn:
    """Takes the place of an object of another package: accepts whatever it is given and does nothing with it."""

    def __init__(self, *given: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


def read_tensors(path: str | Path, field: str, cut: str = "", settings: bool = False) -> dict[str, Tensor]:
    """Return a checkpoint's tensors: safetensors, or a pickle with them at the top or under ``field``.

    ``cut`` is taken off the front of their names. With ``settings``, objects of `SETTINGS_PACKAGES` are passed over.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if path.suffix == ".safetensors":
        try:
            stored: Mapping[str, Any] = load_file(path)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} cannot be read as safetensors: {error}") from None
    else:
        stored = _read_pickle(path, field, settings)
    tensors = {str(name).removeprefix(cut): tensor for name, tensor in stored.items()}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{path}: {name} must be a tensor; got {type(tensor).__name__}")
    return tensors


def _read_pickle(path: Path, field: str, settings: bool) -> Mapping[str, Any]:
    try:
        asked_for = torch.serialization.get_unsafe_globals_in_checkpoint(path) if settings else []
        stand_ins: list[Any] = [
            (type(name.rpartition(".")[2], (_StandIn,), {}), name)
            for name in asked_for
            if name.partition(".")[0] in SETTINGS_PACKAGES or name in _SETTINGS_TYPES
        ]
        with torch.serialization.safe_globals(stand_ins):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        named = f" ({asked[1]})" if asked else ""
        raise InputError(
            f"{path} holds more than tensors and plain containers{named}, or is damaged; it was not loaded"
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read as a PyTorch checkpoint: {reason}") from None
    stored = checkpoint.get(field, checkpoint) if isinstance(checkpoint, Mapping) else None
    if not isinstance(stored, Mapping):
        raise InputError(f"{path} holds no dictionary of tensors under {field}")
    return stored


def load_strictly(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    source: str,
    prefix: str = "",
    unused: Collection[str] = (),
    name_of: Callable[[str], str] = str,
) -> None:
    """Load the tensors whose names begin with ``prefix`` into a module: all of them, and all that it needs.

    Position numbers that old BERTs store, and tensors whose names begin (after the prefix) with one of ``unused``, are
    passed over. ``name_of`` gives the checkpoint's name for one of the module's. What is missing, too many or of
    another shape is an error that names the file and the tensor.
    """
    given = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    kept = {
        name: tensor
        for name, tensor in given.items()
        if not name.endswith("position_ids") and not name.startswith(tuple(unused))
    }
    state = module.state_dict()
    own = {name_of(name): weight for name, weight in state.items()}
    missing, surplus = sorted(own.keys() - kept.keys()), sorted(kept.keys() - own.keys())
    if missing or surplus:
        wrong = f"lacks {prefix}{missing[0]}" if missing else f"has {prefix}{surplus[0]}, which the model has not"
        more = len(missing) + len(surplus) - 1
        raise InputError(f"{source} {wrong}" + (f" ({more} more tensors do not fit)" if more else ""))
    for name, tensor in kept.items():
        if own[name].shape != tensor.shape:
            shapes = f"of shape {tuple(own[name].shape)}; got {tuple(tensor.shape)}"
            raise InputError(f"{source}: {prefix}{name} must be {shapes}")
    floats = {name: one.float() if one.is_floating_point() else one for name, one in kept.items()}
    module.load_state_dict({name: floats[name_of(name)] for name in state})


def bert_sizes(tensors: Mapping[str, Tensor], prefix: str, source: str, model: str) -> dict[str, int]:
    """Return the configuration of a BERT, whose tensors' names begin with ``prefix``, from their shapes."""
    try:
        vocabulary, hidden = tensors[f"{prefix}embeddings.word_embeddings.weight"].shape
        positions = tensors[f"{prefix}embeddings.position_embeddings.weight"].shape[0]
        types = tensors[f"{prefix}embeddings.token_type_embeddings.weight"].shape[0]
        inner = tensors[f"{prefix}encoder.layer.0.intermediate.dense.weight"].shape[0]
    except KeyError as error:
        raise InputError(f"{source} lacks {error.args[0]}: it is no checkpoint of {model}") from None
    except ValueError as error:
        raise InputError(f"{source}: the embeddings have a wrong shape: {error}") from None
    if hidden % _HEAD_SIZE:
        raise InputError(f"{source}: BERT's hidden size must be a multiple of {_HEAD_SIZE}; got {hidden}")
    layer = re.compile(re.escape(prefix) + r"encoder\.layer\.(\d+)\.")
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "intermediate_size": inner,
        "num_hidden_layers": max(int(found[1]) for name in tensors if (found := layer.match(name))) + 1,
        "num_attention_heads": hidden // _HEAD_SIZE,
    }


def read_tokenizer(place: str | Path) -> str:
    """Return a BERT tokenizer as JSON, from a vocabulary with a piece a line or whatever `transformers` reads.

    ``place`` is ``vocab.txt``, a ``tokenizer.json``, a folder with either, or a hub id where there is a network.
    """
    path = Path(place)
    if path.is_dir() and (path / "vocab.txt").is_file() and not (path / "tokenizer.json").is_file():
        path /= "vocab.txt"
    if path.suffix not in (".txt", ".json"):
        return load_tokenizer_file(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return text if path.suffix == ".json" else word_pieces(text.splitlines())

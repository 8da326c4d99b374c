"""A model as a folder: ``config.json``, ``model.safetensors``, further files such as a tokenizer's, and a card.

``config.json`` holds the version of this format, the kind of model, its configuration, and the SHA-256 of every other
file except the card (``README.md``) and ``calibration.json``, which change no answer::

    {"rightlung": 1, "kind": "classifier", "config": {…}, "files": {"model.safetensors": "9f86d0…"}}

No code of a folder is ever run: weights are numbers, and the kind is looked up among the installed ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import InputError, OutputError
from rightlung.core.errors import unknown_name
from rightlung.models.kinds import class_of, kinds
from rightlung.models.replacing import replaced

VERSION = 1
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
CALIBRATION_FILE = "calibration.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
LARGEST_CONFIG = 4 << 20
LARGEST_FILE = 256 << 20
"""Most bytes of ``config.json`` and of each further file, which are read at once; weights may have any size."""

_FIELDS: dict[str, tuple[type, str]] = {
    "rightlung": (int, "a whole number"), "kind": (str, "a text"), "config": (dict, "an object"),
    "files": (dict, "an object"),
}  # fmt: skip
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # no separator, no drive, not hidden, not ".."
_SHA256 = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class Savable(Protocol):
    """A model that can be saved as a configuration, weights and files, and built from them again."""

    kind: ClassVar[str]

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON values."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by name; may be empty."""

    def extra_files(self) -> dict[str, bytes]:
        """Return further files by name, such as ``tokenizer.json``; may be empty."""

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        """Build the model from what the other methods returned."""


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """The checked content of ``config.json``."""

    kind: str
    config: dict[str, Any]
    files: dict[str, str]


def save_model(model: Savable, folder: str | Path, card: str | None = None) -> None:
    """Write a model to a folder, all of it or nothing.

    An existing model folder is replaced once the new one is complete; a folder that holds anything else is an error.
    ``card`` becomes ``README.md``; the line that this is not a medical device is added if it is missing.
    """
    parts = ("kind", "to_config", "tensors", "extra_files", "from_parts")
    if missing := [name for name in parts if not hasattr(model, name)]:
        raise InputError(f"a {type(model).__name__} cannot be saved: it lacks {', '.join(missing)}")
    if model.kind not in kinds():
        raise InputError(
            f"the kind {model.kind!r} is not registered, so its folder could not be loaded again; "
            "call rightlung.models.registry.register first"
        )
    tensors, config, extra = _storable(model.tensors()), model.to_config(), model.extra_files()
    _check_json(config, "config")
    for name in extra:
        _check_file_name(name, "an extra file")
    root = Path(folder).expanduser().resolve()
    _check_replaceable(root)
    try:
        with replaced(root) as unfinished:
            save_file(tensors, unfinished / WEIGHTS_FILE, metadata={"format": "pt"})
            for name, content in extra.items():
                (unfinished / name).write_bytes(content)
            files = {name: _sha256(unfinished / name) for name in (WEIGHTS_FILE, *sorted(extra))}
            described = {"rightlung": VERSION, "kind": model.kind, "config": config, "files": files}
            text = json.dumps(described, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (unfinished / CONFIG_FILE).write_text(text, encoding="utf-8")
            if card is not None:
                (unfinished / CARD_FILE).write_text(_with_warning(card), encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise OutputError(f"cannot write the model to {root}: {error}") from error


def load_folder(
    folder: str | Path, *, links_within: Path | None = None, changes: Mapping[str, Any] | None = None
) -> Any:
    """Return the model that `save_model` wrote, on the CPU and in evaluation mode.

    Symbolic links may not lead out of the folder or, if given, out of ``links_within``. ``changes`` replace fields of
    the configuration.
    """
    root = Path(folder).expanduser()
    described = read_config(root, links_within=links_within)
    model_class = class_of(described.kind)
    if not callable(getattr(model_class, "from_parts", None)):
        raise InputError(f"{root / CONFIG_FILE}: models of the kind {described.kind!r} cannot be built from a folder")
    for name, digest in described.files.items():
        path = _file_in(root, name, links_within)
        if name == WEIGHTS_FILE:
            _refuse_pickled_weights(path)
        if (actual := _sha256(path)) != digest:
            raise InputError(
                f"{path} is damaged or was changed: its SHA-256 begins with {actual[:12]}, "
                f"{CONFIG_FILE}, field 'files', says {digest[:12]}"
            )
    try:
        tensors = load_file(root / WEIGHTS_FILE)
    except (OSError, SafetensorError, ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{root / WEIGHTS_FILE} is not a complete safetensors file: {reason}") from error
    files = {name: _read(root / name, LARGEST_FILE) for name in described.files if name != WEIGHTS_FILE}
    config = {**described.config, **(changes or {})}
    if callable(check := getattr(model_class, "check_settings", None)):
        check(config)  # what a user chose or has not installed is no fault of the folder
    try:
        model = model_class.from_parts(config, tensors, files)
    except (InputError, KeyError, TypeError, RuntimeError) as error:
        reason = f"the field {error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(f"{root} does not make a model of the kind {described.kind!r}: {reason}") from error
    return model.eval() if isinstance(model, nn.Module) else model


def read_config(folder: str | Path, *, links_within: Path | None = None) -> FolderConfig:
    """Return the checked ``config.json``, without reading weights or checking hashes."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        if root.suffix.lower() in PICKLES and root.is_file():
            raise _pickle_refused(root)
        raise InputError(f"{root} is a file, not a model folder" if root.exists() else f"there is no folder {root}")
    try:
        pickles = sorted(path for path in root.iterdir() if path.suffix.lower() in PICKLES)
    except OSError as error:
        raise InputError(f"{root} cannot be read: {error.strerror or error}") from error
    if pickles and not (root / WEIGHTS_FILE).exists():
        raise _pickle_refused(pickles[0])
    if not (root / CONFIG_FILE).exists():
        raise InputError(f"{root / CONFIG_FILE} is missing, so {root} is not a model folder")
    path = _file_in(root, CONFIG_FILE, links_within)
    content = _read(path, LARGEST_CONFIG)
    try:
        found = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a JSON object; got {type(found).__name__}")
    for name, (kind, wanted) in _FIELDS.items():
        if name not in found:
            raise InputError(f"{path} lacks the field {name!r}, so this is not a model folder of rightlung")
        if not isinstance(found[name], kind) or isinstance(found[name], bool):
            raise InputError(f"{path}, field {name!r}: must be {wanted}; got {str(found[name])[:60]!r}")
        if name == "rightlung" and found[name] != VERSION:
            raise InputError(
                f"{path}, field 'rightlung': this release reads version {VERSION} of the format; got {found[name]}"
            )
    if found["kind"] not in kinds():
        raise InputError(
            f"{path}, field 'kind': {unknown_name('kind of model', found['kind'], kinds())}. If it is your own, import "
            "its module first (rightlung --import MODULE …)"
        )
    _check_files(found["files"], path)
    return FolderConfig(found["kind"], found["config"], found["files"])


def read_card(folder: str | Path, *, links_within: Path | None = None) -> str:
    """Return the text of the card; empty if there is none."""
    root = Path(folder).expanduser()
    if not (root / CARD_FILE).exists():
        return ""
    return _read(_file_in(root, CARD_FILE, links_within), LARGEST_CONFIG).decode("utf-8", "replace")


def weights_digest(model: object) -> str | None:
    """Return 16 hexadecimal digits that depend on a model's weights, or None if it has none.

    The weights of a class that is no torch module are the torch modules, tensors and arrays among its attributes.
    """
    weights = {"": model} if isinstance(model, nn.Module) else getattr(model, "__dict__", {})
    digest = hashlib.sha256()
    found = False
    for name, value in sorted(weights.items()):
        state = value.state_dict() if isinstance(value, nn.Module) else {"": value}
        for key, one in sorted(state.items()):
            if isinstance(one, Tensor):
                digest.update(f"{name}{key} {one.dtype} {tuple(one.shape)};".encode())
                digest.update(one.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
            elif isinstance(one, np.ndarray) and not one.dtype.hasobject:
                digest.update(f"{name}{key} {one.dtype} {one.shape};".encode() + one.tobytes())
            found |= isinstance(one, Tensor | np.ndarray)
    return digest.hexdigest()[:16] if found or isinstance(model, nn.Module) else None


def _check_files(files: dict[str, Any], path: Path) -> None:
    for name, digest in files.items():
        if Path(name).suffix.lower() in PICKLES:
            raise _pickle_refused(path.parent / Path(name).name)
        if name != WEIGHTS_FILE:
            _check_file_name(name, f"{path}, field 'files'")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise InputError(f"{path}, field 'files', {name!r}: must be a SHA-256 in 64 hexadecimal digits")
    if WEIGHTS_FILE not in files:
        raise InputError(f"{path}, field 'files': {WEIGHTS_FILE!r} is not listed")


def _check_file_name(name: object, where: str) -> None:
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
        raise InputError(f"{where}: {name!r} is not the plain name of a file in the folder")
    if name.lower() in (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE.lower(), CALIBRATION_FILE):
        raise InputError(f"{where}: {name!r} is a name that the folder itself uses")
    if Path(name).suffix.lower() in PICKLES:
        raise InputError(f"{where}: {name!r} would be taken for a pickle, which is never loaded")


def _file_in(root: Path, name: str, links_within: Path | None) -> Path:
    path = root / name
    if not path.is_file():
        raise InputError(f"{path} is {'not a file' if path.exists() else 'missing'}")
    if not path.resolve().is_relative_to((links_within or root).resolve()):
        raise InputError(f"{path} is a link to outside the model folder, which is not followed")
    return path


def _read(path: Path, largest: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > largest:
        raise InputError(f"{path} is larger than the {largest >> 20} MiB that such a file may have")
    return content


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _refuse_pickled_weights(path: Path) -> None:
    """Refuse a file of torch.save (a zip or a bare pickle) that is named like a safetensors file."""
    with path.open("rb") as file:
        head = file.read(9)
    # A safetensors file begins with the length of its header, which may be any bytes, and then "{".
    if head[8:9] != b"{" and (head.startswith(b"PK\x03\x04") or re.match(rb"\x80[\x02-\x05]", head)):
        raise _pickle_refused(path)


def _pickle_refused(path: Path) -> InputError:
    return InputError(
        f"{path} is a pickle and was not opened, as loading a pickle can run any code it holds; "
        "convert its weights to safetensors (safetensors.torch.save_file) where you trust it, see docs/models.md"
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _check_json(value: object, where: str) -> None:
    """Refuse values that JSON does not preserve, and name their field; tuples become lists."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where}: the name of a field must be a text; got {key!r}")
            _check_json(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _check_json(item, f"{where}[{position}]")
    elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{where}: {value!r} is not a JSON value")


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, contiguous and without shared memory, as safetensors requires."""
    stored: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta:
            raise InputError(f"the tensor {name!r} cannot be saved: it must be a dense torch.Tensor with values")
        kept = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if (memory := kept.untyped_storage().data_ptr()) in taken:
            kept = kept.clone()
        taken.add(memory)
        stored[name] = kept
    return stored


def _check_replaceable(root: Path) -> None:
    """Refuse to replace a folder that holds anything but a model."""
    if not root.exists():
        return
    if not root.is_dir():
        raise OutputError(f"{root} is a file; a model is written to a folder")
    if root == Path.cwd():
        raise OutputError(f"{root} is the working folder, which cannot be replaced; name a folder in it")
    found = {path.name for path in root.iterdir()}
    try:
        ours = {CONFIG_FILE, CARD_FILE, CALIBRATION_FILE, *read_config(root).files} if found else set()
    except InputError as error:
        raise OutputError(f"{root} holds something other than a model and is not overwritten: {error}") from error
    if others := sorted(found - ours):
        raise OutputError(f"{root} holds {others[0]!r}, which is no part of a model, and is not overwritten")


def _with_warning(card: str) -> str:
    text = card.rstrip() + "\n"
    return text if NOT_A_MEDICAL_DEVICE in text else f"{text}\n{NOT_A_MEDICAL_DEVICE}\n"

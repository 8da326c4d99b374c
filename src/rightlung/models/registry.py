"""Load models by name: shipped models, folders, Hub ids, published checkpoints and classes of your own.

::

    register("mine", "my_package.model:Mine")   # one line, and folders of the kind "mine" can be loaded
    model = load("starter")                     # or "runs/mine", "my_package.model:Mine", "mine", "organisation/name"
    model = load("gloria:chexpert_resnet50.ckpt?text=Bio_ClinicalBERT")   # a published checkpoint
    model = load("runs/clip/model?regions=cropped")   # with another value of a field of its configuration
    model = load("starter?map=grad-cam")        # with another kind of heatmap (`rightlung.models.maps`)
    model = load("starter?weights=random")      # the same model, untrained
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from rightlung.core import InputError
from rightlung.core.errors import check_known, unknown_name
from rightlung.models import base
from rightlung.models.folder import PICKLES, load_folder, read_card, read_config
from rightlung.models.hub import HUB_ID, Pretrained, fetch
from rightlung.models.kinds import BUILT_IN, IMPORT_PATH, class_of, import_object, kinds, register
from rightlung.models.maps import use_map
from rightlung.models.untrained import untrained
from rightlung.studies.sources import parse_address, parse_parameters

__all__ = [
    "ABILITIES", "Listed", "ModelFolder", "abilities", "class_of", "find_folder", "first_line", "kinds", "list_models",
    "load", "register", "split_changes",
]  # fmt: skip

SHIPPED = Path(__file__).parent / "shipped"
ABILITIES: dict[str, type] = {
    "match": base.Matcher,
    "ground": base.Grounder,
    "ground-regions": base.RegionGrounder,
    "classify": base.FindingClassifier,
    "detect": base.Detector,
    "regions": base.RegionFinder,
    "describe": base.Describer,
    "report": base.Reporter,
    "embed": base.Embedder,
    "ground-blind": base.BlindGrounder,
}
"""The protocol behind each word for what a model can do."""
MAP, WEIGHTS = "map", "weights"
"""Parameters of a model's name: its kind of heatmap, and ``random`` weights, those before any training."""
PUBLISHED: dict[str, str] = {"gloria": "rightlung.models.published.gloria:load_gloria"}
"""Loaders of published checkpoints: ``name:FILE?parameter=value`` calls one with the file and the parameters."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with a model's files. Links in it may not lead out of ``links_within``."""

    path: Path
    links_within: Path


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that can be loaded by its name: a shipped one, or one of a registered kind that needs no weights.

    ``problem`` says why it cannot be described; the other fields are then empty.
    """

    name: str
    kind: str = ""
    can: tuple[str, ...] = ()
    size: int = 0
    """Bytes of its files."""
    description: str = ""
    folder: Path | None = None
    problem: str | None = None


def load(name_or_folder: str | Path, device: str | torch.device = "cpu") -> Any:
    """Return a model on a device, in evaluation mode.

    A name is looked up in this order: a published checkpoint (`PUBLISHED`); a shipped model (`list_models`); a folder;
    ``module:attribute``, a class or factory that needs no arguments, or an instance; a registered kind that needs no
    weights; a Hub id. Write ``./name`` for a folder with the name of a shipped model. Fields of the configuration can
    be changed, see `split_changes`.
    """
    checked_device = _check_device(device)
    name = os.fspath(name_or_folder)
    plain, changes = split_changes(name_or_folder)
    kind, weights = changes.pop(MAP, None), changes.pop(WEIGHTS, None)
    if _is_published(name_or_folder):
        model = _load_published(name)
    elif folder := find_folder(plain):
        model = load_folder(folder.path, links_within=folder.links_within, changes=changes)
        if isinstance(model, Pretrained):
            model.card = read_card(folder.path, links_within=folder.links_within)
    elif changes:
        raise InputError(f"{name!r}: {plain} is not a model folder, so it has no configuration to change")
    else:
        found = os.fspath(plain)
        model = _build(import_object(found) if IMPORT_PATH.fullmatch(found) else class_of(found), found)
    if not abilities(model):
        methods = ", ".join(
            next(name for name in vars(protocol) if not name.startswith("_")) for protocol in ABILITIES.values()
        )
        raise InputError(f"{name!r}: {type(model).__name__} implements none of the model protocols: {methods}")
    if weights is not None:
        check_known("weights", str(weights), ("random",))
        model = untrained(model)
    if kind is not None:
        use_map(model, str(kind), name)
    return _move(model, checked_device, name)


def split_changes(name_or_folder: str | Path) -> tuple[str | Path, dict[str, Any]]:
    """Split ``NAME?field=value&…`` into a model's name and changed fields of its configuration, values as in YAML.

    >>> split_changes("runs/clip/model?regions=cropped")
    ('runs/clip/model', {'regions': 'cropped'})
    """
    if not isinstance(name_or_folder, str) or "?" not in name_or_folder or _is_published(name_or_folder):
        return name_or_folder, {}
    if _path(name_or_folder).is_dir():
        return name_or_folder, {}
    name, _, query = name_or_folder.rpartition("?")
    try:
        return name, {field: yaml.safe_load(value) for field, value in parse_parameters(query, name_or_folder).items()}
    except yaml.YAMLError as error:
        raise InputError(f"{name_or_folder!r}: {' '.join(str(error).split())}") from None


def find_folder(name_or_folder: str | Path) -> ModelFolder | None:
    """Return the folder of a name, downloaded from the Hub if needed, or None if the name stands for a class.

    An unknown name is an `InputError` that suggests the nearest.
    """
    name = os.fspath(name_or_folder)
    if not name.strip():
        raise InputError("the name of a model is empty")
    shipped = _shipped()
    named = isinstance(name_or_folder, str)  # a Path is always a folder
    if named and name in shipped:
        return ModelFolder(shipped[name], shipped[name])
    path = _path(name)
    if path.is_dir():
        return ModelFolder(path, path)
    if named and (IMPORT_PATH.fullmatch(name) or _is_published(name)):
        return None
    if named and name in kinds():
        if name in BUILT_IN:
            raise InputError(
                f"{name!r} is a kind of model, which needs weights: give a folder of them, "
                f"or the name of a shipped model ({', '.join(shipped) or 'none here'})"
            )
        return None
    if path.exists() or path.suffix.lower() in PICKLES:
        read_config(path)  # raises an error that says what is wrong with the file
    if named and HUB_ID.fullmatch(name) and not (path.parent != Path() and path.parent.is_dir()):
        snapshot = fetch(name)
        return ModelFolder(snapshot, snapshot.parent.parent)
    if not named or name.startswith((".", "~")) or {"/", "\\"} & set(name):
        raise InputError(f"there is no model folder {name}")
    if not (known := {*shipped, *(kinds().keys() - BUILT_IN.keys())}):
        raise InputError(f"unknown model {name!r}: none is shipped here; give a folder, 'module:Class' or a Hub id")
    raise unknown_name("model", name, known)


def _is_published(name: str | Path) -> bool:
    """Whether a name is the address of a published checkpoint, and not ``module:attribute``."""
    scheme, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    return scheme in PUBLISHED and (bool({"?", "/"} & set(rest)) or Path(rest).suffix.lower() in PICKLES)


def _load_published(name: str) -> Any:
    address = parse_address(name)
    loader = import_object(PUBLISHED[address.scheme])
    wanted = list(inspect.signature(loader).parameters)[1:]
    for parameter in address.parameters:
        if parameter not in wanted:
            raise unknown_name(f"parameter of model {address.scheme!r}:", parameter, wanted)
    if missing := [parameter for parameter in wanted if parameter not in address.parameters]:
        raise InputError(f"model {name}: {missing[0]} is missing; give {address.scheme}:FILE?{missing[0]}=…")
    return loader(address.path, **address.parameters)


def list_models() -> list[Listed]:
    """Return the models that `load` knows by name: the shipped ones, then registered kinds."""
    listed = [_listed_folder(name, folder) for name, folder in _shipped().items()]
    names = {model.name for model in listed}
    return listed + [listed_kind(kind) for kind in kinds() if kind not in BUILT_IN and kind not in names]


def abilities(model: Any) -> tuple[str, ...]:
    """Return what a model or a class can do, as words of `ABILITIES`."""
    has = issubclass if isinstance(model, type) else isinstance
    return tuple(word for word, protocol in ABILITIES.items() if has(model, protocol))


def first_line(text: str) -> str:
    """Return the first non-empty line of a card, without heading marks; front matter is skipped."""
    lines = text.lstrip("\ufeff").strip().splitlines()
    if lines and lines[0].strip() == "---":
        closing = next((index for index, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
        lines = lines[closing + 1 :]
    return next((line.strip().lstrip("#").strip() for line in lines if line.strip().lstrip("#").strip()), "")


def _path(name: str) -> Path:
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, or the home of an unknown user
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name[:80]!r} cannot be a model's name or folder: {reason}") from None
    return path


def _shipped() -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(SHIPPED.glob("*/config.json"))}


def _listed_folder(name: str, folder: Path) -> Listed:
    try:
        kind = read_config(folder).kind
        can = abilities(class_of(kind))
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        return Listed(name, kind, can, size, first_line(read_card(folder)), folder)
    except (InputError, OSError) as error:
        return Listed(name, folder=folder, problem=str(error))


def listed_kind(kind: str) -> Listed:
    """Return the description of a kind of model; ``problem`` says why its class cannot be imported."""
    try:
        model_class = class_of(kind)
    except InputError as error:
        return Listed(kind, kind, problem=str(error))
    return Listed(kind, kind, abilities(model_class), description=first_line(own_docstring(model_class)))


def own_docstring(model_class: type) -> str:
    """Return the docstring of a class, not one that it inherits."""
    return inspect.cleandoc(vars(model_class).get("__doc__") or "")


def _build(found: Any, name: str) -> Any:
    """Return the model of a class or factory, which is called, or an instance, even if it is callable."""
    if not isinstance(found, type) and (abilities(found) or not callable(found)):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise InputError(
            f"{name!r} cannot be called without arguments ({error}); give a folder of its weights, "
            "or the name of a function that builds it"
        ) from None
    except ValueError:  # a class written in C shows no signature
        pass
    return found()


def _check_device(device: str | torch.device) -> torch.device:
    try:
        checked = torch.device(device)
        torch.empty(0, device=checked)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"the device {str(device)!r} is not available: {reason}") from None
    return checked


def _move(model: Any, device: torch.device, name: str) -> Any:
    if callable(getattr(model, "to", None)):
        moved = model.to(device)
        return model if moved is None else moved
    if device.type != "cpu":
        raise InputError(f"{name!r}: {type(model).__name__} has no method to(device), so it runs on the CPU only")
    return model

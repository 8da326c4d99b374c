"""The class of each kind of model. A model folder names a kind, never a class, so that data cannot choose code.

A kind is looked up in `BUILT_IN`, among those registered with `register`, and in the entry points of installed packages
(group ``rightlung.models``), in this order.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from rightlung.core import InputError
from rightlung.core.errors import unknown_name

ENTRY_POINTS = "rightlung.models"
BUILT_IN = {
    "adpd": "rightlung.models.adpd:Adpd",
    "anatomy": "rightlung.models.anatomy:AnatomyModel",
    "chex": "rightlung.models.chex:Chex",
    "classifier": "rightlung.models.classifier:Classifier",
    "clip": "rightlung.models.clip:Clip",
    "conditional-detr": "rightlung.models.detr:ConditionalDetr",
    "eclip": "rightlung.models.eclip:Eclip",
    "eclip-gloria": "rightlung.models.eclip:EclipGloria",
    "fita": "rightlung.models.fita:Fita",
    "frequent-text": "rightlung.models.blind.texts:FrequentText",
    "gloria": "rightlung.models.gloria:Gloria",
    "reporter": "rightlung.models.reporter:PlainReporter",
    "retrieval": "rightlung.models.retrieval:Retrieval",
    "retrieval-reporter": "rightlung.generation.reporter:RetrievalReporter",
    "transvg": "rightlung.models.transvg:TransVg",
    "uniter": "rightlung.models.uniter:Uniter",
}
IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""The form of ``package.module:attribute``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_registered: dict[str, str | type] = {}


def register(kind: str, model_class: str | type) -> None:
    """Register the class of a kind of model: the class, or ``package.module:Class``, which is imported when needed.

    Registering a kind again replaces its class. Built-in kinds cannot be replaced.
    """
    if not isinstance(kind, str) or not _NAME.fullmatch(kind):
        raise InputError(f"a kind of model must be letters, digits, '-', '_' and '.', such as 'gloria'; got {kind!r}")
    if not isinstance(model_class, type) and not (isinstance(model_class, str) and IMPORT_PATH.fullmatch(model_class)):
        raise InputError(f"the kind {kind!r} needs a class or 'package.module:Class'; got {model_class!r}")
    if kind in BUILT_IN and model_class != BUILT_IN[kind]:
        raise InputError(f"the kind {kind!r} is built in ({BUILT_IN[kind]}); choose another name")
    _registered[kind] = model_class


def kinds() -> dict[str, str]:
    """Return the import path of each kind's class, ``package.module:Class``, sorted by kind."""
    entries = entry_points(group=ENTRY_POINTS)
    paths = {entry.name: f"{entry.module}:{entry.attr}" for entry in entries if _NAME.fullmatch(entry.name)} | {
        kind: found if isinstance(found, str) else f"{found.__module__}:{found.__qualname__}"
        for kind, found in _registered.items()
    }
    return dict(sorted((paths | BUILT_IN).items()))


def class_of(kind: str) -> Any:
    """Import and return the class of a kind; the error for an unknown kind suggests the nearest."""
    if kind not in BUILT_IN and isinstance(registered := _registered.get(kind), type):
        return registered
    known = kinds()
    if kind not in known:
        raise unknown_name("kind of model", kind, known)
    return import_object(known[kind])


def import_object(import_path: str) -> Any:
    """Return the object that ``package.module:attribute`` names."""
    if not IMPORT_PATH.fullmatch(import_path):
        raise InputError(f"{import_path!r} is not of the form 'package.module:attribute'")
    module_name, _, attributes = import_path.partition(":")
    found: Any = import_user_module(module_name, import_path)
    for part in attributes.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise unknown_name(f"attribute of {found.__name__}", part, public)
        found = getattr(found, part)
    return found


def import_user_module(name: str, what: str) -> ModuleType:
    """Return a module by name; the working folder is searched last. ``what`` begins the error message."""
    folder = str(Path.cwd())
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)  # at the end, so that no file in it hides an installed module
    try:
        return import_module(name)
    except (ImportError, SyntaxError) as error:
        raise InputError(f"{what}: the module {name!r} cannot be imported: {error}") from error


def register_module(name: str) -> None:
    """Import a module and register its model classes, those with ``kind`` and ``from_parts``, unless it does so itself.

    Model folders of these kinds can then be loaded.
    """
    for found in vars(import_user_module(name, f"--import {name}")).values():
        own = isinstance(found, type) and found.__module__ == name and hasattr(found, "from_parts")
        if own and isinstance(kind := getattr(found, "kind", None), str) and kind not in kinds():
            register(kind, found)

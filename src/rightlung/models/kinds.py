"""Which class makes which kind of model. A folder of weights names a kind, never a class: data cannot choose code.

A kind comes from the table below, from `register`, or from an installed package's entry points in the group
``rightlung.models``, in this order.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rightlung.core import InputError
from rightlung.core.errors import unknown_name

ENTRY_POINTS = "rightlung.models"
BUILT_IN = {
    "classifier": "rightlung.models.classifier:Classifier",
    "gloria": "rightlung.models.gloria:Gloria",
    "uniter": "rightlung.models.uniter:Uniter",
}
TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""``package.module:attribute``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_registered: dict[str, str | type] = {}


def register(kind: str, target: str | type) -> None:
    """Say which class makes models of a kind: ``package.module:Class``, imported when it is needed, or the class.

    Registering a kind again replaces it, as running a notebook's cell again does; the built-in kinds stay as they are.
    """
    if not isinstance(kind, str) or not _NAME.fullmatch(kind):
        raise InputError(f"a kind of model must be letters, digits, '-', '_' and '.', such as 'gloria'; got {kind!r}")
    if not isinstance(target, type) and not (isinstance(target, str) and TARGET.fullmatch(target)):
        raise InputError(f"the kind {kind!r} needs a class or 'package.module:Class'; got {target!r}")
    if kind in BUILT_IN and target != BUILT_IN[kind]:
        raise InputError(f"the kind {kind!r} is built in ({BUILT_IN[kind]}); choose another name")
    _registered[kind] = target


def kinds() -> dict[str, str]:
    """Return all kinds with the address of their class, ``package.module:Class``, in alphabetical order."""
    entries = entry_points(group=ENTRY_POINTS)
    found = {entry.name: f"{entry.module}:{entry.attr}" for entry in entries if _NAME.fullmatch(entry.name)} | {
        kind: target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"
        for kind, target in _registered.items()
    }
    return dict(sorted((found | BUILT_IN).items()))


def class_of(kind: str) -> Any:
    """Import and return what makes models of a kind; an unknown one is answered with the nearest."""
    if kind not in BUILT_IN and isinstance(target := _registered.get(kind), type):
        return target
    known = kinds()
    if kind not in known:
        raise unknown_name("kind of model", kind, known)
    return import_target(known[kind])


def import_target(address: str) -> Any:
    """Return what ``package.module:attribute`` names; modules in the working folder are found, too, but last."""
    if not TARGET.fullmatch(address):
        raise InputError(f"{address!r} is not of the form 'package.module:attribute'")
    module_name, _, attributes = address.partition(":")
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)  # at the end, so that nothing lying there takes the place of an installed module
    try:
        found: Any = import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise InputError(f"{address}: the module {module_name!r} cannot be imported: {error}") from error
    for part in attributes.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise unknown_name(f"attribute of {found.__name__}", part, public)
        found = getattr(found, part)
    return found

"""What a model learns from besides images and texts (not the ground truth of scoring): one class per kind of target.

A recipe names targets in ``data.targets`` and gives their settings in ``data.target_options``. Every module of this
package is imported, so a new target is one new file with a class that `TARGETS` registers; see `base.TargetBuilder`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from rightlung.core.errors import InputError
from rightlung.core.settings import read_settings
from rightlung.models.kinds import import_object
from rightlung.training.targets.base import TARGETS, TargetBuilder

if TYPE_CHECKING:
    from rightlung.training.recipe import Data

__all__ = ["TARGETS", "TargetBuilder", "target_builders"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def _target_class(name: str) -> type[TargetBuilder]:
    """Return a target by its name, or one of the user's own as ``module:Class``."""
    if ":" not in name:
        return TARGETS.find(name)  # type: ignore[no-any-return]
    found = import_object(name)
    if not (isinstance(found, type) and issubclass(found, TargetBuilder)):
        raise InputError(f"data.targets: {name!r} is not a subclass of rightlung.training.targets.TargetBuilder")
    return found


def target_builders(data: Data) -> list[TargetBuilder]:
    """Return the builders of the targets that a recipe names; phrases come first where an entry asks for them."""
    asked = [entry.phrases_per_image for entry in data.train] + (
        [] if data.validation is None else [data.validation.phrases_per_image]
    )
    mapped = any(entry.expert_map is not None for entry in data.train)
    names = [*(["phrases"] if any(asked) else []), *(["expert"] if mapped else []), *data.targets]
    for name in data.target_options:
        if name not in names:
            _target_class(name)  # refuses an unknown name, with the nearest known one
            raise InputError(f"data.target_options.{name} is not used: {name} is not in data.targets")
    if "expert" in data.targets and not mapped:
        raise InputError("data.targets: expert needs data.train[...].expert_map, for example gaze")
    if "phrases" in data.targets and not any(asked):
        raise InputError("data.targets: phrases needs data.train[...].phrases_per_image of at least 1")
    return [
        read_settings(_target_class(name), data.target_options.get(name, {}), f"data.target_options.{name}")
        for name in dict.fromkeys(names)
    ]

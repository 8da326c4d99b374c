"""Dataclasses of settings from mappings (YAML, TOML, JSON), with errors that name the field.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Schedule:
...     start: float = 0.1
...     steps: int = 10
>>> read_settings(Schedule, {"step": 20}, "schedule")
Traceback (most recent call last):
    ...
rightlung.core.errors.InputError: unknown field of schedule 'step'; did you mean 'steps'? Known: start, steps
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

from rightlung.core.checks import check_number
from rightlung.core.errors import InputError, check_known, shortened, unknown_name

Settings = TypeVar("Settings")


def read_settings(kind: type[Settings], given: object, where: str = "") -> Settings:
    """Return a dataclass built from a mapping; unknown or missing fields and wrong types are errors.

    Fields may be numbers, texts, ``Literal`` choices, tuples, mappings, such dataclasses, or None. Integers are
    accepted as floats; nothing else is converted.
    """
    if isinstance(given, kind):
        return given
    name = where or kind.__name__
    if not isinstance(given, Mapping):
        raise InputError(f"{name} must be a table of settings; got {shortened(given)}")
    fields = {entry.name: entry for entry in dataclasses.fields(kind) if entry.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    for key in given:
        check_known(f"field of {name}", key, fields)
    read = {}
    for key, entry in fields.items():
        place = f"{where}.{key}" if where else key
        if key in given:
            read[key] = _read(hints[key], given[key], place)
        elif entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
            raise InputError(f"{place} is missing")
    try:
        return kind(**read)
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None


def plain_settings(settings: Any) -> Any:
    """Return settings as plain values for JSON or YAML; the inverse of `read_settings`."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        names = [entry.name for entry in dataclasses.fields(settings) if entry.init]
        return {name: plain_settings(getattr(settings, name)) for name in names}
    if isinstance(settings, Mapping):
        return {str(name): plain_settings(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain_settings(value) for value in settings]
    return settings


def _read(hint: Any, value: object, place: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _read(next(argument for argument in arguments if argument is not type(None)), value, place)
    if origin is Literal:
        for choice in arguments:
            if type(value) is type(choice) and value == choice:
                return choice
        if isinstance(value, str):
            raise unknown_name(place, value, [str(choice) for choice in arguments])
        raise InputError(f"{place} must be one of {', '.join(map(repr, arguments))}; got {shortened(value)}")
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_settings(hint, value, place)
    if origin is tuple:
        return _read_tuple(arguments, value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f"{place} must be a table; got {shortened(value)}")
        return {str(key): _read(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    return _read_plain(hint, value, place)


def _read_tuple(arguments: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{place} must be a list; got {shortened(value)}")
    if arguments[-1] is Ellipsis:
        arguments = arguments[:1] * len(value)
    if len(value) != len(arguments):
        raise InputError(f"{place} must be a list of {len(arguments)}; got {shortened(value)}")
    return tuple(
        _read(argument, item, f"{place}[{index}]")
        for index, (argument, item) in enumerate(zip(arguments, value, strict=True))
    )


def _read_plain(hint: Any, value: object, place: str) -> Any:
    if hint is float:
        return check_number(value, place)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (bool, str) and isinstance(value, hint):
        return value
    kinds = {int: "a whole number", bool: "true or false", str: "a text"}
    raise InputError(f"{place} must be {kinds.get(hint, str(hint))}; got {shortened(value)}")

"""Read the lexicon's data files, with errors that name the file, the table and the key.

The facts are TOML in ``lexicon/data``, so that a radiologist can read and correct them without reading code. They are
read on first use, which keeps importing the lexicon cheap.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, Generic, NoReturn, TypeVar

from rightlung.core.errors import InputError

Key = TypeVar("Key")
Value = TypeVar("Value")


class LazyMapping(Mapping[Key, Value], Generic[Key, Value]):
    """A read-only mapping that is built on first use.

    It is pickled and copied as a reference to the name ``name`` in the module ``home``.
    """

    def __init__(self, home: str, name: str, build: Callable[[], Mapping[Key, Value]]) -> None:
        self._reference = home, name
        self._built = cache(build)

    def __getitem__(self, key: Key) -> Value:
        return self._built()[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._built())

    def __len__(self) -> int:
        return len(self._built())

    def __repr__(self) -> str:
        return repr(dict(self._built()))

    def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
        return _referred, self._reference


def _referred(home: str, name: str) -> object:
    return getattr(import_module(home), name)


def closure(first: Iterable[str], step: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Return every name that can be reached from the first ones by following ``step``, nearest first."""
    found: dict[str, None] = {}
    waiting = list(first)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting.extend(step(name))
    return tuple(found)


def bad_data(file: str, table: str, key: str, problem: str) -> NoReturn:
    """Raise the error for a wrong entry of a data file."""
    raise InputError(f"{file}, table [{table}], key {key!r}: {problem}")


def check_text(value: object, what: str) -> str:
    """Return ``value`` if it is a string, possibly empty."""
    if not isinstance(value, str):
        raise InputError(f"{what} must be a string; got {value!r}")
    return value


@cache
def read_data(file: str) -> dict[str, Any]:
    """Return the tables of one of the lexicon's data files; do not modify them."""
    return tomllib.loads((files("rightlung.lexicon") / "data" / file).read_text(encoding="utf-8"))


class DataTable:
    """One table of a data file: returns its keys one by one, checks their types and rejects unknown keys."""

    def __init__(self, file: str, name: str, entries: object) -> None:
        if not isinstance(entries, dict):
            bad_data(file, name, "", f"must be a table; got {entries!r}")
        self.file = file
        self.name = name
        self.entries: dict[str, Any] = entries
        self._taken: set[str] = set()

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise the error for one key of this table."""
        bad_data(self.file, self.name, key, problem)

    def _take(self, key: str, default: Any, kind: type, what: str) -> Any:
        self._taken.add(key)
        value = self.entries.get(key, default)
        if value is None:
            self.fail(key, "is missing")
        if not isinstance(value, kind):
            self.fail(key, f"must be {what}; got {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        return str(self._take(key, default, str, "a string"))

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return bool(self._take(key, default, bool, "true or false"))

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of the allowed strings."""
        value = self.text(key, default)
        if value not in choices:
            self.fail(key, f"must be one of {', '.join(choices)}; got {value!r}")
        return value

    def texts(self, key: str, known: Iterable[str] | None = None) -> tuple[str, ...]:
        """Return a list of distinct strings, each among ``known`` if that is given; empty if the key is missing."""
        value = tuple(self._take(key, [], list, "a list of strings"))
        for entry in value:
            if not isinstance(entry, str):
                self.fail(key, f"must be a list of strings; got {entry!r} in it")
            if known is not None and entry not in known:
                self.fail(key, f"names {entry!r}, which does not exist")
        if len(set(value)) != len(value):
            self.fail(key, f"repeats an entry: {', '.join(value)}")
        return value

    def table(self, key: str) -> DataTable:
        """Return a table inside this one; empty if the key is missing."""
        return DataTable(self.file, f"{self.name}.{key}", self._take(key, {}, dict, "a table"))

    def done(self) -> None:
        """Reject keys that were not read: most are misspelt."""
        for key in self.entries:
            if key not in self._taken:
                self.fail(key, f"is not a key of this table; it has {', '.join(sorted(self._taken))}")

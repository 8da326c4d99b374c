"""Registries of named values: measures, probes, protocols."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from rightlung.core.errors import InputError, check_known


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name."""


Item = TypeVar("Item", bound=Named)


class Registry(dict[str, Item]):
    """Values by name, in the order of registration."""

    def __init__(self, kind: str, items: Iterable[Item] = ()) -> None:
        super().__init__()
        self.kind = kind
        for item in items:
            self.register(item)

    def register(self, item: Item) -> Item:
        """Add a value under its name, which must be new."""
        if item.name in self:
            raise InputError(f"{self.kind} {item.name!r} is already registered")
        self[item.name] = item
        return item

    def find(self, name: str) -> Item:
        """Return the value of a name; the error for an unknown name suggests the nearest."""
        check_known(self.kind, name, self)
        return self[name]

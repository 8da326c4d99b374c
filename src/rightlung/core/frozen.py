"""An immutable mapping that can be hashed and pickled (``MappingProxyType`` cannot)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenMapping(Mapping[Key, Value]):
    """An immutable copy of a mapping, in the given order.

    >>> FrozenMapping({"a": 1}) == {"a": 1}
    True
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[Key, Value] | None = None) -> None:
        self._items: dict[Key, Value] = dict(items or {})

    def __getitem__(self, key: Key) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[type[FrozenMapping[Key, Value]], tuple[dict[Key, Value]]]:
        return type(self), (self._items,)

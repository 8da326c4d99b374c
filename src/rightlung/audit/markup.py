"""HTML that cannot be injected into: text is escaped unless it was built here."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

_VOID = frozenset({"img", "meta", "br", "col"})


class Markup(str):
    """Text that is markup already; everything else is escaped when it becomes part of an element."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def element(tag: str, *children: Child, **attributes: Any) -> Markup:
    """Build an element; ``class_`` and ``for_`` lose their underscore, other underscores become hyphens.

    >>> element("td", "a < b", class_="few")
    '<td class="few">a &lt; b</td>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{_inside(children)}</{tag}>")


def joined(*children: Child) -> Markup:
    """Put children side by side without an element around them."""
    return Markup(_inside(children))


def _inside(children: Iterable[Child]) -> str:
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(html.escape(child))
        else:
            parts.append(_inside(child))
    return "".join(parts)

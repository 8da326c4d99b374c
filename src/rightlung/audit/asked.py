"""Compare the phrases that a predictions file says were asked with those of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rightlung.lexicon import swap_sides

COLUMNS = ("study", "query", "condition", "phrase", "asked")
_EXPECTED: dict[str, Callable[[str], str]] = {"none": str, "exchange-image": str, "swap-sides": swap_sides}
"""From the source's phrase to the one to ask, for conditions where that is known."""


def asked_warnings(pieces: Iterable[Sequence[dict[str, Any]]]) -> list[str]:
    """Return warnings about rows of an instances table whose phrase is not the source's, also if shifted by one.

    ``pieces`` are rows with the columns `COLUMNS`, those of a study together. Case, spaces and a final full stop do not
    count.
    """
    total, others, shifted = 0, list[dict[str, Any]](), {-1: list[dict[str, Any]](), 1: list[dict[str, Any]]()}
    for piece in pieces:
        rows = [row for row in piece if row["condition"] in _EXPECTED]
        phrases = {(row["study"], row["query"]): row["phrase"] for row in rows}
        strange = [row for row in rows if not _is_asked(row, row["phrase"])]
        for shift, found in shifted.items():
            found += [row for row in strange if _is_asked(row, phrases.get((row["study"], _neighbour(row, shift))))]
        total, others = total + len(rows), others + strange
    if not others:
        return []
    for shift, found in shifted.items():
        if 2 * len(found) > len(others):
            first = found[0]
            return [
                f"The queries are off by one: {len(found):,} of {total:,} rows ask the phrase "
                f"{'before' if shift < 0 else 'after'} the one that they name (first: study {first['study']!r}, "
                f"{first['query']} asks the source's {_neighbour(first, shift)}, {first['asked']!r}). Phrases count "
                "from 0; correct the column 'query'."
            ]
    first = others[0]
    return [
        f"{len(others):,} of {total:,} rows ask something other than the phrase of the source (first: study "
        f"{first['study']!r}, {first['query']}, condition {first['condition']!r}: asked {first['asked']!r}, the source "
        f"has {first['phrase']!r}), so their scores may mean nothing."
    ]


def _is_asked(row: dict[str, Any], phrase: str | None) -> bool:
    return phrase is not None and _plain(row["asked"]) == _plain(_EXPECTED[row["condition"]](phrase))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(". ")


def _neighbour(row: dict[str, Any], shift: int) -> str:
    return f"phrase:{int(row['query'].partition(':')[2]) + shift}"

"""How much of a text a model read, in words for people."""

from __future__ import annotations

LEAST_KNOWN = 0.5
"""Share of known words below which a warning is printed."""


def reading_warning(text: str, read_to: int | None, known: float | None, tokens: int | None = None) -> str | None:
    """Return what a model does not read of a text: all from a character on, or most of its words."""
    length, warnings = f"{len(text):,} characters", []
    if read_to is not None and read_to < len(text):
        how = "" if tokens is None else f"it was cut to {_tokens(tokens)}: "
        warnings.append(f"{how}the model reads only the first {read_to:,} of the {length}")
    if known is not None and known < LEAST_KNOWN:
        long = not warnings and tokens is not None and cut(text) != text
        size = f", {length} that it reads as {_tokens(tokens or 0)}," if long else ""
        warnings.append(f"the model knows only {known:.0%} of these words{size or ','} so its answer means little")
    return "; ".join(warnings) or None


def cut(text: str) -> str:
    """Return a text, shortened to 80 characters."""
    return text if len(text) <= 80 else f"{text[:79]}…"


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"

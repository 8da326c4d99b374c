"""Errors that a user can cause, each one clear sentence.

The command line prints the sentence and exits with a documented code. Library users can catch them without catching
bugs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable


class InputError(ValueError):
    """A wrong value, file, row or name. The message names it."""


class MissingFileError(InputError):
    """A missing file."""


class BoxFormError(InputError):
    """A box that is not four numbers."""


class EmptyBoxError(InputError):
    """A box without area."""


class MaskSizeError(InputError):
    """Masks that should have the same size and have not."""


class OutputError(OSError):
    """A file or folder that cannot be written. The message names the path."""


def shortened(value: object) -> str:
    """Return a value as Python would write it, cut off after 60 characters, for error messages."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name, with the nearest known names.

    >>> str(unknown_name("metric", "aurok", ["auroc", "cnr"]))
    "unknown metric 'aurok'; did you mean 'auroc'? Known: auroc, cnr"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not near:
        lowered = {known_name.lower(): known_name for known_name in names}
        near = [lowered[hit] for hit in difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)]
    suggestion = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"unknown {kind} {shortened(name)}{suggestion} Known: {', '.join(names)}")


def check_known(kind: str, name: object, known: Collection[str]) -> None:
    """Raise the `unknown_name` error if ``name`` is not in ``known``."""
    if name not in known:
        raise unknown_name(kind, str(name), known)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the GPU or the machine is out of memory."""
    import torch

    # PyTorch has an error type for GPU memory only; for the CPU, and for errors that a driver reports late, the message
    # of a RuntimeError tells. Other errors may mention memory, too.
    said = re.search(
        r"(cuda|hip|mps|backend|error:) out of memory|can't allocate memory|ALLOC_FAILED", str(error), re.I
    )
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and bool(said))

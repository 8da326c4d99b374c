"""The two errors a user can cause, each one clear sentence.

Everything that a person outside the code can get wrong (a file, a row, a name, a number) raises one of these, so that
the command line can print the sentence and exit with a documented code, and so that a caller of the library can catch
them without catching bugs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something that came in is wrong: a value, a file, a row, a name. The message names it."""


class MissingFileError(InputError):
    """A file that is not there."""


class BoxFormError(InputError):
    """A box that is not four numbers."""


class EmptyBoxError(InputError):
    """A box without area."""


class MaskSizeError(InputError):
    """Masks that are to be put together and differ in size."""


class OutputError(OSError):
    """Something could not be written: the folder, the disk, the permission. The message names the path."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that does not exist, with the nearest names that do.

    >>> str(unknown_name("metric", "aurok", ["auroc", "cnr"]))
    "unknown metric 'aurok'; did you mean 'auroc'? Known: auroc, cnr"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not near:
        lowered = {known_name.lower(): known_name for known_name in names}
        near = [lowered[hit] for hit in difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)]
    suggestion = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"unknown {kind} {name!r}{suggestion} Known: {', '.join(names)}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left, on the GPU or here."""
    import torch

    # PyTorch has a type for the GPU's memory only; of the CPU's, only the words of a RuntimeError tell.
    said = any(words in str(error).lower() for words in ("out of memory", "can't allocate memory"))
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and said)

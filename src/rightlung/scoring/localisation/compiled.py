"""The compiled functions (``_radix.c``, ``_sums.c``), where a C compiler was found at installation."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path


@functools.cache
def compiled() -> ctypes.CDLL | None:
    """Return the compiled functions, None if they were not built."""
    path = Path(__file__).with_name("_compiled.so")
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    for function in (library.rank32, library.rank64):
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
    for function in (library.sums32, library.sums64):
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p]
    return library

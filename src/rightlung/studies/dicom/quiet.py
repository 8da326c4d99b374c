"""Silence pydicom's warnings and log lines, which may quote values of the file."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("pydicom", "pylibjpeg", "openjpeg", "PIL")
# Python's warning filters are global, so only one thread at a time may change them.
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


# A process forked while another thread holds the lock would wait forever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _drop(record: logging.LogRecord) -> bool:
    return False


@contextmanager
def quiet() -> Iterator[None]:
    """Keep messages of pydicom and its decoders out of the user's logs, screen and warning handlers."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        propagated = [logger.propagate for logger in loggers]
        for logger in loggers:
            logger.addFilter(_drop)
            logger.propagate = False  # a filter does not see the messages of child loggers
        try:
            yield
        finally:
            for logger, propagate in zip(loggers, propagated, strict=True):
                logger.removeFilter(_drop)
                logger.propagate = propagate

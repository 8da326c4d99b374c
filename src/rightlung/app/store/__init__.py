"""What people leave behind: accounts, sessions, annotations, reader studies and their answers, kept images."""

from rightlung.app.store.engine import Store

__all__ = ["Store"]

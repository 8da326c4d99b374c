"""The studies that people can open: a source, files named at the start, uploads in memory, and kept images."""

from __future__ import annotations

import base64
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rightlung.app.errors import not_found, place_of
from rightlung.app.screening import read_own
from rightlung.core import Image, InputError, Polarity, Study
from rightlung.judgements.measures import JudgedInstance
from rightlung.predictions.prediction import phrase_query
from rightlung.studies import open_source
from rightlung.studies.files import read_regular

log = logging.getLogger("rightlung.app")
Kind = Literal["source", "file", "upload", "kept"]
INDEXED = 2_000
"""The most studies of a source that are listed and searched; others open by their id."""
KEPT_OPEN, UPLOADS, UPLOADED_PIXELS = 64, 40, 200_000_000
"""Studies that stay in memory; the most uploads, and the most pixels of all of them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A study with its key in addresses. ``owner`` is who uploaded it; others do not see it.

    ``warnings`` are those of its file.
    """

    key: str
    kind: Kind
    study: Study
    title: str
    warnings: tuple[str, ...] = ()
    owner: str | None = None


def key_of(study_id: str) -> str:
    """Return the key of a source's study, from which its id follows.

    >>> key_of("a/b"), id_of("s.YS9i")
    ('s.YS9i', 'a/b')
    """
    return "s." + base64.urlsafe_b64encode(study_id.encode()).decode().rstrip("=")


def id_of(key: str) -> str | None:
    """Return the id of a source's study, None if it is not the key of one."""
    if not key.startswith("s.") or not key.isascii() or len(key) > 1_000:
        return None
    try:
        found = base64.urlsafe_b64decode(key[2:] + "=" * (-len(key[2:]) % 4)).decode()
    except ValueError:
        return None
    return found if key_of(found) == key else None


class Library:
    """Opens studies by key. Reading a source and its index happen under one lock: sources may render or decode."""

    def __init__(self, address: str, files: Sequence[Path] = ()) -> None:
        self.source = open_source(address)
        self._lock, self._reading, self._decoding = threading.Lock(), threading.Lock(), threading.Lock()
        self._open: OrderedDict[str, Entry] = OrderedDict()
        self._own: OrderedDict[str, Entry] = OrderedDict()
        self.index: dict[str, dict[str, Any]] = {}
        """Rows of the list of studies by key, as far as they are read."""
        self.instances: dict[str, list[JudgedInstance]] = {}
        """The phrases of these studies by the studies' ids, as reader studies plan them."""
        self.indexing = True
        self._closed = False
        for path in files:
            self.add(f"f.{len(self._own)}", "file", read_regular(path, str(path)), str(path), None)
        self._indexer = threading.Thread(target=self._read_index, name="index", daemon=True)

    def start(self) -> None:
        """Begin to read the list of studies."""
        self._indexer.start()

    def close(self) -> None:
        """Stop reading the list."""
        self._closed = True
        if self._indexer.is_alive():
            self._indexer.join(timeout=10)

    def _read_index(self) -> None:
        from rightlung.app.views import row_of

        try:
            for position in range(min(len(self.source), INDEXED)):
                if self._closed:
                    return
                try:
                    with self._reading:
                        study = self.source[position]
                except InputError:
                    continue  # a bad row is not listed; opening it by id says why
                entry = self._remember(Entry(key_of(study.id), "source", study, study.id), enough=position < KEPT_OPEN)
                self.instances[study.id] = list(_instances(study))
                self.index[entry.key] = row_of(entry)
        except Exception as error:  # the list stays incomplete, which the answer says
            log.error("list of studies: %s at %s", type(error).__name__, place_of(error))
            return
        self.indexing = False

    @property
    def truncated(self) -> bool:
        """Whether the list has only a part of the source's studies."""
        return self.indexing or len(self.source) > INDEXED

    def get(self, key: str, user: str) -> Entry:
        """Return the study of a key, for a user."""
        with self._lock:
            entry = self._own.get(key)
        if entry is None and (study_id := id_of(key)) is not None:
            return self.by_id(study_id)
        if entry is None or entry.owner not in (None, user):
            raise not_found("study with this key", "unknown-study")
        return entry

    def by_id(self, study_id: str) -> Entry:
        """Return a study of the source."""
        key = key_of(study_id)
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        with self._reading:
            try:
                study = self.source.study(study_id)
                study.image  # noqa: B018  (loads it, so that its problem is told here)
            except InputError as error:
                raise not_found(f"study {study_id!r}: {error}", "unknown-study") from None
        return self._remember(Entry(key, "source", study, study.id))

    def _remember(self, entry: Entry, enough: bool = True) -> Entry:
        with self._lock:
            known = self._open.get(entry.key)
            if known is not None:
                return known
            if enough:
                self._open[entry.key] = entry
                while len(self._open) > KEPT_OPEN:
                    self._open.popitem(last=False)
        return entry

    def own(self, user: str) -> Iterator[Entry]:
        """Yield a user's own images, the latest first."""
        with self._lock:
            entries = list(self._own.values())
        return (entry for entry in reversed(entries) if entry.owner in (None, user))

    def upload(self, data: bytes, name: str, user: str) -> Entry:
        """Open a file's bytes; they stay in memory until newer uploads need the room."""
        return self.add(f"u.{secrets.token_urlsafe(16)}", "upload", data, name, user)

    def add(self, key: str, kind: Kind, data: bytes, name: str, user: str | None) -> Entry:
        """Open a file named at the start, an upload, or a kept image; one is decoded at a time, to save memory."""
        with self._decoding:
            image, warnings, regions = read_own(data, name if kind == "file" else "the file")
        study = Study(key, lambda: image, source=kind, regions=regions)
        entry = Entry(key, kind, study, Path(name).name, tuple(warnings), user)
        with self._lock:
            self._own[key] = entry
            held = [one for one in self._own.values() if one.kind == "upload"]
            while len(held) > UPLOADS or (
                len(held) > 1 and sum(one.study.image.size for one in held) > UPLOADED_PIXELS
            ):
                del self._own[held.pop(0).key]
        return entry

    def forget(self, key: str, user: str) -> None:
        """Forget an upload or kept image of a user."""
        with self._lock:
            entry = self._own.get(key)
            if entry is None or entry.owner != user:
                raise not_found("image of yours with this key", "unknown-study")
            del self._own[key]


def _instances(study: Study) -> Iterator[JudgedInstance]:
    """Yield the phrases of a study with the findings that they assert."""
    for index, phrase in enumerate(study.phrases):
        present = tuple(name for name, polarity in phrase.findings.items() if polarity is Polarity.POSITIVE)
        abnormal = any(name != "no finding" for name in present)
        yield JudgedInstance(study.id, phrase_query(index), phrase.text, study.patient, present, abnormal)


def levels_of(image: Image) -> dict[str, float]:
    """Return the 1st and 99th percentile, a first window to look through."""
    low, high = np.quantile(image[:: max(1, image.shape[0] // 512), :: max(1, image.shape[1] // 512)], [0.01, 0.99])
    return {"low": round(float(low), 4), "high": round(float(high), 4)}

"""What `rightlung serve` is started with, and the limits of every request."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SOURCE = "phantom?count=24&seed=7"
DEFAULT_MODELS = ("starter", "chex")
UPLOAD_BYTES = 100 * 2**20
MOST_PIXELS = 40_000_000
"""The most pixels of an image or a mask."""
KEPT_IMAGES = 50
"""The most own images of a person that are kept: those that were opened stay in memory."""
BODY_BYTES = 4 * 2**20
"""The most bytes of a request that is not an upload."""
PHRASE_CHARACTERS, PHRASES, MODELS = 1_000, 16, 4
"""The longest phrase, and the most phrases and models of one question."""
SESSION_HOURS = 12


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Options of the service. ``accounts`` asks for a login also on loopback; other hosts always do."""

    source: str = DEFAULT_SOURCE
    models: tuple[str, ...] = DEFAULT_MODELS
    images: tuple[Path, ...] = ()
    store: str | None = None
    host: str = "127.0.0.1"
    port: int = 8800
    accounts: bool = False
    names: tuple[str, ...] = ()
    """Further host names under which browsers reach the service."""
    measures: tuple[Path, ...] = ()
    """Folders of audits whose measures the results of reader studies are correlated with."""
    waiting: int = 24
    """The most questions to models that wait; further ones are answered with 503."""
    threads: int = 1
    """CPU threads of the models. With more, a small model waits for its threads while the others serve."""
    secure: bool = False
    """Whether browsers reach the service through TLS (a reverse proxy), so that cookies are for TLS only."""

    @property
    def login_required(self) -> bool:
        """Whether people must log in."""
        return self.accounts or not is_loopback(self.host)

    @property
    def store_url(self) -> str:
        """The address of the store: the given one, else a SQLite file in the user's data folder."""
        if self.store is not None:
            return self.store
        home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        return f"sqlite:///{home / 'rightlung' / 'store.sqlite'}"

    @property
    def host_names(self) -> frozenset[str]:
        """The values of the ``Host`` header (without port) that are answered; others are DNS rebinding."""
        own = {"127.0.0.1", "localhost", "[::1]"}
        if self.host not in ("0.0.0.0", "::"):
            own.add(f"[{self.host}]" if ":" in self.host else self.host.lower())
        return frozenset(own | {name.lower() for name in self.names})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

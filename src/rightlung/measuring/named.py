"""What is known of the named protocols, and what is not (``protocols.yaml``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from rightlung.core.registry import Registry
from rightlung.core.settings import read_settings
from rightlung.measuring.protocols import PROTOCOLS


@dataclass(frozen=True, slots=True)
class NamedProtocol:
    """A protocol in words. An empty text means that the question does not arise."""

    name: str
    title: str
    data: str
    paper: str = ""
    split: str = ""
    target: str = ""
    resizing: str = ""
    thresholds: str = ""
    averaging: str = ""
    labels: str = ""
    text: str = ""
    published: str = ""
    """Where numbers by it were published."""
    unknown: tuple[str, ...] = ()
    """What could not be found out."""
    contradictions: tuple[str, ...] = ()
    """Where paper, code and other papers disagree, or where the protocol misleads."""
    ours: str = ""
    """What this package does where that differs or was not known."""
    sources: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether this package measures by it."""
        return self.name in PROTOCOLS

    @property
    def facts(self) -> dict[str, str]:
        """What is known, by field."""
        names = [field.name for field in fields(self) if field.type == "str" and field.name not in ("name", "title")]
        return {name: value for name in names if (value := getattr(self, name))}

    def as_json(self) -> dict[str, Any]:
        """Return all fields, and the settings of a protocol that is measured here."""
        settings = PROTOCOLS[self.name].as_json() if self.measured else None
        return {**asdict(self), "measured": self.measured, "settings": settings}


def _read() -> Registry[NamedProtocol]:
    given = yaml.safe_load(Path(__file__).with_name("protocols.yaml").read_text(encoding="utf-8"))
    read = (read_settings(NamedProtocol, {"name": name, **entry}, f"protocol {name}") for name, entry in given.items())
    return Registry("protocol", read)


NAMED_PROTOCOLS = _read()
find_named_protocol = NAMED_PROTOCOLS.find

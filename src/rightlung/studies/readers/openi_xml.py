"""Open-I's report files: one XML document per examination, parsed without a tree and without entities.

A document that declares a type or an entity is refused: Open-I has none, and entities can expand a small file to
gigabytes or fetch other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from rightlung.core import InputError
from rightlung.studies.files import read_regular

MAX_REPORT_BYTES = 4 * 2**20
"""The most bytes of a report; Open-I's have fewer than 20,000."""


@dataclass(frozen=True, slots=True)
class OpenIReport:
    """The contents of a report file; ``images`` maps each image's id to its caption, in order."""

    uid: str
    sections: Mapping[str, str]
    mesh: tuple[str, ...]
    automatic: tuple[str, ...]
    images: Mapping[str, str]


@dataclass(slots=True)
class _Reading:
    """Collects a report's parts from the parser's events."""

    uid: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    coded: dict[str, list[str]] = field(default_factory=lambda: {"major": [], "automatic": []})
    images: dict[str, str] = field(default_factory=dict)
    root: str = ""
    label: str = ""
    image: str = ""
    text: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element."""
        self.root = self.root or tag
        if tag == "uId":
            self.uid = attributes.get("id", "").strip()
        elif tag == "parentImage":
            self.image = attributes.get("id", "").strip()
            if self.image:
                self.images.setdefault(self.image, "")
        elif tag == "AbstractText":
            self.label = attributes.get("Label", "").strip().casefold()
        if tag in ("AbstractText", "major", "automatic", "caption"):
            self.text = []

    def data(self, text: str) -> None:
        """Handle text."""
        if self.text is not None:
            self.text.append(text)

    def end(self, tag: str) -> None:
        """Handle the end of an element."""
        if self.text is None or tag not in ("AbstractText", "major", "automatic", "caption"):
            return
        text = " ".join("".join(self.text).split())
        self.text = None
        if tag == "AbstractText" and self.label and text:
            earlier = self.sections.get(self.label)
            self.sections[self.label] = text if earlier is None else f"{earlier}\n\n{text}"
        elif tag in self.coded and text:
            self.coded[tag].append(text)
        elif tag == "caption" and self.image:
            self.images[self.image] = text


def _refuse(*_: object) -> None:
    raise InputError("declares a document type or entities, which no report of Open-I does")


def parse_report(data: bytes) -> OpenIReport:
    """Parse a report from its bytes; errors say what is wrong."""
    reading = _Reading()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    parser.CharacterDataHandler = reading.data
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(f"is not well-formed XML: {error}") from None
    except (UnicodeError, LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is not readable XML: {error}") from None
    if reading.root != "eCitation":
        raise InputError(f"is not a report of Open-I: its root is <{reading.root}>, not <eCitation>")
    if not reading.uid:
        raise InputError("has no <uId id=…>, which identifies the examination")
    return OpenIReport(
        reading.uid, reading.sections, tuple(reading.coded["major"]), tuple(reading.coded["automatic"]), reading.images
    )


def read_report(path: Path) -> OpenIReport:
    """Read a report file."""
    return parse_report(read_regular(path, f"report {path.name}", MAX_REPORT_BYTES))

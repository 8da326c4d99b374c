"""Open-I's report files: one XML document per examination.

A document that declares a type or an entity is refused: Open-I has none, and entities can expand a small file to
gigabytes or fetch other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

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


class _Builder(TreeBuilder):
    def doctype(self, name: str, public: str, system: str) -> None:
        """Refuse a document type; entities can be declared only inside one."""
        raise InputError("declares a document type or entities, which no report of Open-I does")


def parse_report(data: bytes) -> OpenIReport:
    """Parse a report from its bytes; errors say what is wrong."""
    parser = XMLParser(target=_Builder())
    try:
        parser.feed(data)
        root: Element = parser.close()
    except ParseError as error:
        raise InputError(f"is not well-formed XML: {error}") from None
    except (UnicodeError, LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"is not readable XML: {error}") from None
    if root.tag != "eCitation":
        raise InputError(f"is not a report of Open-I: its root is <{root.tag}>, not <eCitation>")
    uid = next((_attribute(element, "id") for element in root.iter("uId")), "")
    if not uid:
        raise InputError("has no <uId id=…>, which identifies the examination")
    sections: dict[str, str] = {}
    for element in root.iter("AbstractText"):
        label, text = _attribute(element, "Label").casefold(), _text(element)
        if label and text:
            sections[label] = f"{sections[label]}\n\n{text}" if label in sections else text
    mesh, automatic = (tuple(filter(None, map(_text, root.iter(tag)))) for tag in ("major", "automatic"))
    images = {
        _attribute(image, "id"): " ".join(map(_text, image.iter("caption"))) for image in root.iter("parentImage")
    }
    images.pop("", None)
    return OpenIReport(uid, sections, mesh, automatic, images)


def _attribute(element: Element, name: str) -> str:
    return element.get(name, "").strip()


def _text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def read_report(path: Path) -> OpenIReport:
    """Read a report file."""
    return parse_report(read_regular(path, f"report {path.name}", MAX_REPORT_BYTES))

"""What the reader of a manifest refuses, told under the check it belongs to, with the likely cause."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rightlung.core import Image
from rightlung.studies.checks.coordinates import Coordinates
from rightlung.studies.checks.issue import Ledger, Origin
from rightlung.studies.checks.labels import explain_polarity
from rightlung.studies.checks.manifest import RawRow, RowFault


def tell_faults(
    ledger: Ledger, coordinates: Coordinates, found: RawRow, faults: Sequence[RowFault], image: Image | None
) -> None:
    """Note what is wrong with a row; boxes are kept by ``coordinates`` until all of them are known."""
    for fault in faults:
        name = fault.field or ""
        size = None if image is None else (float(image.shape[1]), float(image.shape[0]))
        if _is_box_field(name):
            coordinates.note_raw(found.place, name, fault.value, size, found.raw)
        elif name == "file":
            check = "missing-image" if fault.missing or fault.value is None else "row"
            ledger.add(check, found.place, name, fault.message)
        elif name.endswith((".file", ".mask")):
            ledger.add("missing-mask" if fault.missing else "row", found.place, name, fault.message)
        elif ".findings." in f".{name}":
            ledger.add("label-value", found.place, name, explain_polarity(fault.value))
        else:
            _tell_value(ledger, found.place, fault)


def _tell_value(ledger: Ledger, place: Origin, fault: RowFault) -> None:
    value, name = fault.value, fault.field
    if name == "age":
        text = str(value).strip()
        cause = ""
        if isinstance(value, str) and text[:-1].isdigit() and text[-1:].upper() in "YMWD":
            cause = "; it looks like DICOM's age with its unit"
        elif isinstance(value, str):
            cause = "; numbers stand without quotes"
        elif isinstance(value, int | float) and value > 130:
            cause = "; days or months, or a year of birth, perhaps"
        ledger.add("label-value", place, name, f"{fault.message}{cause}")
    elif name == "findings" and isinstance(value, str | int | float):
        joined = "; several names stand in a list" if re.search(r"[|;,]", str(value)) else ""
        ledger.add("label-value", place, name, f"{fault.message}{joined}")
    elif name in ("patient", "study", "split", "view", "sex", "id") and isinstance(value, int | float):
        ledger.add("label-value", place, name, f"{value!r} is a number; {name} is a text, in quotes")
    else:
        ledger.add("row", place, name, fault.message)


def _is_box_field(name: str) -> bool:
    return name.endswith(".box") or ".boxes[" in name or name.startswith("regions.")

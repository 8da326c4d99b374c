"""From stored values to grey, 0 black to 1 white: padding, modality LUT, VOI LUT or window, inversion (PS3.3 C.11).

All steps act on single values, so they are applied to a table of the at most 65,536 possible values.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, InputError
from rightlung.studies.dicom.frames import Layout
from rightlung.studies.dicom.header import DicomHeader

GreyRule = Literal["voi-lut", "window", "bits", "percentiles"]
PERCENTILES = (0.5, 99.5)
"""Without a table or window, pixels below the first percentile are black and above the second white."""

Table = NDArray[np.float64]


def grey(
    levels: NDArray[np.uint16], header: DicomHeader, layout: Layout, what: str
) -> tuple[Image, GreyRule, str | None]:
    """Convert stored values, counted from the lowest possible one, to the greys of a radiologist's screen.

    Return the image, the rule that made it, and a note on anything unexpected.
    """
    values = layout.lowest + np.arange(layout.levels, dtype=np.float64)
    padded = _padded(values, header, layout)
    counts = np.bincount(levels.reshape(-1), minlength=layout.levels)
    counts[padded] = 0
    values = _after_modality(values, header, layout, what)
    rule, shades = _shown(values, header, layout, what)
    note = None
    seen = counts > 0
    if shades is not None and _is_flat(shades[seen]) and not _is_flat(values[seen]):
        note = "the header's window or table makes the whole image one grey, so its own range of values was used"
        shades = None
    if shades is None:
        rule, shades = _spread(values, counts, layout)
    if layout.inverted:
        shades = 1.0 - shades
    shades[padded] = 0.0
    return shades.astype(np.float32)[levels], rule, note


def _is_flat(values: Table) -> bool:
    return values.size == 0 or bool(values.min() == values.max())


def _padded(values: Table, header: DicomHeader, layout: Layout) -> NDArray[np.bool_]:
    """Return which stored values are padding; compared before any other step."""
    first = header.word("PixelPaddingValue")
    if first is None:
        return np.zeros(values.shape, dtype=np.bool_)
    last = header.word("PixelPaddingRangeLimit")
    ends = [_signed(first, layout.signed), _signed(first if last is None else last, layout.signed)]
    inside: NDArray[np.bool_] = (values >= min(ends)) & (values <= max(ends))
    return inside


def _signed(word: int, signed: bool) -> int:
    return word - 65536 if signed and word >= 32768 else word


def _after_modality(values: Table, header: DicomHeader, layout: Layout, what: str) -> Table:
    for item in header.items.get("ModalityLUTSequence", ())[:1]:
        table, first, _ = _lookup_table(item, layout.signed, f"{what}: Modality LUT Sequence")
        return _looked_up(values, table, first)
    slope, intercept = 1.0, 0.0
    for name in ("RescaleSlope", "RescaleIntercept"):
        if not header.has(name) or not any(header.texts(name)):
            continue
        numbers = header.numbers(name)
        if not numbers or (name == "RescaleSlope" and numbers[0] == 0):
            raise InputError(f"{what} has a {name} that is zero or not a number")
        slope, intercept = (numbers[0], intercept) if name == "RescaleSlope" else (slope, numbers[0])
    return slope * values + intercept


def _shown(values: Table, header: DicomHeader, layout: Layout, what: str) -> tuple[GreyRule, Table | None]:
    """Apply the file's VOI LUT, or else its first window; None if it has neither."""
    for item in header.items.get("VOILUTSequence", ())[:1]:
        table, first, highest = _lookup_table(item, bool(values.min() < 0), f"{what}: VOI LUT Sequence")
        return "voi-lut", _looked_up(values, table, first) / highest
    centres, widths = header.numbers("WindowCenter"), header.numbers("WindowWidth")
    if not centres or not widths:
        return "window", None
    return "window", window(values, centres[0], widths[0], header.text("VOILUTFunction") or "LINEAR")


def window(values: Table, centre: float, width: float, function: str) -> Table | None:
    """Apply a window (PS3.3 C.11.2.1.2 and C.11.2.1.3); None if the function does not allow the width.

    >>> window(np.array([0.0, 2047.5, 4095.0]), 2048, 4096, "LINEAR").tolist()
    [0.0, 0.5, 1.0]
    """
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID") or width <= 0 or (function == "LINEAR" and width < 1):
        return None
    if function == "SIGMOID":
        return 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -700, 700)))
    if function == "LINEAR_EXACT":
        return np.clip((values - centre) / width + 0.5, 0.0, 1.0)
    if width == 1:  # a threshold
        return (values > centre - 0.5).astype(np.float64)
    return np.clip((values - (centre - 0.5)) / (width - 1) + 0.5, 0.0, 1.0)


def _spread(values: Table, counts: NDArray[np.intp], layout: Layout) -> tuple[GreyRule, Table]:
    """Stretch values over black to white if the file does not say how.

    Up to eight bits keep their range. Deeper pixels are stretched between two percentiles of the pixels that are not
    padding, so that a marker or a hot pixel does not determine how dark the lungs are.
    """
    if layout.bits <= 8:
        low, high = float(values.min()), float(values.max())
        rule: GreyRule = "bits"
    else:
        rule = "percentiles"
        order = np.argsort(values, kind="stable")
        shares = np.cumsum(counts[order])
        if shares[-1] == 0:
            return rule, np.zeros_like(values)
        low, high = (float(values[order[np.searchsorted(shares, share / 100 * shares[-1])]]) for share in PERCENTILES)
        if low == high:
            seen = values[counts > 0]
            low, high = float(seen.min()), float(seen.max())
    if low == high:
        return rule, np.zeros_like(values)
    return rule, np.clip((values - low) / (high - low), 0.0, 1.0)


def _lookup_table(item: DicomHeader, signed: bool, what: str) -> tuple[Table, int, float]:
    """Return a LUT's entries, the value of the first one, and the value of white (PS3.3 C.11.1.1.1)."""
    descriptor = item.words("LUTDescriptor")
    if len(descriptor) != 3:
        raise InputError(f"{what}: its LUT Descriptor must have three values")
    entries = descriptor[0] or 65536
    data = item.values.get("LUTData", b"")
    if len(data) >= 2 * entries:
        table = np.frombuffer(data, "<u2" if item.little_endian else ">u2", entries)
    elif len(data) >= entries:  # eight bits per entry, packed
        table = np.frombuffer(data, "u1", entries)
    else:
        raise InputError(f"{what}: its LUT Data has {len(data):,} bytes for {entries:,} entries")
    bits = descriptor[2]
    # Some files state fewer bits than their entries have.
    highest = max((1 << bits) - 1 if 1 <= bits <= 16 else 0, int(table.max()), 1)
    return table.astype(np.float64), _signed(descriptor[1], signed), float(highest)


def _looked_up(values: Table, table: Table, first: int) -> Table:
    found: Table = table[np.clip(np.rint(values) - first, 0, len(table) - 1).astype(np.int64)]
    return found

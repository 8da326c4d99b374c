"""Explain invalid boxes: wrong scale (pixels, percent), wrong order of coordinates, or out of range.

A single box often has several explanations; all boxes of a source together rarely do. So invalid boxes are kept until
the end and explained by what all boxes have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rightlung.studies.checks.issue import ERROR, MOST_KEPT, WARNING, Ledger, Origin
from rightlung.studies.files import shown

_SLACK = 0.02
_SLIGHT = 1.5
"""A coordinate up to this value is a fraction outside the image; above, it is on another scale."""
_USUAL_SIDES = (224, 256, 299, 320, 336, 384, 448, 512, 640, 768, 896, 1024, 1536, 2048, 2500, 3000, 3072, 4096)
_ENOUGH = 20
Size = tuple[float, float]
Numbers = tuple[float, float, float, float]


class Suspect(NamedTuple):
    """A box that the reader rejects, with the sizes (width, height) that its pixels may refer to."""

    place: Origin
    field: str
    values: Numbers
    image: Size | None
    others: list[tuple[str, Size]]


def four_numbers(value: object) -> Numbers | str:
    """Return a box's four numbers, or a description of what it is instead."""
    if isinstance(value, dict):
        keys = {str(key).lower() for key in value}
        if keys >= {"x", "y"} and keys & {"w", "width"}:
            return "it is an object with x, y, width and height; a box must be a list [x0, y0, x1, y1]"
        return f"it is an object with {', '.join(sorted(keys)) or 'no keys'}; a box must be a list [x0, y0, x1, y1]"
    if isinstance(value, str):
        return f"it is the string {shown(value)}; a box must be a list of four numbers"
    if not isinstance(value, list):
        return f"it is {shown(value)}; a box must be a list [x0, y0, x1, y1]"
    if any(isinstance(entry, list | dict) for entry in value):
        form = "two corners" if len(value) == 2 else "a polygon or several boxes"
        return f"it looks like {form}; a box must be one flat list [x0, y0, x1, y1]"
    if len(value) != 4:
        return f"it has {len(value)} numbers; a box has four, [x0, y0, x1, y1]"
    if any(isinstance(entry, str) for entry in value):
        return "its numbers are in quotes; a box must be a list of four numbers"
    if any(isinstance(entry, bool) or not isinstance(entry, int | float) for entry in value):
        return f"{shown(value)} are not four numbers"
    if not all(map(math.isfinite, value)):
        return f"{shown(value)} has a value that is not finite (an empty cell?)"
    x0, y0, x1, y1 = map(float, value)
    return x0, y0, x1, y1


def _is_corners(values: Numbers) -> bool:
    x0, y0, x1, y1 = values
    return x0 < x1 <= 1 + _SLACK and y0 < y1 <= 1 + _SLACK and min(x0, y0) >= -_SLACK


def _is_x_y_width_height(values: Numbers) -> bool:
    x, y, width, height = values
    return min(x, y) >= -_SLACK and min(width, height) > 0 and x + width <= 1 + _SLACK and y + height <= 1 + _SLACK


@dataclass
class CoordinateChecks:
    """All boxes of a source: counts of the valid ones, and the invalid ones until they are explained."""

    ledger: Ledger
    good: int = 0
    good_as_width_height: int = 0
    reach: list[float] = field(default_factory=lambda: [0.0, 0.0])
    upper_left: int = 0
    suspects: list[Suspect] = field(default_factory=list)

    def note_good(self, values: Numbers) -> None:
        """Count a valid box."""
        self.good += 1
        self.good_as_width_height += _is_x_y_width_height(values)
        self.reach = [max(self.reach[0], values[2]), max(self.reach[1], values[3])]
        self.upper_left += values[0] + values[2] < 1 and values[1] + values[3] < 1

    def note_raw(self, place: Origin, name: str, value: object, image: Size | None, row: dict[str, Any]) -> None:
        """Keep a box that the reader rejects."""
        values = four_numbers(value)
        if isinstance(values, str):
            self.ledger.add("box-form", place, name, values)
        elif len(self.suspects) < MOST_KEPT:
            self.suspects.append(Suspect(place, name, values, image, _sizes_named(row)))

    def finish(self, place: Origin) -> bool:
        """Explain the rejected boxes, and report what all boxes have in common; return whether there was anything."""
        scales = _Scales(self.suspects)
        read = [scales.read(suspect) for suspect in self.suspects]
        unordered = sum(not _is_corners(scaled) and not _has_no_area(scaled) for _, scaled in read)
        as_width_height = self.good_as_width_height + sum(_is_x_y_width_height(scaled) for _, scaled in read)
        total = self.good + len(self.suspects)
        # Corners of real boxes are anywhere; that x + width and y + height are always inside is no coincidence.
        all_width_height = unordered >= max(2, 0.05 * total) and as_width_height >= 0.95 * total
        for suspect, (scale, scaled) in zip(self.suspects, read, strict=True):
            self._explain(suspect, scale, scaled, all_width_height)
        severity = ERROR
        if all_width_height:
            message = f"all {total:,} boxes look like x, y, width, height, also the {self.good:,} valid as corners"
        elif self.suspects or self.good < _ENOUGH:
            return False
        elif max(self.reach) <= 0.5:
            message = (
                f"all {self.good:,} boxes are in the image's top left quarter, none beyond x = {self.reach[0]:.2f} or "
                f"y = {self.reach[1]:.2f}: they seem to have been divided by a size larger than that of the image they "
                "were drawn on, or twice"
            )
        elif self.upper_left == self.good:
            severity = WARNING
            message = (
                f"the centres of all {self.good:,} boxes are in the top left quarter: they look like x, y, width, "
                "height, or seem to have been divided by too large a size"
            )
        else:
            return False
        self.ledger.add("box-layout", place, None, message, severity)
        return True

    def _explain(self, suspect: Suspect, scale: str | None, scaled: Numbers, all_width_height: bool) -> None:
        given = f"[{', '.join(f'{value:g}' for value in suspect.values)}]"
        order = _order(scaled, all_width_height) if all_width_height or not _has_no_area(scaled) else None
        if scale is not None:
            check, told = "box-scale", f"{scale}, and {order}" if order else scale
        elif order is not None:
            check, told = "box-order", order
        elif _has_no_area(scaled):
            axis = "x" if scaled[0] == scaled[2] else "y"
            check, told = "box-size", f"has no area: {axis}0 = {axis}1"
        else:
            by = max(max(scaled) - 1, -min(scaled))
            rounding = "; if this is rounding, clip the box" if by <= _SLACK else ""
            check, told = "box-range", f"leaves the image by {by:.3g} of its side{rounding}"
        self.ledger.add(check, suspect.place, suspect.field, f"{given} {told}")


def _has_no_area(values: Numbers) -> bool:
    return values[0] == values[2] or values[1] == values[3]


def _order(values: Numbers, all_width_height: bool) -> str | None:
    """Describe the order of coordinates of four fractions, if it is not that of corners."""
    x0, y0, x1, y1 = values
    if all_width_height:
        return "looks like x, y, width, height, as all boxes here do"
    if x0 < x1 and y0 < y1:
        return None
    reading = "x0 and x1 are swapped" if x0 > x1 else "y0 and y1 are swapped"
    if x0 > x1 and y0 > y1:
        reading = "both corners are swapped: x0 > x1 and y0 > y1"
    choices = ["x, y, width, height"] if _is_x_y_width_height(values) else []
    choices += ["x0, x1, y0, y1"] if 0 <= x0 < y0 <= 1 and 0 <= x1 < y1 <= 1 else []
    looks = f"it looks like {' or '.join(choices)}, or " if choices else ""
    return f"is in the wrong order: {looks}{reading}"


def _sizes_named(row: dict[str, Any]) -> list[tuple[str, Size]]:
    """Return image sizes in a row's own fields; a pair may be (width, height) or (height, width)."""
    lowered = {str(key).lower(): value for key, value in row.items()}
    sizes: list[tuple[str, Size]] = []
    for key, value in lowered.items():
        if "size" in key and isinstance(value, list) and len(value) == 2 and _are_sides(value):
            sizes += [(key, (value[0], value[1])), (key, (value[1], value[0]))]
    for wide, tall in (("width", "height"), ("columns", "rows"), ("image_width", "image_height")):
        if _are_sides([lowered.get(wide), lowered.get(tall)]):
            sizes.append((f"{wide} and {tall}", (lowered[wide], lowered[tall])))
    return sizes


def _are_sides(values: Sequence[object]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 1 for value in values)


class _Scales:
    """The scale of a source's rejected boxes, judged by all of them together."""

    def __init__(self, suspects: Sequence[Suspect]) -> None:
        large = [suspect for suspect in suspects if max(suspect.values) > _SLIGHT]
        self.count = len(large)
        self.largest = max((max(suspect.values) for suspect in large), default=0.0)
        sides = [min(suspect.image) for suspect in large if suspect.image is not None]
        # Percent never exceed 100; pixels that never do would all be in one corner, unless the images are that small.
        smallest = min(sides, default=math.inf)
        fits = smallest > 128 or (smallest >= 110 and len(large) >= 10)
        self.is_percent = bool(large) and self.largest <= 100.0 and fits
        # If one box does not fit into its own image, all are in the pixels of another.
        self.fits_own = all(suspect.image is None or _fits(suspect.values, suspect.image) for suspect in large)

    def _size(self, suspect: Suspect) -> tuple[str, Size]:
        """Return the scale's name and its full width and height."""
        if self.is_percent:
            return "percent", (100.0, 100.0)
        if suspect.image is not None and (self.fits_own or _fits(suspect.values, suspect.image)):
            return "pixels", suspect.image
        for name, size in suspect.others:
            if _fits(suspect.values, size):
                return f"pixels of another size ({name}: {size[0]:g} x {size[1]:g})", size
        side = next((side for side in _USUAL_SIDES if self.largest <= side + 2), math.ceil(self.largest))
        whose = f"an image of about {side} pixels"
        return f"pixels (of {whose})" if suspect.image is None else f"pixels of {whose}", (side, side)

    def read(self, suspect: Suspect) -> tuple[str | None, Numbers]:
        """Return a description of a box's scale (None for fractions), and its numbers as fractions of that scale."""
        if max(suspect.values) <= _SLIGHT:
            return None, suspect.values
        name, (width, height) = self._size(suspect)
        x0, y0, x1, y1 = suspect.values
        scaled = x0 / width, y0 / height, x1 / width, y1 / height
        if name == "percent":
            doubt = self.count < 3 and suspect.image is not None and _fits(suspect.values, suspect.image)
            return f"looks like percent{', or pixels of a corner' if doubt else ': divide by 100'}", scaled
        if name == "pixels":
            return f"looks like pixels: divide by the image's width {width:g} and height {height:g}", scaled
        own = f", but this image is {suspect.image[0]:g} x {suspect.image[1]:g}" if suspect.image else ""
        return f"looks like {name}{own}: divide by the width and height of the image it was drawn on", scaled


def _fits(values: Numbers, size: Size) -> bool:
    return max(values[0], values[2]) <= size[0] + 2 and max(values[1], values[3]) <= size[1] + 2

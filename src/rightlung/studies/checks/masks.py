"""Check masks: wrong size, empty, full, inverted, or not matching their boxes."""

from __future__ import annotations

from functools import reduce

from rightlung.core import Box, Image, InputError, Mask
from rightlung.core.errors import MaskSizeError, MissingFileError
from rightlung.studies.checks.issue import HINT, WARNING, Ledger, Origin
from rightlung.studies.checks.sides import SideChecks
from rightlung.studies.checks.targets import Item, LintTarget, region_name

_SAME_SHAPE = 0.02
_FULL = 0.97
_HARDLY = 0.2
"""Below this IoU, a mask's bounding box and its boxes describe different places."""


class MaskChecks:
    """The masks of a source."""

    def __init__(self, ledger: Ledger, sides: SideChecks) -> None:
        self.ledger = ledger
        self.sides = sides
        self._masks = 0
        self._other_size: list[tuple[Origin, str, str]] = []

    def check(self, item: Item, image: Image | None) -> None:
        """Load and check the masks of one study."""
        for target in item.targets:
            if target.mask is not None and target.mask[0] not in item.void:
                self._check_mask(item, target, *target.mask, image)

    def _check_mask(self, item: Item, target: LintTarget, name: str, mask: Mask, image: Image | None) -> None:
        try:
            pixels = mask.pixels
        except InputError as error:
            missing = "missing-mask" if isinstance(error, MissingFileError) else "unreadable-mask"
            check = "mask-size" if isinstance(error, MaskSizeError) else missing
            self.ledger.add(check, item.place, name, str(error).removeprefix(f"study {item.study.id!r}: "))
            return
        self._masks += 1
        if image is not None and pixels.shape != image.shape:
            self._check_size(item.place, name, pixels.shape, image.shape)
        if not pixels.any():
            self.ledger.add("mask-empty", item.place, name, f"the mask of {target.text!r} has no pixel")
            return
        area = f"{pixels.mean():.0%} of all pixels are set"
        around = mask.box()
        if pixels.mean() > _FULL:
            self.ledger.add("mask-full", item.place, name, f"{area}: pixels outside the finding must be zero")
        elif min(pixels.shape) > 2 and pixels[:: pixels.shape[0] - 1, :: pixels.shape[1] - 1].all():
            self.ledger.add("mask-full", item.place, name, f"{area}, including all corners: the mask looks inverted")
        elif around is not None and not self.sides.check_mask(item, target, around):
            self._check_boxes(item, target, name, around)

    def _check_size(self, place: Origin, name: str, size: tuple[int, ...], image: tuple[int, ...]) -> None:
        told = f"the mask has {size[1]} x {size[0]} pixels, its image {image[1]} x {image[0]}"
        swapped = size == image[::-1]
        if swapped or abs(size[0] * image[1] / (size[1] * image[0]) - 1) > _SAME_SHAPE:
            cause = "width and height are swapped" if swapped else "the proportions differ"
            self.ledger.add("mask-size", place, name, f"{told}: {cause}")
        else:
            self._other_size.append((place, name, told))

    def _check_boxes(self, item: Item, target: LintTarget, name: str, around: Box) -> None:
        boxes, what = [box for field, box in target.boxes if field not in item.void], "all boxes of its phrase"
        if not boxes and target.kind == "label" and (region := region_name(target.text)) is not None:
            what = f"the box of the region {target.text!r}"
            sound = ((given, box) for other, given, box in item.boxes() if other.kind == "region")
            boxes = [box for given, box in sound if region_name(given.removeprefix("regions.")) == region]
        if not boxes:
            return
        hull = reduce(Box.enclosing, boxes)
        most = max(around.iou(box) for box in [hull, *boxes])
        if all(around.iou(box) == 0.0 for box in boxes):
            self.ledger.add("mask-box", item.place, name, f"the mask does not overlap {what}")
        elif most < _HARDLY:
            turned = Box(around.y0, around.x0, around.y1, around.x1)
            cause = ": it would fit with rows and columns swapped" if turned.iou(hull) > 0.5 else ""
            self.ledger.add("mask-box", item.place, name, f"the mask hardly overlaps {what} (IoU {most:.2f}){cause}")

    def finish(self) -> None:
        """Report what only all masks together show."""
        if len(self._other_size) > 1 and len(self._other_size) >= 0.9 * self._masks:
            first, name, told = self._other_size[0]
            share = f"{len(self._other_size):,} of {self._masks:,} masks"
            message = f"{told}; {share} have another size with the same proportions, this is the first"
            self.ledger.add("mask-size", first, name, message, HINT)
        else:
            for first, name, told in self._other_size:
                self.ledger.add("mask-size", first, name, f"{told}, with the same proportions", WARNING)

"""Check images: blank, duplicate, wrong orientation, not a radiograph among radiographs.

To find the same image in other bytes (re-encoded or resized), a thumbnail of 16 x 16 averages is kept of each image.
Re-encoding changes such an average by less than two grey values of 255; two exposures of one patient differ by tens.
The averages of the four quarters select the few candidates to compare, so that the time per image does not grow.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from importlib import import_module
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, InputError, Polarity
from rightlung.core.study import check_image
from rightlung.lexicon import find
from rightlung.studies.checks.issue import ERROR, MOST_KEPT, WARNING, Ledger, Origin
from rightlung.studies.checks.orientation import LIKELY_MIRROR, SURE_MIRROR, Look, look, shrunk
from rightlung.studies.checks.sides import binomial_tail
from rightlung.studies.checks.targets import Item
from rightlung.studies.headers import image_kind
from rightlung.studies.plausibility import why_implausible

_LEAST_RANGE = 4 / 255
"""The least range of grey values, without the darkest and brightest hundredth, of an image that shows something."""
_GREY_STRIP = 0.15
_ENOUGH = 20
_ODD_LIKENESS, _ODD_RESEMBLANCE = 3.5, 0.12
"""Below both, an image is not a frontal chest radiograph: noise always, real radiographs in less than 1 of 1,000."""
_HALF, _LONG = 0.4, 1.8
_SAME_GREY = 6 / 255
_NEARLY_ALL, _FEWEST, _ODD_SHARE = 0.85, 12, 0.1
"""An odd image is reported if this share of the images, at least this many, are radiographs, and so few are odd."""
_USUAL_MIRRORED = 0.04
"""The share of correct images that look mirrored at `LIKELY_MIRROR`; a higher share is a fault."""
_RARE = 1e-6
_SHIFTING = {
    "atelectasis", "pleural effusion", "pneumothorax", "mass", "consolidation", "lung opacity", "pneumonia",
    "pleural thickening", "fibrosis", "pulmonary fibrosis", "lobectomy", "dextrocardia", "scoliosis",
}  # fmt: skip
"""Findings that can displace or hide the heart."""
_SIDE = 16
_CELL, _QUARTER_OFF = 4.0, 0.75
"""Grey values of 255 by which the averages of quarters are grouped, and by which those of one image may differ."""
_MOST_OFF, _MEAN_OFF = 4, 1.25
"""How far thumbnails of the same image may differ, at one place and on average, in grey values of 255."""
_LEAST_CONTRAST = 10.0
"""Below this, all images look alike."""


class _First(NamedTuple):
    """Where an image was first seen."""

    place: Origin
    patient: str | None
    split: str | None


class ImageChecks:
    """The images of a source; a hash and a thumbnail of 256 bytes are kept of each."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.decoded = 0
        self._hashes: dict[int, _First] = {}
        self._thumbnails: dict[tuple[int, ...], list[tuple[NDArray[np.uint8], _First]]] = {}
        self._looks: Counter[str] = Counter()
        # Kept until it is known whether the source contains radiographs.
        self._hints: list[tuple[str, Origin, str | None, str]] = []
        self._odd: list[tuple[str, Origin, str | None, str]] = []

    def check(self, item: Item) -> Image | None:
        """Load and check a study's image, and return it for checks that need its size."""
        try:
            # Not study.image, which would keep it: the source may hold the study.
            image = check_image(item.study.load(), f"study {item.study.id!r}")
        except InputError as error:
            message = str(error).removeprefix(f"study {item.study.id!r}: ")
            self.ledger.add(image_kind(error), item.place, item.image_field, message, ERROR)
            return None
        self.decoded += 1
        if not self._is_blank(item, image) and not self._is_impossible(item, image):
            self._check_twice(item, image)
            seen = look(image)
            if seen is not None:
                self._check_orientation(item, seen)
                self._check_odd(item, image, seen)
        return image

    def _is_blank(self, item: Item, image: Image) -> bool:
        low, high = np.quantile(image[:: max(1, image.shape[0] // 512), :: max(1, image.shape[1] // 512)], [0.01, 0.99])
        if high - low < _LEAST_RANGE and float(image.max() - image.min()) < 0.5:
            message = f"the image is blank: its values are between {low:.3f} and {high:.3f}"
            self.ledger.add("blank-image", item.place, item.image_field, message)
            return True
        # Decoders leave grey rows at the bottom where data is missing. Black is just a border.
        constant = (image == image[:, :1]).all(axis=1) & (image[:, 0] == image[-1, 0])
        varied = np.flatnonzero(~constant)
        strip = image.shape[0] - (int(varied[-1]) + 1 if len(varied) else 0)
        if strip >= _GREY_STRIP * image.shape[0] and strip >= 4 and 0.1 < float(image[-1, 0]) < 0.9:
            message = f"the lowest {strip:,} of {image.shape[0]:,} rows are one grey: the file may have been truncated"
            self.ledger.add("blank-image", item.place, item.image_field, message, WARNING)
        return False

    def _is_impossible(self, item: Item, image: Image) -> bool:
        reason = why_implausible(image)
        if reason is not None:
            message = f"the image cannot be a chest radiograph: {reason}"
            self.ledger.add("odd-image", item.place, item.image_field, message, ERROR)
        return reason is not None

    def _check_twice(self, item: Item, image: Image) -> None:
        digest = hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=8)
        digest.update(repr(image.shape).encode())
        study = item.study
        this = _First(item.place, study.patient, study.split)
        first = self._hashes.setdefault(int.from_bytes(digest.digest(), "big"), this)
        alike = self._looks_same(image, this) if first is this else first
        if alike is None:
            return
        where = f"{alike.place.study!r}" + (f" (line {alike.place.row})" if alike.place.row is not None else "")
        message, severity = f"the same image as {where}", WARNING
        if first is this:
            message = f"looks the same as {where} but is stored differently: it may have been re-encoded"
        elif first.split != study.split:
            message, severity = f"{message}, which is in split {first.split!r}; this one is in {study.split!r}", ERROR
        elif first.patient != study.patient:
            message, severity = f"{message}, of patient {first.patient!r}; this one is of {study.patient!r}", ERROR
        self.ledger.add("duplicate-image", item.place, item.image_field, message, severity)

    def _looks_same(self, image: Image, this: _First) -> _First | None:
        """Return an earlier image that looks the same; if there is none, keep the thumbnail of this one."""
        means = 255.0 * shrunk(image, _SIDE)
        if min(image.shape) < _SIDE or float(means.std()) < _LEAST_CONTRAST:
            return None
        quarters = means.reshape(2, _SIDE // 2, 2, _SIDE // 2).mean(axis=(1, 3)).ravel()
        offsets = (-_QUARTER_OFF, _QUARTER_OFF)
        for cell in product(*(sorted({int((quarter + off) // _CELL) for off in offsets}) for quarter in quarters)):
            for other, first in self._thumbnails.get(cell, ()):
                off = np.abs(means - other)
                if float(off.max()) <= _MOST_OFF and float(off.mean()) <= _MEAN_OFF:
                    return first
        cell = tuple(int(quarter // _CELL) for quarter in quarters)
        self._thumbnails.setdefault(cell, []).append((np.rint(means).astype(np.uint8), this))
        return None

    def _suspect(self, check: str, item: Item, message: str) -> None:
        kept = self._odd if check == "odd-image" else self._hints
        if len(kept) < MOST_KEPT:
            kept.append((check, item.place, item.image_field, message))

    def _check_odd(self, item: Item, image: Image, seen: Look) -> None:
        """Keep what is not a whole frontal radiograph until it is known whether nearly all others are."""
        if seen.is_turned:
            return
        share, edge = _one_grey(image)
        height, width = image.shape
        unlike = seen.likeness < _ODD_LIKENESS and seen.resemblance < _ODD_RESEMBLANCE
        if unlike or (not seen.is_radiograph and _anatomy_disagrees(image)):
            message = "the image does not look like a frontal chest radiograph, unlike nearly all others here"
        elif share >= _HALF:
            message = f"{share:.0%} of the image, from the {edge}, is one grey: half of it may be missing"
        elif max(height, width) >= _LONG * min(height, width):
            message = f"the image has {width} x {height} pixels: it may be part of an image"
        else:
            return
        self._suspect("odd-image", item, message)

    def _check_orientation(self, item: Item, seen: Look) -> None:
        self._looks["all"] += 1
        self._looks["radiographs"] += seen.is_radiograph
        if seen.is_turned:
            if seen.inverted:
                self._looks["inverted"] += 1
                message = "the image looks inverted: air should be black and bone white (MONOCHROME1?)"
                self._suspect("inverted-image", item, message)
            if seen.position != "upright":
                self._looks["turned"] += 1
                self._suspect("turned-image", item, f"the image seems to be {seen.position}")
        if seen.has_side:
            self._looks["sided"] += 1
            self._looks["mirrored"] += seen.mirror >= LIKELY_MIRROR
            shifting = any(
                polarity is not Polarity.NEGATIVE and (found := find(name)) is not None and found.name in _SHIFTING
                for name, polarity in item.study.findings.items()
            )
            if seen.mirror >= (2.0 if shifting else 1.0) * SURE_MIRROR:
                cause = "the image is mirrored, or it is a dextrocardia or a shifted mediastinum"
                self._suspect("mirrored-image", item, f"the heart seems to be on the image's left: {cause}")

    def finish(self, place: Origin) -> None:
        """Report what only all images together show."""
        every, radiographs = self._looks["all"], self._looks["radiographs"]
        if radiographs < 0.5 * every:
            return
        enough = radiographs >= _NEARLY_ALL * every and every >= _FEWEST and len(self._odd) <= _ODD_SHARE * every
        for check, where, field, message in [*self._hints, *(self._odd if enough else ())]:
            self.ledger.add(check, where, field, message)
        # The number of images that look mirrored is tested against the share in correct data.
        count, total = self._looks["mirrored"], self._looks["sided"]
        if count >= 5 and binomial_tail(count, total, _USUAL_MIRRORED) <= _RARE:
            extent = "all" if count > 0.9 * total else "some"
            told = f", where chance explains {_USUAL_MIRRORED:.0%}: {extent} seem to be mirrored"
            self._report_share("mirrored", count, total, place, told)
        for kind in ("turned", "inverted"):
            if self._looks[kind] >= _ENOUGH and self._looks[kind] > 0.05 * radiographs:
                self._report_share(kind, self._looks[kind], radiographs, place)

    def _report_share(self, kind: str, count: int, total: int, place: Origin, told: str = "") -> None:
        message = f"{count:,} of {total:,} images look {kind}{told}"
        self.ledger.add(f"{kind}-image", place, None, message, ERROR if count > 0.5 * total else WARNING)


def _one_grey(image: Image) -> tuple[float, str]:
    """Return the largest share of an image that is uniform from an edge on, and that edge."""
    small = image[:: max(1, image.shape[0] // 256), :: max(1, image.shape[1] // 256)]
    found = []
    for edge, lines in (("bottom", small[::-1]), ("top", small), ("left", small.T), ("right", small.T[::-1])):
        varied = np.flatnonzero((np.abs(lines - float(lines[0].mean())) > _SAME_GREY).any(axis=1))
        found.append((float(varied[0] if len(varied) else len(lines)) / len(lines), edge))
    return max(found)


def _anatomy_disagrees(image: Image) -> bool:
    """Whether the anatomy model, too, finds no chest; asked only where the template is in doubt, as it takes longer."""
    check = import_module("rightlung.models.anatomy.frontal").check  # by name, because models read studies, too
    return bool(check(image).kind == "not-a-chest")

"""One walk through a source: which phrases can be measured, their images and their targets.

Images go to one file, a byte a pixel, and target masks to another, a bit a pixel, so that many models are measured
without building a study again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.audit.targets import midline_of, side_of_target
from rightlung.core import Box, Image, InputError, Mask, Phrase, Study
from rightlung.core.study import check_image
from rightlung.probes.targets import boxes_named
from rightlung.studies import Source, build_studies

Progress = Callable[[float, int], None]
"""Called with the studies that are done and how many there are."""

LONGEST_SIDE = 1024
"""Larger images are brought down to so many pixels: no model here sees more."""

FOCAL = 0.1
"""A target is focal if it covers less than this share of the image."""

REFUSED = "rows that the source refused"
UNBUILT = "studies that cannot be read"
UNREADABLE = "studies whose image, masks or words cannot be read"
UNREAD = (REFUSED, UNBUILT, UNREADABLE)
"""Why something is left out that was to be there."""

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Shown:
    """An image with what is known of it: where it lies in the file of images, its regions, the patient's middle."""

    study: str
    patient: str | None
    offset: int
    height: int
    width: int
    midline: float
    regions: Mapping[str, Box]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A phrase with region boxes: whose, which, and the rows of its masks by the target's name."""

    shown: int
    index: int
    phrase: Phrase
    masks: Mapping[str, int]
    digest: bytes
    """Of its targets."""
    exact_side: str = "none"
    focal: bool = False


@dataclass(slots=True)
class Gathered:
    """What a walk found. ``studies`` have words, regions and findings only."""

    studies: list[Study] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    masks: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def gather(source: Source, total: int, size: int, images: Path, masks: Path, progress: Progress) -> Gathered:
    """Go through the first ``total`` studies; write their images, and the masks of their targets, (size, size) each."""
    found = Gathered()
    found.left_out[REFUSED] += len(source.problems)
    with images.open("wb") as image_file, masks.open("wb") as mask_file:
        for begin in range(0, total, _AT_ONCE):
            positions = range(begin, min(begin + _AT_ONCE, total))
            trouble: dict[str, str] = {}
            for study in build_studies(source, positions, trouble).values():
                _take(study, size, image_file, mask_file, found)
            found.left_out[UNBUILT] += len(trouble)
            found.problems += trouble.values()
            progress(positions.stop, total)
    found.left_out = +found.left_out
    return found


def _take(study: Study, size: int, image_file: BinaryIO, mask_file: BinaryIO, found: Gathered) -> None:
    fitting: list[tuple[int, Phrase]] = []
    for index, phrase in enumerate(study.phrases):
        if not phrase.regions:
            found.left_out["phrases that are told of no region"] += 1
        elif not boxes_named(study.regions, phrase.regions):
            found.left_out["phrases whose regions have no box in their image"] += 1
        else:
            fitting.append((index, phrase))
    if not fitting:
        found.left_out["studies without a phrase to measure"] += 1
        return
    try:
        for text in (study.id, study.patient or "", *(phrase.text for phrase in study.phrases)):
            text.encode()  # what no file can hold fails here
        image = reduced(check_image(study.load(), f"study {study.id!r}"))
        taken = [_candidate(study, index, phrase, size, len(found.shown)) for index, phrase in fitting]
    except Exception as error:  # a loader may be anybody's
        found.left_out[UNREADABLE] += 1
        found.problems.append(f"study {study.id!r}: {error}")
        return
    rows: dict[bytes, int] = {}
    for candidate, pixels in taken:
        for one in pixels.values():
            packed = np.packbits(one).tobytes()
            if packed not in rows:
                mask_file.write(packed)
                rows[packed] = found.masks
                found.masks += 1
        places = {name: rows[np.packbits(one).tobytes()] for name, one in pixels.items()}
        found.candidates.append(replace(candidate, masks=places))
    height, width = image.shape
    where = image_file.tell()
    image_file.write(np.round(image * 255).astype(np.uint8).tobytes())
    found.shown.append(Shown(study.id, study.patient, where, height, width, midline_of(study), dict(study.regions)))
    found.studies.append(_words_of(study))


def _candidate(
    study: Study, index: int, phrase: Phrase, size: int, shown: int
) -> tuple[Candidate, dict[str, NDArray[np.bool_]]]:
    square = (size, size)
    pixels = {
        "regions": Mask.from_boxes(boxes_named(study.regions, phrase.regions), square).pixels,
        "trimmed": Mask.from_boxes(boxes_named(study.regions, phrase.regions, trimmed=True), square).pixels,
    }
    exact = exact_target(study, phrase, size)
    side = "none"
    if exact is not None:
        pixels["exact"] = exact
        found = side_of_target(exact, midline_of(study))
        side = "none" if found == "midline" else found
    digest = hashlib.sha256(b"".join(np.packbits(one).tobytes() for one in pixels.values())).digest()
    said = Phrase(phrase.text, regions=phrase.regions, findings=phrase.findings)
    focal = exact is not None and bool(exact.mean() < FOCAL)
    return Candidate(shown, index, said, {}, digest, side, focal), pixels


def exact_target(study: Study, phrase: Phrase, size: int) -> NDArray[np.bool_] | None:
    """Return where the phrase's finding itself is, (size, size): its mask, else boxes of its own.

    Boxes that are those of its regions (Chest ImaGenome's phrases have no others) say no more than the regions.
    """
    if phrase.mask is not None:
        return resized(phrase.mask, size).pixels if phrase.mask else None
    if not phrase.boxes or set(phrase.boxes) <= set(study.regions.values()):
        return None
    return Mask.from_boxes(phrase.boxes, (size, size)).pixels


def resized(mask: Mask, size: int) -> Mask:
    """Bring a mask to (size, size) by the nearest pixel; one too small for that takes the pixels that it falls into."""
    found = mask.resized((size, size))
    if found or not mask:
        return found
    height, width = mask.size
    rows, columns = np.nonzero(mask.pixels)
    pixels = np.zeros((size, size), dtype=np.bool_)
    pixels[(2 * rows + 1) * size // (2 * height), (2 * columns + 1) * size // (2 * width)] = True
    return Mask(pixels)


def reduced(image: Image) -> Image:
    """Return an image of at most `LONGEST_SIDE` pixels a side."""
    height, width = image.shape
    longest = max(height, width)
    if longest <= LONGEST_SIDE:
        return image
    target = [max(1, round(side * LONGEST_SIDE / longest)) for side in (height, width)]
    pixels = torch.from_numpy(np.array(image))[None, None]
    small = torch.nn.functional.interpolate(pixels, target, mode="bilinear", align_corners=False, antialias=True)
    smaller: Image = small[0, 0].clamp(0, 1).numpy()
    return smaller


def _words_of(study: Study) -> Study:
    """Return a study without its image, masks and boxes: what probes need of it, and no more memory than that."""
    phrases = tuple(Phrase(one.text, regions=one.regions, findings=one.findings) for one in study.phrases)
    return Study(study.id, _no_image, study.patient, phrases=phrases)


def _no_image() -> Image:
    raise InputError("the image was left on the disk")

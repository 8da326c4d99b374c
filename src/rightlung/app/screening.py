"""Read an own image: announce what is no upright frontal chest radiograph, and find its regions.

The same check as in ``rightlung ground``, but nothing is refused here, because a person is looking.
"""

from __future__ import annotations

from collections.abc import Mapping

from rightlung.app.settings import MOST_PIXELS
from rightlung.core import Box, Image, InputError
from rightlung.models.anatomy.finding import find_regions
from rightlung.models.anatomy.frontal import check
from rightlung.studies.images import decode_image
from rightlung.studies.plausibility import IN_COLOUR

FINDER = "anatomy"
"""The shipped model that finds regions where the source has none."""
_MEANINGLESS = "models answer all the same, but their answers mean nothing"


def read_own(data: bytes, name: str) -> tuple[Image, list[str], Mapping[str, Box]]:
    """Return the image of a file's bytes, what a reader must know about it, and its regions if they are found.

    A DICOM file whose header says that it is no frontal chest radiograph is read, with the reason as a warning.
    """
    warnings = []
    try:
        found = decode_image(data, max_pixels=MOST_PIXELS, name=name)
        warnings += [
            f"The file was {note}." if note.startswith(("turned", "mirrored")) else note for note in found.notes
        ]
    except InputError as refused:
        try:
            found = decode_image(data, max_pixels=MOST_PIXELS, name=name, force=True)
        except InputError:
            raise refused from None
        reason = str(refused).removeprefix(f"{name} is not read: ").partition(" (force=")[0]
        warnings.append(f"This is no frontal chest radiograph according to its header ({reason}); {_MEANINGLESS}.")
    if found.coloured:
        warnings.append(f"This cannot be a chest radiograph: {IN_COLOUR}; {_MEANINGLESS}.")
    seen = check(found.image)
    if seen.kind != "frontal":
        sentence = seen.sentence[0].upper() + seen.sentence[1:]
        warnings.append(f"{sentence}; {_MEANINGLESS}." if seen.refused else f"{sentence}.")
    try:
        regions = find_regions(found.image, FINDER, name)
    except InputError:
        regions = {}
    return found.image, warnings, regions

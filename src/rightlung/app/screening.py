"""Announce an image that is not an upright frontal chest radiograph, by its header and by its pixels.

The same limits as in ``rightlung data check``; nothing is refused here, because a person is looking.
"""

from __future__ import annotations

from collections.abc import Iterator

from rightlung.core import Image, InputError
from rightlung.studies.checks.orientation import LEAST_RESEMBLANCE, SURE_LIKENESS, SURE_MIRROR, look
from rightlung.studies.images import DecodedImage, decode_image
from rightlung.studies.plausibility import IN_COLOUR, why_implausible

MEANINGLESS = "models answer all the same, but their answers mean nothing"


def read_upload(data: bytes, most_pixels: int = 40_000_000) -> tuple[DecodedImage, list[str]]:
    """Return the image of a file's bytes, and what a reader must know about it.

    A DICOM file whose header says that it is no frontal chest radiograph is read, with the reason as a warning.
    """
    warnings = []
    try:
        found = decode_image(data, max_pixels=most_pixels, name="the file")
    except InputError as refused:
        try:
            found = decode_image(data, max_pixels=most_pixels, name="the file", force=True)
        except InputError:
            raise refused from None
        reason = str(refused).removeprefix("the file is not read: ").partition(" (force=")[0]
        warnings.append(f"This is no frontal chest radiograph according to its header ({reason}); {MEANINGLESS}.")
    else:
        warnings += [
            f"The file was {note}." if note.startswith(("turned", "mirrored")) else note for note in found.notes
        ]
    if found.coloured:
        warnings.append(f"This cannot be a chest radiograph: {IN_COLOUR}; {MEANINGLESS}.")
    return found, [*warnings, *seen_in(found.image)]


def seen_in(image: Image) -> Iterator[str]:
    """Yield what the pixels say against an upright frontal chest radiograph."""
    if reason := why_implausible(image):
        yield f"This cannot be a chest radiograph: {reason}; {MEANINGLESS}."
        return
    seen = look(image)
    if seen is None:
        return
    if seen.is_turned and seen.inverted:
        yield "This looks inverted: air should be black and bone white."
    if seen.is_turned and seen.position != "upright":
        yield f"This seems to be {seen.position}, so left and right in the answers may be wrong."
    if not seen.is_turned and (seen.likeness < SURE_LIKENESS or seen.resemblance < LEAST_RESEMBLANCE):
        yield (
            "This does not look like a frontal chest radiograph (it may be a lateral view or another body part); "
            f"{MEANINGLESS}."
        )
    elif seen.has_side and seen.mirror >= SURE_MIRROR:
        yield "The heart seems to be on the image's left: the image is mirrored, or the heart is displaced."

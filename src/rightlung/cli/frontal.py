"""Say what an image shows before a model is asked about it, and refuse what is no frontal radiograph."""

from __future__ import annotations

from pathlib import Path

from rightlung.cli.output import say
from rightlung.core import Image, InputError
from rightlung.models.anatomy.frontal import check
from rightlung.studies.images import decode_image
from rightlung.studies.plausibility import IN_COLOUR, why_implausible

ANYWAY = "--anyway asks all the same"


def read_radiograph(path: Path, anyway: bool = False) -> Image:
    """Return the pixels of an image file, and say what it shows.

    What is no upright frontal chest radiograph is an error unless asked for anyway.
    """
    found = decode_image(path)
    for note in found.notes:
        say(f"note: {path}: {note}")
    doubt = IN_COLOUR if found.coloured else why_implausible(found.image)
    sentence = f"{path} cannot be a chest radiograph: {doubt}"
    if doubt is None:
        seen = check(found.image)
        sentence = f"{path}: {seen.sentence}"
        say(sentence)
        doubt = seen.sentence if seen.refused else None
    if doubt is not None and not anyway:
        raise InputError(f"{sentence} ({ANYWAY})")
    return found.image

"""Regions of an image by the name of a model, for sources without regions."""

from __future__ import annotations

from functools import lru_cache

from rightlung.core import Box, Image, InputError
from rightlung.models.anatomy.frontal import check
from rightlung.models.base import RegionFinder
from rightlung.models.registry import load

LEAST_CONFIDENCE = 0.3
"""Regions with a lower confidence (predicted IoU) are left out."""
LUNGS = ("right lung", "left lung")


@lru_cache(maxsize=2)
def finder(name: str) -> RegionFinder:
    """Return a model that finds regions, loaded once."""
    model = load(name)
    if not isinstance(model, RegionFinder):
        raise InputError(f"model {name!r} cannot find regions; 'rightlung models' lists what each can do")
    return model


def find_regions(image: Image, model: str, what: str) -> dict[str, Box]:
    """Return the boxes of the regions that a model is sure of.

    Without an upright chest radiograph, or without both lungs, there are none: an error that calls the image ``what``.
    """
    seen = check(image)
    if seen.refused:
        raise InputError(f"{what}: its anatomy is not found: {seen.sentence}")
    (found,) = finder(model).regions([image])
    sure = {name: one.box for name, one in found.items() if one.score >= LEAST_CONFIDENCE}
    if missing := [name for name in LUNGS if name not in sure]:
        raise InputError(f"{what}: its anatomy is not found: no {' and no '.join(missing)}")
    return sure

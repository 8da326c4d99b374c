"""Read studies: images, sources, and the readers that yield `Study` values."""

from rightlung.studies.images import read_image
from rightlung.studies.sources import (
    Address,
    Source,
    build_studies,
    open_source,
    parse_address,
    register_source,
)

__all__ = [
    "Address",
    "Source",
    "build_studies",
    "open_source",
    "parse_address",
    "read_image",
    "register_source",
]

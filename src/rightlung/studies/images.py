"""Read PNG, JPEG and DICOM files as radiographs; ``docs/images.md`` describes the rules.

Sizes are checked before decoding. `rightlung.studies.dicom` reads DICOM. Pillow reduces 16-bit *colour* PNG (and 16-bit
grey with transparency) to eight bits. Unreadable EXIF data is ignored.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, InputError, Mask
from rightlung.studies import png
from rightlung.studies.files import MAX_BYTES, check_byte_count, check_pixel_count, read_regular
from rightlung.studies.plausibility import IN_COLOUR, ImplausibleImageError, is_coloured

if TYPE_CHECKING:  # Pillow is slow to import, and most commands never decode an image
    from PIL import Image as PillowImage

MAX_PIXELS = 100_000_000
"""The most pixels of an image: twice those of the largest radiographs, and 400 MB as float32."""

Format = Literal["PNG", "JPEG"]
_MODES = {"1", "L", "P", "LA", "PA", "RGB", "RGBA", "I;16", "I;16B", "I"}
ORIENTATION = 0x0112
_TURNS = {
    2: ("FLIP_LEFT_RIGHT", "mirrored"), 3: ("ROTATE_180", "turned"), 4: ("FLIP_TOP_BOTTOM", "mirrored"),
    5: ("TRANSPOSE", "mirrored and turned"), 6: ("ROTATE_270", "turned"), 7: ("TRANSVERSE", "mirrored and turned"),
    8: ("ROTATE_90", "turned"),
}  # fmt: skip
"""Pillow's operation for each EXIF orientation, and what it does."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImage:
    """The image of a file, notes on unexpected processing, and whether the file is in colour."""

    image: Image
    notes: tuple[str, ...] = ()
    coloured: bool = False


def read_image(
    source: str | os.PathLike[str] | bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    name: str | None = None,
    force: bool = False,
) -> Image:
    """Return a PNG, JPEG or DICOM file (a path, or its bytes) as float32 ``(height, width)``, 0 black to 1 white.

    ``name`` names the file in messages; the default is its path. A DICOM file that is not a frontal chest radiograph
    according to its header is refused with the reason, unless ``force`` is set; `rightlung.studies.dicom.read_dicom`
    returns the header's facts.
    """
    return decode_image(source, max_pixels=max_pixels, max_bytes=max_bytes, name=name, force=force).image


def decode_image(
    source: str | os.PathLike[str] | bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    name: str | None = None,
    force: bool = False,
) -> DecodedImage:
    """Return the image of `read_image` with what its file says about it."""
    data, what = bytes_of(source, max_bytes, name, "the image")
    if _is_dicom(data):
        from rightlung.studies.dicom import read_dicom

        found = read_dicom(data, force=force, max_pixels=max_pixels, max_bytes=max_bytes, name=what)
        return DecodedImage(found.image, found.notes)
    picture, turn = _decode(data, what, max_pixels, "image")
    notes = () if turn is None else (f"{_TURNS[turn][1]} according to its EXIF orientation ({turn})",)
    grey = picture.mode.startswith("I") or picture.mode in ("1", "L", "LA")
    return DecodedImage(_grey(picture), notes, not grey and is_coloured(picture))


def read_radiograph(data: bytes, what: str) -> Image:
    """Return the image of a study; one in colour is refused."""
    found = decode_image(data, name=what)
    if found.coloured:
        raise ImplausibleImageError(f"{what} cannot be a chest radiograph: {IN_COLOUR}")
    return found.image


def from_pillow(image: PillowImage.Image) -> Image:
    """Return a Pillow image as `read_image` returns a file, turned upright as its EXIF data says."""
    if image.mode not in _MODES:
        raise InputError(f"the image has the colour mode {image.mode}; use grey, RGB or palette")
    return _grey(_upright(image)[0])


def read_mask(
    source: str | os.PathLike[str] | bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    name: str | None = None,
) -> Mask:
    """Return a PNG file as a mask of the pixels that are neither transparent nor zero in all colours.

    JPEG is refused, because its compression changes zeros near edges.
    """
    data, what = bytes_of(source, max_bytes, name, "the mask")
    return Mask(_set_pixels(_decode(data, what, max_pixels, "mask")[0]))


def bytes_of(
    source: str | os.PathLike[str] | bytes, max_bytes: int, name: str | None, fallback: str
) -> tuple[bytes, str]:
    """Return the bytes of a file, or those given, and its name for messages."""
    if isinstance(source, bytes | bytearray | memoryview):
        what = name or fallback
        check_byte_count(len(source), max_bytes, what)
        return bytes(source), what
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"an image must be a path or bytes; got {type(source).__name__}")
    what = name or os.fspath(source)
    return read_regular(source, what, max_bytes), what


def _format_of(data: bytes, what: str, kind: str) -> Format:
    if data.startswith(png.SIGNATURE):
        return "PNG"
    if data.startswith(b"\xff\xd8\xff"):
        if kind == "mask":
            raise InputError(f"{what} is a JPEG file; a mask must be PNG, because JPEG blurs its edges")
        return "JPEG"
    if kind == "mask" and _is_dicom(data):
        raise InputError(f"{what} is a DICOM file; a mask must be PNG")
    expected = "PNG, JPEG or DICOM" if kind == "image" else "PNG"
    raise InputError(f"{what} is not an image in {expected} format")


def _is_dicom(data: bytes) -> bool:
    from rightlung.studies.dicom import is_dicom

    return not data.startswith((png.SIGNATURE, b"\xff\xd8\xff")) and is_dicom(data)


def _decode(data: bytes, what: str, max_pixels: int, kind: str) -> tuple[PillowImage.Image, int | None]:
    """Return the decoded Pillow image, upright, and the EXIF orientation that was undone, if any.

    The plugins are called directly, because ``Image.open`` has its own limit in a global variable, which cannot be
    changed for one call without affecting other threads.
    """
    image_format = _format_of(data, what, kind)
    if image_format == "PNG":
        header = png.read_header(data, what)
        check_pixel_count(header.width, header.height, max_pixels, what)
        png.check_whole(data, header, what)

    from PIL import ImageFile
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    image: ImageFile.ImageFile
    try:
        image = PngImageFile(io.BytesIO(data)) if image_format == "PNG" else JpegImageFile(io.BytesIO(data))
    except Exception as error:  # on hostile bytes the parsers raise errors of every kind
        raise InputError(f"{what} is not a readable {image_format} image: {_reason(error)}") from error
    check_pixel_count(*image.size, max_pixels, what)
    if image.mode not in _MODES:
        raise InputError(f"{what} has the colour mode {image.mode}; use grey, RGB or palette, with or without alpha")
    if image_format == "JPEG" and ImageFile.LOAD_TRUNCATED_IMAGES:
        raise InputError(f"{what} is not read: PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on, which hides missing pixels")
    try:
        image.load()
    except MemoryError:
        raise InputError(f"{what} does not fit into memory: {image.size[0]:,} x {image.size[1]:,} pixels") from None
    except Exception as error:
        raise InputError(f"{what} is truncated or damaged: {_reason(error)}") from error
    return _upright(image)


def _upright(image: PillowImage.Image) -> tuple[PillowImage.Image, int | None]:
    """Return an image turned upright, and the EXIF orientation that it had, if any."""
    from PIL.Image import Transpose

    turn = orientation_of(image)
    return (image, None) if turn is None else (image.transpose(Transpose[_TURNS[turn][0]]), turn)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."


def orientation_of(image: PillowImage.Image) -> int | None:
    """Return the EXIF orientation of an opened PNG or JPEG, None if it is upright or the EXIF data is unreadable."""
    try:
        found = image.getexif().get(ORIENTATION)
    except Exception:  # broken EXIF says nothing about the pixels
        return None
    return found if isinstance(found, int) and found in _TURNS else None


def _grey(image: PillowImage.Image) -> Image:
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        transparent = image.info.get("transparency")
        if isinstance(transparent, int):
            deep = np.where(deep == transparent, 0, deep)
        return _fractions(deep, 65535)
    if image.has_transparency_data:
        whole = image.convert("RGBA")
        return _fractions(np.asarray(whole.convert("L")), 255) * _fractions(np.asarray(whole.getchannel("A")), 255)
    return _fractions(np.asarray(image.convert("L")), 255)


def _fractions(values: NDArray[np.integer], highest: int) -> Image:
    fractions: Image = np.divide(values, np.float32(highest), dtype=np.float32)
    return fractions


def _set_pixels(image: PillowImage.Image) -> NDArray[np.bool_]:
    # Not by luma, which rounds the darkest colours of a label map to zero.
    if image.mode.startswith("I") or (image.mode in ("1", "L") and not image.has_transparency_data):
        single: NDArray[np.bool_] = np.asarray(image) != 0
        return single
    colours = np.asarray(image.convert("RGBA"))
    shown: NDArray[np.bool_] = colours[..., :3].any(axis=2) & (colours[..., 3] != 0)
    return shown

"""`read_dicom`: header, suitability, pixels, greys, square pixels, orientation, in this order."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from rightlung.core import Image, InputError
from rightlung.studies.dicom.frames import read_layout, read_levels
from rightlung.studies.dicom.grey import GreyRule, grey
from rightlung.studies.dicom.header import DicomHeader, is_dicom, read_header
from rightlung.studies.dicom.suitability import describe, orientation
from rightlung.studies.dicom.terms import View
from rightlung.studies.files import MAX_BYTES
from rightlung.studies.images import MAX_PIXELS, bytes_of

_SQUARE = 0.01
_LONGEST = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class DicomImage:
    """A radiograph and facts from its header, none of which identifies the patient.

    ``view`` is PA, AP, frontal (unspecified), or another one if forced; ``laterality`` L, R, B(oth) or U(npaired);
    ``stored_shape`` the header's ``(rows, columns)``, which differs from the image's if pixels are not square;
    ``notes`` describes unexpected processing.
    """

    image: Image
    modality: str | None
    view: View | None
    laterality: str | None
    body_part: str | None
    grey: GreyRule
    stored_shape: tuple[int, int]
    notes: tuple[str, ...] = ()


def read_dicom(
    source: str | os.PathLike[str] | bytes,
    *,
    force: bool = False,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = MAX_BYTES,
    name: str | None = None,
) -> DicomImage:
    """Read a DICOM file (a path, or its bytes) as a frontal chest radiograph.

    If the header states anything else (a lateral view, a CT slice, another body part, a mirrored or rotated image), the
    file is refused with the reason. With ``force`` it is read, turned upright if the header says how, and the reasons
    go to ``notes``. ``name`` names the file in messages; the default is its path.
    """
    data, what = bytes_of(source, max_bytes, name, "the image")
    if not is_dicom(data):
        raise InputError(f"{what} is not a DICOM file")
    header = read_header(data, what, max(max_bytes, 4 * max_pixels))
    (facts, refusals), (turns, wrongly_turned) = describe(header), _turns(header)
    reasons = [*refusals, *wrongly_turned]
    if reasons and not force:
        raise InputError(f"{what} is not read: {'; '.join(reasons)} (force=True or --force reads it anyway)")
    layout = read_layout(header, what, max_pixels)
    shown, rule, note = grey(read_levels(header, layout, what), header, layout, what)
    image, stretched = _with_square_pixels(shown, header, what, max_pixels)
    for turn in turns:
        image = image.T if turn == "transpose" else image[:, ::-1] if turn == "across" else image[::-1]
    notes = [*(f"read although {reason}" for reason in refusals), note, stretched]
    if turns:
        notes.append("turned according to its Patient Orientation, so that the patient's left is on the image's right")
    return DicomImage(
        np.ascontiguousarray(image),
        **facts,
        grey=rule,
        stored_shape=(layout.rows, layout.columns),
        notes=tuple(one for one in notes if one is not None),
    )


def _turns(header: DicomHeader) -> tuple[list[str], list[str]]:
    """Return the flips that move the patient's left to the image's right and the head to the top, and the reason."""
    directions = orientation(header)
    if directions is None or not (set(directions) & set("LR") and set(directions) & set("HF")):
        return [], []  # unknown, a side view, or meaningless
    turns = ["transpose"] if directions[0] in "HF" else []
    turns += ["across"] * ("R" in directions) + ["down"] * ("H" in directions)
    how = "mirrored" if directions == ("R", "F") else "turned"
    reason = (
        f"it is {how}: its Patient Orientation is {directions[0]}\\{directions[1]} instead of L\\F, "
        "but the patient's left must be on the image's right"
    )
    return turns, [reason] if turns else []


def _with_square_pixels(image: Image, header: DicomHeader, what: str, max_pixels: int) -> tuple[Image, str | None]:
    """Stretch an image with non-square pixels, keeping the finer spacing so that nothing is lost."""
    for name in ("PixelSpacing", "ImagerPixelSpacing", "PixelAspectRatio"):
        spacing = header.numbers(name)
        if len(spacing) == 2 and min(spacing) > 0:
            break
    else:
        return image, None
    ratio = spacing[0] / spacing[1]  # between rows, then between columns
    if abs(ratio - 1) <= _SQUARE:
        return image, None
    if not 1 / _LONGEST <= ratio <= _LONGEST:
        raise InputError(f"{what} has pixels {ratio:g} times as high as wide, which is implausible")
    rows, columns = image.shape
    height, width = (round(rows * ratio), columns) if ratio > 1 else (rows, round(columns / ratio))
    if height * width > max_pixels:
        raise InputError(f"{what} has {width:,} x {height:,} square pixels, more than the limit of {max_pixels:,}")

    from PIL import Image as PillowImage

    stretched = PillowImage.fromarray(image).resize((width, height), PillowImage.Resampling.BILINEAR)
    note = f"its pixels are {ratio:.3g} times as high as wide: resized from {columns} x {rows} to {width} x {height}"
    return np.clip(np.asarray(stretched, dtype=np.float32), 0.0, 1.0), note

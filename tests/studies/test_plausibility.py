"""What cannot be a chest radiograph is found; phantoms, tinted and annotated radiographs pass."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageDraw

from rightlung.core import InputError
from rightlung.studies import open_source, read_image
from rightlung.studies.images import decode_image, read_radiograph
from rightlung.studies.plausibility import ImplausibleImageError, check_plausible, is_coloured, why_implausible
from tests.studies.conftest import encode

RNG = np.random.default_rng(0)


def cat(fills: tuple[int, int, int]) -> PillowImage.Image:
    """Return a drawing: a head, two ears, two eyes and whiskers."""
    picture = PillowImage.new("L", (300, 280), 250)
    pen = ImageDraw.Draw(picture)
    pen.ellipse((80, 90, 220, 220), fill=fills[0], outline=0, width=3)
    for sign in (-1, 1):
        pen.polygon([(150 + sign * x, y) for x, y in ((60, 120), (55, 50), (10, 95))], fill=fills[1], outline=0)
        pen.ellipse((150 + sign * 30 - 10, 130, 150 + sign * 30 + 10, 150), fill=fills[2])
        for y in (170, 180, 190):
            pen.line((150 + sign * 10, 175, 150 + sign * 90, y), fill=0, width=2)
    return picture


def as_jpeg(picture: PillowImage.Image) -> PillowImage.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=75)
    return PillowImage.open(buffer)


def grey(pixels: Any) -> NDArray[np.float32]:
    image: NDArray[np.float32] = np.divide(np.asarray(pixels), 255, dtype=np.float32)
    return image


@pytest.fixture(scope="module")
def phantom() -> NDArray[np.float32]:
    return open_source("phantom?count=1&seed=2")[0].image


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.zeros((256, 256), np.float32), "it is blank (98 % of its pixels have a brightness from 0.00 to 0.00)"),
        (np.ones((256, 256), np.float32), "it is blank (98 % of its pixels have a brightness from 1.00 to 1.00)"),
        (RNG.uniform(0.4, 0.42, (256, 256)).astype(np.float32), "it is blank"),
        (np.tile(np.linspace(0, 1, 256, dtype=np.float32), (200, 1)), "a gradient (its brightness changes only from"),
        (np.tile(np.linspace(0, 1, 256, dtype=np.float32)[:, None], 300), "changes only from top to bottom"),
        (RNG.random((256, 256), np.float32), "it is noise (neighbouring pixels are unrelated)"),
        (RNG.normal(0.5, 0.1, (2000, 1500)).clip(0, 1).astype(np.float32), "it is noise"),
        (RNG.random((31, 300), np.float32), "it has only 300 x 31 pixels"),
        (np.linspace(0, 1, 100 * 301, dtype=np.float32).reshape(301, 100), "too long and narrow (100 x 301 pixels)"),
        (grey(cat((250, 250, 0))), "it looks like a drawing (90% of its pixels have only 1 of 256 grey levels)"),
        (grey(cat((120, 180, 30))), "it looks like a drawing"),
        (grey(as_jpeg(cat((120, 180, 30)))), "it looks like a drawing"),
        (grey(cat((120, 180, 30)).resize((224, 224), PillowImage.Resampling.BICUBIC)), "it looks like a drawing"),
    ],
    ids=["black", "white", "nearly-grey", "across", "down", "noise", "large-noise", "tiny", "long", "cat", "filled-cat",
         "jpeg-cat", "resized-cat"],
)  # fmt: skip
def test_what_cannot_be_a_radiograph_is_refused_with_the_reason(image: NDArray[np.float32], reason: str) -> None:
    assert reason in (why_implausible(image) or "")
    with pytest.raises(ImplausibleImageError, match=r"^study 's' cannot be a chest radiograph: it "):
        check_plausible(image, "study 's'")


@pytest.mark.parametrize("source", ["phantom?count=12&seed=7", "phantom?count=12&seed=8&size=64"])
def test_every_phantom_passes(source: str) -> None:
    assert [study.id for study in open_source(source) if why_implausible(study.image)] == []


def test_twelve_bits_in_sixteen_are_said_to_be_that(phantom: NDArray[np.float32]) -> None:
    reason = why_implausible(phantom * np.float32(4095 / 65535)) or ""
    assert "as of 12 bits stored in 16: scale it to the whole range" in reason


def test_a_faint_a_dark_and_a_bordered_radiograph_pass(phantom: NDArray[np.float32]) -> None:
    bordered = np.zeros((512, 400), np.float32)
    bordered[100:356, 72:328] = phantom  # 68 % of it is black
    for image in (0.5 + 0.2 * phantom, 0.3 * phantom, bordered, 1 - phantom, phantom[::4, ::4]):
        assert why_implausible(image) is None


def photo() -> PillowImage.Image:
    """Return a smooth picture in many colours."""
    down, across = np.mgrid[0:200, 0:300] / 300
    channels = [np.sin(7 * across), np.cos(5 * down), np.sin(6 * (across + down))]
    return PillowImage.fromarray((127 + 60 * np.stack(channels, axis=2)).astype(np.uint8))


def test_a_colour_picture_is_told_from_a_tinted_film_and_a_coloured_arrow(phantom: NDArray[np.float32]) -> None:
    film = phantom[:, :, None]
    arrow = PillowImage.fromarray((film * [255, 255, 255]).astype(np.uint8))
    ImageDraw.Draw(arrow).line((20, 20, 120, 60), fill=(255, 0, 0), width=6)
    tints = [film**0.9 * [200, 220, 255], film * [255, 225, 180], 20 + film * [200, 210, 190]]
    for plain in (arrow, *(PillowImage.fromarray(tint.astype(np.uint8)) for tint in tints)):
        assert not is_coloured(plain)
        assert not is_coloured(as_jpeg(plain))
    red = PillowImage.fromarray((film * [255, 0, 0]).astype(np.uint8))
    for coloured in (photo(), as_jpeg(photo()), photo().quantize(64), red):
        assert is_coloured(coloured)


def test_a_study_in_colour_is_refused_and_read_image_reads_it() -> None:
    buffer = io.BytesIO()
    photo().save(buffer, "PNG")
    assert read_image(buffer.getvalue()).shape == (200, 300)
    assert decode_image(buffer.getvalue()).coloured
    assert not decode_image(encode(np.eye(64, dtype=np.uint8))).coloured
    with pytest.raises(InputError) as caught:
        read_radiograph(buffer.getvalue(), "study 's': image a.png")
    assert str(caught.value) == (
        "study 's': image a.png cannot be a chest radiograph: it is in colour; if it is a radiograph, convert it to "
        "greyscale"
    )

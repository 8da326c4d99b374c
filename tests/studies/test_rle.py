"""Run lengths against plain loops over pixels and against pycocotools' port faster-coco-eval, where it is installed."""

import pickle
from functools import partial

import numpy as np
import pytest

from rightlung.core import InputError, Mask
from rightlung.studies.rle import decode_coco, decode_relative, is_empty_rle, relative_runs


def relative_text(pixels: np.ndarray) -> str:
    """The competition's encoder, by a plain loop over the pixels, column by column."""
    height, width = pixels.shape
    numbers, gap, length = [], 0, 0
    for column in range(width):
        for row in range(height):
            if pixels[row, column]:
                length += 1
            else:
                if length:
                    numbers += [gap, length]
                    gap, length = 0, 0
                gap += 1
    if length:
        numbers += [gap, length]
    return " ".join(map(str, numbers))


def blobs(seed: int, height: int, width: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    pixels = np.zeros((height, width), dtype=bool)
    for _ in range(4):
        top, left = int(draw.integers(0, height)), int(draw.integers(0, width))
        pixels[top : top + int(draw.integers(1, height)), left : left + int(draw.integers(1, width))] ^= True
    return pixels


@pytest.mark.parametrize("seed", range(20))
def test_relative_run_lengths_decode_as_the_competition_does(seed: int) -> None:
    height, width = 7 + seed % 5, 9 + seed % 3  # not square: a transposed mask would have the wrong size
    pixels = blobs(seed, height, width)
    if not pixels.any():
        pixels[0, 0] = True
    np.testing.assert_array_equal(decode_relative("m", (relative_text(pixels),), (height, width)).pixels, pixels)


def test_the_first_run_goes_down_the_first_column() -> None:
    mask = decode_relative("m", ("1 3",), (4, 5))
    assert [tuple(place) for place in np.argwhere(mask.pixels)] == [(1, 0), (2, 0), (3, 0)]


def test_several_masks_are_united() -> None:
    mask = decode_relative("m", ("0 2", "6 2"), (2, 4))
    assert mask.pixels.tolist() == [[True, False, False, True]] * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "pairs of numbers"),
        ("-1", "pairs of numbers"),
        ("3", "pairs of numbers"),
        ("1 2 3", "pairs of numbers"),
        ("1 -2", "relative run length 2 must be an integer; got '-2'"),
        ("1 2.5", "integer; got '2.5'"),
        ("1 ٣", "integer"),
        ("1 8", "add up to 9, but a mask of 2 x 4 has 8 pixels"),
        ("0 0 " * 5, "more than the mask has pixels"),
        ("1 99999999999999999999999999", "integer"),
    ],
)
def test_relative_run_lengths_that_do_not_fit_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        relative_runs(text, (2, 4))


def test_a_bad_mask_names_what_it_belongs_to() -> None:
    with pytest.raises(InputError, match=r"^study 'x': mask: relative run lengths add up to 9"):
        decode_relative("study 'x': mask", ("1 8",), (2, 4))
    with pytest.raises(InputError, match=r"^study 'x': mask: run-length text has the invalid character"):
        decode_coco("study 'x': mask", "\n", (2, 4))


def test_masks_stay_text_until_they_are_looked_at_and_when_pickled() -> None:
    mask = pickle.loads(pickle.dumps(Mask.deferred(partial(decode_relative, "m", ("1 3",), (4, 5)))))
    assert mask.area == 3 / 20


@pytest.mark.parametrize("seed", range(10))
def test_coco_run_lengths_decode_as_the_reference_does(seed: int) -> None:
    coco = pytest.importorskip("faster_coco_eval.core.mask")
    pixels = blobs(seed, 40 + seed, 31)
    encoded = coco.encode(np.asfortranarray(pixels.astype(np.uint8)))
    counts = encoded["counts"].decode() if isinstance(encoded["counts"], bytes) else encoded["counts"]
    height, width = encoded["size"]
    np.testing.assert_array_equal(decode_coco("m", counts, (height, width)).pixels, pixels)
    assert is_empty_rle(counts) == (not pixels.any())


def test_an_empty_mask_is_told_without_decoding() -> None:
    empty, full = Mask(np.zeros((2320, 2828))), Mask(np.ones((3, 4)))
    assert empty.to_rle()["counts"] == "PVWX6"  # as it stands in CheXlocalize's own sample
    assert is_empty_rle("PVWX6")
    assert not is_empty_rle(full.to_rle()["counts"])

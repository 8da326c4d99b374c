from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from faster_coco_eval.core import mask as coco
from hypothesis import given

from rightlung.core import Box, InputError, Mask
from tests.core.strategies import masks


@given(masks)
def test_run_lengths_survive_both_ways(mask: Mask) -> None:
    assert Mask.from_runs(mask.to_runs(), mask.size) == mask
    assert Mask.from_rle(mask.to_rle()) == mask
    assert Mask.from_rle({"size": mask.size, "counts": mask.to_runs()}) == mask


@given(masks)
def test_compressed_text_is_the_coco_librarys_own(mask: Mask) -> None:
    theirs = coco.encode(np.asfortranarray(mask.pixels.astype(np.uint8)))
    assert mask.to_rle()["counts"] == theirs["counts"].decode()
    assert np.array_equal(
        coco.decode({"size": list(mask.size), "counts": mask.to_rle()["counts"].encode()}), mask.pixels
    )


def test_a_known_encoding_by_hand() -> None:
    # Column by column: 0 1, 1 1, 0 0 is one zero, three ones, two zeros.
    assert Mask([[0, 1, 0], [1, 1, 0]]).to_runs() == [1, 3, 2]
    assert Mask([[1, 0], [0, 0]]).to_runs() == [0, 1, 3]


@pytest.mark.parametrize(
    ("rle", "named"),
    [
        ({"size": [2, 2], "counts": [1, 2]}, "add up to 3"),
        ({"size": [2, 2], "counts": [4, -1]}, "run 1 must be an integer from 0 to 4; got -1"),
        ({"size": [2, 2], "counts": [2**62, 2**62, 2**62, 2**62 + 4]}, "run 0 must be"),
        ({"size": [2, 2], "counts": "PPPPPPPPPPPP4PPPPPPPPPPPP4PPPPPPPPPPPP44"}, "run 0 must be|bits"),
        ({"size": [2, 2], "counts": "o" * 5000 + "0"}, "more than 60 bits"),
        ({"size": [2, 2], "counts": 4}, "list of integers"),
        ({"size": None, "counts": [4]}, "two positive integers; got None"),
        ({"size": [2, 2], "counts": "\x7f"}, "invalid character"),
        ({"size": [2, 2], "counts": "P"}, "middle of a number"),
        ({"counts": [4]}, "'size'"),
        ({"size": [0, 2], "counts": [0]}, "positive"),
    ],
)
def test_a_wrong_encoding_is_refused_by_name(rle: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Mask.from_rle(rle)


@pytest.mark.parametrize("pixels", [[1, 0], [[]], [[0, 2]], [["a"]], np.zeros((2, 2, 2))])
def test_what_is_not_a_mask_is_refused(pixels: object) -> None:
    with pytest.raises(InputError, match="mask"):
        Mask(pixels)  # type: ignore[arg-type]


def test_a_mask_cannot_be_changed_from_outside() -> None:
    source = np.zeros((2, 2), dtype=bool)
    mask = Mask(source)
    source[0, 0] = True
    assert not mask
    with pytest.raises(ValueError, match="read-only"):
        mask.pixels[0, 0] = True
    with pytest.raises(AttributeError):
        mask.pixels = source  # type: ignore[misc]


@given(masks)
def test_mirroring_twice_pickling_and_self_overlap(mask: Mask) -> None:
    assert mask.mirrored().mirrored() == mask
    assert mask.mirrored().area == mask.area
    assert pickle.loads(pickle.dumps(mask)) == mask
    assert mask.iou(mask) == 1.0 if mask else math.isnan(mask.iou(mask))


@given(masks)
def test_the_bounding_box_is_tight(mask: Mask) -> None:
    box = mask.box()
    if box is None:
        assert not mask
    else:
        painted = Mask.from_boxes([box], mask.size)
        assert painted.union(mask) == painted
        rows, columns = np.nonzero(mask.pixels)
        assert painted.pixels.sum() == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)


def test_resizing_by_whole_factors_repeats_pixels_and_other_sizes_are_not_compared() -> None:
    pixels = np.array([[True, False], [False, True]])
    assert np.array_equal(Mask(pixels).resized((4, 6)).pixels, np.kron(pixels, np.ones((2, 3), dtype=bool)))
    assert Mask(pixels).resized((4, 6)).resized((2, 2)) == Mask(pixels)
    with pytest.raises(InputError, match=r"\(1, 1\) and \(2, 2\)"):
        Mask([[1]]).iou(Mask(pixels))


def test_a_painted_box_covers_the_pixels_whose_centres_it_holds() -> None:
    painted = Mask.from_boxes([Box(0.25, 0.0, 0.75, 0.5)], (2, 4))
    assert painted.pixels.tolist() == [[False, True, True, False], [False] * 4]
    sliver = Mask.from_boxes([Box(0.26, 0.1, 0.27, 0.11)], (4, 4))
    assert sliver.pixels.sum() == 1
    assert sliver.pixels[0, 1]


def test_a_deferred_mask_loads_on_first_use_and_pickles_without_its_pixels() -> None:
    calls: list[int] = []
    mask = Mask.deferred(lambda: calls.append(1) or Mask(np.eye(3)))  # type: ignore[func-returns-value]
    assert not calls
    assert mask.area == pytest.approx(1 / 3)
    assert mask == Mask(np.eye(3))
    assert calls == [1]
    again = pickle.loads(pickle.dumps(Mask.deferred(load_a_corner)))
    assert again.pixels.tolist() == [[True, False]]


def load_a_corner() -> Mask:
    return Mask([[1, 0]])

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rightlung.core import Box, InputError, Mask, union_area, union_iou
from tests.core.strategies import boxes, grid_boxes, sizes


@pytest.mark.parametrize(
    ("corners", "named"),
    [
        ((0.2, 0.0, 1.5, 1.0), "1.5"), ((-0.1, 0.0, 0.5, 1.0), "-0.1"), ((0.5, 0.0, 0.5, 1.0), "0.5"),
        ((0.6, 0.0, 0.5, 1.0), "0.6"), ((0.0, math.nan, 0.5, 1.0), "nan"), ((0.0, 0.0, math.inf, 1.0), "inf"),
        ((0.0, 0.0, "0.5", 1.0), "'0.5'"), ((0.0, 0.0, True, 1.0), "True"), ((0.0, 0.0, None, 1.0), "None"),
        ([0, 0, 1], "box"), ([0, 0, 1, 1, 1], "box"), ("0011", "box"), (7, "box"),
    ],
)  # fmt: skip
def test_a_wrong_box_is_refused_with_its_value_named(corners: Any, named: str) -> None:
    with pytest.raises(InputError, match=re.escape(named)):
        Box.from_sequence(corners)


@pytest.mark.parametrize("factor", [0, -1, math.nan])
def test_a_box_cannot_be_changed_and_a_scale_factor_must_be_positive(factor: float) -> None:
    with pytest.raises(AttributeError):
        Box(0, 0, 1, 1).x0 = 0.5  # type: ignore[misc]
    with pytest.raises(InputError, match="scale factor"):
        Box(0, 0, 1, 1).scaled(factor)


def test_known_overlaps_by_hand() -> None:
    left, shifted = Box(0.0, 0.0, 0.5, 0.5), Box(0.25, 0.0, 0.75, 0.5)
    assert left.iou(shifted) == pytest.approx(1 / 3)
    assert left.giou(shifted) == pytest.approx(1 / 3)  # their enclosing box is all covered
    apart = Box(0.75, 0.0, 1.0, 0.5)
    assert left.iou(apart) == 0.0
    assert left.giou(apart) == pytest.approx(-0.25)  # a quarter of the enclosing box is covered by neither


@given(boxes, boxes)
def test_iou_is_symmetric_bounded_and_kept_by_mirroring_and_giou_never_exceeds_it(one: Box, other: Box) -> None:
    assert 0.0 <= one.iou(other) <= 1.0
    assert one.iou(other) == pytest.approx(other.iou(one))
    assert one.mirrored().iou(other.mirrored()) == pytest.approx(one.iou(other), abs=1e-9)
    assert union_iou([one], [other]) == pytest.approx(one.iou(other), abs=1e-9)
    assert one.giou(other) == pytest.approx(other.giou(one))
    assert -1.0 < one.giou(other) <= one.iou(other) + 1e-12


@given(boxes)
def test_a_box_overlaps_itself_perfectly_and_mirroring_twice_gives_it_back(box: Box) -> None:
    assert box.iou(box) == pytest.approx(1.0)
    assert box.giou(box) == pytest.approx(1.0)
    assert union_iou([box], [box]) == 1.0
    mirrored = box.mirrored()
    assert mirrored.mirrored().as_tuple() == pytest.approx(box.as_tuple())
    assert mirrored.centre[0] == pytest.approx(1 - box.centre[0])
    assert mirrored.area == pytest.approx(box.area)


@given(boxes, st.floats(0.1, 1.0))
def test_shrinking_keeps_the_middle_and_scales_the_area(box: Box, factor: float) -> None:
    scaled = box.scaled(factor)
    assert scaled.centre == pytest.approx(box.centre)
    assert scaled.area == pytest.approx(box.area * factor**2)


@given(boxes, st.floats(1.0, 5.0))
def test_growing_stays_inside_the_image_and_around_the_box(box: Box, factor: float) -> None:
    grown = box.scaled(factor)
    assert grown.x0 <= box.x0 + 1e-12
    assert grown.x1 >= box.x1 - 1e-12
    assert grown.area >= box.area * (1 - 1e-9)


@given(st.tuples(*[st.floats(-3, 4)] * 4))
def test_clipping_gives_the_common_part_with_the_image(corners: tuple[float, float, float, float]) -> None:
    x0, y0, x1, y1 = corners
    clipped = Box.clipped(x0, y0, x1, y1)
    width = min(x1, 1) - max(x0, 0)
    height = min(y1, 1) - max(y0, 0)
    if clipped is None:
        assert width <= 0 or height <= 0 or width * height < 1e-300
    else:
        assert clipped.area == pytest.approx(width * height)


@given(boxes, sizes)
def test_pixels_and_back_gives_the_box_and_a_painted_box_is_never_empty_and_at_most_a_pixel_off(
    box: Box, size: tuple[int, int]
) -> None:
    assert Box.from_pixels(box.to_pixels(size), size).as_tuple() == pytest.approx(box.as_tuple())
    rows, columns = box.pixel_slices(size)
    assert 0 <= rows.start < rows.stop <= size[0]
    assert 0 <= columns.start < columns.stop <= size[1]
    painted = (columns.start, rows.start, columns.stop, rows.stop)
    assert np.abs(np.subtract(painted, box.to_pixels(size))).max() <= 1


@given(st.lists(grid_boxes, max_size=6), st.lists(grid_boxes, max_size=6))
@example([], [])
@example([Box(0, 0, 1, 1)], [])
def test_union_area_and_iou_equal_counting_pixels(one: list[Box], other: list[Box]) -> None:
    first, second = Mask.from_boxes(one, (16, 16)), Mask.from_boxes(other, (16, 16))
    assert union_area(one) == pytest.approx(first.area)
    np.testing.assert_allclose(union_iou(one, other), first.iou(second))  # NaN for two empty sides, in both


@given(st.lists(boxes, min_size=1, max_size=6))
def test_a_union_is_at_least_its_largest_and_at_most_the_sum(group: list[Box]) -> None:
    areas = [box.area for box in group]
    assert max(areas) - 1e-12 <= union_area(group) <= sum(areas) + 1e-12
    assert union_iou(group, group + group[::-1]) == 1.0

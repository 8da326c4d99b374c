"""Boxes of maps, beside what must hold of any map and a flood fill written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rightlung.core import Box, Extent, Heatmap, InputError
from rightlung.explain import BoxRule, boxes_of

EXACT = BoxRule(mode="nearest", smallest_area=0.0)
values = arrays(np.float32, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.integers(0, 5).map(float))
extents = st.sampled_from([Extent(), Extent(-0.5, 0.0, 1.5, 1.0), Extent(0.25, 0.25, 0.75, 1.0), Extent(2, 2, 3, 3)])


@settings(deadline=None, max_examples=80)
@given(
    values, extents, st.floats(0, 1), st.sampled_from(["bilinear", "nearest"]), st.sampled_from(["max", "mean", "box"])
)
def test_boxes_cover_what_is_above_the_threshold_in_order_of_scores(
    cells: np.ndarray, extent: Extent, threshold: float, mode: str, score: str
) -> None:
    rule = BoxRule(threshold, smallest_area=0.0, size=(40, 40), mode=mode, score=score)  # type: ignore[arg-type]
    heatmap = Heatmap(cells, extent, 0.25)
    found = boxes_of(heatmap, rule)
    pixels = heatmap.to_size((40, 40), mode, keep_mass=False)  # type: ignore[arg-type]
    kept = (pixels > 0) & (pixels >= np.float32(threshold * float(pixels.max())))
    covered = np.zeros((40, 40), dtype=bool)
    for scored in found:
        x0, y0, x1, y1 = (round(40 * corner) for corner in scored.box.as_tuple())
        covered[y0:y1, x0:x1] = True
        inside = kept[y0:y1, x0:x1]
        assert all(edge.any() for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
        assert 0 < scored.score <= 0.75 * float(pixels.max()) + 1e-6
    assert not (kept & ~covered).any()
    assert [scored.score for scored in found] == sorted((scored.score for scored in found), reverse=True)
    assert bool(found) == bool(kept.any())


@settings(deadline=None, max_examples=40)
@given(arrays(np.bool_, (6, 6)))
def test_parts_that_touch_at_a_side_or_a_corner_share_a_box_and_no_others_do(cells: np.ndarray) -> None:
    left = {(int(row), int(column)) for row, column in np.argwhere(cells)}
    expected = []
    while left:
        part, edge = set(), {left.pop()}
        while edge:
            row, column = edge.pop()
            part.add((row, column))
            near = {(row + down, column + across) for down in (-1, 0, 1) for across in (-1, 0, 1)} & left
            left -= near
            edge |= near
        rows, columns = [row for row, _ in part], [column for _, column in part]
        expected.append((min(columns) / 6, min(rows) / 6, (max(columns) + 1) / 6, (max(rows) + 1) / 6))
    found = boxes_of(Heatmap(cells.astype(float)), BoxRule(mode="nearest", smallest_area=0.0, size=(6, 6)))
    assert sorted(scored.box.as_tuple() for scored in found) == sorted(expected)


@settings(deadline=None, max_examples=30)
@given(values)
def test_the_boxes_of_the_mirrored_map_are_the_mirrored_boxes(cells: np.ndarray) -> None:
    heatmap = Heatmap(cells, Extent(-0.25, 0.0, 1.25, 1.0))
    rule = BoxRule(size=(64, 64), smallest_area=0.0)
    there = sorted(
        np.round([*scored.box.mirrored().as_tuple(), scored.score], 4).tolist() for scored in boxes_of(heatmap, rule)
    )
    back = sorted(np.round([*s.box.as_tuple(), s.score], 4).tolist() for s in boxes_of(heatmap.mirrored(), rule))
    assert there == back


@pytest.mark.parametrize(("cell", "box"), [((1, 2), Box(0.5, 0.25, 1.0, 0.5)), ((2, 1), Box(0.0, 0.5, 0.5, 0.75))])
def test_cells_of_a_letterboxed_map_lie_in_the_image_and_the_padding_makes_no_box_and_no_threshold(
    cell: tuple[int, int], box: Box
) -> None:
    cells = np.zeros((4, 4))
    cells[1, 0], cells[cell] = 100.0, 3.0
    # The square reaches from -0.5 to 1.5 of the width: each column is half the image wide, the third from 0.5 to 1.
    (found,) = boxes_of(Heatmap(cells, Extent.letterbox((200, 100))), EXACT)
    assert (found.box, found.score) == (box, 3.0)


def test_an_empty_map_has_no_boxes_and_a_flat_one_is_one_box() -> None:
    assert boxes_of(Heatmap(np.zeros((3, 3)))) == ()
    (found,) = boxes_of(Heatmap(np.ones((3, 3))))
    assert found.box == Box(0, 0, 1, 1)
    assert boxes_of(Heatmap(np.ones((3, 3)), Extent(2, 2, 3, 3))) == ()


def test_scores_are_the_max_or_the_mean_of_the_part_less_the_abstention() -> None:
    cells = np.array([[4.0, 2.0, 0.0, 3.0]])
    highest = boxes_of(Heatmap(cells, abstention=0.5), EXACT)
    assert [scored.score for scored in highest] == [2.0, 1.5]
    mean = boxes_of(Heatmap(cells, abstention=0.5), BoxRule(mode="nearest", score="mean"))
    assert [scored.score for scored in mean] == [1.5, 1.5]


def test_thresholds_are_fractions_values_or_shares() -> None:
    cells = np.array([[1.0, 0.0, 5.0, 0.0, 10.0]])

    def columns(threshold: float, rule: str) -> list[int]:
        options = BoxRule(threshold, rule, size=(1, 5), mode="nearest")  # type: ignore[arg-type]
        return sorted(round(scored.box.x0 * 5) for scored in boxes_of(Heatmap(cells), options))

    assert columns(0.5, "fraction") == [2, 4]
    assert columns(0.51, "fraction") == [4]
    assert columns(1.0, "absolute") == [0, 2, 4]
    assert columns(0.2, "share") == [4]
    assert columns(0.4, "share") == [2, 4]
    assert columns(1.0, "share") == [0, 2, 4]  # what has no value is never kept
    assert columns(0.0, "share") == []


def test_parts_below_the_smallest_area_are_dropped() -> None:
    cells = np.zeros((10, 10))
    cells[0, 0], cells[5:8, 5:8] = 1.0, 0.9
    found = boxes_of(Heatmap(cells), BoxRule(mode="nearest", smallest_area=0.05, size=(10, 10)))
    assert [scored.box for scored in found] == [Box(0.5, 0.5, 0.8, 0.8)]


def test_a_peak_of_a_map_finer_than_the_usual_size_is_not_missed() -> None:
    cells = np.zeros((301, 301))
    cells[100, 200] = 1.0
    (found,) = boxes_of(Heatmap(cells), BoxRule(smallest_area=0.0))
    assert found.box.x0 <= 200.5 / 301 <= found.box.x1


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"threshold": 1.5}, "between 0 and 1"),
        ({"threshold": -1, "rule": "absolute"}, "not be negative"),
        ({"rule": "fracton"}, "did you mean 'fraction'"),
        ({"score": "maximum"}, "did you mean 'max'"),
        ({"mode": "cubic"}, "unknown resampling mode"),
        ({"size": (0, 3)}, "two positive integers"),
        ({"smallest_area": 2}, "smallest_area"),
    ],
)
def test_a_rule_that_makes_no_sense_is_named(options: dict[str, object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        BoxRule(**options)  # type: ignore[arg-type]


def test_a_score_is_of_the_component_or_of_its_whole_box() -> None:
    corner = Heatmap([[2, 0], [4, 4]])
    rules = [BoxRule(mode="nearest", score=score) for score in ("max", "mean", "box")]
    assert [boxes_of(corner, rule)[0].score for rule in rules] == pytest.approx([4.0, 10 / 3, 2.5])

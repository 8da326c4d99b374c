"""Weighted box fusion against hand cases and a plain implementation written from the paper's seven steps."""

import random

import numpy as np
import pytest

from rightlung.core import Box, InputError
from rightlung.core.study import ScoredBox
from rightlung.studies.fusion import FusedBox, fuse


def scored(x0: float, y0: float, x1: float, y1: float, score: float = 1.0, label: str = "a") -> ScoredBox:
    return ScoredBox(Box(x0, y0, x1, y1), score, label)


def plain_fusion(readers: list[list[ScoredBox]], threshold: float) -> list[tuple[str, list[float], float]]:
    """The paper's section 3, step by step, on arrays, with its lists B, L and F; nothing of the package but numbers."""

    def overlap(a: np.ndarray, b: np.ndarray) -> float:
        width = min(a[2], b[2]) - max(a[0], b[0])
        height = min(a[3], b[3]) - max(a[1], b[1])
        if width <= 0 or height <= 0:
            return 0.0
        area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
        return float(width * height / (area - width * height))

    result = []
    for label in {one.label for reader in readers for one in reader}:
        boxes = [
            (one.score, np.array(one.box.as_tuple())) for reader in readers for one in reader if one.label == label
        ]
        order = sorted(range(len(boxes)), key=lambda index: (-boxes[index][0], index))  # step 1
        lists: list[list[int]] = []  # L
        fused: list[np.ndarray] = []  # F
        for index in order:
            best, place = threshold, -1
            for candidate, box in enumerate(fused):  # step 3
                if overlap(box, boxes[index][1]) > best:
                    best, place = overlap(box, boxes[index][1]), candidate
            if place < 0:  # step 4
                lists.append([index])
                fused.append(boxes[index][1])
            else:  # steps 5 and 6
                lists[place].append(index)
                weights = np.array([boxes[member][0] for member in lists[place]])
                corners = np.stack([boxes[member][1] for member in lists[place]])
                fused[place] = (weights[:, None] * corners).sum(0) / weights.sum()
        for members, box in zip(lists, fused, strict=True):  # step 7
            score = np.mean([boxes[member][0] for member in members]) * min(len(members), len(readers)) / len(readers)
            result.append((str(label), box.tolist(), float(score)))
    return sorted(result, key=lambda one: (-round(one[2], 9), one[0], one[1]))


def as_rows(fused: list[FusedBox]) -> list[tuple[str, list[float], float]]:
    rows = [(str(one.label), list(one.box.as_tuple()), one.score) for one in fused]
    return sorted(rows, key=lambda one: (-round(one[2], 9), one[0], one[1]))


def test_three_readers_who_agree_give_the_mean_and_full_score() -> None:
    fused = fuse([[scored(0.1, 0.1, 0.4, 0.4)], [scored(0.2, 0.1, 0.5, 0.4)], [scored(0.15, 0.1, 0.45, 0.4)]])
    assert len(fused) == 1
    assert fused[0].box.as_tuple() == pytest.approx((0.15, 0.1, 0.45, 0.4))
    assert (fused[0].score, fused[0].readers) == (1.0, (0, 1, 2))


def test_what_one_of_three_has_drawn_counts_a_third() -> None:
    fused = fuse([[scored(0.1, 0.1, 0.4, 0.4)], [scored(0.1, 0.1, 0.4, 0.4)], [scored(0.6, 0.6, 0.9, 0.9)]])
    assert [(round(one.score, 6), one.readers) for one in fused] == [(0.666667, (0, 1)), (0.333333, (2,))]


def test_labels_do_not_meet() -> None:
    fused = fuse([[scored(0.1, 0.1, 0.4, 0.4, label="mass")], [scored(0.1, 0.1, 0.4, 0.4, label="nodule")]])
    assert sorted(str(one.label) for one in fused) == ["mass", "nodule"]


def test_an_overlap_of_exactly_the_threshold_is_not_enough() -> None:
    # IoU 1/3, exact in binary but for the division
    left, right = scored(0.0, 0.0, 0.5, 0.5), scored(0.25, 0.0, 0.75, 0.5)
    assert len(fuse([[left], [right]], iou=1 / 3)) == 2
    assert len(fuse([[left], [right]], iou=0.333)) == 1


def test_a_box_joins_the_fused_box_that_it_overlaps_most_not_the_first() -> None:
    near, far = scored(0.30, 0.0, 0.60, 0.4, 0.9), scored(0.0, 0.0, 0.35, 0.4, 1.0)
    joining = scored(0.25, 0.0, 0.60, 0.4, 0.5)
    fused = {one.readers: one.box for one in fuse([[far], [near], [joining]])}
    assert set(fused) == {(0,), (1, 2)}
    assert fused[1, 2].x0 == pytest.approx((0.9 * 0.30 + 0.5 * 0.25) / 1.4)  # weighted by the scores


def test_it_is_compared_with_the_moved_box_not_with_the_first_one() -> None:
    """A chain: the third overlaps the mean of the first two by more than 0.1, the first alone by less."""
    first, second = scored(0.0, 0.0, 0.4, 1.0), scored(0.2, 0.0, 0.6, 1.0)
    third = scored(0.35, 0.0, 0.75, 1.0)
    assert first.box.iou(third.box) < 0.1
    fused = fuse([[first], [second], [third]])
    assert [one.readers for one in fused] == [(0, 1, 2)]


def test_two_boxes_of_one_reader_are_one_reader() -> None:
    fused = fuse([[scored(0.1, 0.1, 0.4, 0.4), scored(0.12, 0.1, 0.42, 0.4)], [], []])
    assert len(fused) == 1
    assert fused[0].readers == (0,)
    assert fused[0].score == pytest.approx(2 / 3)  # the paper counts boxes; `readers` counts people


def test_random_readers_equal_the_plain_implementation() -> None:
    draw = random.Random(7)
    for _ in range(300):
        readers = []
        for _ in range(draw.randint(1, 4)):
            boxes = []
            for _ in range(draw.randint(0, 6)):
                x0, y0 = draw.uniform(0, 0.7), draw.uniform(0, 0.7)
                corners = (x0, y0, x0 + draw.uniform(0.05, 0.3), y0 + draw.uniform(0.05, 0.3))
                boxes.append(scored(*corners, score=draw.choice((1.0, 1.0, 0.8, 0.3)), label=draw.choice("ab")))
            readers.append(boxes)
        threshold = draw.choice((0.0, 0.1, 0.4, 0.55))
        ours, plain = as_rows(fuse(readers, threshold)), plain_fusion(readers, threshold)
        assert len(ours) == len(plain)
        for (label, box, score), (other_label, other_box, other_score) in zip(ours, plain, strict=True):
            assert label == other_label
            assert box == pytest.approx(other_box, abs=1e-12)
            assert score == pytest.approx(other_score)


def test_nothing_drawn_is_nothing_fused() -> None:
    assert fuse([[], [], []]) == []


@pytest.mark.parametrize("iou", [-0.1, 1.0])
def test_an_overlap_that_cannot_be_is_refused(iou: float) -> None:
    with pytest.raises(InputError, match="at least 0 and below 1"):
        fuse([[]], iou)


def test_no_reader_and_no_score_are_refused() -> None:
    with pytest.raises(InputError, match="at least one reader"):
        fuse([])
    with pytest.raises(InputError, match="scores above 0"):
        fuse([[scored(0.1, 0.1, 0.2, 0.2, score=0.0)]])

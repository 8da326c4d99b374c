"""The map of fixations against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.core.gaze import STD, gaze_map


def test_the_map_is_the_weighted_sum_of_gaussians() -> None:
    path = [(0.2, 0.7, 3.0), (0.9, -0.05, 0.5)]
    spreads = [(0.1, 0.2), (0.05, 0.3)]
    expected = np.zeros((4, 5))
    for row in range(4):
        for column in range(5):
            for (x, y, seconds), (wide, high) in zip(path, spreads, strict=True):
                across, down = ((column + 0.5) / 5 - x) / wide, ((row + 0.5) / 4 - y) / high
                expected[row, column] += seconds * math.exp(-(across**2 + down**2) / 2)
    found = gaze_map(path, (4, 5), spreads)
    np.testing.assert_allclose(found.values, expected / expected.sum(), rtol=1e-5)
    assert gaze_map(path, (4, 5), 0.2) == gaze_map(path, (4, 5), np.full((2, 2), 0.2))
    assert gaze_map(path) == gaze_map(path, (32, 32), STD)  # one degree of sight


def test_looking_nowhere_is_a_map_of_zeros() -> None:
    assert gaze_map([]).mass == 0
    assert gaze_map([(40.0, 40.0, 1.0)]).mass == 0


@pytest.mark.parametrize(
    ("path", "spread"),
    [
        ([(0.5, 0.5, -1.0)], 0.1),
        ([(float("nan"), 0.5, 1.0)], 0.1),
        ([(0.5, 0.5, 1.0)], 0.0),
        ([(0.5, 0.5, 1.0)], [(0.1, 0.1), (0.1, 0.1)]),
        ([(0.5, 0.5, 1.0)], [(0.1, -0.1)]),
    ],
)
def test_what_is_no_fixation_is_refused(path: list[tuple[float, float, float]], spread: object) -> None:
    with pytest.raises(InputError, match="fixations"):
        gaze_map(path, std=spread)  # type: ignore[arg-type]

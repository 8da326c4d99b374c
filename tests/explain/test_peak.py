"""The peak of a map and the patient's side it is on."""

from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import Extent, Heatmap
from rightlung.explain import peak_of, side_at


def test_the_peak_is_the_middle_of_the_highest_cell_in_fractions_of_the_image() -> None:
    cells = np.zeros((5, 10))
    cells[3, 8] = 1.0
    assert peak_of(Heatmap(cells)) == pytest.approx((0.85, 0.7))
    assert peak_of(Heatmap(cells, Extent(-0.5, 0.0, 1.5, 1.0))) is None  # 8.5 tenths of it lie at 1.2: padding
    cells[1, 4] = 0.5
    assert peak_of(Heatmap(cells, Extent(-0.5, 0.0, 1.5, 1.0))) == pytest.approx((0.4, 0.3))


def test_the_peak_lies_where_bilinear_pixels_are_highest() -> None:
    for seed in range(20):
        cells = np.zeros((6, 6))
        cells[1:5, 1:5] = np.random.default_rng(seed).random((4, 4))
        heatmap = Heatmap(cells, Extent(0.1, -0.1, 1.1, 0.9))
        pixels = heatmap.to_size((600, 600), keep_mass=False)
        row, column = np.unravel_index(pixels.argmax(), pixels.shape)
        assert peak_of(heatmap) == pytest.approx(((column + 0.5) / 600, (row + 0.5) / 600), abs=2 / 600)


def test_cells_that_tie_favour_no_side() -> None:
    cells = np.zeros((3, 5))
    cells[1, 1:4] = 1.0
    assert peak_of(Heatmap(cells)) == pytest.approx((0.5, 0.5))


def test_an_empty_or_flat_map_has_no_peak() -> None:
    assert peak_of(Heatmap(np.zeros((3, 3)))) is None
    assert peak_of(Heatmap(np.full((3, 3), 0.7))) is None


@pytest.mark.parametrize(
    ("x", "side"),
    [(0.0, "right"), (0.47, "right"), (0.485, "midline"), (0.515, "midline"), (0.53, "left")],
)
def test_the_patients_left_is_on_the_images_right(x: float, side: str) -> None:
    assert side_at(x) == side

"""The peak of a map and the patient's side it is on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rightlung.core import Extent, Heatmap
from rightlung.explain import peak_of, peaks, side_at, side_of_peak


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


def test_cells_that_tie_favour_no_side_and_an_empty_or_flat_map_has_no_peak() -> None:
    assert peak_of(Heatmap([[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]])) == pytest.approx((0.5, 0.5))
    assert peak_of(Heatmap(np.zeros((3, 3)))) is None
    assert peak_of(Heatmap(np.full((3, 3), 0.7))) is None


@pytest.mark.parametrize(("x", "side"), [(0.0, "right"), (0.49, "right"), (0.5, "both"), (0.51, "left"), (1.0, "left")])
def test_the_patients_left_is_on_the_images_right(x: float, side: str) -> None:
    assert side_at(x) == side


def test_peaks_are_the_middle_of_the_tied_cells_with_their_share_on_the_left() -> None:
    maps = np.zeros((5, 2, 4), dtype=np.float32)
    maps[0, 1, 3] = 1.0
    maps[1, 0, [0, 1, 3]] = 2.0  # two on the patient's right, one on the left
    maps[2] = 0.3  # constant
    maps[4, 0, 1:3] = (1.0, 1.0 - 5e-7)  # equal but for the last digits
    x, y, left = peaks(maps)
    np.testing.assert_allclose(x, [0.875, (0.125 + 0.375 + 0.875) / 3, 0.5, np.nan, 0.5])
    np.testing.assert_allclose(y, [0.75, 0.25, 0.5, np.nan, 0.25])
    np.testing.assert_allclose(left, [1.0, 1 / 3, 0.5, np.nan, 0.5])
    np.testing.assert_allclose(peaks(maps, [0.9, 0.25, 0.25, 0.5, 0.3])[2], [0.0, 2 / 3, 0.75, np.nan, 1.0])


def test_a_peak_in_the_very_middle_is_half_on_the_left() -> None:
    cells = np.array([[0, 0, 0, 1.0, 0, 0, 0]])
    assert [float(part[0]) for part in peaks(cells[None])] == [0.5, 0.5, 0.5]
    assert side_of_peak(Heatmap(cells)) == "both"


def test_peaks_are_the_same_in_numpy_and_torch() -> None:
    generator = np.random.default_rng(3)
    maps = np.round(generator.random((50, 9, 12)), 1).astype(np.float32)  # with many ties
    midlines = generator.uniform(0.3, 0.7, 50)
    for found, expected in zip(peaks(torch.from_numpy(maps), midlines), peaks(maps, midlines), strict=True):
        np.testing.assert_array_equal(found, expected)
    for index, (x, y, left) in enumerate(zip(*peaks(maps, midlines), strict=True)):
        rows, columns = np.nonzero(maps[index] == maps[index].max())
        assert (x, y) == pytest.approx(((columns.mean() + 0.5) / 12, (rows.mean() + 0.5) / 9))
        assert left == pytest.approx(((columns + 0.5) / 12 > midlines[index]).mean())


def test_the_side_is_that_of_most_tied_peaks_in_the_image() -> None:
    cells = np.zeros((3, 8))
    cells[1, [1, 3, 6]] = 1.0
    assert side_of_peak(Heatmap(cells)) == "right"
    assert side_of_peak(Heatmap(cells), midline=0.3) == "left"
    assert side_of_peak(Heatmap(np.full((3, 3), 0.7))) is None
    assert side_of_peak(Heatmap(np.eye(3), Extent(2.0, 0.0, 3.0, 1.0))) is None


def test_neighbours_tell_the_side_of_a_cell_in_the_middle_as_they_do_on_pixels() -> None:
    heatmap = Heatmap([[0.0, 0.5, 1.0, 0.8, 0.0]])
    assert peak_of(heatmap) == pytest.approx((0.5, 0.5))
    pixels = heatmap.to_size((256, 256), keep_mass=False)
    assert side_of_peak(heatmap) == side_at(float(peaks(pixels[None])[2][0])) == "left"

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.core import Box, Extent, Heatmap, InputError
from tests.core.strategies import boxes, frames, grids, heatmaps, sizes


@settings(max_examples=120)
@given(heatmaps | grids.map(Heatmap), sizes)
def test_resampling_keeps_the_mass_in_the_image_wherever_the_grid_lies(heatmap: Heatmap, size: tuple[int, int]) -> None:
    for mode in ("bilinear", "nearest", "area"):
        pixels = heatmap.to_size(size, mode)
        assert pixels.sum(dtype=float) == pytest.approx(heatmap.mass_in_image, rel=1e-5, abs=1e-30)
        assert (pixels >= 0).all()
    least = heatmap.mass if heatmap.extent == Extent() else 0.0
    assert least * (1 - 1e-9) <= heatmap.mass_in_image <= heatmap.mass * (1 + 1e-9)


@given(grids, sizes)
def test_values_equal_torch_interpolation(values: np.ndarray, size: tuple[int, int]) -> None:
    tensor = torch.tensor(values)[None, None]
    bilinear = torch.nn.functional.interpolate(tensor.double(), size=size, mode="bilinear")[0, 0].numpy()
    np.testing.assert_allclose(Heatmap(values).to_size(size, keep_mass=False), bilinear, rtol=1e-5, atol=1e-5)
    if size[0] % values.shape[0] == 0 and size[1] % values.shape[1] == 0:
        nearest = torch.nn.functional.interpolate(tensor, size=size, mode="nearest")[0, 0].numpy()
        assert np.array_equal(Heatmap(values).to_size(size, "nearest", keep_mass=False), nearest)


@given(grids, st.integers(1, 5), st.integers(1, 5))
def test_grid_to_pixels_and_back_gives_the_grid(values: np.ndarray, down: int, across: int) -> None:
    heatmap = Heatmap(values)
    size = values.shape[0] * down, values.shape[1] * across
    for mode in ("nearest", "area"):
        back = Heatmap.from_pixels(heatmap.to_size(size, mode), heatmap.grid)
        np.testing.assert_allclose(back.values, values, rtol=1e-4, atol=1e-30)


@given(heatmaps, sizes)
def test_mirroring_the_map_mirrors_its_pixels(heatmap: Heatmap, size: tuple[int, int]) -> None:
    mirrored = heatmap.mirrored().to_size(size, "area")
    np.testing.assert_allclose(mirrored, heatmap.to_size(size, "area")[:, ::-1], rtol=1e-3, atol=1e-3)


@given(frames, frames)
def test_seen_from_undoes_within(inner: Extent, frame: Extent) -> None:
    assert inner.within(frame).seen_from(frame).as_tuple() == pytest.approx(inner.as_tuple(), abs=1e-9)


@given(boxes)
def test_the_whole_crop_lies_where_it_was_cut(box: Box) -> None:
    assert Extent().within(Extent.crop(box)).as_tuple() == pytest.approx(box.as_tuple())


def test_a_map_made_on_a_crop_lands_where_the_crop_was() -> None:
    right_half = Heatmap([[1.0, 3.0]]).placed(Extent.crop(Box(0.5, 0.0, 1.0, 1.0)))
    assert right_half.to_size((1, 4), "nearest").tolist() == [[0.0, 0.0, 1.0, 3.0]]


def test_a_map_made_on_a_letterboxed_image_loses_only_the_padding() -> None:
    # An image twice as high as wide, padded left and right to a square: the outer columns saw only padding.
    heatmap = Heatmap([[5.0, 1.0, 2.0, 5.0]]).placed(Extent.letterbox((200, 100)))
    assert heatmap.to_size((2, 2), "nearest").tolist() == [[0.5, 1.0], [0.5, 1.0]]
    assert heatmap.mass_in_image == 3.0
    assert heatmap.mass == 13.0


def test_letterbox_then_crop_is_undone_in_one_step() -> None:
    # GLoRIA's way: pad to a square of side 256, cut the middle 224.
    crop = Extent.crop(Box.from_pixels((16, 16, 240, 240), (256, 256)))
    frame = crop.within(Extent.letterbox((256, 192)))
    assert frame.as_tuple() == pytest.approx(((16 - 32) / 192, 16 / 256, (240 - 32) / 192, 240 / 256))


@given(sizes)
def test_a_letterbox_is_square_in_pixels(size: tuple[int, int]) -> None:
    extent = Extent.letterbox(size)
    assert (extent.x1 - extent.x0) * size[1] == pytest.approx((extent.y1 - extent.y0) * size[0])
    assert min(extent.x1, extent.y1) >= 1 - 1e-12


def test_a_peak_between_the_centres_of_few_pixels_is_not_lost_and_a_negative_zero_is_a_zero() -> None:
    values = np.zeros((9, 9))
    values[0, 0] = 1.0
    assert Heatmap(values).to_size((2, 2)).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert not np.signbit(Heatmap([[-0.0]]).values).any()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([[0.0, math.nan]], "nan at row 0, column 1"), ([[0.0], [-0.5]], "-0.5 at row 1, column 0"),
        ([[-1e-50]], "-1e-50"), ([[1.0], [1.0, 2.0]], "rectangular"), ([[math.inf]], "inf"),
        ([[1e300]], r"must be finite.*1e\+300"), ([1.0], "shape"), ([[]], "shape"), ([["a"]], "real numbers"),
        ([[1j]], "real numbers"),
    ],
)  # fmt: skip
def test_a_wrong_map_is_refused_with_the_value_and_its_place(values: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Heatmap(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *[(partial(Heatmap, [[1.0]], abstention=share), "abstention") for share in (-0.1, 1.1, math.nan, "a")],  # type: ignore[arg-type]
        *[(partial(Extent, *corners), "extent") for corners in ((0, 0, 0, 1), (1, 0, 0, 1), (0, math.nan, 1, 1))],
        *[(partial(Heatmap([[1.0]]).to_size, size), "size") for size in ((0, 4), (4,), (2.0, 2), (-1, 2))],  # type: ignore[arg-type]
        (partial(Heatmap([[1.0]]).to_size, (2, 2), "bilinar"), "did you mean 'bilinear'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_abstention_extent_size_or_mode_is_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        make()


def test_a_map_cannot_be_changed_from_outside_and_pickles() -> None:
    source = np.ones((2, 2), dtype=np.float32)
    heatmap = Heatmap(source, Extent(0, 0, 2, 2), 0.25)
    source[0, 0] = 9
    assert heatmap.values[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        heatmap.values[0, 0] = 2
    for again in (pickle.loads(pickle.dumps(heatmap)), copy.deepcopy(heatmap)):
        assert again == heatmap
        assert not again.values.flags.writeable


def test_area_without_keeping_mass_is_the_mean_of_what_a_pixel_covers() -> None:
    heatmap = Heatmap([[1.0, 3.0], [5.0, 7.0]])
    assert heatmap.to_size((1, 1), "area", keep_mass=False).tolist() == [[4.0]]
    assert (
        heatmap.to_size((4, 4), "area", keep_mass=False).tolist() == np.kron(heatmap.values, np.ones((2, 2))).tolist()
    )


def test_nearest_equals_torchs_nearest_exact_at_every_size() -> None:
    for cells in (7, 14, 19, 22, 26):
        values = np.random.default_rng(cells).random((cells, cells), dtype=np.float32)
        for pixels in (33, 224, 299, 518):
            theirs = torch.nn.functional.interpolate(
                torch.tensor(values)[None, None], size=pixels, mode="nearest-exact"
            )
            # Torch computes centres in single precision and may fall to either side where one lies on a border.
            ours = Heatmap(values).to_size((pixels, pixels), "nearest", keep_mass=False)
            on_border = ((2 * np.arange(pixels) + 1) * cells) % (2 * pixels) == 0
            clear = np.ix_(~on_border, ~on_border)
            assert np.array_equal(ours[clear], theirs[0, 0].numpy()[clear])

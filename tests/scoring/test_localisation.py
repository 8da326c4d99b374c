from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.metrics import average_precision_score, roc_auc_score

from rightlung.core import Extent, Heatmap, InputError
from rightlung.scoring.localisation import METRICS, compiled, score, score_grid
from rightlung.scoring.localisation.ranking import Ranking
from tests.core.strategies import frames

SHARES = (5, 10, 30)


def plain_scores(values: np.ndarray, mask: np.ndarray, tolerance: float = 0.0) -> dict[str, float]:
    """Every measure as its definition reads, slowly: scikit-learn, scipy, and sums over single pixels."""
    flat, labels = values.ravel().astype(np.float64), mask.ravel()
    inside, outside = flat[labels], flat[~labels]
    spread = inside.var() + outside.var()
    normalised = (flat - flat.min()) / np.ptp(flat) if np.ptp(flat) else np.full_like(flat, math.nan)
    ious, dices = [], []
    for threshold in (0.1, 0.2, 0.3, 0.4, 0.5):
        found = normalised >= threshold
        ious.append((found & labels).sum() / (found | labels).sum())
        dices.append(2 * (found & labels).sum() / (found.sum() + labels.sum()))
    distance = scipy.ndimage.distance_transform_edt(~mask)
    scores = {
        "auroc": roc_auc_score(labels, flat),
        "average_precision": average_precision_score(labels, flat),
        "pointing": float((distance[values == values.max()] <= tolerance).mean()),
        "cnr": (inside.mean() - outside.mean()) / math.sqrt(spread) if np.ptp(inside) or np.ptp(outside) else math.nan,
        "entropy": float(scipy.stats.entropy(flat)) if flat.sum() else math.nan,
        "mass_inside": inside.sum() / flat.sum() if flat.sum() else math.nan,
        "miou": float(np.mean(ious)) if np.ptp(flat) else math.nan,
        "mdice": float(np.mean(dices)) if np.ptp(flat) else math.nan,
    }
    for share in SHARES:
        # Hand out the share pixel by pixel, a whole tie at a time.
        left, hits = share / 100 * flat.size, 0.0
        for value in np.unique(flat)[::-1]:
            tie = flat == value
            taken = min(left, tie.sum())
            hits += taken * labels[tie].mean()
            left -= taken
            if left <= 0:
                break
        size = share / 100 * flat.size
        scores[f"precision@{share}"] = hits / size
        scores[f"iou@{share}"] = hits / (size + labels.sum() - hits)
        scores[f"dice@{share}"] = 2 * hits / (size + labels.sum())
    return scores


def kinds_of_maps(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Random, constant, zero, heavily tied, blocky, perfect, inverted, single-peaked, tiny and huge values."""
    generator = np.random.default_rng(7)
    size = (31, 45)
    masks = np.zeros((12, *size), dtype=bool)
    for index in range(12):
        top, left = generator.integers(0, 20, 2)
        masks[index, top : top + generator.integers(1, 11), left : left + generator.integers(1, 25)] = True
    masks[9] = generator.random(size) < 0.5
    masks[10] = True
    masks[10, 3, 4] = False
    masks[11] = False
    masks[11, 30, 44] = True
    maps = generator.random((12, *size))
    maps[1] = 0.25
    maps[2] = 0.0
    maps[3] = np.round(maps[3] * 3)
    maps[4] = np.kron(generator.random((8, 9)), np.ones((4, 5)))[:31, :45]
    maps[5] = masks[5] + 0.25 * generator.random(size)
    maps[6] = 1 - masks[6] * 0.5 + 0.25 * generator.random(size)
    maps[7] = 0.0
    maps[7, 12, 13] = 3.0
    maps[8] *= 1e-30
    maps[9] *= 1e30
    return maps.astype(dtype), masks


@pytest.fixture(params=["compiled", "numpy"])
def _either_sort(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(compiled, "compiled", lambda: None)
    elif compiled.compiled() is None:
        assert shutil.which("cc") is None, "there is a C compiler, but the C functions were not built: make clean test"
        pytest.skip("the C functions were not built: no C compiler")


@pytest.mark.usefixtures("_either_sort")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tolerance", [0.0, 1.5, 7.0])
def test_every_measure_equals_its_definition(dtype: type, tolerance: float) -> None:
    maps, masks = kinds_of_maps(dtype)
    result = score(maps, masks, tolerance=tolerance)
    for index in range(len(maps)):
        expected = plain_scores(maps[index], masks[index], tolerance)
        assert set(expected) == set(METRICS)
        for name, value in expected.items():
            np.testing.assert_allclose(float(result[name][index]), value, atol=1e-6, err_msg=f"{name} of map {index}")


@pytest.mark.usefixtures("_either_sort")
@given(
    npst.arrays(np.float32, (6, 7), elements=st.sampled_from([0.0, -0.0, 1e-40, 0.1, 0.5, 1.0, 3e38])),
    npst.arrays(np.bool_, (6, 7)).filter(lambda mask: 0 < mask.sum() < mask.size),
)
def test_ties_in_any_arrangement_equal_the_definition(values: np.ndarray, mask: np.ndarray) -> None:
    result = score(values[None], mask[None], metrics=["auroc", "average_precision", "iou@10", "precision@30"])
    expected = plain_scores(values, mask)
    for name in ("auroc", "average_precision", "iou@10", "precision@30"):
        assert float(result[name][0]) == pytest.approx(expected[name], abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 16, 300])  # the compiled sort takes runs of equal scores together
def test_runs_of_equal_scores_are_sorted_as_numpy_sorts(
    monkeypatch: pytest.MonkeyPatch, dtype: type, length: int
) -> None:
    if compiled.compiled() is None:
        pytest.skip("the C functions were not built: no C compiler")
    rng = np.random.default_rng(length)
    values = np.repeat(rng.integers(0, 40, 1200), rng.integers(1, 2 * length, 1200))[:1200].astype(dtype) / 3
    mask = rng.random(240).repeat(5) < 0.3
    found = Ranking.of(values, mask)
    monkeypatch.setattr(compiled, "compiled", lambda: None)
    expected = Ranking.of(values, mask)
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_array_equal(found.where, expected.where)
    assert found.curve().wins == expected.curve().wins
    assert found.curve().precision == pytest.approx(expected.curve().precision, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tolerance", [0.0, 1.5, 7.0])
@pytest.mark.parametrize("normalisation", ["minmax", "max", "none"])
def test_the_tensor_path_agrees(dtype: torch.dtype, tolerance: float, normalisation: Any) -> None:
    maps, masks = kinds_of_maps(np.float64 if dtype == torch.float64 else np.float32)
    masks[0], masks[1] = False, True
    arrays = score(maps, masks, tolerance=tolerance, normalisation=normalisation)
    tensors = score(torch.tensor(maps), torch.tensor(masks), tolerance=tolerance, normalisation=normalisation)
    for name in METRICS:
        np.testing.assert_allclose(tensors[name].numpy(), arrays[name], rtol=1e-9, atol=1e-9, err_msg=name)
    assert tensors["reason"].tolist() == arrays["reason"].tolist()


def test_the_tensor_path_is_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, masks = (torch.tensor(array) for array in kinds_of_maps(np.float32))
    whole = score(maps, masks)
    monkeypatch.setattr("rightlung.scoring.localisation.tensors.CHUNK", 5000)
    parts = score(maps, masks)
    for name in METRICS:
        torch.testing.assert_close(parts[name], whole[name], rtol=0, atol=0, equal_nan=True)


@given(
    npst.arrays(
        np.float32, st.tuples(st.just(3), st.integers(1, 9), st.integers(1, 9)), elements=st.floats(0, 4, width=16)
    ),
    npst.arrays(np.bool_, st.tuples(st.just(3), st.integers(2, 24), st.integers(2, 24))),
    st.sampled_from([0.0, 2.0]),
    st.none() | st.lists(frames, min_size=3, max_size=3),
)
def test_cell_counts_equal_the_nearest_upsampled_map(
    grids: np.ndarray, masks: np.ndarray, tolerance: float, frames: list[Extent] | None
) -> None:
    placed = [Heatmap(grid, frame) for grid, frame in zip(grids, frames or [Extent()] * 3, strict=True)]
    upsampled = np.stack([heatmap.to_size(masks.shape[1:], "nearest", keep_mass=False) for heatmap in placed])
    extents = None if frames is None else [frame.as_tuple() for frame in frames]
    by_pixel = score(upsampled, masks, tolerance=tolerance)
    by_cell = score_grid(grids, masks, extents=extents, tolerance=tolerance)
    for name in METRICS:
        np.testing.assert_allclose(by_cell[name], by_pixel[name], rtol=1e-9, atol=1e-9, err_msg=name)
    assert by_cell["reason"].tolist() == by_pixel["reason"].tolist()


def test_the_issue_of_the_fractional_last_pixel_by_hand() -> None:
    # 5 % of 8 x 8 is 3.2 pixels: three whole ones and a fifth of the fourth, which is the only one inside.
    values = np.linspace(1, 0, 64).reshape(1, 8, 8)
    mask = np.zeros((1, 8, 8), dtype=bool)
    mask[0, 0, 3] = True
    result = score(values, mask, shares=[5])
    assert result["precision@5"][0] == pytest.approx(0.2 / 3.2)
    assert result["iou@5"][0] == pytest.approx(0.2 / (3.2 + 1 - 0.2))
    assert result["dice@5"][0] == pytest.approx(2 * 0.2 / (3.2 + 1))


def test_a_constant_map_scores_the_base_rate_never_zero_or_one() -> None:
    mask = np.zeros((1, 10, 10), dtype=bool)
    mask[0, :2] = True
    result = score(np.full((1, 10, 10), 0.5), mask)
    assert result["auroc"][0] == 0.5
    assert result["average_precision"][0] == pytest.approx(0.2)
    assert result["pointing"][0] == pytest.approx(0.2)
    assert result["precision@10"][0] == pytest.approx(0.2)
    assert result["iou@10"][0] == pytest.approx(2 / 28)
    assert result["entropy"][0] == pytest.approx(math.log(100))
    assert result["mass_inside"][0] == pytest.approx(0.2)
    assert math.isnan(result["cnr"][0])
    assert math.isnan(result["miou"][0])
    assert "constant" in result["reason"][0]


def test_the_mask_itself_is_the_best_map() -> None:
    _, masks = kinds_of_maps(np.float64)
    result = score(masks[:1].astype(float), masks[:1])
    for name in ("auroc", "average_precision", "pointing", "mass_inside", "miou", "mdice"):
        assert result[name][0] == 1.0, name


@pytest.mark.parametrize("as_array", [np.asarray, torch.as_tensor])
def test_an_empty_or_full_mask_gives_nan_with_a_reason_and_never_a_hit(as_array: Any) -> None:
    maps = as_array(np.random.default_rng(0).random((2, 5, 5)))
    masks = as_array(np.stack([np.zeros((5, 5), bool), np.ones((5, 5), bool)]))
    result = score(maps, masks)
    for name in METRICS:
        expected = np.isfinite if name == "entropy" else np.isnan
        assert expected(np.asarray(result[name])).all(), name
    assert result["reason"].tolist() == ["mask is empty", "mask covers every pixel"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-9])
@pytest.mark.parametrize("as_array", [np.asarray, torch.as_tensor])
def test_a_map_with_nan_or_negative_values_is_refused_with_its_place(value: float, as_array: Any) -> None:
    maps = np.ones((3, 4, 4))
    maps[2, 1, 3] = value
    with pytest.raises(InputError, match=r"map 2 .* at row 1, column 3"):
        score(as_array(maps), as_array(np.ones((3, 4, 4), dtype=bool)))


@pytest.mark.parametrize(
    ("maps", "masks", "named"),
    [
        (np.ones((2, 3, 3)), np.ones((2, 3, 4), bool), "differ in shape"),
        (np.ones((3, 3)), np.ones((3, 3), bool), r"\(n, height, width\)"),
        (np.ones((1, 2, 2)), np.full((1, 2, 2), 2), "zeros and ones"),
        (np.ones((1, 2, 2), dtype=complex), np.ones((1, 2, 2), bool), "complex"),
        (torch.ones((1, 2, 2), dtype=torch.complex64), torch.eye(2, dtype=torch.bool)[None], "floats"),
        (torch.ones((1, 2, 2), dtype=torch.bool), torch.eye(2, dtype=torch.bool)[None], "floats"),
    ],
)
def test_wrong_shapes_and_kinds_are_named(maps: Any, masks: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        score(maps, masks)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"metrics": ["aurok"]}, "did you mean 'auroc'"), ({"metrics": ["iou@7"]}, "unknown metric 'iou@7'"),
        ({"shares": [0]}, "share"), ({"shares": [101]}, "share"), ({"shares": [1e-323]}, "share"),
        ({"shares": [5, 5.0000001]}, "shares must differ"), ({"tolerance": -1}, "tolerance"),
        ({"thresholds": []}, "thresholds"), ({"thresholds": [-0.1]}, "-0.1"),
        ({"normalisation": "min-max"}, "did you mean 'minmax'"),
        ({"workers": 0}, "workers must be at least 1; got 0"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        score(np.ones((1, 2, 2)), np.eye(2, dtype=bool)[None], **options)


def test_only_what_is_asked_for_is_returned_unchanged_and_no_maps_give_no_scores() -> None:
    maps, masks = kinds_of_maps(np.float32)
    everything = score(maps, masks)
    for name in METRICS:
        alone = score(maps, masks, metrics=name)
        assert set(alone) == {name, "reason"}
        np.testing.assert_array_equal(alone[name], everything[name])
    assert all(len(column) == 0 for column in score(maps[:0], masks[:0]).values())


def test_threads_and_layout_do_not_change_a_score_and_inputs_are_left_as_they_were() -> None:
    maps, masks = kinds_of_maps(np.float32)
    one, many = score(maps, masks, workers=1), score(np.asfortranarray(maps), masks[:, :, ::-1][:, :, ::-1], workers=3)
    for name in METRICS:
        np.testing.assert_array_equal(one[name], many[name])
    for given_array, before in zip((maps, masks), kinds_of_maps(np.float32), strict=True):
        np.testing.assert_array_equal(given_array, before)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e154, 1e307])
@pytest.mark.parametrize("as_array", [np.asarray, torch.as_tensor])
def test_the_scale_of_a_map_changes_nothing(scale: float, as_array: Any) -> None:
    maps, masks = kinds_of_maps(np.float64)
    maps, masks = maps[:1], masks[:1]
    plain, scaled = score(maps, masks), score(as_array(maps * scale), as_array(masks))
    for name in METRICS:
        np.testing.assert_allclose(np.asarray(scaled[name]), plain[name], rtol=1e-9, err_msg=name)


def test_a_peak_exactly_at_the_tolerance_hits() -> None:
    values, mask = np.zeros((1, 9, 9)), np.zeros((1, 9, 9), dtype=bool)
    values[0, 4, 4] = 1
    mask[0, 4, 7] = True
    assert score(values, mask, tolerance=3, metrics="pointing")["pointing"][0] == 1.0
    assert score(values, mask, tolerance=2.99, metrics="pointing")["pointing"][0] == 0.0


@given(
    npst.arrays(np.float32, 60, elements=st.floats(0, 1, width=32)), st.sampled_from(["minmax", "max", "sum", "none"])
)
def test_thresholds_on_raw_scores_equal_thresholds_on_the_normalised_map(flat: np.ndarray, normalisation: Any) -> None:
    values, mask = flat.reshape(1, 6, 10), (np.arange(60) % 3 == 0).reshape(1, 6, 10)
    doubles = flat.astype(np.float64)
    divisor = {"minmax": np.ptp(doubles), "max": doubles.max(), "sum": doubles.sum(), "none": 1.0}[normalisation]
    # Thresholds that the map itself reaches exactly: the hardest case for rounding.
    shifted = doubles - doubles.min() if normalisation == "minmax" else doubles
    if divisor == 0:
        return
    thresholds = [float(shifted[5] / divisor), float(shifted[17] / divisor), 0.3]
    result = score(values, mask, normalisation=normalisation, thresholds=thresholds, metrics=["miou"])
    labels = mask.ravel()
    total = sum(doubles[labels].tolist()) + sum(doubles[~labels].tolist())
    if normalisation == "sum" and total != divisor:
        return  # another order of adding up, another last bit
    expected = [((f := shifted / divisor >= t) & labels).sum() / (f | labels).sum() for t in thresholds]
    assert result["miou"][0] == pytest.approx(np.mean(expected), abs=1e-12)

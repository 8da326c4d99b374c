"""Gap, alignment and uniformity against hand calculations, and their levels of chance against simulation."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.pages.points import umap_figure
from rightlung.scoring import geometry as measures
from rightlung.scoring.geometry import alignment, geometry, modality_gap, random_levels, umap_map, uniformity


def test_a_hand_calculation_in_the_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = [[2.0, 0.0], [0.0, 1.0]], [[0.0, 3.0], [0.0, 1.0]]
    for at_once in (1, 2048):
        monkeypatch.setattr(measures, "ROWS_AT_ONCE", at_once)
        found = geometry(images, texts, temperature=0.07)
        assert found.gap == pytest.approx(math.hypot(0.5, 0.5))  # means (0.5, 0.5) and (0, 1)
        assert found.alignment == pytest.approx(1.0)  # squared distances 2 and 0
        assert found.uniformity_images == pytest.approx(-4.0)  # one pair at right angles: ‖a−b‖² = 2
        assert found.uniformity_texts == pytest.approx(0.0)
        # Of six pairs, three hold the first image, which is at right angles to the other three vectors.
        assert found.uniformity_pooled == pytest.approx(math.log((3 * math.exp(-4) + 3) / 6))
    assert (found.temperature, found.pairs, found.dimension) == (0.07, 2, 2)


def test_uniformity_is_that_of_wang_and_isola() -> None:
    vectors = torch.nn.functional.normalize(torch.from_numpy(np.random.default_rng(1).normal(size=(40, 8))), dim=1)
    expected = torch.pdist(vectors).pow(2).mul(-2).exp().mean().log()  # as in their paper
    assert uniformity(vectors.numpy()) == pytest.approx(float(expected))


def test_a_constant_encoder_is_perfectly_aligned() -> None:
    found = geometry([[1.0, 1.0]] * 5, [[1.0, 1.0]] * 5)
    own = [getattr(found, name) for name in vars(found.chance["constant"])]
    assert own == pytest.approx([*vars(found.chance["constant"]).values()], abs=1e-12)


def test_random_vectors_have_the_levels_of_chance() -> None:
    chance = np.random.default_rng(0)
    for dimension in (2, 16):
        drawn = [geometry(*chance.normal(size=(2, 400, dimension))) for _ in range(20)]
        expected = random_levels(400, dimension)
        for name in ("alignment", "uniformity_images", "uniformity_pooled"):
            assert np.mean([getattr(one, name) for one in drawn]) == pytest.approx(getattr(expected, name), abs=0.02)
        squares = [modality_gap(*chance.normal(size=(2, 400, dimension))) ** 2 for _ in range(1000)]
        assert np.mean(squares) == pytest.approx(expected.gap**2, rel=0.1)  # a standard error of 3 % at most


def test_a_umap_is_by_cosine_with_a_fixed_seed_and_becomes_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Umap:
        def __init__(self, **options: Any) -> None:
            asked.update(options)

        def fit_transform(self, vectors: Any) -> Any:
            return vectors[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    images, texts = np.eye(20), np.eye(20)[::-1]
    groups = ["normal"] * 10 + ["opacity"] * 10
    figure = umap_figure("map", "Map", {"images": images, "texts": texts}, groups, seed=3)
    assert (asked["metric"], asked["random_state"]) == ("cosine", 3)
    assert figure.numbers[0] == [1.0, 0.0, "normal", "images"]
    assert figure.numbers[39] == [1.0, 0.0, "opacity", "texts"]
    legend = figure.draw().axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["normal", "opacity", "images", "texts"]
    with pytest.raises(InputError, match="15 neighbours needs more"):
        umap_map(np.eye(15))
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(InputError, match=r"pip install 'rightlung\[retrieval\]'"):
        umap_map(images)


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(InputError, match="must be pairs; got 2 and 3"):
        alignment(np.eye(3)[:2], np.eye(3))
    assert modality_gap(np.eye(3)[:2], np.eye(3)) > 0
    with pytest.raises(InputError, match="one dimension"):
        modality_gap(np.eye(3), np.eye(2))
    with pytest.raises(InputError, match="at least two"):
        uniformity([[1.0, 0.0]])

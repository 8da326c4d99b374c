"""Grad-CAM beside hand calculations, autograd, and the class activation map it generalises."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rightlung.core import Extent, InputError
from rightlung.explain import as_heatmaps, class_activation, grad_cam


def test_grad_cam_weighs_each_channel_by_its_mean_gradient_and_keeps_what_is_positive() -> None:
    activations = torch.tensor([[[[1.0, 2.0], [0.0, 4.0]], [[3.0, 1.0], [1.0, 0.0]]]])
    gradients = torch.tensor([[[[2.0, 0.0], [0.0, 2.0]], [[0.0, -4.0], [-4.0, 0.0]]]])
    # The mean gradients are 1 and -2: 1·1 - 2·3 = -5, 2 - 2 = 0, 0 - 2 = -2, 4 - 0 = 4.
    assert grad_cam(activations, gradients).tolist() == [[[0.0, 0.0], [0.0, 4.0]]]


@pytest.mark.parametrize(
    "score",
    [
        lambda features, weight: (features.mean(dim=(2, 3)) @ weight.T)[:, 1],
        lambda features, weight: torch.logsumexp(3 * class_activation(features, weight)[:, 1].flatten(1), dim=1) / 3,
    ],
)
def test_with_average_or_log_sum_exp_pooling_grad_cam_is_the_positive_part_of_cam_over_the_positions(
    score: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    features = torch.randn(3, 5, 4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = nn.Linear(5, 2).weight
    (gradients,) = torch.autograd.grad(score(features, weight).sum(), features)
    expected = class_activation(features, weight)[:, 1].clamp_min(0) / 24
    torch.testing.assert_close(grad_cam(features, gradients), expected)


def test_class_activation_is_signed_and_has_one_map_for_each_class() -> None:
    features = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.5]]]])
    maps = class_activation(features, torch.tensor([[1.0, -1.0], [0.0, 2.0]]))
    assert maps.tolist() == [[[[-2.0, 1.5]], [[6.0, 1.0]]]]


def test_heatmaps_carry_extents_and_abstentions_in_order() -> None:
    maps = torch.arange(8.0).view(2, 2, 2)
    heatmaps = as_heatmaps(maps, [Extent(), Extent.letterbox((200, 100))], [0.25, 1.0])
    assert heatmaps[1].extent == Extent(-0.5, 0.0, 1.5, 1.0)
    assert [heatmap.abstention for heatmap in heatmaps] == [0.25, 1.0]
    assert heatmaps[1].values.tolist() == [[4.0, 5.0], [6.0, 7.0]]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: grad_cam(torch.zeros(1, 2, 3, 3), torch.zeros(1, 2, 3, 4)), r"\(1, 2, 3, 4\)"),
        (lambda: class_activation(torch.zeros(1, 2, 3, 3), torch.zeros(4, 3)), r"\(4, 3\)"),
        (lambda: as_heatmaps(torch.zeros(2, 3, 3), [Extent()]), "expected 2 extents, one per map; got 1"),
        (lambda: as_heatmaps(torch.zeros(3, 3)), r"\(n, rows, cols\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call: Callable[[], object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        call()

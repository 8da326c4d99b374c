"""Attention rollout and gradient × attention beside hand calculations and a loop over heads."""

from __future__ import annotations

import pytest
import torch

from rightlung.core import InputError
from rightlung.explain import attention_relevance, attention_rollout, gradient_attention, token_maps

# Two tokens, two heads: the mean attention is [[0.5, 0.5], [0.25, 0.75]].
FIRST = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]])
SECOND = torch.tensor([[[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]])


def test_rollout_multiplies_the_layers_averaged_over_heads_and_with_the_identity() -> None:
    # (mean + I) / 2 is [[0.75, 0.25], [0.125, 0.875]] and, for the second layer, 0.5 everywhere.
    rolled = attention_rollout([FIRST, SECOND])
    assert rolled.tolist() == [[[0.4375, 0.5625], [0.4375, 0.5625]]]
    assert attention_rollout([SECOND, FIRST]).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_relevance_adds_the_positive_gradient_times_attention_of_each_layer() -> None:
    gradients = torch.tensor([[[[2.0, 9.0], [2.0, -8.0]], [[9.0, 4.0], [9.0, 0.0]]]])
    # Heads: relu([[2, 0], [1, -4]]) and relu([[0, 4], [0, 0]]); their mean is [[1, 2], [0.5, 0]].
    once = attention_relevance([FIRST], [gradients])
    assert once.tolist() == [[[2.0, 2.0], [0.5, 1.0]]]
    # The second layer, with gradients of one, has the mean [[0, 1], [1, 0]]: it adds the rows of `once` exchanged.
    twice = attention_relevance([FIRST, SECOND], [gradients, torch.ones_like(SECOND)])
    assert twice.tolist() == [[[2.5, 3.0], [2.5, 3.0]]]


def test_a_map_is_the_class_tokens_row_or_without_one_the_mean_row_of_the_patches() -> None:
    weights = torch.arange(25.0).reshape(1, 5, 5)
    assert token_maps(weights, (2, 2)).tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
    assert token_maps(weights, (2, 2), class_token=False).tolist() == [[[13.5, 14.5], [15.5, 16.5]]]
    assert token_maps(weights[:, 1:, 1:], (1, 4), class_token=False).tolist() == [[[13.5, 14.5, 15.5, 16.5]]]


def test_wrong_shapes_are_errors() -> None:
    with pytest.raises(InputError, match="of one shape"):
        attention_rollout([FIRST, torch.zeros(1, 2, 3, 3)])
    with pytest.raises(InputError, match="a gradient for each of 1 layers; got 0"):
        attention_relevance([FIRST], [])
    with pytest.raises(InputError, match="must have the same shape"):
        gradient_attention(torch.ones(2), torch.ones(3))
    with pytest.raises(InputError, match="2 x 2 tokens and a class token"):
        token_maps(torch.zeros(1, 4, 4), (2, 2))

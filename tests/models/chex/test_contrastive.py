"""The contrastive losses (supp. D.2, Eq. 3, 6, 7, 8 and the last paragraph) against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rightlung.models.chex.contrastive import (
    global_contrast,
    match_probability,
    pathology_contrast,
    prompt_probability,
    region_contrast,
    sentence_contrast,
)
from tests.models.chex.tiny import drawn

NAN = math.nan


def dot(one: Tensor, other: Tensor) -> float:
    return float(sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True)))


def cosine(one: Tensor, other: Tensor) -> float:
    return dot(one, other) / math.sqrt(dot(one, one) * dot(other, other))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_the_match_probability_is_the_softmax_of_dot_products() -> None:
    tokens, positive, negative = drawn(2, 3, 4), drawn(3, 4, seed=1), drawn(3, 4, seed=2)
    found, scaled = match_probability(tokens, positive, negative), prompt_probability(tokens, positive, negative, 0.2)
    for n in range(2):
        for c in range(3):
            yes, no = (math.exp(dot(tokens[n, c], prompts[c])) for prompts in (positive, negative))
            assert float(found[n, c]) == pytest.approx(yes / (yes + no), rel=1e-5)
            yes, no = (math.exp(cosine(tokens[n, c], prompts[c]) / 0.2) for prompts in (positive, negative))
            assert float(scaled[n, c]) == pytest.approx(yes / (yes + no), rel=1e-5)


def test_pathologies_are_paired_with_their_prompt_against_all_others() -> None:
    tokens, positive, negative = drawn(2, 3, 4), drawn(3, 4, seed=1), drawn(3, 4, seed=2)
    labels = torch.tensor([[1.0, 0.0, NAN], [0.0, NAN, 1.0]])
    losses = []
    for n, c in ((0, 0), (0, 1), (1, 0), (1, 2)):
        own = positive if labels[n, c] == 1 else negative
        others = [math.exp(cosine(tokens[n, c], one[k]) / 0.2) for one in (positive, negative) for k in range(3)]
        losses.append(-math.log(math.exp(cosine(tokens[n, c], own[c]) / 0.2) / sum(others)))
    assert float(pathology_contrast(tokens, positive, negative, labels)) == pytest.approx(mean(losses), rel=1e-5)
    assert float(pathology_contrast(tokens, positive, negative, torch.full((2, 3), NAN))) == 0.0


def by_hand_regions(tokens: Tensor, prompts: tuple[Tensor, Tensor], labels: Tensor, used: list[int]) -> float:
    """Eq. 7 with the labels of each region, by loops."""
    losses = []
    for n, a in [(n, a) for n in range(tokens.shape[0]) for a in range(tokens.shape[1])]:
        known = [c for c in used if not labels[n, a, c].isnan()]
        if known:
            cosines = [[cosine(tokens[n, a], part[c]) / 0.25 for c in known] for part in prompts]
            own = mean([cosines[0 if labels[n, a, c] == 1 else 1][k] for k, c in enumerate(known)])
            losses.append(math.log(sum(math.exp(value) for part in cosines for value in part)) - own)
    return mean(losses)


def test_each_region_is_aligned_with_its_own_labels() -> None:
    tokens, prompts = drawn(2, 2, 4), (drawn(3, 4, seed=1), drawn(3, 4, seed=2))
    labels = torch.tensor([[[1.0, 0.0, NAN], [0.0, 0.0, 1.0]], [[NAN, NAN, NAN], [NAN, 1.0, 0.0]]])
    everything = torch.ones(3, dtype=torch.bool)
    expected = by_hand_regions(tokens, prompts, labels, [0, 1, 2])
    assert float(region_contrast(tokens, *prompts, labels, everything)) == pytest.approx(expected, rel=1e-5)
    # Swapping the labels of two regions of an image, with the image's findings unchanged, changes the loss.
    swapped = labels[:, [1, 0]]
    assert float(region_contrast(tokens, *prompts, swapped, everything)) != pytest.approx(expected, rel=1e-3)


def test_classes_that_are_not_used_are_in_neither_sum() -> None:
    tokens, prompts = drawn(2, 2, 4), (drawn(3, 4, seed=1), drawn(3, 4, seed=2))
    labels = torch.tensor([[[1.0, 0.0, NAN], [0.0, 0.0, 1.0]], [[1.0, NAN, NAN], [NAN, 1.0, 0.0]]])
    used = torch.tensor([False, True, True])
    found = region_contrast(tokens, *prompts, labels, used)
    assert float(found) == pytest.approx(by_hand_regions(tokens, prompts, labels, [1, 2]), rel=1e-5)
    without = region_contrast(tokens, prompts[0][1:], prompts[1][1:], labels[..., 1:], used[1:])
    torch.testing.assert_close(found, without)


def test_regions_without_labels_have_no_loss_and_a_finite_gradient() -> None:
    tokens = drawn(1, 2, 4).requires_grad_()
    loss = region_contrast(
        tokens, drawn(3, 4), drawn(3, 4, seed=1), torch.full((1, 2, 3), NAN), torch.ones(3, dtype=torch.bool)
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0
    assert tokens.grad is not None
    assert tokens.grad.abs().sum().item() == 0.0


def test_sentences_of_the_same_wording_are_no_negatives_and_each_image_counts_once() -> None:
    tokens, prompts = drawn(4, 5), drawn(4, 5, seed=1)
    images, wordings = [0, 0, 0, 2], [0, 1, 2, 1]
    prompts[3] = prompts[1]
    of_image: dict[int, list[float]] = {}
    for s in range(4):
        others = [r for r in range(4) if r == s or wordings[r] != wordings[s]]
        total = sum(math.exp(cosine(tokens[s], prompts[r]) / 0.25) for r in others)
        of_image.setdefault(images[s], []).append(math.log(total) - cosine(tokens[s], prompts[s]) / 0.25)
    expected = mean([mean(losses) for losses in of_image.values()])
    found = sentence_contrast(tokens, prompts, torch.tensor(images), torch.tensor(wordings))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_the_global_loss_is_clip_in_both_directions() -> None:
    images, texts = drawn(3, 4), drawn(3, 4, seed=1)
    same = torch.eye(3, dtype=torch.bool)
    same[0, 2] = same[2, 0] = True
    losses = []
    for k in range(3):
        kept = [j for j in range(3) if j == k or not same[k, j]]
        by_image = sum(math.exp(cosine(images[k], texts[j]) / 0.2) for j in kept)
        by_text = sum(math.exp(cosine(images[j], texts[k]) / 0.2) for j in kept)
        losses += [math.log(total) - cosine(images[k], texts[k]) / 0.2 for total in (by_image, by_text)]
    assert float(global_contrast(images, texts, same)) == pytest.approx(mean(losses), rel=1e-5)

"""The prompt detector (supp. D.1, Fig. 12)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rightlung.models.chex.detector import PromptDetector, aggregate
from rightlung.models.roi import gaussian_weights
from tests.models.chex.tiny import drawn, louder, part_config


def detector(**changed: Any) -> PromptDetector:
    torch.manual_seed(0)
    made = PromptDetector(part_config(**changed)).eval()
    louder(made)
    return made


def test_prompts_do_not_see_each_other() -> None:
    model, patches, prompts = detector(), drawn(2, 16, 5, 4), drawn(2, 3, 16, seed=1)
    other = prompts.clone()
    other[:, 1] += drawn(16, seed=2)  # a constant would vanish in the layer norm
    with torch.no_grad():
        one, changed = model(prompts, patches), model(other, patches)
    for name in ("boxes", "scores", "box_tokens", "tokens"):
        before, after = getattr(one, name), getattr(changed, name)
        torch.testing.assert_close(before[:, [0, 2]], after[:, [0, 2]])
        assert float((before[:, 1] - after[:, 1]).abs().max()) > 1e-3


def test_box_tokens_of_a_prompt_see_each_other() -> None:
    model, patches, prompts = detector(), drawn(1, 16, 5, 4), drawn(1, 1, 16, seed=1)
    with torch.no_grad():
        before = model.decode(prompts, patches)
        model.queries[2] += drawn(16, seed=2)
        after = model.decode(prompts, patches)
    assert float((before[:, :, 0] - after[:, :, 0]).abs().max()) > 1e-3


def test_all_prompts_of_all_images_in_one_call_are_those_asked_one_by_one() -> None:
    model, patches, prompts = detector(), drawn(3, 16, 4, 4), drawn(3, 5, 16, seed=1)
    with torch.no_grad():
        together = model(prompts, patches)
        for n in range(3):
            for q in range(5):
                alone = model(prompts[n : n + 1, q : q + 1], patches[n : n + 1])
                for name in ("boxes", "scores", "box_tokens", "tokens"):
                    torch.testing.assert_close(
                        getattr(together, name)[n, q], getattr(alone, name)[0, 0], rtol=1e-5, atol=1e-5
                    )


def test_the_gaussian_of_a_box_by_hand() -> None:
    """A box at the centre of cell (1, 2) of 3 x 4 cells: the cells lie 1/4 apart across and 1/3 down."""
    box = torch.tensor([2.5 / 4, 0.5, 0.5, 2 / 3])
    weights = gaussian_weights(box, (3, 4), 0.5)
    for row in range(3):
        for column in range(4):
            across, down = (column - 2) / 4 / (0.5 * 0.5), (row - 1) / 3 / (0.5 * 2 / 3)
            assert float(weights[row, column]) == pytest.approx(math.exp(-0.5 * (across**2 + down**2)), rel=1e-5)
    # 1 at the best cell, also for a box between the cells and far outside of them, and for one without area.
    for odd in ([0.3, 0.1, 0.01, 0.02], [0.0, 1.0, 1e-9, 1e-9]):
        assert float(gaussian_weights(torch.tensor(odd), (3, 4), 0.2).max()) == 1.0


def test_features_are_the_weighted_mean_of_projected_patches() -> None:
    model, patches, boxes = detector(box_std=0.4), drawn(1, 16, 3, 4), torch.tensor([[[[0.3, 0.6, 0.2, 0.5]]]])
    weights = gaussian_weights(boxes[0, 0, 0], (3, 4), 0.4)
    with torch.no_grad():
        found = model.pool(boxes, patches)[0, 0, 0]
        cells = [(r, c) for r in range(3) for c in range(4)]
        total = sum(weights[cell] * model.patch_projection(patches[0, :, cell[0], cell[1]]) for cell in cells)
        torch.testing.assert_close(found, total / weights.sum())
        # The same features everywhere come out as they are, whatever the size of the box.
        flat = drawn(1, 16, 1, 1, seed=3).expand(-1, -1, 3, 4)
        torch.testing.assert_close(model.pool(boxes, flat)[0, 0, 0], model.patch_projection(flat[0, :, 0, 0]))


def test_boxes_are_aggregated_by_their_scores() -> None:
    tokens, scores = torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 4.0]]), torch.tensor([0.1, 0.3, 0.0])
    assert aggregate(tokens, scores).tolist() == pytest.approx([0.25, 0.75])  # Eq. 2; the sum of the scores is below 1
    model, patches = detector(), drawn(1, 16, 4, 4)
    with torch.no_grad():
        found = model(drawn(1, 2, 16), patches)
    expected = sum(found.scores[0, 1, m] * found.box_tokens[0, 1, m] for m in range(3)) / found.scores[0, 1].sum()
    torch.testing.assert_close(found.tokens[0, 1], expected)


def test_a_given_box_is_pooled_and_a_prompt_adds_its_decoded_token() -> None:
    model, patches = detector(), drawn(2, 16, 4, 4)
    boxes, prompts = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(1)), drawn(2, 3, 16)
    with torch.no_grad():
        pooled = model.pool(boxes[:, :, None], patches)[:, :, 0]
        torch.testing.assert_close(model.at_boxes(boxes, patches), model.roi_projection(pooled))
        decoded = sum(model.decode(prompts, patches)[:, :, m] for m in range(3)) / 3
        torch.testing.assert_close(model.at_boxes(boxes, patches, prompts), model.roi_projection(pooled + decoded))


def test_the_skip_path_is_open_in_training_only() -> None:
    patches, prompts = drawn(1, 16, 4, 4), drawn(1, 2, 16)
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "drop_path": 0.0}
    decoder = type(part_config().detector)(layers=2, heads=2, hidden_size=32, **quiet)
    answers = {}
    for probability in (0.0, 1.0):
        model = detector(detector=decoder, skip_probability=probability)
        with torch.no_grad():
            asked, trained = model(prompts, patches), model.train()(prompts, patches)
            found = model.decode(prompts, patches)
            expected = model.roi_projection(model.pool(asked.boxes, patches) + probability * found)
        torch.testing.assert_close(trained.box_tokens, expected)
        answers[probability] = asked.box_tokens
    torch.testing.assert_close(answers[0.0], answers[1.0])

"""Conditional DETR: what it learns from, what it finds, and that its recipe trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.models.base import TrainingBatch
from rightlung.models.detr import ConditionalDetr
from rightlung.models.folder import load_folder, save_model
from tests.models.clip.tiny import RESNET, picture

FINDINGS = ("nodule", "pleural effusion")
CONFIG: dict[str, Any] = {
    "findings": FINDINGS,
    "image": {"kind": "resnet", "size": 64, "pyramid_levels": [-2, -1], "options": RESNET},
    "options": {
        "num_queries": 6, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "dropout": 0.0,
    },
}  # fmt: skip


def create(seed: int = 0) -> ConditionalDetr:
    return ConditionalDetr.create(CONFIG, [], seed).eval()


def batch(known: bool = True) -> TrainingBatch:
    """Two images; the first has a bright square, which is a nodule."""
    images = torch.zeros(2, 1, 64, 64)
    images[0, 0, 8:24, 32:56] = 1.0
    target = {
        "boxes": torch.tensor([[0.5, 0.125, 0.875, 0.375]]), "labels": [["lung lesion", "nodule"]],
        "image_indices": [0], "has_boxes": torch.tensor([known, known]),
    }  # fmt: skip
    return TrainingBatch(images, [], targets={"boxes": target})


def test_it_learns_a_box_and_finds_it_by_finding_and_by_phrase() -> None:
    model, given = create().train(), batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        losses = model(given)
        optimizer.zero_grad()
        (2 * losses["classification"] + 5 * losses["box_l1"] + 2 * losses["box_giou"]).backward()
        optimizer.step()
    model.eval()
    image = given.images[0, 0].numpy()
    found = model.detect([image], ["pleural effusion", "nodule"])[0]
    assert found[0].label == "nodule"
    assert np.allclose(found[0].box.as_tuple(), (0.5, 0.125, 0.875, 0.375), atol=0.12)
    (grounding,) = model.ground([image], ["a small nodule on the left"])
    assert grounding.boxes[0].box == found[0].box
    assert grounding.heatmap is None
    assert not model.ground([image], ["scoliosis"])[0].boxes


def test_losses_are_those_of_transformers_summed_over_layers() -> None:
    model, given = create(), batch()
    with torch.no_grad():
        losses = model(given)
        labels = [{"class_labels": torch.tensor([0]), "boxes": torch.tensor([[0.6875, 0.25, 0.375, 0.25]])},
                  {"class_labels": torch.zeros(0, dtype=torch.long), "boxes": torch.zeros(0, 4)}]  # fmt: skip
        output = model.detector(given.images, labels=labels)
    total = losses["classification"] + 5 * losses["box_l1"] + 2 * losses["box_giou"]
    torch.testing.assert_close(total, output.loss)


def test_images_with_unknown_boxes_teach_nothing() -> None:
    model = create()
    losses = model(batch(known=False))
    assert [value.item() for value in losses.values()] == [0.0] * 3
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_boxes_are_labelled_and_in_the_image_and_the_model_comes_back_from_disk(tmp_path: Path) -> None:
    model, images = create(), [picture(0), picture(1, (90, 40))]
    found = model.detect(images, [*FINDINGS, "scoliosis"])
    assert [{one.label for one in own} for own in found] == [set(FINDINGS)] * 2
    assert all(own == sorted(own, key=lambda one: -one.score) for own in found)
    save_model(model, tmp_path / "detr")
    assert load_folder(tmp_path / "detr").detect(images, FINDINGS) == found
    assert model.detect(images, []) == [[], []]
    with pytest.raises(InputError, match="scoliosis"):
        model.detect(images, ["scoliosis"])

"""TransVG: it needs the phrase and the image, its loss by hand, its encoders, and that its recipe trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import Box, InputError, Phrase
from rightlung.models.base import TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.models.transvg import TransVg
from tests.models.clip import tiny

TEXTS = ["opacity on the left", "opacity on the right"]
CONFIG: dict[str, Any] = {
    "image": {"kind": "resnet", "size": 64, "pyramid_levels": [-2, -1], "options": tiny.RESNET},
    "text": {"vocab_size": 60, "min_frequency": 1, "max_length": 12, "options": tiny.BERT},
    "dimension": 32, "layers": 2, "heads": 2, "hidden_size": 32, "dropout": 0.0,
}  # fmt: skip


def create(seed: int = 0, **changed: Any) -> TransVg:
    return TransVg.create(CONFIG | changed, TEXTS, seed).eval()


def opacities(heights: Sequence[tuple[int, int]]) -> TrainingBatch:
    """Images of 64 pixels with two squares at given heights. The patient's left is on the right of the image."""
    images, boxes = torch.zeros(len(heights), 1, 64, 64), []
    for image, own in zip(images, heights, strict=True):
        for column, top in zip((40, 8), own, strict=True):
            image[0, top : top + 16, column : column + 16] = 1.0
            boxes.append([column / 64, top / 64, (column + 16) / 64, (top + 16) / 64])
    target = {
        "texts": TEXTS * len(heights), "image_indices": [one for one in range(len(heights)) for _ in TEXTS],
        "boxes": torch.tensor(boxes), "has_box": torch.ones(len(boxes), dtype=torch.bool),
    }  # fmt: skip
    return TrainingBatch(images, [], targets={"phrases": target})


def test_it_learns_which_of_two_opacities_a_phrase_means_and_mirrors_it() -> None:
    model, heights = create(1).train(), np.random.default_rng(1).integers(0, 49, (160, 12, 2)).tolist()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, len(heights), pct_start=0.1)
    for own in heights:
        optimizer.zero_grad()
        sum(model(opacities(own)).values()).backward()
        optimizer.step()
        schedule.step()
    unseen = opacities([(6, 30), (42, 18)])
    pictures = [image[0].numpy() for image in unseen.images]
    found = model.ground([pictures[0], pictures[0], pictures[1], pictures[1]], TEXTS * 2)
    boxes = [grounding.boxes[0].box for grounding in found]
    truths = [Box(*corners) for corners in unseen.targets["phrases"]["boxes"].tolist()]
    assert min(box.iou(truth) for box, truth in zip(boxes, truths, strict=True)) > 0.5
    mirrored = model.ground(np.ascontiguousarray(pictures[0][:, ::-1]), TEXTS[::-1])
    assert min(one.boxes[0].box.mirrored().iou(truth) for one, truth in zip(mirrored, truths, strict=False)) > 0.5
    heatmap = found[0].heatmap
    assert heatmap is not None
    x, y = boxes[0].centre
    assert heatmap.values.argmax() == 32 * int(32 * y) + int(32 * x)  # of 32 x 32 cells


def test_the_loss_of_a_phrase_by_hand() -> None:
    model, given = create(), opacities([(0, 0)])
    torch.nn.init.zeros_(model.box_head[-1].weight)  # type: ignore[arg-type]
    torch.nn.init.zeros_(model.box_head[-1].bias)  # type: ignore[arg-type]
    target = {
        "texts": TEXTS, "image_indices": [0, 0], "has_box": torch.tensor([True, False]),
        "boxes": torch.tensor([[0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]),
    }  # fmt: skip
    losses = model(TrainingBatch(given.images, [], targets={"phrases": target}))
    # The box is (0.25, 0.25, 0.75, 0.75): centre and size are 0.5. The truth's are 0.75, 0.75, 0.5 and 0.5.
    assert losses["box_l1"].item() == pytest.approx(0.5)
    # Shared 1/16 of a union of 7/16; the hull has 9/16.
    assert losses["box_giou"].item() == pytest.approx(1 - (1 / 7 - 2 / 9), rel=1e-5)


def test_phrases_without_a_box_teach_nothing() -> None:
    model, given = create(), opacities([(0, 20)])
    given.targets["phrases"]["has_box"][:] = False
    losses = model(given)
    assert [value.item() for value in losses.values()] == [0.0, 0.0]
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    without = {name: value for name, value in given.targets["phrases"].items() if "box" not in name}
    with pytest.raises(InputError, match=r"set data\.target_options\.phrases\.boxes to true"):
        model(TrainingBatch(given.images, [], targets={"phrases": without}))


def test_an_answer_depends_on_its_own_pair_and_the_model_comes_back_from_disk(tmp_path: Path) -> None:
    model, images = create(), [tiny.picture(0), tiny.picture(1, (90, 40))]
    pairs: Any = [images[0], images[1], images[0]], [TEXTS[0], Phrase("right"), TEXTS[1]]
    found = model.ground(*pairs)
    assert [len(one.boxes) for one in found] == [1, 1, 1]
    for image, phrase, one in zip(*pairs, found, strict=True):
        (alone,) = model.ground([image], [phrase])
        np.testing.assert_allclose(alone.boxes[0].box.as_tuple(), one.boxes[0].box.as_tuple(), atol=1e-5)
    assert found[0].boxes != found[2].boxes
    save_model(model, tmp_path / "transvg")
    assert [one.boxes for one in load_folder(tmp_path / "transvg").ground(*pairs)] == [one.boxes for one in found]
    assert model.ground([], []) == []


def test_it_starts_from_the_encoders_of_a_clip() -> None:
    clip = tiny.create()
    config = {name: CONFIG[name] for name in ("layers", "heads", "hidden_size", "dropout")}
    model = TransVg.from_encoders(clip, config, [], 0)
    images = torch.rand(1, 1, 64, 64)
    torch.testing.assert_close(model.image_encoder.patches(images), clip.image_encoder.patches(images))
    tokens = model.tokenizer.encode(["left pleural effusion."])
    torch.testing.assert_close(
        model.text_encoder(tokens).word_embeddings, clip.text_encoder(tokens).word_embeddings, rtol=0, atol=0
    )
    with pytest.raises(InputError, match="dimension: remove it"):
        TransVg.from_encoders(clip, config | {"dimension": 8}, [], 0)
    with pytest.raises(InputError, match="dimension 32 is not a multiple of heads, 5"):
        create(heads=5)

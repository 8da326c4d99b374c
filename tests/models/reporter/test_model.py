"""The plain report generator: it learns to tell images apart, and its recipe trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rightlung.models.base import TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.models.reporter import PlainReporter
from rightlung.models.reporter.model import NOTHING_WRITTEN
from tests.models.clip.tiny import RESNET, picture

REPORTS = ["large left pleural effusion", "the heart is enlarged"]
CONFIG: dict[str, Any] = {
    "image": {"kind": "resnet", "size": 64, "pyramid_levels": [-2, -1], "options": RESNET},
    "text": {
        "tokenizer": "words", "vocab_size": 60, "min_frequency": 1, "max_length": 12,
        "options": {"n_embd": 32, "n_layer": 1, "n_head": 2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    },
}  # fmt: skip


def create(seed: int = 0) -> PlainReporter:
    return PlainReporter.create(CONFIG, REPORTS, seed).eval()


def batch(*texts: str) -> TrainingBatch:
    images = torch.zeros(len(texts), 1, 64, 64)
    for number, image in enumerate(images):
        image[0, :, 32 * (number % 2) : 32 * (number % 2) + 32] = 1.0
    return TrainingBatch(images, [], targets={"report": {"texts": list(texts)}})


def test_it_learns_to_write_the_report_of_each_image() -> None:
    model, given = create().train(), batch(*REPORTS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        model(given)["report_generation"].backward()
        optimizer.step()
    model.eval()
    pictures = [image[0].numpy() for image in given.images]
    assert [one.text for one in model.report(pictures)] == REPORTS
    assert model.report(pictures[1:])[0].text == REPORTS[1]


def test_images_without_a_report_teach_nothing() -> None:
    model = create()
    with torch.no_grad():
        both, one = model(batch(REPORTS[0], " ")), model(batch(REPORTS[0]))
    torch.testing.assert_close(both, one)
    nothing = model(batch("", ""))["report_generation"]
    nothing.backward()
    assert nothing.item() == 0.0
    assert all(not weight.grad.any() for weight in model.parameters() if weight.grad is not None)


def test_a_report_is_bounded_and_never_empty_and_the_model_comes_back_from_disk(tmp_path: Path) -> None:
    model = create()
    reports = model.report([picture(0), picture(1, (90, 40))])
    assert all(0 < len(one.text.split()) < 12 for one in reports)
    save_model(model, tmp_path / "reporter")
    assert load_folder(tmp_path / "reporter").report([picture(0), picture(1, (90, 40))]) == reports
    assert model.report([]) == []
    end, head = model.tokenizer.end_id, model.language_model.model.lm_head
    assert end is not None
    with torch.no_grad():
        model.language_model.model.transformer.ln_f.bias.copy_(100 * head.weight[end])
    assert model.report([picture(0)])[0].text == NOTHING_WRITTEN

"""A planted shortcut is caught: two small models learn cardiomegaly, one with a marker that gives it away."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from rightlung.audit import audit_tasks
from rightlung.audit.signs import SignEffect, sign_sentences
from rightlung.models.classifier import Classifier
from rightlung.results.estimate import BootstrapSettings, Comparison
from rightlung.studies import open_source

FINDINGS = ("cardiomegaly", "pleural effusion")
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 32], "depths": [1, 1, 1], "layer_type": "basic"}
TESTED = "phantom?count=40&seed=22&size=64&shortcut=marker:cardiomegaly=0"  # the marker is in half of all images


def trained(strength: float) -> Classifier:
    """Train on images in which the marker goes with cardiomegaly as often as the strength says."""
    source = open_source(f"phantom?count=320&seed=21&size=64&shortcut=marker:cardiomegaly={strength}")
    studies = list(source)
    images = torch.from_numpy(np.stack([study.image for study in studies]))[:, None]
    labels = torch.tensor([[float(study.findings[name] == "positive") for name in FINDINGS] for study in studies])
    image = {"kind": "resnet", "size": 64, "pyramid_levels": [-1], "options": RESNET}
    model = Classifier.create({"findings": FINDINGS, "image": image, "pooling": "lse"}, [], seed=0).train()
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(160):
        chosen = torch.randint(len(images), (32,))
        logits = model.pool(model.image_encoder.patches(images[chosen]))
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(logits, labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("strength", [0, 1])
def test_the_page_names_the_shortcut_of_the_model_that_has_one(strength: int, tmp_path: Path) -> None:
    model = trained(strength)
    options = {"settings": BootstrapSettings(resamples=500, flips=999), "cases": 0, "gates": True}
    done = audit_tasks(model, TESTED, tmp_path, ["classification"], name="small", **options)
    page = done.page.read_text(encoding="utf-8")
    signs = json.loads((tmp_path / "audit.json").read_text())["tasks"]["classification"]["gates"]["signs"]
    effects = {(one["condition"], one["finding"]): one["change"]["estimate"] for one in signs}
    assert ("Shortcut: the marker changes the probability of cardiomegaly" in page) == bool(strength)
    assert [one["finding"] for one in signs if one["shortcut"]] == (["cardiomegaly"] * 2 if strength else [])
    if strength:
        assert effects["without-marker", "cardiomegaly"] < -0.2
        assert effects["with-marker", "cardiomegaly"] > 0.2


def test_no_change_with_five_patients_does_not_clear_a_sign() -> None:
    def mark(patients: int) -> str:
        change = Comparison(0.0, -0.01, 0.01, patients=patients)
        return sign_sentences([SignEffect("marker", "without-marker", "nodule", change)])[0].mark

    assert [mark(5), mark(6)] == ["unclear", "yes"]

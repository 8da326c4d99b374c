"""Anatomy-driven detection: what it learns from regions and images, and what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import Box, InputError
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.models.adpd import Adpd
from rightlung.models.adpd.model import image_logits
from rightlung.models.base import TrainingBatch
from rightlung.models.folder import load_folder, save_model
from tests.models.clip.tiny import RESNET, picture

FINDINGS = ("nodule", "pleural effusion")
REGIONS = len(IMAGENOME_REGIONS)
CONFIG: dict[str, Any] = {
    "findings": FINDINGS,
    "image": {"kind": "resnet", "size": 64, "pyramid_levels": [-2], "options": RESNET},
    "dimension": 16,
    "detector": {"layers": 1, "heads": 2, "hidden_size": 16, "dropout": 0.0, "drop_path": 0.0},
}


def create(seed: int = 0, **changed: Any) -> Adpd:
    return Adpd.create(CONFIG | changed, [], seed).eval()


def batch() -> TrainingBatch:
    """Two images; the first has an effusion in its region 3."""
    boxes = torch.zeros(2, REGIONS, 4)
    boxes[:, 3] = torch.tensor([0.5, 0.25, 1.0, 0.75])
    boxes[:, 5] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    findings = torch.full((2, REGIONS, 2), torch.nan)
    findings[:, [3, 5]] = 0.0
    findings[0, 3, 1] = 1.0
    findings[:, 7, 0] = 1.0  # of a region whose box is not known
    regions = {"boxes": boxes, "present": boxes[..., 2] > 0, "findings": findings}
    images = torch.from_numpy(np.stack([picture(0, (64, 64)), picture(1, (64, 64))]))[:, None]
    return TrainingBatch(images, [], targets={
        "regions": regions, "labels": {"values": torch.tensor([[0.0, 1.0], [0.0, torch.nan]])},
    })  # fmt: skip


def test_an_image_has_a_finding_if_one_of_its_regions_has_it() -> None:
    logits = torch.tensor([[[-2.0, 0.5], [1.0, -1.0], [0.0, 3.0]]])
    expected = 1 - (1 - logits.sigmoid()).prod(1)
    torch.testing.assert_close(image_logits(logits).sigmoid(), expected)
    extreme = image_logits(torch.tensor([[[-90.0, 90.0]] * REGIONS]))
    assert torch.isfinite(extreme).all()


def test_losses_count_what_is_known() -> None:
    model, given = create(losses=("region_boxes", "region_findings", "image_findings")), batch()
    with torch.no_grad():
        losses, found = model(given), model.find(given.images)
    probabilities = found.logits.sigmoid()
    absent = [probabilities[0, 3, 0], *probabilities[1, 3], *probabilities[:, 5].flatten()]
    known = [probabilities[0, 3, 1], *(1 - one for one in absent)]
    torch.testing.assert_close(losses["region_findings"], -torch.stack(known).log().mean())
    image = 1 - (1 - probabilities).prod(1)
    expected = -torch.stack([(1 - image[0, 0]).log(), image[0, 1].log(), (1 - image[1, 0]).log()]).mean()
    torch.testing.assert_close(losses["image_findings"], expected)
    l1 = (found.boxes[:, 3] - torch.tensor([0.75, 0.5, 0.5, 0.5])).abs().sum(-1)
    l1 = torch.cat([l1, (found.boxes[:, 5] - torch.tensor([0.25, 0.25, 0.5, 0.5])).abs().sum(-1)])
    assert float(5 * l1.mean()) < float(losses["region_boxes"]) < float(5 * l1.mean() + 4)


@pytest.mark.parametrize("loss", ["region_findings", "image_findings"])
def test_it_learns_where_a_region_is_and_what_it_shows(loss: str) -> None:
    model, given = create(losses=("region_boxes", loss)).train(), batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for _ in range(30):
        optimizer.zero_grad()
        sum(model(given).values()).backward()
        optimizer.step()
    with torch.no_grad():
        found = model.eval().find(given.images)
    np.testing.assert_allclose(found.boxes[0, 3].numpy(), (0.75, 0.5, 0.5, 0.5), atol=0.12)
    scores = model.classify([given.images[0, 0].numpy()])[0]
    assert scores[1] > 0.6 > 0.4 > scores[0]
    if loss == "region_findings":
        boxes = model.detect([given.images[0, 0].numpy()], ["nodule", "effusion"])[0]
        assert boxes[0].label == "effusion"


def test_boxes_are_labelled_regions_and_a_given_box_is_classified(tmp_path: Path) -> None:
    model, images = create(), [picture(0), picture(1, (90, 40))]
    found = model.detect(images, [*FINDINGS, "scoliosis"])
    assert [{one.label for one in own} for own in found] == [set(FINDINGS)] * 2
    assert all(len(own) <= 2 * REGIONS for own in found)
    scores = model.classify(images, ["nodule"], [Box(0, 0, 0.5, 0.5), Box(0.2, 0.2, 1, 1)])
    np.testing.assert_allclose(scores[1:], model.classify(images[1:], ["nodule"], [Box(0.2, 0.2, 1, 1)]), atol=1e-6)
    save_model(model, tmp_path / "adpd")
    assert load_folder(tmp_path / "adpd").detect(images, FINDINGS) == found
    with pytest.raises(InputError, match="scoliosis"):
        model.detect(images, ["scoliosis"])


def test_labels_of_other_findings_are_refused() -> None:
    given = batch()
    with pytest.raises(InputError, match=r"data\.target_options\.regions\.findings must equal"):
        create(findings=("nodule",))(given)

"""The losses as modules (supp. D.2): what of a batch enters them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.lexicon import IMAGENOME_REGIONS, negative_prompts, positive_prompts
from rightlung.models.base import TrainingBatch
from rightlung.models.boxes import to_centres
from rightlung.models.chex.contrastive import global_contrast, region_contrast
from rightlung.models.chex.matching import box_loss, focal_loss, match_boxes, matching_cost
from rightlung.models.chex.step import PARTS_OF_REGION, REGION_NAMES, ChexStep
from tests.models.chex.tiny import TEXTS, create, unit_boxes

FINDINGS = ["pleural effusion", "pneumothorax"]
LOSSES = ["pathology_detection", "anatomy_detection", "anatomy_contrastive", "anatomy_mse", "global_contrastive"]
REGIONS = len(IMAGENOME_REGIONS)


def batch(**regions: Any) -> TrainingBatch:
    """Two images: the first has two effusions, the boxes of the second are not known; texts of the first only."""
    sentences: list[list[list[str]]] = [[[] for _ in range(REGIONS)] for _ in range(2)]
    sentences[1][3] = [TEXTS[0], TEXTS[2]]
    given = {
        "boxes": unit_boxes(2, REGIONS), "present": torch.ones(2, REGIONS, dtype=torch.bool),
        "findings": torch.zeros(2, REGIONS, 2), "sentences": sentences,
    } | regions  # fmt: skip
    boxes = {"boxes": unit_boxes(2), "labels": [["pleural effusion"], ["pleural effusion"]], "image_indices": [0, 0]}
    targets: dict[str, dict[str, Any]] = {
        "boxes": boxes | {"has_boxes": torch.tensor([True, False])},
        "labels": {"values": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}, "regions": given,
    }  # fmt: skip
    images = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    return TrainingBatch(images, TEXTS[:3], image_of_text=[0, 0, 1], targets=targets)


def model(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "findings": FINDINGS,
        "region_findings": FINDINGS,
        "losses": LOSSES,
        "regions_per_batch": 34,
    }
    return create(**(given | changed))


def test_there_are_29_regions_and_5_pairs_of_them() -> None:
    assert [REGION_NAMES[number] for number in range(34) if len(PARTS_OF_REGION[number]) == 1] == [*IMAGENOME_REGIONS]
    assert [REGION_NAMES[number] for number in range(34) if len(PARTS_OF_REGION[number]) == 2] == [
        "lungs", "upper lung zones", "middle lung zones", "lower lung zones", "apical zones",
    ]  # fmt: skip


def test_pathology_detection_matches_boxes_and_scores_where_boxes_are_known() -> None:
    chex, given = model(), batch()
    with torch.no_grad():
        tokens = ChexStep(chex, given).pathology
        found, targets = tokens.found, to_centres(unit_boxes(2))
        dots = [found.box_tokens[0, 0] @ prompts[0] for prompts in (tokens.positive, tokens.negative)]
        certain = torch.stack(dots, dim=-1).softmax(-1)[:, 0]
        cost = matching_cost(found.boxes[0, 0], targets, certain, found.scores[0, 0])
        matched, first = (one[0] for one in match_boxes(cost[None]))
        boxes = box_loss(found.boxes[0, 0], targets[matched]).mean()
        truth = torch.zeros(1, 2, 3)
        truth[0, 0] = first.float()
        focal = focal_loss(found.scores[:1], truth, torch.ones(1, 2, dtype=torch.bool)).mean()
        assert float(chex(given)["pathology_detection"]) == pytest.approx(float(boxes + 3 * focal), rel=1e-5)


def test_labels_teach_the_probability_that_detection_uses() -> None:
    """The focal loss by hand. Both labels of a finding are equal: the right one weighs 3 / 3 and the other one 3 / 1.

    Alpha of the right one is 1 / 4.
    """
    chex, given = model(losses=["pathology_probability"]), batch()
    with torch.no_grad():
        tokens = ChexStep(chex, given).pathology
        unit = [one / one.norm(dim=-1, keepdim=True) for one in (tokens.found.tokens, tokens.positive, tokens.negative)]
        logits = torch.stack([(unit[0] * one).sum(-1) / 0.2 for one in unit[1:]], dim=-1)
        right = logits.softmax(-1)[:, [0, 1], [0, 1]]  # effusion is present, pneumothorax absent
        expected = (0.25 * (1 - right) ** 2 * -right.log()).mean()
        assert float(chex(given)["pathology_probability"]) == pytest.approx(float(expected), rel=1e-4)


def test_labels_teach_the_best_box_score_of_images_without_boxes_only() -> None:
    """Of the second image; one label of each finding: alpha is 1 / 3 for the right one (weights 2 / 2 and 2 / 1)."""
    chex, given = model(losses=["pathology_score"]), batch()
    with torch.no_grad():
        best = ChexStep(chex, given).pathology.found.scores[1].max(-1).values
        right = torch.stack([best[0], 1 - best[1]])
        expected = (1 / 3 * (1 - right) ** 2 * -right.log()).mean()
        assert float(chex(given)["pathology_score"]) == pytest.approx(float(expected), rel=1e-4)
        given.targets["boxes"]["has_boxes"][:] = True
        assert float(chex(given)["pathology_score"]) == 0


def test_labels_move_boxes_unless_that_is_switched_off() -> None:
    moved = []
    for switch in (True, False):
        chex, given = model(losses=["pathology_probability"], boxes_from_labels=switch), batch()
        given.targets["boxes"]["has_boxes"][:] = False
        chex(given)["pathology_probability"].backward()
        gradients = [weight.grad for weight in chex.detector.box_head.parameters()]
        moved.append(any(gradient is not None and bool(gradient.any()) for gradient in gradients))
    assert moved == [True, False]


def test_frozen_prompts_are_embedded_once_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    chex = model(trained=["detector"]).train()
    embedded: list[str] = []
    embed = chex._embed

    def embed_and_note(texts: Sequence[str]) -> Any:
        embedded.extend(texts)
        return embed(texts)

    monkeypatch.setattr(chex, "_embed", embed_and_note)
    first, second = chex.prompt_embeddings(TEXTS[:2]), chex.prompt_embeddings([TEXTS[2], TEXTS[0]])
    assert embedded == TEXTS[:3]
    torch.testing.assert_close(second[1], first[0])
    torch.testing.assert_close(second[0], chex.eval().prompt_embeddings([TEXTS[2]])[0])


def test_anatomy_detection_is_the_mean_over_the_regions_that_are_present() -> None:
    present = torch.zeros(2, REGIONS, dtype=torch.bool)
    present[0, [0, 4]] = present[1, [0, 8]] = True  # the first lacks the left lung, so it has no "lungs"
    chex, given = model(), batch(present=present)
    with torch.no_grad():
        step = ChexStep(chex, given)
        predicted, boxes = step.anatomy.found.boxes, to_centres(unit_boxes(2, REGIONS))
        terms: list[Tensor] = [box_loss(predicted[n, a], boxes[n, a]) for n, a in ((0, 0), (0, 4), (1, 0), (1, 8))]
        lungs = REGION_NAMES.index("lungs")
        zero = torch.zeros(3)
        matched, _ = match_boxes(matching_cost(predicted[1, lungs], boxes[1, [0, 8]], zero, zero)[None])
        terms.append(box_loss(predicted[1, lungs], boxes[1, [0, 8]][matched[0]]))
        assert float(chex(given)["anatomy_detection"]) == pytest.approx(float(torch.cat(terms).mean()), rel=1e-5)


def test_labels_belong_to_their_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair has what one of its parts has; what the other part lacks is not known of the pair."""
    monkeypatch.setattr(ChexStep, "pick", lambda self, wordings: wordings[0])
    findings = torch.full((2, REGIONS, 2), torch.nan)
    findings[0, 3] = torch.tensor([1.0, 0.0])  # the right lower lung zone
    labels = torch.full((2, 34, 2), torch.nan)
    labels[0, 3] = torch.tensor([1.0, 0.0])
    labels[0, REGION_NAMES.index("lower lung zones"), 0] = 1.0
    chex, given = model(), batch(findings=findings)
    with torch.no_grad():
        wordings = [[of(name)[0] for name in FINDINGS] for of in (positive_prompts, negative_prompts)]
        positive, negative = (chex.prompt_embeddings(texts) for texts in wordings)
        features = ChexStep(chex, given).anatomy_features
        expected = region_contrast(features, positive, negative, labels, torch.ones(2, dtype=torch.bool))
        assert float(chex(given)["anatomy_contrastive"]) == pytest.approx(float(expected), rel=1e-5)


def test_sentences_of_a_region_are_joined_and_asked_by_name_or_by_box() -> None:
    chex = model()
    with torch.no_grad():
        step = ChexStep(chex, batch())
        features, texts = step.region_sentences
        assert texts == [f"{TEXTS[0]} {TEXTS[2]}"]
        torch.testing.assert_close(features, step.anatomy_features[1, 3:4])
        expected = (step.anatomy_features[1, 3] - chex.prompt_embeddings([f"{TEXTS[0]} {TEXTS[2]}"])[0]).square().sum()
        assert float(chex(batch())["anatomy_mse"]) == pytest.approx(float(expected), rel=1e-5)
        by_box = model(box_queries=1.0)
        step = ChexStep(by_box, batch())
        at_boxes = by_box.detector.at_boxes(to_centres(unit_boxes(2, REGIONS)), step.images.patch_embeddings)
    torch.testing.assert_close(step.anatomy.features[:, :REGIONS], at_boxes)
    assert not step.anatomy.by_text.any()
    assert step.anatomy.asked.sum().item() == 2 * REGIONS  # pairs have no single box


def test_images_without_texts_are_no_part_of_the_global_loss() -> None:
    chex, given = model(), batch()
    with torch.no_grad():
        images = chex.image_encoder(given.images).patch_embeddings.mean((2, 3))
        texts = chex.prompt_embeddings(TEXTS[:3])
        means = torch.stack([(texts[0] + texts[1]) / 2, texts[2]])
        expected = float(global_contrast(images, means, torch.eye(2, dtype=torch.bool)))
        assert float(chex(given)["global_contrastive"]) == pytest.approx(expected, rel=1e-5)
        of_one = replace(given, texts=TEXTS[:2], image_of_text=[0, 0])
        assert float(chex(of_one)["global_contrastive"]) == pytest.approx(0.0, abs=1e-6)


def test_labels_of_other_findings_are_refused() -> None:
    given = batch()
    targets = {**given.targets, "labels": {"values": torch.zeros(2, 3)}}
    with pytest.raises(InputError, match=r"must equal model\.config\.findings \(pleural effusion, .* got 3 labels"):
        model()(replace(given, targets=targets))
    with pytest.raises(InputError, match=r"must name the same findings; got 2 and 5"):
        model()(batch(findings=torch.zeros(2, REGIONS, 5)))

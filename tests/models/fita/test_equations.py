"""Equations 1 to 6 of FITA against hand calculations in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.models.fita.losses import (
    alignment_loss,
    classification_loss,
    generation_loss,
    report_labels,
    triplet_loss,
)
from rightlung.training.recipe_file import read_stages
from tests.models.fita.tiny import CONFIG, REPORTS, batch, create, pictures

RANDOM = np.random.default_rng(3)


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def softmax(values: Any) -> Any:
    shifted = np.exp(values - values.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def linear(module: torch.nn.Linear, values: Any) -> Any:
    return values @ module.weight.detach().double().numpy().T + module.bias.detach().double().numpy()


def layer_norm(module: torch.nn.LayerNorm, values: Any) -> Any:
    centred = values - values.mean(-1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return unit * module.weight.detach().double().numpy() + module.bias.detach().double().numpy()


def attended(module: Any, queries: Any, memory: Any, bias: Any) -> Any:
    """Multi-head attention of one text: queries (q, d), memory (m, d), bias (q, m)."""
    split = [linear(part, given) for part, given in
             ((module.queries, queries), (module.keys, memory), (module.values, memory))]  # fmt: skip
    width = split[0].shape[1] // module.heads
    found = []
    for head in range(module.heads):
        query, key, value = (part[:, head * width : (head + 1) * width] for part in split)
        found.append(softmax(query @ key.T / np.sqrt(width) + bias) @ value)
    return linear(module.output, np.concatenate(found, axis=1))


def test_equation_1_is_the_cross_entropy_of_each_next_token_with_the_end() -> None:
    logits, ids = RANDOM.normal(size=(2, 4, 5)), np.array([[2, 4, 1, 3], [2, 3, 0, 0]])
    learned = np.array([[True, True, False, True], [True, True, False, False]])
    terms = [np.log(softmax(logits[n, t]))[ids[n, t + 1]] for n, t in ((0, 0), (0, 2), (1, 0))]
    found = generation_loss(torch.tensor(logits), torch.tensor(ids), torch.tensor(learned))
    assert found.item() == pytest.approx(-np.mean(terms), rel=1e-6)


def test_equation_2_attends_to_patches_symptoms_and_the_words_so_far() -> None:
    model: Any = create()
    decoder = model.decoder
    with torch.no_grad():
        encoded = model.encode(pictures(1))
        ids = torch.tensor([[2, 6, 9, 5]])
        words = model.decoder.refined(model.text_refiner(ids, torch.ones_like(ids, dtype=torch.bool)))
        memory = model.memory(encoded)
        logits = decoder(ids, memory, words)[0]
        states = decoder._distilling(ids, memory, words, None, 0, True)[0][0].double().numpy()
    parts = [encoded.patches[0] + decoder.types[0], encoded.symptoms[0] + decoder.types[1], words[0] + decoder.types[2]]
    sources = torch.cat(parts).detach().double().numpy()
    assert len(sources) == 16 + 13 + 4
    bias = np.zeros((4, len(sources)))
    bias[:, -4:][np.triu_indices(4, 1)] = -np.inf
    distilled = states + attended(decoder.distiller, states, sources, bias)
    expected = linear(decoder.head, layer_norm(decoder.distilled, distilled))
    np.testing.assert_allclose(logits.numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(logits.softmax(-1).numpy(), softmax(expected), atol=1e-4)


def test_image_refiner_is_attention_with_the_logarithm_of_the_saliency_as_its_bias() -> None:
    refiner: Any = create().image_refiner
    symptoms, patches = RANDOM.normal(size=(3, 16)), RANDOM.normal(size=(5, 16))
    saliency = RANDOM.random((3, 5)) ** 4
    saliency /= saliency.sum(1, keepdims=True)
    with torch.no_grad():
        refiner.strength.fill_(0.7)
        found = refiner(*(torch.tensor(one[None], dtype=torch.float32) for one in (symptoms, patches, saliency)))
    bias = 0.7 * np.log(saliency + 1e-4)
    expected = layer_norm(refiner.norm, symptoms + attended(refiner.attention, symptoms, patches, bias))
    np.testing.assert_allclose(found[0].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("outputs", [14, 27])
def test_equation_3_is_the_mean_over_images_and_14_observations(outputs: int) -> None:
    logits, labels = RANDOM.normal(size=(3, outputs)), RANDOM.integers(0, 3, size=(3, 14))
    labels[:, 0] %= 2
    total = 0.0
    for image in range(3):
        for place in range(14):
            present, wanted = sigmoid(logits[image, place]), float(labels[image, place] == 1)
            total -= wanted * np.log(present) + (1 - wanted) * np.log(1 - present)
        for place in range(14, outputs):  # "No Finding", the first, is never uncertain
            doubt, wanted = sigmoid(logits[image, place]), float(labels[image, place - 13] == 2)
            total -= wanted * np.log(doubt) + (1 - wanted) * np.log(1 - doubt)
    found = classification_loss(torch.tensor(logits), torch.tensor(labels))
    assert found.item() == pytest.approx(total / (3 * 14), rel=1e-6)


def test_labels_are_those_of_the_report() -> None:
    (labels,) = report_labels(["Large left effusion. No pneumothorax. Possible pneumonia."]).tolist()
    said = {name: label for name, label in zip(OBSERVATIONS, labels, strict=True) if label}
    assert (said["Pleural Effusion"], said["Pneumonia"]) == (1, 2)
    assert "Pneumothorax" not in said
    assert "No Finding" not in said


def test_equation_4_subtracts_the_distance_of_the_negative() -> None:
    anchors, positives, negatives = RANDOM.normal(size=(3, 6, 4))
    near, far = (((anchors - other) ** 2).sum(1) for other in (positives, negatives))
    given = torch.tensor(np.stack([anchors, positives, negatives]))
    found = triplet_loss(given[0], given[1], given[2], 0.5)
    assert found.item() == pytest.approx(np.maximum(near - far + 0.5, 0).mean(), rel=1e-6)
    zeros, away = torch.zeros(1, 4), torch.full((1, 4), 10.0)
    assert triplet_loss(zeros, zeros, away, 0.5).item() == 0  # with the plus sign of the paper it would be 400.5
    assert triplet_loss(zeros, away, zeros, 0.5).item() == pytest.approx(400.5)


def test_equation_5_ignores_images_with_an_equal_report() -> None:
    images, texts = RANDOM.normal(size=(2, 4, 6))
    reports = ["a", "b", "a", "c"]
    cosine = (images / np.linalg.norm(images, axis=1, keepdims=True)) @ (
        texts / np.linalg.norm(texts, axis=1, keepdims=True)
    ).T
    total = 0.0
    for logits in (cosine / 0.2, cosine.T / 0.2):
        for row in range(4):
            kept = [column for column in range(4) if column == row or reports[column] != reports[row]]
            total -= logits[row, row] - np.log(np.exp(logits[row, kept]).sum())
    found = alignment_loss(torch.tensor(images), torch.tensor(texts), batch(*reports), reports, 0.2, None)
    assert found.item() == pytest.approx(total / (2 * 4), rel=1e-5)


def test_equation_5_in_two_processes_is_that_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = (torch.tensor(RANDOM.normal(size=(4, 6))) for _ in range(2))
    reports, given = ["a", "b", "a", "c"], batch(*REPORTS[:2])
    seen: list[list[torch.Tensor]] = [[], []]
    losses = []
    for turn in range(2):  # first note what each process gathers, then give it all of that
        for rank in range(2):
            monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
            calls = iter(range(100))

            def gather(own: torch.Tensor, rank: int = rank, turn: int = turn, calls: Any = calls) -> torch.Tensor:
                if turn == 0:
                    seen[rank].append(own)
                    return torch.cat([own, own])
                number = next(calls)
                return torch.cat([seen[0][number], seen[1][number]])

            rows = slice(2 * rank, 2 * rank + 2)
            found = alignment_loss(images[rows], texts[rows], given, reports[rows], 0.2, gather)
            losses += [found.item()] if turn else []
    whole = alignment_loss(images, texts, batch(*REPORTS[:4]), reports, 0.2, None)
    assert np.mean(losses) == pytest.approx(whole.item(), rel=1e-6)
    assert losses[0] != losses[1]


def test_equation_6_has_the_weights_of_the_paper() -> None:
    for name in ("fita", "fita-small"):
        weights = read_stages(name)["report"].losses
        assert weights == {"report_generation": 1, "image_classification": 1, "image_text_contrastive": 0.1}
    terms = create(losses=list(weights))(batch(*REPORTS))
    assert list(terms) == list(weights)
    assert all(term.item() > 0 for term in terms.values())
    assert CONFIG["layers"] == 3

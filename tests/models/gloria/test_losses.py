"""Losses over pairs with several texts an image, each against a plain loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.models.base import TrainingBatch
from rightlung.models.contrastive import Pairs, contrastive_loss, find_pairs
from rightlung.models.gloria import Gloria
from rightlung.models.gloria.losses.base import hard_negatives as find_hard_negatives
from rightlung.models.gloria.losses.contrastive import sentence_similarity
from rightlung.models.gloria.losses.hard_negatives import abstention_loss, overlap_loss
from tests.models.gloria.plain import looped_similarity
from tests.models.gloria.test_model import create, picture

TEXTS = [
    "left pleural effusion.", "no pneumothorax is seen.", "right lower lobe opacity", "the heart is enlarged.",
    "no pneumothorax is seen.", "right pleural effusion.", "left and right opacity", "left pleural effusion.",
]  # fmt: skip
OF = [0, 0, 1, 1, 2, 2, 3, 3]
EXCHANGED: list[str | None] = [
    "right pleural effusion.", None, "left lower lobe opacity", None, None, "left pleural effusion.", None,
    "right pleural effusion.",
]  # fmt: skip
SIDED = [number for number, text in enumerate(EXCHANGED) if text is not None]


def looped_loss(
    table: Tensor,
    of: Sequence[int],
    texts: Sequence[str] | None = None,
    hard_negatives: Sequence[float | None] | None = None,
) -> float:
    """The loss of a table of logits (images, texts), one text and one term at a time.

    Of an image's texts one is asked about, and the others are passed over; so is the very same text of another image
    where ``texts`` are given.
    """
    total = 0.0
    for text, image in enumerate(of):
        wrong = [
            float(table[image, other])
            for other in range(len(of))
            if of[other] != image and not (texts and texts[other] == texts[text])
        ]
        if hard_negatives is not None and (logit := hard_negatives[text]) is not None:
            wrong.append(logit)
        right = float(table[image, text])
        total += math.log(sum(math.exp(value) for value in [right, *wrong])) - right
        images = {
            other for other in range(len(table))
            if other != image and not (texts and texts[text] in [texts[n] for n in range(len(of)) if of[n] == other])
        }  # fmt: skip
        shares = [right, *(float(table[other, text]) for other in images)]
        total += math.log(sum(math.exp(value) for value in shares)) - right
    return total / len(of)


def pairs_of(of: Sequence[int], texts: Sequence[str] | None = None) -> Pairs:
    numbers = torch.tensor(of)
    same = None
    if texts is not None:
        same = torch.tensor([[one == other for other in texts] for one in texts]) & ~torch.eye(
            len(of), dtype=torch.bool
        )
    return Pairs(numbers, numbers, 0, 0, same)


def table(seed: int = 0, images: int = 4, texts: int = 8) -> Tensor:
    return 3 * torch.randn(images, texts, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("of", [OF, [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 1, 1, 1, 2, 3, 0]])  # the last: one text twice
@pytest.mark.parametrize("ignores", [False, True])
def test_the_loss_with_several_texts_an_image_equals_a_plain_loop(of: list[int], ignores: bool) -> None:
    texts = TEXTS if ignores else None
    loss = contrastive_loss(table(), table().T, pairs_of(of, texts))
    assert float(loss) == pytest.approx(looped_loss(table(), of, texts), abs=1e-5)


def test_with_one_text_an_image_it_is_the_papers_sum_of_both_cross_entropies() -> None:
    logits = table(1, 5, 5)
    loss = contrastive_loss(logits, logits.T, pairs_of(range(5)))
    both = sum(-torch.log_softmax(way, dim=1).diagonal().mean() for way in (logits, logits.T))
    assert float(loss) == pytest.approx(float(both), abs=1e-5)


def test_a_hard_negative_is_one_more_negative_of_its_image() -> None:
    hard_negatives = [0.5, None, 2.0, None, None, -1.0, None, 3.0]
    logits = torch.tensor([-math.inf if value is None else value for value in hard_negatives], requires_grad=True)
    given = table().requires_grad_()
    loss = contrastive_loss(given, given.T, pairs_of(OF, TEXTS), logits)
    assert loss.item() == pytest.approx(looped_loss(table(), OF, TEXTS, hard_negatives), abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    assert logits.grad is not None
    assert given.grad.isfinite().all()
    assert [bool(value > 0) for value in logits.grad] == [value is not None for value in hard_negatives]
    none = contrastive_loss(table(), table().T, pairs_of(OF, TEXTS), torch.full((8,), -math.inf))
    assert float(none) == pytest.approx(looped_loss(table(), OF, TEXTS), abs=1e-5)


def test_the_parts_of_two_processes_have_the_mean_of_the_whole() -> None:
    of = torch.tensor(OF)
    same = pairs_of(OF, TEXTS).duplicates
    assert same is not None
    hard_negatives = torch.tensor([0.5, -math.inf, 2.0, 1.0, -math.inf, -1.0, 0.0, 3.0])
    parts = [
        contrastive_loss(
            table()[2 * rank : 2 * rank + 2],
            table().T[4 * rank : 4 * rank + 4],
            Pairs(of[4 * rank : 4 * rank + 4], of, 4 * rank, 2 * rank, same[4 * rank : 4 * rank + 4]),
            hard_negatives[4 * rank : 4 * rank + 4],
        )
        for rank in (0, 1)
    ]
    whole = contrastive_loss(table(), table().T, pairs_of(OF, TEXTS), hard_negatives)
    assert float(sum(parts)) / 2 == pytest.approx(float(whole), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 4.0, 60.0])
def test_a_sentence_is_as_similar_as_its_best_region_softly(temperature: float) -> None:
    generator = torch.Generator().manual_seed(2)
    sentences, keys = torch.randn(3, 5, generator=generator), torch.randn(4, 6, 5, generator=generator)
    found = sentence_similarity(sentences, keys, temperature)
    for text in range(3):
        for image in range(4):
            scores = [sum(float(a) * float(b) for a, b in zip(sentences[text], region, strict=True))
                      for region in keys[image]]  # fmt: skip
            mean = sum(math.exp(temperature * (score - max(scores))) for score in scores) / 6
            assert float(found[text, image]) == pytest.approx(math.log(mean) / temperature + max(scores), abs=1e-4)
            assert max(scores) - math.log(6) / temperature - 1e-4 <= float(found[text, image]) <= max(scores) + 1e-4


SENTENCE: dict[str, Any] = {
    "attention": {"softmax_over_words": False, "similarity": "cosine", "temperature": 8.0, "learn_temperature": True,
                  "no_attention_token": True},
    "heatmap_from": "sentence", "losses": ["local", "global", "sentence"], "duplicate_texts": "ignore",
}  # fmt: skip


def batch(texts: Sequence[str] = TEXTS, of: Sequence[int] = OF) -> TrainingBatch:
    images = torch.rand(4, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    return TrainingBatch(images, list(texts), ids=list("abcd"), image_of_text=list(of))


@torch.no_grad()
def tables(model: Gloria, given: TrainingBatch, texts: Sequence[str]) -> dict[str, Tensor]:
    """Logits (images, texts) of every loss by plain loops, one pair at a time."""
    images, read = model.image_encoder(given.images), model.embed_texts(texts)
    assert model.no_attention_token is not None
    cells = torch.cat(
        [model.no_attention_token.expand(4, 1, -1), images.patch_embeddings.flatten(2).transpose(1, 2)], dim=1
    )
    keys = torch.nn.functional.normalize(cells, dim=-1)
    words = torch.nn.functional.normalize(read.word_embeddings, dim=-1)
    sentences = torch.nn.functional.normalize(read.global_embedding, dim=-1)
    whole = torch.stack(
        [torch.cosine_similarity(image[None], read.global_embedding) for image in images.global_embedding]
    )
    soft = torch.tensor([  # a sentence fits places; that it fits nothing is no likeness
        [float((8.0 * keys[image, 1:] @ sentence).exp().mean().log()) / 8.0 for sentence in sentences]
        for image in range(4)
    ])  # fmt: skip
    return {
        "local": 10 * looped_similarity(words, read.attention_mask, keys, False, 8.0, 5.0).T,
        "global": 10 * whole,
        "sentence": 10 * soft,
    }


@pytest.mark.parametrize("hard_negatives", [False, True])
def test_the_models_losses_with_several_texts_an_image_equal_plain_loops(hard_negatives: bool) -> None:
    model = create(**SENTENCE, contrastive_hard_negatives=hard_negatives)
    losses = model(batch())
    logits, others = tables(model, batch(), TEXTS), tables(model, batch(), [text or "none" for text in EXCHANGED])
    for name in ("local", "global", "sentence"):
        wrong = [float(others[name][image, number]) if EXCHANGED[number] else None for number, image in enumerate(OF)]
        expected = looped_loss(logits[name], OF, TEXTS, wrong if hard_negatives else None)
        assert losses[name].item() == pytest.approx(expected, abs=2e-4), name
    sum(losses.values()).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())
    assert model.log_temperature is not None
    assert model.log_temperature.grad is not None


@torch.no_grad()
def test_the_order_of_an_images_texts_does_not_matter() -> None:
    model = create(**SENTENCE, contrastive_hard_negatives=True)
    order = [5, 0, 7, 2, 4, 1, 6, 3]
    losses = [model(given) for given in (batch(), batch([TEXTS[n] for n in order], [OF[n] for n in order]))]
    for name in losses[0]:
        assert float(losses[0][name]) == pytest.approx(float(losses[1][name]), abs=1e-4)


def test_only_a_text_that_names_one_side_has_a_hard_negative() -> None:
    texts = ["Left effusion.", "Opacity of both lungs, left more than right.", "No pneumothorax.", "Lingular opacity.",
             "RLL nodule.", "Left effusion.", "Right effusion."]  # fmt: skip
    assert find_hard_negatives(batch(texts, [0, 0, 1, 1, 2, 3, 3])) == {0: "Right effusion.", 4: "LLL nodule."}


@torch.no_grad()
def test_without_hard_negatives_the_losses_stay_the_same() -> None:
    texts = ["no pneumothorax", "the heart is enlarged", "clear lungs", "left and right opacity"]
    given = batch(texts, [0, 1, 2, 3])
    plain, added = (
        create(**SENTENCE, contrastive_hard_negatives=hard_negatives)(given) for hard_negatives in (False, True)
    )
    assert {name: float(loss) for name, loss in plain.items()} == pytest.approx(
        {name: float(loss) for name, loss in added.items()}, abs=1e-6
    )


def sides(**changed: Any) -> Gloria:
    return create(**{**SENTENCE, "losses": ["hard_negative_ranking"], **changed})


def learned(model: Gloria, name: str, steps: int) -> list[float]:
    """Learn from a batch by heart, and return the loss of every step."""
    torch.manual_seed(0)  # of dropout
    optimiser, history = torch.optim.AdamW(model.train().parameters(), lr=3e-3), []
    for _ in range(steps):
        loss = model(batch())[name]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.append(loss.item())
    return history


def test_the_loss_of_sides_equals_a_plain_loop() -> None:
    model = sides()
    found = model(batch())["hard_negative_ranking"]
    own = tables(model, batch(), TEXTS)["sentence"]
    other = tables(model, batch(), [text or "none" for text in EXCHANGED])["sentence"]
    total = 0.0
    for number, image in enumerate(OF):
        if EXCHANGED[number] is not None:  # right and wrong text of one image, a softmax over these two
            right, wrong = float(own[image, number]), float(other[image, number])
            total -= math.log(math.exp(right) / (math.exp(right) + math.exp(wrong)))
    assert found.item() == pytest.approx(total / len(OF), abs=2e-5)
    found.backward()
    assert model.log_temperature is not None
    assert model.log_temperature.grad is not None
    assert float(model.log_temperature.grad) != 0


def test_a_text_that_its_image_has_with_either_side_is_not_compared() -> None:
    """The image of both effusions says nothing about sides, so only the other one counts."""
    texts = ["left pleural effusion.", "right pleural effusion.", "right lower lobe opacity"]
    found, alone = (
        sides()(batch(some, of))["hard_negative_ranking"].item() for some, of in ((texts, [0, 0, 1]), (texts[2:], [1]))
    )  # fmt: skip
    assert found == pytest.approx(alone / 3, abs=1e-6)


def test_the_loss_of_sides_has_no_gradient_where_no_text_names_one() -> None:
    model = sides()
    loss = model(batch(["no pneumothorax is seen.", "the heart is enlarged.", "left and right opacity"], [0, 1, 2]))
    assert loss["hard_negative_ranking"].item() == 0
    loss["hard_negative_ranking"].backward()
    assert all(weight.grad is None or not weight.grad.any() for weight in model.parameters())


def test_the_images_of_texts_without_a_side_are_not_learned_from_by_sides() -> None:
    given = batch(TEXTS[:4], [0, 1, 2, 3])
    given.images.requires_grad_()
    sides()(given)["hard_negative_ranking"].backward()
    assert given.images.grad is not None
    assert [bool(image.any()) for image in given.images.grad] == [True, False, True, False]


def test_learning_sides_makes_the_right_side_fit_better() -> None:
    history = learned(sides(), "hard_negative_ranking", 15)
    assert history[0] == pytest.approx(math.log(2) * 4 / 8, rel=0.2)  # four of eight texts, nothing known yet
    assert history[-1] < 0.5 * history[0]


def test_the_loss_of_sides_of_two_processes_has_the_mean_of_the_whole() -> None:
    """Each has its own images and as many texts; those that name a side lie with the first alone."""
    model, images, texts = sides(), batch().images, [TEXTS[number] for number in (0, 2, 5, 3, 1, 3, 4, 6)]
    with torch.no_grad():
        whole = model(batch(texts))["hard_negative_ranking"]
        parts = [
            model(
                TrainingBatch(
                    images[2 * rank : 2 * rank + 2], texts[4 * rank : 4 * rank + 4], image_of_text=[0, 0, 1, 1]
                )
            )
            for rank in (0, 1)
        ]
    assert float(parts[1]["hard_negative_ranking"]) == 0 < float(parts[0]["hard_negative_ranking"])
    assert float(sum(part["hard_negative_ranking"] for part in parts)) / 2 == pytest.approx(float(whole), abs=1e-6)


def test_a_hard_negative_should_attend_less_than_uniformly_where_its_text_attends() -> None:
    own = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]]).log()
    other = torch.tensor([[0.4, 0.2, 0.2, 0.2], [0.97, 0.01, 0.01, 0.01]]).log().requires_grad_()
    found = overlap_loss(own, other, margin=0.5)
    expected = []
    for one, two in zip(own.exp().tolist(), other.exp().tolist(), strict=True):
        excess = sum(share * math.log(4 * attended) for share, attended in zip(one, two, strict=True))
        expected.append(math.log(1 + math.exp(excess + 0.5)))
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert other.grad is not None
    assert other.grad[0, 0] > 0  # less there
    assert (other.grad[0, 1:] < 0).all()  # and more elsewhere


@pytest.mark.parametrize("heatmap_from", ["sentence", "words"])
def test_the_loss_of_attending_apart_is_that_of_the_maps_and_learns_to_move_them(heatmap_from: str) -> None:
    model = sides(losses=["hard_negative_overlap"], heatmap_from=heatmap_from)
    given = batch()
    with torch.no_grad():
        keys = model.attention_keys(model.image_encoder(given.images).patch_embeddings)
        images = [OF[number] for number in SIDED]
        asked, exchanged = (
            model.log_attention(model.embed_texts(texts), keys, images)[
                :, 0 if model.no_attention_token is None else 1 :
            ]
            for texts in ([TEXTS[number] for number in SIDED], [str(EXCHANGED[number]) for number in SIDED])
        )
        expected = float(overlap_loss(asked, exchanged).sum()) / len(OF)
        assert float(model(given)["hard_negative_overlap"]) == pytest.approx(expected, abs=1e-5)
    history = learned(model, "hard_negative_overlap", 40)
    assert history[-1] < 0.8 * history[0]


def test_a_text_should_attend_to_patches_and_its_hard_negative_to_the_no_attention_token() -> None:
    own, other = torch.tensor([[0.2, 0.5, 0.3]]).log(), torch.tensor([[0.1, 0.6, 0.3]]).log()
    assert abstention_loss(own, other).tolist() == pytest.approx([-math.log(0.8) - math.log(0.1)], abs=1e-6)


@pytest.mark.parametrize("heatmap_from", ["sentence", "words"])
def test_a_model_learns_to_abstain_from_the_wrong_side(heatmap_from: str) -> None:
    model = sides(losses=["hard_negative_abstention"], heatmap_from=heatmap_from)
    images = [batch().images[OF[number], 0].numpy() for number in SIDED]

    def abstentions(texts: list[str]) -> list[float]:
        return [answer.abstention for answer in model.ground(images, texts)]

    asked, exchanged = [TEXTS[number] for number in SIDED], [str(EXCHANGED[number]) for number in SIDED]
    paid = [
        -math.log(1 - own) - math.log(other)
        for own, other in zip(abstentions(asked), abstentions(exchanged), strict=True)
    ]
    with torch.no_grad():
        assert float(model.eval()(batch())["hard_negative_abstention"]) == pytest.approx(sum(paid) / len(OF), abs=1e-4)
    learned(model, "hard_negative_abstention", 40)
    assert min(abstentions(exchanged)) > max(abstentions(asked))


def test_abstaining_needs_something_to_abstain_with() -> None:
    with pytest.raises(InputError, match=r"'hard_negative_abstention' needs attention\.no_attention_token: true"):
        sides(losses=["hard_negative_abstention"], attention={"no_attention_token": False})


def test_pairs_number_the_texts_of_a_batch_as_they_come_where_nothing_is_said() -> None:
    given = TrainingBatch(torch.zeros(3, 1, 8, 8), ["a", "b", "a"])
    pairs = find_pairs(given, None, ignore_duplicates=True)
    assert pairs.image_indices.tolist() == pairs.all_image_indices.tolist() == [0, 1, 2]
    assert pairs.duplicates is not None
    assert pairs.duplicates.nonzero().tolist() == [[0, 2], [2, 0]]
    assert find_pairs(given, None, ignore_duplicates=False).duplicates is None


def test_the_local_similarity_of_a_sentence_map_is_the_soft_maximum() -> None:
    model = create(**SENTENCE)
    images, texts = [picture(seed, (64, 64)) for seed in range(2)], TEXTS[:3]
    found = model.similarity(images, texts).local_similarity
    assert found is not None
    with torch.no_grad():
        keys = model.attention_keys(model.image_encoder(torch.from_numpy(np.stack(images))[:, None]).patch_embeddings)
        sentences = torch.nn.functional.normalize(model.embed_texts(texts).global_embedding, dim=-1)
    for image in range(2):
        for text in range(3):
            scores = keys[image, 1:] @ sentences[text]
            assert found[image, text] == pytest.approx(float((8 * scores).exp().mean().log()) / 8, abs=1e-5)
    assert np.abs(found).max() <= 1.0 + 1e-5

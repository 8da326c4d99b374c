from __future__ import annotations

import pytest
import torch

from rightlung.models.contrastive import Pairs, contrastive_loss
from rightlung.models.gloria import attention
from rightlung.models.gloria.attention import attend, local_similarity
from tests.models.gloria.plain import looped_similarity


def given(
    texts: int = 5, words: int = 7, images: int = 4, patches: int = 9, width: int = 6
) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, words + 1, (texts,), generator=generator)
    attention_mask = torch.arange(words)[None] < lengths[:, None]
    vectors = torch.randn(texts, words, width, generator=generator) * attention_mask[..., None]
    return vectors, attention_mask, torch.randn(images, patches, width, generator=generator)


@pytest.mark.parametrize("softmax_over_words", [False, True])
@pytest.mark.parametrize("at_once", [1 << 21, 150, 1])
def test_the_similarity_and_its_gradients_equal_a_plain_loop(
    softmax_over_words: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention.SCORES_PER_BLOCK, "cpu", at_once)
    words, attention_mask, patches = given()
    found: list[torch.Tensor | None] = []
    expected: list[torch.Tensor | None] = []
    for results, compute in ((found, "ours"), (expected, "loop")):
        mine = [words.clone().requires_grad_(), patches.clone().requires_grad_(), torch.tensor(1.7, requires_grad=True)]
        if compute == "ours":
            parameters = softmax_over_words, mine[2]
            similarity = local_similarity(mine[0], attention_mask, mine[1], *parameters, 5.0)
        else:
            similarity = looped_similarity(mine[0], attention_mask, mine[1], softmax_over_words, mine[2], 5.0)
        loss = (similarity * torch.linspace(-1, 1, similarity.numel()).reshape(similarity.shape)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        results += [similarity.detach(), *(part.grad for part in mine)]
    for ours, loop in zip(found, expected, strict=True):
        assert ours is not None
        assert loop is not None
        torch.testing.assert_close(ours, loop, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("softmax_over_words", [False, True])
def test_the_local_loss_equals_a_plain_loop(softmax_over_words: bool) -> None:
    words, attention_mask, patches = given(texts=5, images=5)
    logits = 10 * local_similarity(words, attention_mask, patches, softmax_over_words, 4.0)
    own = torch.arange(5)
    ours = contrastive_loss(logits.T, logits, Pairs(own, own, 0, 0, None))
    plain = 10 * looped_similarity(words, attention_mask, patches, softmax_over_words, 4.0, 5.0)
    expected = torch.zeros(())
    for row in range(5):  # minus the logarithm of the right one's share, both ways
        expected = expected - torch.log(torch.exp(plain[row, row]) / torch.exp(plain[row]).sum()) / 5
        expected = expected - torch.log(torch.exp(plain[row, row]) / torch.exp(plain[:, row]).sum()) / 5
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_two_softmaxes_bound_how_much_more_one_region_is_attended_than_another() -> None:
    words, attention_mask, patches = given()
    scores = 100 * torch.einsum("twd,ird->twir", words, patches)
    twice = attend(scores, attention_mask, True, 4.0)[attention_mask]
    once = attend(scores, attention_mask, False, 4.0)[attention_mask]
    assert float((twice.amax(-1) / twice.amin(-1)).max()) <= torch.e**4 * (1 + 1e-5)
    assert float((once.amax(-1) / once.amin(-1).clamp_min(1e-30)).max()) > 1e6


def test_padding_changes_nothing() -> None:
    words, attention_mask, patches = given()
    longer = torch.cat([words, torch.full((5, 3, 6), 9.0)], dim=1)
    more = torch.cat([attention_mask, torch.zeros(5, 3, dtype=torch.bool)], dim=1)
    for softmax_over_words in (False, True):
        parameters = softmax_over_words, 4.0
        torch.testing.assert_close(
            local_similarity(longer, more, patches, *parameters),
            local_similarity(words, attention_mask, patches, *parameters),
        )


def test_a_pair_is_as_similar_alone_as_among_others() -> None:
    words, attention_mask, patches = given()
    parameters = True, 4.0
    together = local_similarity(words, attention_mask, patches, *parameters)
    for text in range(5):
        for image in range(4):
            alone = local_similarity(
                words[text : text + 1], attention_mask[text : text + 1], patches[image : image + 1], *parameters
            )
            torch.testing.assert_close(alone[0, 0], together[text, image], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("softmax_over_words", [False, True])
def test_padding_the_patches_changes_nothing(softmax_over_words: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words, attention_mask, patches = given()
    results = []
    for multiple in (1, 16):
        monkeypatch.setitem(attention.ALIGNMENT, "cpu", multiple)
        mine = [part.clone().requires_grad_() for part in (words, patches)]
        parameters = softmax_over_words, torch.tensor(4.0)
        similarity = local_similarity(mine[0], attention_mask, mine[1], *parameters)
        similarity.square().sum().backward()  # type: ignore[no-untyped-call]
        results.append([similarity.detach(), mine[0].grad, mine[1].grad])
    for plain, more in zip(*results, strict=True):
        torch.testing.assert_close(plain, more, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1 << 20, [24] * 6), (120, [2] * 4 + [24] * 2), (44, [3] * 5 + [24]), (0, [1, 1, 2, 2, 3, 24])],
)
def test_every_text_is_in_one_block_and_short_texts_are_not_padded_to_the_longest(
    limit: int, expected: list[int]
) -> None:
    lengths = [1, 1, 2, 2, 3, 24]
    step, blocks = attention._blocks(lengths, 5, limit)
    assert [row for texts, _ in blocks for row in range(*texts.indices(6))] == list(range(6))
    assert [words.stop for texts, words in blocks for _ in range(*texts.indices(6))] == expected
    for texts, words in blocks:
        count = len(range(*texts.indices(6)))
        assert count * words.stop * step <= limit or count == step == 1


@pytest.mark.parametrize("softmax_over_words", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_regions_that_cancel_leave_a_similarity_within_its_bounds(softmax_over_words: bool, kind: torch.dtype) -> None:
    """Attention is nearly even and the patches' mean is zero, so that the context is all rounding."""
    generator = torch.Generator().manual_seed(0)
    words = (1e-6 * torch.randn(3, 4, 16, generator=generator)).to(kind).requires_grad_()
    half = torch.randn(2, 40, 16, generator=generator)
    patches = torch.cat([half, -half], dim=1).to(kind).requires_grad_()
    attention_mask = torch.ones(3, 4, dtype=torch.bool)
    parameters = softmax_over_words, 4.0
    similarity = local_similarity(words, attention_mask, patches, *parameters, 5.0)
    bound = 5.0 + torch.log(torch.tensor(4.0))  # four words, each with a cosine of at most one
    assert float(similarity.detach().abs().max()) <= float(bound) + 1e-4
    similarity.sum().backward()  # type: ignore[no-untyped-call]
    assert words.grad is not None
    assert patches.grad is not None
    assert words.grad.isfinite().all()
    assert patches.grad.isfinite().all()

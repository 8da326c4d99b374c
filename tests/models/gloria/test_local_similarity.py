from __future__ import annotations

import pytest
import torch

from rightlung.models.gloria import attention
from rightlung.models.gloria.attention import AttentionRule, attend, local_similarity
from rightlung.models.gloria.losses import Pairs, contrastive_loss
from tests.models.gloria.plain import looped_similarity


def given(
    texts: int = 5, words: int = 7, images: int = 4, regions: int = 9, width: int = 6
) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, words + 1, (texts,), generator=generator)
    real = torch.arange(words)[None] < lengths[:, None]
    vectors = torch.randn(texts, words, width, generator=generator) * real[..., None]
    return vectors, real, torch.randn(images, regions, width, generator=generator)


@pytest.mark.parametrize("softmaxes", [1, 2])
@pytest.mark.parametrize("at_once", [1 << 21, 150, 1])
def test_the_similarity_and_its_gradients_equal_a_plain_loop(
    softmaxes: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention.CELLS_AT_ONCE, "cpu", at_once)
    words, real, regions = given()
    found: list[torch.Tensor | None] = []
    expected: list[torch.Tensor | None] = []
    for results, compute in ((found, "ours"), (expected, "loop")):
        mine = [words.clone().requires_grad_(), regions.clone().requires_grad_(), torch.tensor(1.7, requires_grad=True)]
        if compute == "ours":
            rule = AttentionRule(softmaxes, mine[2])  # type: ignore[arg-type]
            similarity = local_similarity(mine[0], real, mine[1], rule, 5.0)
        else:
            similarity = looped_similarity(mine[0], real, mine[1], softmaxes, mine[2], 5.0)
        loss = (similarity * torch.linspace(-1, 1, similarity.numel()).reshape(similarity.shape)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        results += [similarity.detach(), *(part.grad for part in mine)]
    for ours, loop in zip(found, expected, strict=True):
        assert ours is not None
        assert loop is not None
        torch.testing.assert_close(ours, loop, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("softmaxes", [1, 2])
def test_the_local_loss_equals_a_plain_loop(softmaxes: int) -> None:
    words, real, regions = given(texts=5, images=5)
    logits = 10 * local_similarity(words, real, regions, AttentionRule(softmaxes, 4.0))  # type: ignore[arg-type]
    own = torch.arange(5)
    ours = contrastive_loss(logits.T, logits, Pairs(own, own, 0, 0, None))
    plain = 10 * looped_similarity(words, real, regions, softmaxes, 4.0, 5.0)
    expected = torch.zeros(())
    for row in range(5):  # minus the logarithm of the right one's share, both ways
        expected = expected - torch.log(torch.exp(plain[row, row]) / torch.exp(plain[row]).sum()) / 5
        expected = expected - torch.log(torch.exp(plain[row, row]) / torch.exp(plain[:, row]).sum()) / 5
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_two_softmaxes_bound_how_much_more_one_region_is_attended_than_another() -> None:
    words, real, regions = given()
    scores = 100 * torch.einsum("twd,ird->twir", words, regions)
    twice = attend(scores, real, AttentionRule(2, 4.0))[real]
    once = attend(scores, real, AttentionRule(1, 4.0))[real]
    assert float((twice.amax(-1) / twice.amin(-1)).max()) <= torch.e**4 * (1 + 1e-5)
    assert float((once.amax(-1) / once.amin(-1).clamp_min(1e-30)).max()) > 1e6


def test_padding_changes_nothing() -> None:
    words, real, regions = given()
    longer = torch.cat([words, torch.full((5, 3, 6), 9.0)], dim=1)
    more = torch.cat([real, torch.zeros(5, 3, dtype=torch.bool)], dim=1)
    for softmaxes in (1, 2):
        rule = AttentionRule(softmaxes, 4.0)
        torch.testing.assert_close(
            local_similarity(longer, more, regions, rule), local_similarity(words, real, regions, rule)
        )


def test_a_pair_is_as_similar_alone_as_among_others() -> None:
    words, real, regions = given()
    rule = AttentionRule(2, 4.0)
    together = local_similarity(words, real, regions, rule)
    for text in range(5):
        for image in range(4):
            alone = local_similarity(words[text : text + 1], real[text : text + 1], regions[image : image + 1], rule)
            torch.testing.assert_close(alone[0, 0], together[text, image], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("softmaxes", [1, 2])
def test_regions_added_for_alignment_change_nothing(softmaxes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words, real, regions = given()
    results = []
    for multiple in (1, 16):
        monkeypatch.setitem(attention.ALIGNMENT, "cpu", multiple)
        mine = [part.clone().requires_grad_() for part in (words, regions)]
        similarity = local_similarity(mine[0], real, mine[1], AttentionRule(softmaxes, torch.tensor(4.0)))  # type: ignore[arg-type]
        similarity.square().sum().backward()  # type: ignore[no-untyped-call]
        results.append([similarity.detach(), mine[0].grad, mine[1].grad])
    for plain, more in zip(*results, strict=True):
        torch.testing.assert_close(plain, more, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("at_once", [1 << 20, 400, 1])
def test_every_pair_is_in_one_block_and_short_texts_are_not_worked_off_at_the_length_of_long_ones(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention.CELLS_AT_ONCE, "cpu", at_once)
    lengths = [1, 1, 2, 2, 3, 24]
    seen = torch.zeros(6, 5, dtype=torch.long)
    worked = torch.zeros(6, dtype=torch.long)
    for (texts, words), images in attention._walk(lengths, torch.zeros(5, 9, 2)):
        seen[texts, images] += 1
        worked[texts] = words.stop
        held = len(range(*texts.indices(6))) * words.stop * len(range(*images.indices(5))) * 9
        assert held <= at_once or (at_once == 1 and held == words.stop * 9)
    assert seen.eq(1).all()
    assert worked.tolist() == ([24] * 6 if at_once == 1 << 20 else lengths if at_once == 1 else [1, 3, 3, 3, 3, 24])


@pytest.mark.parametrize("softmaxes", [1, 2])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_regions_that_cancel_leave_a_similarity_within_its_bounds(softmaxes: int, kind: torch.dtype) -> None:
    """Attention is nearly even and the regions' mean is zero, so that the context is all rounding."""
    generator = torch.Generator().manual_seed(0)
    words = (1e-6 * torch.randn(3, 4, 16, generator=generator)).to(kind).requires_grad_()
    half = torch.randn(2, 40, 16, generator=generator)
    regions = torch.cat([half, -half], dim=1).to(kind).requires_grad_()
    real = torch.ones(3, 4, dtype=torch.bool)
    rule = AttentionRule(softmaxes, 4.0)  # type: ignore[arg-type]
    similarity = local_similarity(words, real, regions, rule, 5.0)
    bound = 5.0 + torch.log(torch.tensor(4.0))  # four words, each with a cosine of at most one
    assert float(similarity.detach().abs().max()) <= float(bound) + 1e-4
    similarity.sum().backward()  # type: ignore[no-untyped-call]
    assert words.grad is not None
    assert regions.grad is not None
    assert words.grad.isfinite().all()
    assert regions.grad.isfinite().all()

"""FITA tells what its words were written from, and one of its sources can be changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.models.base import Intervenable, TracesWords
from rightlung.models.fita.interventions import changed_prior
from rightlung.models.fita.maps import kinds_of_words, word_sources
from rightlung.models.fita.symptoms import SymptomPrior
from tests.models.fita.tiny import create, picture, pictures


def prior() -> SymptomPrior:
    maps = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.25] * 4]])  # one image, two symptoms, 2 x 2 patches
    return SymptomPrior(torch.tensor([[0.9, 0.2]]), maps, torch.tensor([[True, False]]))


def test_an_intervention_changes_one_part_of_what_the_classifier_saw() -> None:
    given = prior()
    uniform, mirrored, permuted, same = (
        changed_prior(given, name, (2, 2))
        for name in ("saliency-uniform", "saliency-mirrored", "symptoms-permuted", "text-zeros")
    )
    assert set(uniform.saliency.flatten().tolist()) == {0.25}
    assert torch.equal(uniform.probabilities, given.probabilities)
    np.testing.assert_allclose(mirrored.saliency[0, 0], [0.2, 0.1, 0.4, 0.3], rtol=1e-6)
    np.testing.assert_allclose(permuted.probabilities, [[0.2, 0.9]])
    assert torch.equal(permuted.saliency[:, 0], given.saliency[:, 1])
    assert same is given


def test_each_intervention_changes_what_the_decoder_reads_and_leaves_the_model_alone() -> None:
    model, images = create(), pictures(2)
    assert isinstance(model, Intervenable)
    assert isinstance(model, TracesWords)
    names = model.interventions
    assert names == ("saliency-uniform", "saliency-mirrored", "symptoms-permuted", "text-zeros")
    tokens = model.tokenizer.encode(["left pleural effusion .", "no edema ."])
    with torch.no_grad():
        before = model.encode(images), model.read(tokens)
        for name in names:
            changed = model.intervened(name)
            encoded, words = changed.encode(images), changed.read(tokens)
            assert before[0].symptoms is not None
            assert encoded.symptoms is not None
            assert torch.equal(encoded.symptoms, before[0].symptoms) == (name == "text-zeros")
            assert words is not None
            assert bool(words.any()) == (name != "text-zeros")
        after = model.encode(images), model.read(tokens)
    assert torch.equal(after[0].symptoms, before[0].symptoms)  # type: ignore[arg-type]
    assert torch.equal(after[1], before[1])  # type: ignore[arg-type]


def test_only_parts_that_a_model_has_can_be_changed() -> None:
    plain = create(tfr=False, ifr=False, losses=["report_generation"])
    assert plain.interventions == ("symptoms-permuted",)
    with pytest.raises(InputError, match="unknown intervention 'text-zeros'"):
        plain.intervened("text-zeros")


def test_shares_of_attention_by_kind_of_word_are_those_of_a_hand_calculation() -> None:
    words = ["small", "left", "pleural", "effusion", "."]
    assert kinds_of_words(words) == ["other", "side", "finding", "finding", "other"]
    assert kinds_of_words(["unremarkable", "study"]) == ["other", "other"]
    attention = torch.zeros(5, 2 + 1 + 5)  # two patches, one symptom, five words
    attention[0, 0] = attention[4, 7] = 1.0
    attention[1, 1], attention[1, 3] = 0.25, 0.75
    attention[2, 2], attention[3, 0] = 1.0, 1.0
    found = {one.words: one for one in word_sources(words, attention, 2, 1)}
    assert (found["side"].image, found["side"].symptoms, found["side"].text) == (0.25, 0.0, 0.75)
    assert (found["finding"].image, found["finding"].symptoms, found["finding"].count) == (0.5, 0.5, 2)
    assert (found["other"].image, found["other"].text) == (0.5, 0.5)


def test_the_words_of_a_report_are_traced_as_it_is_written() -> None:
    model = create()
    images = [picture(seed) for seed in range(3)]
    for report, kinds in zip(model.report(images), model.word_sources(images), strict=True):
        assert sum(one.count for one in kinds) >= len(report.text.replace(".", "").split())
        for one in kinds:
            assert one.image + one.symptoms + one.text == pytest.approx(1, abs=1e-4)
    alone = model.word_sources(images[1])[0]
    assert [one.words for one in alone] == [one.words for one in model.word_sources(images)[1]]

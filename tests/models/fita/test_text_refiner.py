"""TFR: it is causal, its training equals its writing, and its triplets are what they claim to be."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.lexicon.labeller import read_sentence
from rightlung.models.encoders.tokenizer import Tokens, train_tokenizer
from rightlung.models.fita import Fita
from rightlung.models.fita.config import SYMPTOMS, TextRefinerConfig
from rightlung.models.fita.text_refiner import TextRefiner
from rightlung.models.fita.triplets import draw_triplets, segments_of
from rightlung.models.fita.vocabulary import ReportVocabulary, train_vocabulary
from tests.models.fita.tiny import BERT, CONFIG, REPORTS, TEXT_STAGE, batch, create, pictures


def logits_of(model: Fita, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        memory = model.memory(model.encode(pictures(1)))
        tokens = Tokens(ids, torch.ones_like(ids, dtype=torch.bool), ids, ids[:, 0])
        logits: torch.Tensor = model.decoder(ids, memory, model.read(tokens))
        return logits


def test_changing_later_words_leaves_the_logits_bit_equal() -> None:
    model = create()
    ids = model.tokenizer.encode([REPORTS[3]]).ids
    found, changed = logits_of(model, ids), ids.clone()
    changed[:, 5:] = torch.randint(4, len(model.tokenizer), changed[:, 5:].shape, generator=torch.Generator())
    other = logits_of(model, changed)
    assert torch.equal(found[:, :5], other[:, :5])
    assert not torch.allclose(found[:, 5:], other[:, 5:])


def test_without_causality_the_words_to_predict_leak() -> None:
    model = create(text=CONFIG["text"] | {"causal": False})
    ids = model.tokenizer.encode([REPORTS[3]]).ids
    changed = ids.clone()
    changed[:, 5:] = 6
    assert not torch.allclose(logits_of(model, ids)[:, :5], logits_of(model, changed)[:, :5], atol=1e-4)
    assert model.report([pictures(1)[0, 0].numpy()])[0].text  # it writes nonetheless, one word after another


def vocabulary_of_pieces(folder: Path) -> str:
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    pieces = train_tokenizer(REPORTS, 40, 1, end_token=True)
    bert: Any = BertModel
    bert(BertConfig(vocab_size=60, **BERT)).save_pretrained(folder)
    fast: Any = PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=Tokenizer.from_str(pieces), pad_token="[PAD]")
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_pretrained_bert_reads_the_pieces_of_each_word_and_comes_back_from_disk(tmp_path: Path) -> None:
    pretrained = vocabulary_of_pieces(tmp_path)
    vocabulary = ReportVocabulary(train_vocabulary(REPORTS, 1, 1000), 24)
    refiner = TextRefiner(TextRefinerConfig(pretrained=pretrained), vocabulary).eval()
    most = refiner.pieces.shape[1]
    assert most > 1
    tokens = vocabulary.encode([REPORTS[0]])
    words = vocabulary.words(tokens.ids[0].tolist())
    with torch.no_grad():
        found = refiner(tokens.ids, tokens.attention_mask)[0]
        spelled = [piece for one in tokens.ids[0].tolist() for piece in refiner.pieces[one].tolist() if piece >= 0]
        plain = refiner.bert(input_ids=torch.tensor([spelled])).last_hidden_state[0]
    assert len(spelled) > len(words) + 2
    torch.testing.assert_close(found[-1], plain[-1], atol=1e-5, rtol=1e-4)
    first = (refiner.pieces[tokens.ids[0, :3]] >= 0).sum()
    torch.testing.assert_close(found[2], plain[first - 1], atol=1e-5, rtol=1e-4)
    model = create(text={"pretrained": pretrained})
    again = type(model).from_parts(json.loads(json.dumps(model.to_config())), model.tensors(), model.extra_files())
    assert again.report(pictures(1)[0, 0].numpy()) == model.report(pictures(1)[0, 0].numpy())
    assert model.text_refiner is not None
    assert again.text_refiner is not None
    torch.testing.assert_close(again.text_refiner.pieces, model.text_refiner.pieces)


def test_stage_1_trains_the_text_refiner_alone_and_stage_2_freezes_it() -> None:
    for changed, trained in ((TEXT_STAGE, True), ({}, False)):
        model = create(**changed).train()
        torch.autograd.backward(list(model(batch(*REPORTS)).values()))
        with_gradient = {name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
        assert ("text_refiner" in with_gradient) == trained
        assert "classifier" not in with_gradient
        assert ("decoder" in with_gradient) != trained
        assert not model.classifier.training


def test_triplets_come_from_different_studies_and_half_of_the_negatives_are_negated() -> None:
    config = TextRefinerConfig(triplets_per_batch=80, sided=0.25)
    triplets = draw_triplets(REPORTS, config, seed=4)
    kinds = Counter(one.kind for one in triplets)
    assert kinds["side"] == 20
    assert kinds["negated"] >= kinds["unmentioned"] > 0
    assert kinds["negated"] + kinds["unmentioned"] == 60
    segments = segments_of(REPORTS)
    for one in triplets:
        assert one.finding in SYMPTOMS
        assert read_sentence(one.anchor).findings[one.finding] == "positive"
        assert read_sentence(one.positive).findings[one.finding] == "positive"
        studies = [{own.study for own in segments if own.text == text} for text in (one.anchor, one.positive)]
        assert len(studies[0] | studies[1]) > 1
        said = read_sentence(one.negative).findings.get(one.finding)
        assert said == {"negated": "negative", "unmentioned": None, "side": "positive"}[one.kind]
        if one.kind == "side":
            sides = [{own.side for own in read_sentence(text).mentions if own.finding == one.finding}
                     for text in (one.anchor, one.positive, one.negative)]  # fmt: skip
            assert sides[0] == sides[1] != sides[2]
    assert draw_triplets(REPORTS, config, seed=4) == triplets
    assert draw_triplets(REPORTS, config, seed=5) != triplets


def test_printed_triplets_follow_equal_and_different_labels() -> None:
    triplets = draw_triplets(REPORTS, TextRefinerConfig(triplets="printed", triplets_per_batch=40), seed=1)
    assert {one.kind for one in triplets} == {"printed"}
    assert len(triplets) == 40


def test_triplets_of_reports_that_say_nothing_teach_nothing() -> None:
    model = create(**TEXT_STAGE).train()
    losses = model(batch("Comparison is made.", "Two views."))
    assert losses["text_triplet"].item() == 0
    nothing = model(batch("", " "))
    assert all(loss.item() == 0 for loss in nothing.values())
    torch.autograd.backward(list(nothing.values()))


def test_stage_1_learns_to_tell_findings_negations_and_sides_apart() -> None:
    model = create(**TEXT_STAGE).train()
    assert model.text_refiner is not None
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=3e-3)
    given = batch(*REPORTS)
    before = model.text_losses.accuracy(model.text_refiner, REPORTS, 9, given.images.device)
    for step in range(100):
        optimizer.zero_grad()
        losses = model(replace(given, seed=step))
        (losses["text_classification"] + losses["text_triplet"]).backward()
        optimizer.step()
    after = model.text_losses.accuracy(model.text_refiner, REPORTS, 9, given.images.device)
    assert set(after) == {"negated", "unmentioned", "side"} == set(before)
    assert min(after.values()) > 0.9


@pytest.mark.parametrize("max_words", [24, 5])
def test_a_text_is_read_up_to_max_words(max_words: int) -> None:
    vocabulary = ReportVocabulary(train_vocabulary(REPORTS, 1, 1000), max_words)
    reading = vocabulary.reading(REPORTS[1])
    assert (reading.complete, reading.known) == (max_words == 24, 1.0)
    assert vocabulary.encode([REPORTS[1]]).ids.shape[1] == (max_words + 2 if max_words == 5 else 12)

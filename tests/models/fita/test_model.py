"""FITA writes: by search, greedily or by chance, alone or in a batch, and every sentence has a map."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.models.base import Grounder, Matcher, Reporter, Trainable
from rightlung.models.encoders.tokenizer import Tokens
from rightlung.models.fita import Fita
from rightlung.models.fita.config import WritingConfig
from rightlung.models.fita.maps import NOTHING_WRITTEN, attention_map, finding_words
from rightlung.models.fita.vocabulary import ReportVocabulary, described, sentences_of, train_vocabulary
from rightlung.models.fita.writing import write
from rightlung.models.folder import load_folder, save_model
from rightlung.scoring.language import clean_words, vocabulary_of
from tests.models.fita.tiny import REPORTS, TEXT_STAGE, batch, create, picture, pictures


def written(model: Fita, images: Tensor, seeds: list[int] | None = None, **changed: Any) -> list[list[str]]:
    with torch.no_grad():
        memory = model.memory(model.encode(images))
    writing = replace(model.config.writing, **changed)
    ids = write(model.decoder, model.text_refiner, memory, model.tokenizer, writing, seeds)
    return [model.tokenizer.words(row) for row in ids.tolist()]


def forced(model: Fita, images: Tensor, ids: Tensor) -> Tensor:
    """The logits of whole texts (n, t), without a cache."""
    with torch.no_grad():
        words = model.read(Tokens(ids, torch.ones_like(ids, dtype=torch.bool), ids, ids[:, 0]))
        return model.decoder(ids, model.memory(model.encode(images)), words)  # type: ignore[no-any-return]


@pytest.mark.parametrize("tfr", [True, False])
def test_teacher_forced_logits_equal_step_by_step_decoding(tfr: bool) -> None:
    from transformers import DynamicCache, EncoderDecoderCache

    from rightlung.models.fita.writing import Writer

    model, images = create(tfr=tfr, losses=["report_generation"]), pictures(2)
    ids = torch.randint(4, len(model.tokenizer), (2, 12), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = model.tokenizer.start_id
    expected, cache = forced(model, images, ids), EncoderDecoderCache(DynamicCache(), DynamicCache())
    writer: Any = Writer(model.decoder, model.text_refiner)
    writer.eval()
    with torch.no_grad():
        memory = model.memory(model.encode(images))
        for step in range(12):
            given = {"past_key_values": cache, "crossed": memory.crossed, "sources": memory.sources}
            found = writer(ids[:, : step + 1], **given).logits
            assert found.shape[1] == 1
            torch.testing.assert_close(found[:, 0], expected[:, step], atol=1e-4, rtol=1e-4)


def test_beam_search_finds_what_an_exhaustive_search_finds() -> None:
    model, images = create(), pictures(1)
    model.tokenizer = ReportVocabulary(train_vocabulary(["left ."], 1, 100), 24)
    small = type(model)(replace(model.config, losses=("report_generation",)), model.tokenizer.definition).eval()
    with torch.no_grad():
        for weight in small.decoder.parameters():
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())) * 0.4)
    words = [one for one in range(len(small.tokenizer)) if one not in small.tokenizer.never_written]
    end, length, best = small.tokenizer.end_id, 3, (-np.inf, [0])
    for number in range(len(words) ** length):
        row = [words[number // len(words) ** place % len(words)] for place in range(length)]
        row = row[: row.index(end) + 1] if end in row else row
        if row[0] != end:  # at least one word
            ids = torch.tensor([[small.tokenizer.start_id, *row]])
            logits = forced(small, images, ids)[0, :-1].log_softmax(-1)
            best = max(best, (float(logits[range(len(row)), row].sum()), row))
    (found,) = written(small, images, beams=len(words) ** 2, max_words=length)
    assert found == small.tokenizer.words(best[1])


@pytest.mark.parametrize("how", ["beams", "greedy", "sampled"])
def test_a_report_is_the_same_alone_and_in_any_batch(how: str) -> None:
    model, images = create(), pictures(5)
    changed: dict[str, Any] = {"beams": 3, "min_words": 8, "length_penalty": 1.0} if how == "beams" else {"beams": 1}
    seeds = list(range(5)) if how == "sampled" else None
    together = written(model, images, seeds, **changed)
    for number in range(5):
        own = None if seeds is None else seeds[number : number + 1]
        assert written(model, images[number : number + 1], own, **changed) == together[number : number + 1]
    assert len({" ".join(one) for one in together}) > 1


def test_sampling_depends_on_the_seed_alone() -> None:
    model = create(writing={"beams": 1, "max_words": 12})
    first, again, other = (model.report(picture(0), [seed])[0] for seed in (1, 1, 2))
    assert first == again
    assert first.text != other.text
    with pytest.raises(InputError, match="one seed for each image"):
        model.report(picture(0), [1, 2])
    with pytest.raises(InputError, match="beams: 1"):
        create().report(picture(0), [1])


def test_length_rules_and_words_that_are_never_written() -> None:
    model, images = create(), pictures(3)
    with torch.no_grad():
        model.decoder.head.bias[model.tokenizer.end_id] = 8.0
        for one in model.tokenizer.never_written:
            model.decoder.head.bias[one] = 50.0
    assert {len(one) for one in written(model, images, min_words=6)} == {6}
    assert all(1 <= len(one) <= 6 for one in written(model, images))
    with torch.no_grad():
        model.decoder.head.bias[model.tokenizer.end_id] = -50.0
    reports = written(model, images, max_words=7)
    assert {len(one) for one in reports} == {7}
    assert not {"[UNK]", "[PAD]", "[BOS]"} & {word for one in reports for word in one}
    (blocked,) = written(model, images[:1], max_words=20, blocked_ngram=2, beams=1)
    pairs = list(pairwise(blocked))
    assert len(set(pairs)) == len(pairs)
    with pytest.raises(InputError, match="min_words must not exceed"):
        WritingConfig(min_words=9, max_words=8)


def test_it_learns_to_write_the_report_of_each_image_and_comes_back_from_disk(tmp_path: Path) -> None:
    model, given = create(), batch(*REPORTS[:3])
    model.train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        losses = model(given)
        (losses["report_generation"] + losses["image_classification"] + losses["image_text_contrastive"]).backward()
        optimizer.step()
    model.eval()
    images = [image[0].numpy() for image in given.images]
    reports = model.report(images)
    assert [one.text for one in reports] == REPORTS[:3]
    assert model.report(images[1])[0].text == reports[1].text
    similarity = model.similarity(images, REPORTS[:3]).global_similarity
    assert similarity.argmax(1).tolist() == [0, 1, 2]
    save_model(model, tmp_path / "fita")
    assert load_folder(tmp_path / "fita").report(images) == reports


def test_every_sentence_has_a_map_and_only_findings_have_boxes() -> None:
    model = create()
    for report in model.report([picture(0), picture(1, (90, 40))]):
        assert report.text == " ".join(one.text for one in report.sentences)
        for sentence in report.sentences:
            assert sentence.heatmap is not None
            assert sentence.heatmap.values.shape == (4, 4)
            assert sentence.heatmap.values.sum() + sentence.heatmap.abstention == pytest.approx(1, abs=1e-4)
            assert 0 < (sentence.score or 0) < 1


def test_a_map_is_attention_on_patches_and_on_symptoms_times_their_saliency() -> None:
    attention = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.3], [0.3, 0.0, 0.1, 0.3, 0.3]])  # 2 patches, 2 symptoms, 1 word
    saliency = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    found, abstention = attention_map(attention, 2, saliency)
    np.testing.assert_allclose(found, [0.2 + 0.2 * 0.25 + 0.2, 0.1 + 0.2 * 0.75], atol=1e-6)
    assert abstention == pytest.approx(0.3)


def test_finding_words_are_those_that_name_something() -> None:
    words = ["there", "is", "a", "small", "left", "pleural", "effusion", "."]
    assert [words[place] for place in finding_words(words)] == ["pleural", "effusion"]
    assert finding_words(["as", "before", "."]) == [0, 1]


def test_grounding_follows_the_phrase_and_the_image_and_not_the_other_pairs() -> None:
    model, images = create(), [picture(0), picture(1, (60, 64))]
    phrases = ["left pleural effusion", "right pneumothorax", "enlarged heart"]
    pairs = [(image, phrase) for image in images for phrase in phrases]
    together = model.ground([image for image, _ in pairs], [phrase for _, phrase in pairs])
    for (image, phrase), found in zip(pairs, together, strict=True):
        (alone,) = model.ground([image], [phrase])
        assert alone.heatmap is not None
        assert found.heatmap is not None
        np.testing.assert_allclose(alone.heatmap.values, found.heatmap.values, atol=1e-5)
        assert found.heatmap.extent == alone.heatmap.extent
    maps = [one.heatmap.values for one in together if one.heatmap is not None]
    assert all(not np.allclose(maps[0], other) for other in maps[1:])
    assert model.ground([], []) == []
    assert model.ground([picture(0)], ["zzz qqq"])[0].heatmap is not None


def test_what_the_model_can_do() -> None:
    model = create()
    assert all(isinstance(model, protocol) for protocol in (Reporter, Grounder, Matcher, Trainable))
    found = model.classify([picture(0)], ["pleural effusion", "scoliosis"])
    assert 0 < found[0, 0] < 1
    assert np.isnan(found[0, 1])
    assert (model.knows("edema"), model.knows("scoliosis")) == (True, False)
    assert model.report([]) == []
    with pytest.raises(InputError, match="tfr: true"):
        create(tfr=False, losses=["report_generation"]).similarity([picture(0)], ["effusion"])


def test_losses_are_finite_in_half_precision() -> None:
    model = create().train()
    with torch.autocast("cpu", torch.bfloat16):
        halved = model(batch(*REPORTS))
    for name, loss in model(batch(*REPORTS)).items():
        assert halved[name].item() == pytest.approx(loss.item(), rel=0.1), name


def test_images_without_a_report_teach_nothing() -> None:
    model = create()
    with torch.no_grad():
        both, one = model(batch(REPORTS[0], " ")), model(batch(REPORTS[0]))
    torch.testing.assert_close(both, one)
    nothing = model(batch("", ""))
    assert all(loss.item() == 0 for loss in nothing.values())
    assert set(nothing) == set(model.config.losses)


ODD = ("effusion", "qwertz asdf zuiop", "no effusion " * 2500, "XXXX", ".", "5 7 9")
"""One word, no known word, 5,000 words, an anonymised one, no word at all, and numbers."""


@pytest.mark.parametrize("text", ODD)
def test_odd_reports_are_learned_grounded_and_compared(text: str) -> None:
    model, stage_1 = create(), create(**TEXT_STAGE).train()
    for trained in (model, stage_1):
        losses = trained(batch(text, *REPORTS[:2]))
        assert all(torch.isfinite(loss) for loss in losses.values())
        torch.autograd.backward(list(losses.values()))
    (found,) = model.ground(picture(0), text)
    assert found.heatmap is not None
    assert np.isfinite(found.heatmap.values).all()
    assert 0 <= found.heatmap.abstention <= 1
    similarity = model.similarity([picture(0)], [text, REPORTS[0]])
    assert np.isfinite(similarity.global_similarity).all()


def test_an_unknown_word_teaches_the_decoder_nothing() -> None:
    model = create(losses=["report_generation"])
    with torch.no_grad():
        losses = model(batch("qwertz asdf zuiop"))
    full_stop_and_end = model(batch("."))
    assert losses["report_generation"].item() != full_stop_and_end["report_generation"].item()  # it is read
    tokens = model.tokenizer.encode(["qwertz asdf zuiop", "."])
    assert model.tokenizer.learned(tokens).sum(1).tolist() == [3, 3]  # start, full stop and end


def test_nothing_written_is_said() -> None:
    model = create(writing={"max_words": 6, "min_words": 0})
    with torch.no_grad():
        model.decoder.head.bias[model.tokenizer.end_id] = 100.0
    (report,) = model.report(picture(0))
    assert (report.text, report.sentences) == (NOTHING_WRITTEN, ())


def test_the_vocabulary_is_r2gens_with_special_tokens_of_its_own() -> None:
    texts = ["1. Heart size normal. 2. No effusion/pneumothorax; XXXX.", "No effusion. Left-sided opacity.", "No XXXX."]
    vocabulary = ReportVocabulary(train_vocabulary(texts, 2, 1000), 10)
    words = {vocabulary._tokenizer.id_to_token(number) for number in range(4, len(vocabulary))}
    assert words == vocabulary_of(texts, 2) | {"left", "right", "bilateral"}
    special = {vocabulary.padding_id, vocabulary.unknown_id, vocabulary.start_id, vocabulary.end_id}
    assert special == {0, 1, 2, 3}
    tokens = vocabulary.encode(texts[:2])
    assert vocabulary.words(tokens.ids[1].tolist()) == [
        word if word in words else "[UNK]" for word in clean_words(texts[1])
    ]
    unlearned = tokens.ids[tokens.attention_mask & ~vocabulary.learned(tokens)].tolist()
    assert set(unlearned) == {vocabulary.unknown_id, vocabulary.anonymised_id}
    assert vocabulary.anonymised_id in vocabulary.never_written


def test_headings_and_the_indication_are_not_learned() -> None:
    plain = "Heart size normal. No effusion."
    assert described(plain) == plain
    model = create()
    headed = f"INDICATION: Cough.\n\nFINDINGS:\n{REPORTS[0]}\n\nIMPRESSION:\n{plain}"
    with torch.no_grad():
        found, expected = model(batch(headed)), model(batch(f"{REPORTS[0]} {plain}"))
    torch.testing.assert_close(found, expected)


def test_a_sentence_that_is_cut_off_is_left_out() -> None:
    assert sentences_of(["a", "b", ".", "c", "d", ".", "e"]) == [(0, 3), (3, 6)]
    assert sentences_of(["a", "b"]) == [(0, 2)]
    assert sentences_of([".", "."]) == []

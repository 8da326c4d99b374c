"""A ChEX that is asked: protocols, saving and loading, and input that it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from rightlung.core import Box, Extent, Grounding, InputError, Query
from rightlung.core.settings import read_settings
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.base import Describer, Embedder, FindingClassifier, Grounder, Matcher, Reporter, Trainable
from rightlung.models.boxes import in_square
from rightlung.models.chex import Chex, ChexConfig
from rightlung.models.chex.network import QueryTokens
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.folder import load_folder, save_model
from rightlung.models.preprocessing import letterbox, letterbox_all
from rightlung.models.roi import gaussian_weights
from tests.models.chex.tiny import CONFIG, TEXTS, create, picture

FINDINGS = ["pleural effusion", "pneumothorax", "mass"]
BOX = Box(0.1, 0.2, 0.5, 0.6)
QUERIES = [Query("left effusion"), Query(box=BOX), Query("left effusion", BOX), Query()]
IMAGES = [picture(1), picture(2, (80, 40)), picture(3, (40, 40))]


@pytest.fixture(scope="module")
def model() -> Chex:
    return create()


def same(one: Grounding, other: Grounding) -> None:
    assert one.heatmap is not None
    assert other.heatmap is not None
    np.testing.assert_allclose(one.heatmap.values, other.heatmap.values, atol=1e-5)
    assert one.abstention == pytest.approx(other.abstention, abs=1e-5)
    for box, again in zip(one.boxes, other.boxes, strict=True):
        assert box.box.as_tuple() == pytest.approx(again.box.as_tuple(), abs=1e-5)
        assert box.score == pytest.approx(again.score, abs=1e-5)


def test_it_implements_all_protocols(model: Chex) -> None:
    for protocol in (Matcher, Grounder, FindingClassifier, Describer, Reporter, Embedder, Trainable):
        assert isinstance(model, protocol), protocol


def test_grounding_is_boxes_with_scores_and_a_map_of_them(model: Chex) -> None:
    (answer,) = model.ground([IMAGES[1]], ["left effusion"])
    square, extent = letterbox(IMAGES[1], 64)
    with torch.no_grad():
        encoded = model.image_encoder(square[None, None])
        found = model.detector(model.prompt_embeddings(["left effusion"])[None], encoded.patch_embeddings)
    boxes, scores = found.boxes[0, 0], found.scores[0, 0]
    assert answer.abstention == pytest.approx(1 - float(scores.max()), abs=1e-6)
    assert sorted((box.score for box in answer.boxes), reverse=True) == [box.score for box in answer.boxes]
    best = boxes[scores.argmax()].tolist()
    # 40 of 80 columns: the square of 64 has 16 dark columns on either side, so a column of it is 1 / 32 of the image.
    corners = [(best[0] - best[2] / 2) * 2 - 0.5, best[1] - best[3] / 2, (best[0] + best[2] / 2) * 2 - 0.5]
    expected = np.clip([*corners, best[1] + best[3] / 2], 0, 1)
    assert answer.boxes[0].box.as_tuple() == pytest.approx(tuple(expected), abs=1e-5)
    assert answer.heatmap is not None
    assert answer.heatmap.extent == extent == Extent(-0.5, 0.0, 1.5, 1.0)
    gaussians = gaussian_weights(boxes, (8, 8), model.config.box_std / 2)
    highest = torch.stack([gaussians[m] * scores[m] for m in range(3)]).amax(0)
    ratio = answer.heatmap.values / highest.numpy()
    assert ratio == pytest.approx(np.full((8, 8), ratio.mean()), rel=1e-4)


def test_detections_have_the_score_of_the_box_times_that_of_the_class(model: Chex) -> None:
    (found,) = model.detect([IMAGES[0]], FINDINGS)
    square, _ = letterbox(IMAGES[0], 64)
    patches = model.image_encoder(square[None, None]).patch_embeddings
    for name in FINDINGS:
        own = [box.score for box in found if box.label == name]
        with torch.no_grad():
            asked = model.detector(model.prompt_embeddings([positive_prompts(name)[0]])[None], patches)
            means = []
            for prompts in (positive_prompts(name), negative_prompts(name)):
                means.append(normalize(normalize(model.prompt_embeddings(prompts), dim=-1).mean(0), dim=0))
            cosines = normalize(asked.box_tokens[0, 0], dim=-1) @ torch.stack(means).T
            expected = asked.scores[0, 0] * (cosines / 0.2).softmax(-1)[:, 0]
        assert own == pytest.approx(sorted(expected.tolist(), reverse=True), rel=1e-4)


def test_findings_are_classified_in_the_image_and_in_a_box(model: Chex) -> None:
    whole, inside = model.classify(IMAGES, FINDINGS), model.classify(IMAGES, FINDINGS, [BOX] * 3)
    assert whole.shape == inside.shape == (3, 3)
    assert ((whole > 0) & (whole < 1) & (inside > 0) & (inside < 1)).all()
    other = model.classify(IMAGES, FINDINGS, [BOX, Box(0.6, 0.6, 0.9, 0.9), BOX])
    np.testing.assert_allclose(inside[[0, 2]], other[[0, 2]], atol=1e-6)
    assert np.abs(inside[1] - other[1]).max() > 1e-4
    with pytest.raises(InputError, match="one for each image; got 3 images and 1 boxes"):
        model.classify(IMAGES, FINDINGS, [BOX])


def test_what_a_text_finds_is_classified_by_its_features_after_the_post_decoder(model: Chex) -> None:
    found = model.classify(IMAGES[:1] * 3, FINDINGS, queries=[Query("left lung"), Query(box=BOX), Query("heart", BOX)])
    np.testing.assert_allclose(found[1:2], model.classify(IMAGES[:1], FINDINGS, [BOX]), atol=1e-6)
    squares, _ = letterbox_all(IMAGES[:1], model.config.image.size)
    with torch.no_grad():
        images = model.image_encoder(squares[:, None])
        asked = model.detector(model.prompt_embeddings(["left lung"])[None], images.patch_embeddings)
        features = model.look_again(asked.tokens, asked.box_tokens, torch.ones(1, 1, dtype=torch.bool), images)[0, 0]
        for name, score in zip(FINDINGS, found[0], strict=True):
            means = []
            for prompts in (positive_prompts(name), negative_prompts(name)):
                means.append(normalize(normalize(model.prompt_embeddings(prompts), dim=-1).mean(0), dim=0))
            cosines = torch.stack(means) @ normalize(features, dim=0)
            assert float(score) == pytest.approx(float((cosines / 0.25).softmax(0)[0]), rel=1e-4)
    assert np.abs(found[0] - found[2]).max() > 1e-4
    given: dict[str, Any] = {"queries": [Query("left lung")], "multiclass": True}
    with torch.no_grad():
        groups = [normalize(model.prompt_embeddings(positive_prompts(name)), dim=-1).mean(0) for name in FINDINGS]
        cosines = normalize(torch.stack(groups), dim=-1) @ normalize(features, dim=0)
    expected = (cosines / 0.25).softmax(0).numpy()
    np.testing.assert_allclose(model.classify(IMAGES[:1], FINDINGS, **given)[0], expected, rtol=1e-4)
    with pytest.raises(InputError, match="needs boxes or queries with multiclass"):
        model.classify(IMAGES, FINDINGS, multiclass=True)
    with pytest.raises(InputError, match="boxes or queries, not both"):
        model.classify(IMAGES, FINDINGS, [BOX] * 3, [Query("heart")] * 3)
    with pytest.raises(InputError, match="one for each image; got 3 images and 1 queries"):
        model.classify(IMAGES, FINDINGS, queries=[Query("heart")])


def test_texts_boxes_both_and_neither_are_described(model: Chex) -> None:
    """The features behind the sentences differ for each kind of query."""
    texts = model.describe(IMAGES[0], QUERIES)
    assert len(texts) == 4
    assert all(isinstance(text, str) for text in texts)
    square, extent = letterbox(IMAGES[0], 64)
    with torch.no_grad():
        encoded = model.image_encoder(square[None, None])
        asked = model.ask(encoded, [QUERIES[:3]], [extent])
        boxes = torch.tensor([[in_square(BOX, extent)]])
        centres = torch.cat([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], dim=-1)
        prompts = model.prompt_embeddings(["left effusion"])[None]
        patches = encoded.patch_embeddings
        expected = [
            model.detector(prompts, patches).tokens,
            model.detector.at_boxes(centres, patches),
            model.detector.at_boxes(centres, patches, prompts),
        ]
    assert asked.has_boxes.tolist() == [[True, False, False]]
    torch.testing.assert_close(asked.tokens, torch.cat(expected, dim=1), rtol=1e-5, atol=1e-5)


def test_a_query_about_the_whole_image_is_a_box_over_all_of_it(model: Chex, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Query] = []
    ask = model.ask

    def noted(images: ImageEmbeddings, queries: Sequence[Sequence[Query]], extents: Sequence[Extent]) -> QueryTokens:
        asked.extend(query for own in queries for query in own)
        return ask(images, queries, extents)

    monkeypatch.setattr(model, "ask", noted)
    model.describe(IMAGES[0], Query())
    assert asked == [Query(box=Box(0, 0, 1, 1))]


def test_similarities_and_embeddings(model: Chex) -> None:
    found = model.similarity(IMAGES, TEXTS)
    images, texts = model.encode_image(IMAGES), model.encode_text(TEXTS)
    assert images.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found.global_similarity, images @ texts.T, atol=1e-5)
    assert found.local_similarity is not None
    assert found.local_similarity.shape == (3, 8)
    assert np.abs(found.local_similarity).max() <= 1 + 1e-5


def test_no_answer_depends_on_the_other_images_of_a_call(model: Chex) -> None:
    phrases = ["left effusion", "a nodule", "left effusion"]
    for image, phrase, answer in zip(IMAGES, phrases, model.ground(IMAGES, phrases), strict=True):
        same(answer, model.ground([image], [phrase])[0])
    np.testing.assert_allclose(model.classify(IMAGES, FINDINGS)[1:2], model.classify(IMAGES[1:2], FINDINGS), atol=1e-5)
    together = model.describe(IMAGES, QUERIES[:3])
    assert together == [model.describe([i], [q])[0] for i, q in zip(IMAGES, QUERIES[:3], strict=True)]
    reports = model.report(IMAGES)
    assert [report.text for report in reports] == [model.report([image])[0].text for image in IMAGES]
    local = model.similarity(IMAGES, TEXTS).local_similarity
    alone = model.similarity(IMAGES[2:], TEXTS[3:4]).local_similarity
    assert local is not None
    assert alone is not None
    np.testing.assert_allclose(local[2, 3], alone[0, 0], atol=1e-5)


def test_a_model_in_training_mode_answers_as_in_evaluation_and_goes_back(model: Chex) -> None:
    (before,) = model.ground([IMAGES[0]], ["left effusion"])
    model.train()
    same(before, model.ground([IMAGES[0]], ["left effusion"])[0])
    assert model.training
    model.eval()


def test_a_saved_model_gives_the_same_answers(model: Chex, tmp_path: Path) -> None:
    save_model(model, tmp_path / "chex")
    again = load_folder(tmp_path / "chex")
    assert isinstance(again, Chex)
    assert again.to_config() == model.to_config()
    same(model.ground([IMAGES[0]], ["left effusion"])[0], again.ground([IMAGES[0]], ["left effusion"])[0])
    assert model.describe(IMAGES[0], QUERIES) == again.describe(IMAGES[0], QUERIES)
    assert model.report(IMAGES) == again.report(IMAGES)
    (tmp_path / "chex" / "generator_tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"generator_tokenizer\.json is missing"):
        load_folder(tmp_path / "chex")


def test_five_hundred_prompts_at_once(model: Chex) -> None:
    prompts = [f"{TEXTS[number % 8]} {number}" for number in range(500)]
    answers = model.ground([IMAGES[0]] * 500, prompts)
    assert len(answers) == 500
    for number in (0, 63, 64, 499):
        same(answers[number], model.ground([IMAGES[0]], [prompts[number]])[0])
    queries = [Query(prompt, BOX if number % 2 else None) for number, prompt in enumerate(prompts[:150])]
    texts = model.describe(IMAGES[0], queries)
    assert [texts[number] for number in (0, 149)] == model.describe(IMAGES[0], [queries[0], queries[149]])


def test_prompts_that_are_empty_are_refused_and_long_ones_are_cut(model: Chex) -> None:
    for blank in ("", " \n"):
        with pytest.raises(InputError, match="at least one character"):
            model.ground([IMAGES[0]], [blank])
        with pytest.raises(InputError, match="at least one character"):
            model.describe(IMAGES[0], Query(blank))
        with pytest.raises(InputError, match="at least one character"):
            model.similarity(IMAGES, [blank])
    long = "left effusion " * 714 + "mass"
    assert len(long) == 10_000
    same(*model.ground([IMAGES[0]] * 2, [long, long[:200]]))  # the model reads 24 tokens
    assert isinstance(model.describe(IMAGES[0], Query(long, BOX))[0], str)


@pytest.mark.parametrize("corners", [(0.2, 0.2, 0.2, 0.5), (0.5, 0.2, 0.1, 0.5), (-0.1, 0, 0.5, 0.5), (0, 0, 1, 1.1)])
def test_boxes_without_area_inverted_or_outside_are_refused(corners: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"has no area|leaves the image"):
        Query(box=Box(*corners))


def test_the_smallest_boxes_are_answered(model: Chex) -> None:
    sliver = Box(0.5, 0.5, 0.5 + 1e-7, 0.5 + 1e-7)
    assert np.isfinite(model.classify(IMAGES, FINDINGS, [sliver] * 3)).all()


def test_nothing_asked_is_nothing_answered(model: Chex) -> None:
    answers = (model.ground([], []), model.describe([], []), model.report([]), model.detect([], FINDINGS))
    assert [len(answer) for answer in answers] == [0, 0, 0, 0]
    assert model.detect(IMAGES, []) == [[], [], []]
    assert model.classify([], FINDINGS).shape == (0, 3)
    assert model.classify(IMAGES, []).shape == (3, 0)
    assert model.encode_image([]).shape == model.encode_text([]).shape == (0, 16)
    assert model.similarity(IMAGES, []).global_similarity.shape == (3, 0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dimension": 15}, r"dimension 15 is not a multiple of detector\.heads, 2"),
        ({"trained": ["detecter"]}, "did you mean 'detector'"),
        ({"findings": ["pleural effusions everywhere"]}, "unknown finding"),
        ({"losses": ["giou"]}, "unknown loss"),
        ({"box_queries": 0.7, "both_queries": 0.7}, "must not exceed 1 together"),
        ({"generator": {"end_token": False}}, "a sentence has an end"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_settings(ChexConfig, CONFIG | changed)


def test_image_layers_of_other_encoders_are_not_frozen_one_by_one() -> None:
    with pytest.raises(InputError, match="frozen_image_layers needs a vit; the image encoder is a resnet"):
        create(frozen_image_layers=2)

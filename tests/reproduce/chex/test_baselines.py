"""Baselines that are made, not trained: what they answer without the image, or with another's parts."""

from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import Box, Phrase, Polarity, Query, Report, Study
from rightlung.models.clip import Clip
from rightlung.reproduce.chex.baselines import BlindBaseline, CroppedClip, retrieve_sentences
from tests.models.chex.tiny import BERT, IMAGE, TEXTS

EFFUSION = {"pleural effusion": Polarity.POSITIVE}
LEFT_LUNG, RIGHT_LUNG = Box(0.5, 0.1, 0.9, 0.9), Box(0.1, 0.1, 0.5, 0.9)


def study(name: str, text: str, box: Box | None, report: str) -> Study:
    image = np.zeros((8, 8), np.float32)
    phrases = () if box is None else (Phrase(text, boxes=(box,), findings=EFFUSION),)
    return Study(
        name, patient=name, load=lambda: image, phrases=phrases, report=Report(report),
        regions={"left lung": LEFT_LUNG, "right lung": RIGHT_LUNG},
    )  # fmt: skip


@pytest.fixture
def blind() -> BlindBaseline:
    clear = "The lungs are clear."
    studies = [
        study("a", "left effusion", Box(0.6, 0.6, 0.8, 0.9), "There is a left effusion."),
        study("b", "left effusion", Box(0.7, 0.7, 0.9, 0.9), clear),
        study("c", "right effusion", Box(0.1, 0.6, 0.3, 0.9), clear),
        study("d", "", None, clear),
    ]
    return BlindBaseline.fit(None, iter(studies))


def test_a_phrase_gets_the_median_box_of_its_finding_on_its_side(blind: BlindBaseline) -> None:
    left, right, other = blind.ground([], ["a left pleural effusion", "right effusion", "the heart is large"])
    assert left.boxes[0].box.as_tuple() == pytest.approx((0.65, 0.65, 0.85, 0.9))
    assert right.boxes[0].box.as_tuple() == pytest.approx((0.1, 0.6, 0.3, 0.9))
    assert other.boxes == ()


def test_a_finding_gets_its_median_box_and_its_frequency_in_every_image(blind: BlindBaseline) -> None:
    images = [np.zeros((8, 8), np.float32)] * 2
    found = blind.detect(images, ["pleural effusion", "nodule"])
    assert [[(one.label, one.score) for one in own] for own in found] == [[("pleural effusion", 0.75)]] * 2
    assert found[0][0].box.as_tuple() == pytest.approx((0.6, 0.6, 0.8, 0.9))  # medians of three boxes


def test_texts_are_the_most_frequent_ones_and_a_box_stands_for_its_region(blind: BlindBaseline) -> None:
    queries = [Query("pleural effusion"), Query(box=Box(0.5, 0.1, 0.9, 0.8)), Query("nodule")]
    assert blind.describe([], queries)[0] == "There is a left effusion."
    assert blind.describe([], queries)[2] == "The lungs are clear."
    assert blind._named(queries[1]) == Query("left lung")
    assert blind.report([np.zeros((8, 8), np.float32)])[0].text == "The lungs are clear."


def test_a_cropped_clip_sees_nothing_but_the_crop() -> None:
    text = {"vocab_size": 200, "max_length": 24, "options": BERT}
    clip = Clip.create({"image": {**IMAGE, "pooling": "mean"}, "text": text, "dimension": 16}, TEXTS, 0).eval()
    image = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    changed = image.copy()
    changed[:, 32:] = 0.0
    half, findings = [Box(0, 0, 0.5, 1)], ["edema", "nodule"]
    cropped = CroppedClip.of(clip, ())
    one, other = (cropped.classify([shown], findings, half) for shown in (image, changed))
    assert np.array_equal(one, other)
    assert not np.array_equal(clip.classify([image], findings, half), clip.classify([changed], findings, half))


def test_retrieval_answers_with_sentences_of_the_studies() -> None:
    text = {"vocab_size": 200, "max_length": 24, "options": BERT}
    clip = Clip.create({"image": {**IMAGE, "pooling": "mean"}, "text": text, "dimension": 16}, TEXTS, 0).eval()
    model = retrieve_sentences(clip, [study("a", "left effusion", LEFT_LUNG, "Left effusion. The heart is large.")])
    assert model.sentences == ["Left effusion.", "The heart is large."]

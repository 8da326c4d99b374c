"""Baselines that are made, not trained: what they answer without the image, or with another's parts."""

from __future__ import annotations

import numpy as np

from rightlung.core import Box, Phrase, Polarity, Report, Study
from rightlung.models.clip import Clip
from rightlung.reproduce.chex.baselines import CroppedClip, retrieve_sentences
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

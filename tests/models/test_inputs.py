"""Images and phrases as people have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

import rightlung
from rightlung.core import Box, InputError, Phrase, Query
from rightlung.models.inputs import as_images, as_pairs, as_queries
from tests.models.classifier.tiny import tiny_classifier
from tests.models.gloria.test_model import create

PIXELS = np.random.default_rng(0).integers(0, 256, (48, 40), dtype=np.uint8)
GREY: Any = (PIXELS / 255).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    PIL.Image.fromarray(PIXELS).save(tmp_path / "chest.png")
    return tmp_path / "chest.png"


def test_every_form_of_an_image_gives_the_same_pixels(path: Path) -> None:
    forms = [GREY, path, str(path), PIL.Image.open(path), PIL.Image.open(path).convert("RGB"), PIXELS,
             torch.from_numpy(GREY)]  # fmt: skip
    for form in forms:
        (one,) = as_images(form)
        (listed,) = as_images([form])
        np.testing.assert_allclose(one, rightlung.read_image(path), atol=1e-6)
        np.testing.assert_array_equal(one, listed)


def test_a_pillow_image_is_turned_upright_like_its_file(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 2  # mirrored
    PIL.Image.fromarray(PIXELS).save(tmp_path / "mirrored.jpg", exif=exif)
    (array,) = as_images(PIL.Image.open(tmp_path / "mirrored.jpg"))
    np.testing.assert_array_equal(array, rightlung.read_image(tmp_path / "mirrored.jpg"))


def test_one_image_or_one_phrase_is_paired_with_all_of_the_other(path: Path) -> None:
    images, phrases = as_pairs(path, ["effusion", "nodule"])
    assert images[0] is images[1]  # read once, encoded once
    assert phrases == ["effusion", "nodule"]
    images, phrases = as_pairs([GREY, path], Phrase("effusion"))
    assert (len(images), phrases) == (2, [Phrase("effusion")] * 2)
    assert [len(part) for part in as_pairs(GREY, "effusion")] == [1, 1]
    assert [len(part) for part in as_pairs([GREY, GREY], ["effusion", "nodule"])] == [2, 2]
    assert as_pairs([], []) == ([], [])


@pytest.mark.parametrize(
    ("images", "phrases", "sentence"),
    [
        ([GREY], ["effusion", "nodule"], "got 1 images and 2 phrases"),
        ([GREY] * 3, ["effusion", "nodule"], "got 3 images and 2 phrases"),
        (np.stack([PIXELS] * 3, axis=-1), "effusion", r"must be grey, .*colour image of the shape \(48, 40, 3\)"),
        ([3.0], "effusion", "must be a path, a Pillow image or an array .* got float"),
        (PIXELS.astype(np.int32), "effusion", "must hold floats in 0 to 1, or 8-bit integers; got int32"),
        ("nowhere.png", "effusion", "nowhere.png"),
        (3, "effusion", "must be a path, a Pillow image or an array .* got int"),
        (None, "effusion", "must be a path, a Pillow image or an array .* got NoneType"),
        (GREY, None, "expected a text or a list of texts; got NoneType"),
        (255 * GREY, "effusion", "values must lie between 0 and 1; got 0.0 to 255.0"),
        ([GREY[None]], "effusion", r"of shape \(height, width\); got float32 of shape \(1, 48, 40\)"),
    ],
)
def test_anything_else_is_one_sentence(images: Any, phrases: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        as_pairs(images, phrases)


def test_the_shipped_models_take_every_form(path: Path) -> None:
    for model in (create(), tiny_classifier("nodule", "mass")):
        expected = model.ground([rightlung.read_image(path)], ["small nodule"])
        assert model.ground(path, "small nodule") == expected
        assert model.ground(PIL.Image.open(path), ["small nodule"]) == expected
        np.testing.assert_array_equal(model.classify(path, "nodule"), model.classify([GREY], ["nodule"]))
    gloria = create()
    assert gloria.similarity(path, "small nodule").global_similarity.shape == (1, 1)
    np.testing.assert_array_equal(gloria.encode_image(path), gloria.encode_image([GREY]))
    np.testing.assert_array_equal(gloria.encode_text("small nodule"), gloria.encode_text(["small nodule"]))


def test_texts_and_boxes_are_queries() -> None:
    box = Box(0.1, 0.2, 0.3, 0.4)
    images, queries = as_queries(GREY, ["heart", box, Query("heart", box)])
    assert (len(images), queries) == (3, [Query("heart"), Query(box=box), Query("heart", box)])
    assert as_queries([GREY, GREY], "heart")[1] == [Query("heart"), Query("heart")]
    assert as_queries(GREY, []) == ([], [])


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (["heart", "lung", "spine"], "got 2 images and 3 queries"),
        ([(0.1, 0.2, 0.3, 0.4)], "a query must be a Query, a text or a Box; got tuple"),
        (None, "a query must be a Query, a text or a Box; got NoneType"),
        ("", "a query's phrase must be a text with at least one character"),
    ],
)
def test_other_queries_are_refused(queries: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        as_queries([GREY, GREY], queries)

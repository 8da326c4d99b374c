"""Retrieval: the nearest sentence of a bank, for images, regions and phrases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rightlung.core import Box, Image, InputError, Query, Report, Study
from rightlung.models.folder import load_folder, save_model
from rightlung.models.retrieval import Retrieval
from tests.models.clip import tiny

BANK = ["No pneumothorax.", "There is a pneumothorax.", "Clear lungs.", "Large effusion."]


class Brightness:
    """Embeds an image by its mean brightness and a text by its place in the bank."""

    angles = (0.0, 0.1, 0.8, 1.5)

    def encode_image(self, images: Sequence[Image]) -> NDArray[np.float32]:
        return self._vectors([1.5 * float(image.mean()) for image in images])

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._vectors([self.angles[BANK.index(text)] for text in texts])

    def _vectors(self, angles: Sequence[float]) -> NDArray[np.float32]:
        return np.array([(2 * np.cos(angle), 2 * np.sin(angle)) for angle in angles], dtype=np.float32)


def halves() -> Image:
    """Return an image that is black on the left and white on the right."""
    return np.repeat(np.array([[0.0, 1.0]], dtype=np.float32), 8, axis=0).repeat(4, axis=1)


def test_the_sentence_of_a_box_is_the_nearest_to_it() -> None:
    model = Retrieval(Brightness(), BANK)
    queries = [Query(box=Box(0, 0, 0.5, 1)), Query(box=Box(0.5, 0, 1, 1)), Query()]
    assert model.describe(halves(), queries) == [BANK[0], BANK[3], BANK[2]]
    # An angle of 0.75 and of 0.1: their mean is nearest to 0.1.
    assert model.describe([halves()], [Query(BANK[1])]) == [BANK[1]]


def test_a_report_has_the_nearest_sentences_without_duplicates_and_contradictions() -> None:
    model = Retrieval(Brightness(), BANK, sentences_per_report=3)
    (report,) = model.report([np.zeros((4, 4), dtype=np.float32)])
    assert report.text == "No pneumothorax. Clear lungs. Large effusion."  # the second is like the first
    scores = [one.score for one in report.sentences if one.score is not None]
    np.testing.assert_allclose(scores, np.cos([0.0, 0.8, 1.5]), atol=1e-6)


def test_a_bank_is_made_of_studies_and_the_model_comes_back_from_disk(tmp_path: Path) -> None:
    texts = ["Small left effusion. No pneumothorax.", "No pneumothorax. Clear lungs."]
    studies = [Study(f"s{number}", halves, report=Report(text)) for number, text in enumerate(texts)]
    model = Retrieval.fit(tiny.create(), studies)
    assert model.sentences == ["Small left effusion.", "No pneumothorax.", "Clear lungs."]
    given: Any = ([tiny.picture(0)] * 2, [Query(box=Box(0, 0, 0.5, 0.5)), Query("effusion")])
    save_model(model, tmp_path / "retrieval")
    loaded = load_folder(tmp_path / "retrieval")
    assert loaded.describe(*given) == model.describe(*given)
    (found,), (expected,) = loaded.report([tiny.picture(0)]), model.report([tiny.picture(0)])
    assert found.text == expected.text
    scores, wanted = (np.array([one.score for one in report.sentences], float) for report in (found, expected))
    np.testing.assert_allclose(scores, wanted, atol=1e-6)
    pooled = model.embedder.encode_regions(given[0][:1], [Box(0, 0, 0.5, 0.5)])[0]
    assert model.describe(*given)[0] == model.sentences[int((model.embeddings @ pooled).argmax())]


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(InputError, match="encode_image and encode_text"):
        Retrieval(object(), BANK)
    with pytest.raises(InputError, match="at least one sentence"):
        Retrieval(Brightness(), [])
    with pytest.raises(InputError, match="as many images as queries"):
        Retrieval(Brightness(), BANK).describe([halves()] * 2, [Query()] * 3)

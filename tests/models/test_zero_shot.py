"""Prompts as classifiers, against hand calculations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.models.zero_shot import PromptClassifier, prompt_ensemble


class Plane:
    """Embeds an image as its first two pixels, and texts by a table."""

    texts = {"a": (1.0, 0.0), "b": (0.0, 2.0), "c": (3.0, 4.0)}

    def encode_image(self, images: Sequence[Any]) -> Any:
        return np.array([image[0, :2] for image in images], np.float32)

    def encode_text(self, texts: Sequence[str]) -> Any:
        return np.array([self.texts[text] for text in texts], np.float32)


IMAGE = np.array([[0.0, 5.0]], np.float32)


def test_a_class_is_the_mean_of_its_unit_prompts() -> None:
    prompts = {"edema": ["a", "b"], "mass": ["c"]}
    # edema: the mean of (1, 0) and (0, 1); mass: (0.6, 0.8); the image points along the second axis.
    found = PromptClassifier(Plane(), prompts).classify([IMAGE], ["mass", "Edema", "nodule"])
    assert found[0, :2].tolist() == pytest.approx([0.8, 0.5])
    assert np.isnan(found[0, 2])
    found = PromptClassifier(Plane(), prompts, mean="unit").classify([IMAGE], ["edema"])
    assert float(found[0, 0]) == pytest.approx(0.5**0.5)


def test_a_score_does_not_depend_on_the_other_images() -> None:
    model = PromptClassifier(Plane(), {"edema": ["a"], "mass": ["b"]})
    others = [IMAGE, *np.random.default_rng(0).random((5, 1, 2)).astype(np.float32)]
    assert (
        model.classify(others, ["edema", "mass"])[0].tolist() == model.classify([IMAGE], ["edema", "mass"])[0].tolist()
    )


def test_prompts_alone_prefer_a_class() -> None:
    model = PromptClassifier(Plane(), {"edema": ["a"], "mass": ["c"]}, image=[1.0, 0.0])
    assert model.classify([IMAGE, IMAGE * 0], ["edema", "mass"]).tolist() == [pytest.approx([1.0, 0.6])] * 2


def test_ensembles_leave_out_training_sentences() -> None:
    both = prompt_ensemble(["pleural effusion", "no finding"])
    assert "pleural effusion" in both["pleural effusion"]
    fewer = prompt_ensemble(["pleural effusion"], unlike=["Pleural effusion.", "Normal heart."])
    assert set(both["pleural effusion"]) - set(fewer["pleural effusion"]) == {"pleural effusion"}
    composed = prompt_ensemble(["pleural effusion", "no finding"], "composed")
    assert {"severe left pleural effusion", "mild pleural effusion"} <= set(composed["pleural effusion"])
    assert len(composed["pleural effusion"]) == 7 * 4  # severities, and no side, left, right or both
    single = prompt_ensemble(["edema"], "single")
    with pytest.raises(InputError, match="every prompt of the ensemble 'single' for 'edema'"):
        prompt_ensemble(["edema"], "single", unlike=single["edema"])
    with pytest.raises(InputError, match="ensemble"):
        prompt_ensemble(["edema"], "many")  # type: ignore[arg-type]


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="which a object lacks"):
        PromptClassifier(object(), {"edema": ["a"]})
    with pytest.raises(InputError, match="at least one prompt"):
        PromptClassifier(Plane(), {"edema": []})

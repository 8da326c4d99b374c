"""The shipped model: what comes with it, and that it still does what its card says, on a few studies."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import rightlung
from rightlung.lexicon import side_of
from rightlung.models.base import FindingClassifier, Grounder, Matcher, Reader
from rightlung.models.folder import load_folder, save_model
from rightlung.models.gloria import Gloria
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from rightlung.scoring.localisation import score
from rightlung.training.recipe_file import read_recipe

FOLDER = Path(rightlung.__file__).parent / "models" / "shipped" / "starter"
SEED = 991  # neither of training (11), nor of validation (12), nor of measuring (13), nor of the demonstration


@pytest.fixture(scope="module")
def starter() -> Gloria:
    model = rightlung.load("starter")
    assert isinstance(model, Gloria)
    return model


def test_it_is_small_enough_and_brings_its_card_and_its_curve(starter: Gloria) -> None:
    assert (FOLDER / "model.safetensors").stat().st_size <= 16 * 2**20
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for part in ("Data.", "Recipe.", "Command.", "Measured.", "Limits.", rightlung.NOT_A_MEDICAL_DEVICE):
        assert part in card
    with (FOLDER / "log.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["step"] == str(read_recipe("starter").schedule.steps)
    assert (FOLDER / "curve.png").is_file()


def test_it_can_do_what_it_says(starter: Gloria) -> None:
    for ability in (Grounder, Matcher, FindingClassifier, Reader):
        assert isinstance(starter, ability)


def test_its_folder_round_trips_bit_for_bit(starter: Gloria, tmp_path: Path) -> None:
    save_model(starter, tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (FOLDER / name).read_bytes()
    again = load_folder(tmp_path / "again")
    assert isinstance(again, Gloria)
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in starter.state_dict().items())


def test_it_points_at_what_is_there_on_the_side_that_is_named(starter: Gloria) -> None:
    studies = make_studies(default_config(), SEED, range(24), size=224)
    asked = [
        (study, phrase)
        for study in studies
        for phrase in study.phrases
        if phrase.mask is not None and phrase.mask.pixels.any()
    ]
    answers = starter.ground([study.image for study, _ in asked], [phrase for _, phrase in asked])
    maps = np.stack([answer.heatmap.to_size((224, 224)) for answer in answers if answer.heatmap is not None])
    masks = np.stack([phrase.mask.pixels for _, phrase in asked if phrase.mask is not None])
    found = score(maps, masks, metrics=["auroc", "pointing"], workers=1)
    assert float(np.nanmean(found["auroc"])) > 0.98
    assert float(np.nanmean(found["pointing"])) > 0.88
    peaks = maps.reshape(len(maps), -1).argmax(1) % 224 / 224
    # The patient's left is on the image's right.
    sided = [
        (peak > 0.5) == (side == "left")
        for peak, (_, phrase) in zip(peaks, asked, strict=True)
        if (side := side_of(phrase.text)) in ("left", "right") and "support devices" not in phrase.findings
    ]
    assert len(sided) > 10
    assert np.mean(sided) > 0.9


def test_it_abstains_more_from_what_is_denied(starter: Gloria) -> None:
    study = make_studies(default_config(), SEED, [0], size=224)[0]
    denied = ["No pneumothorax.", "There is no pleural effusion.", "The heart size is normal."]
    for answer in starter.ground([study.image] * 3, denied):
        assert answer.abstention > 0.5


def test_it_knows_the_words_of_reports_and_not_gibberish(starter: Gloria) -> None:
    assert starter.reads("Small left pleural effusion with adjacent atelectasis.").known == 1.0
    assert starter.reads("片側胸水").known == 0.0

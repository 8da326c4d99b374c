"""The shipped recipe trains a classifier."""

from __future__ import annotations

from pathlib import Path

from rightlung.models.classifier import Classifier
from rightlung.models.folder import load_folder
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_recipe

SMALL = (
    "model.config.image.size=64", "data.image_size=64", "data.mask_grid=16", "data.workers=0", "schedule.steps=6",
    "batch_size=8",
    "schedule.warmup_steps=0", "data.train[0].source=phantom?count=24&seed=11", "data.train[0].cached_studies=24",
    "data.validation.source=phantom?count=8&seed=12", "data.validation.cached_studies=8", "data.validation.every=6",
)  # fmt: skip


def test_the_recipe_trains_a_classifier_of_its_findings(tmp_path: Path) -> None:
    recipe = read_recipe("classifier", SMALL)
    assert recipe.data.target_options["labels"]["findings"] == recipe.model.config["findings"]
    outcome = train(recipe, tmp_path / "run")
    assert {"label_bce", "mask_bce", "loss"} <= set(outcome.validation)
    model = load_folder(outcome.model)
    assert isinstance(model, Classifier)
    assert list(model.findings) == recipe.model.config["findings"]

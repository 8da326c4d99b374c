"""The recipes of the baselines train on phantom studies, and the trained models load."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.models.folder import load_folder
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_recipe

SMALL = (
    "model.config.image.size=64", "data.image_size=64", "data.mask_grid=16", "data.workers=0", "schedule.steps=2",
    "schedule.warmup_steps=0", "batch_size=4", "data.train[0].source=phantom?count=8&seed=11&size=64",
    "data.train[0].cached_studies=8", "data.validation.source=phantom?count=4&seed=12&size=64",
    "data.validation.cached_studies=4", "data.validation.every=2",
)  # fmt: skip
ADPD_LOSSES = "losses={region_boxes: 1.0, region_findings: 1.0, image_findings: 1.0}"


@pytest.mark.parametrize(
    ("name", "changes", "validated"),
    [
        ("adpd", [ADPD_LOSSES], {"region_boxes", "region_findings", "image_findings"}),
        ("conditional-detr", [], {"classification", "box_l1", "box_giou"}),
        ("reporter", [], {"report_generation"}),
        ("transvg", [], {"box_l1", "box_giou", "auroc", "pointing"}),
    ],
)
def test_the_recipe_of_a_baseline_trains(name: str, changes: list[str], validated: set[str], tmp_path: Path) -> None:
    outcome = train(read_recipe(name, [*SMALL, *changes]), tmp_path / "run")
    assert validated <= set(outcome.validation)
    assert load_folder(outcome.model).kind == name

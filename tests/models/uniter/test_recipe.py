"""The recipe that comes with the package, made small, trains a model that can be asked."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import rightlung
from rightlung.core import InputError
from rightlung.training.log import read_log
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_recipe
from rightlung.training.setup import Hardware
from tests.models.uniter.tiny import BERT
from tests.training.recipes import final_weights, quiet, same

SMALLER = [
    "data.image_size=64", "data.workers=0", "data.train=[{source: 'phantom?count=8&seed=11', cached_studies: 8}]",
    "data.validation={source: 'phantom?count=4&seed=12', cached_studies: 4, every: 2}",
    "data.validation.phrases_per_image=0", "data.validation.grounded_phrases=0",
    "model.config={image_size: 64, region_size: 8, feature_size: 64, vocab_size: 300, map_size: 16}",
    f"model.config.options={BERT}",
    "schedule={steps: 4}", "batch_size=4", "checkpoint_every=2", "log_every=1",
]  # fmt: skip


def test_it_trains_and_the_same_recipe_gives_the_same_weights(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train(read_recipe("wrong-lung-uniter", SMALLER), tmp_path / name, hardware=Hardware("cpu"), progress=quiet())
    assert same(final_weights(tmp_path / "one"), final_weights(tmp_path / "two"))
    rows = read_log(tmp_path / "one" / "log.csv")
    for name in ("mlm", "mrm", "itm"):
        assert all(math.isfinite(row[name]) for row in rows)
        assert math.isfinite(rows[-1][f"validation {name}"])
    model = rightlung.load(tmp_path / "one" / "model")
    study = rightlung.open_source("phantom?count=1&seed=7&size=64")[0]
    (grounding,) = model.ground_regions([study.image], ["left effusion"], [study.regions])
    assert grounding.heatmap.values.max() > 0


def test_without_boxes_the_field_is_named(tmp_path: Path) -> None:
    recipe = read_recipe("wrong-lung-uniter", [*SMALLER, "data.targets=[]"])
    with pytest.raises(InputError, match=r"Add regions to data\.targets"):
        train(recipe, tmp_path / "run", hardware=Hardware("cpu"), progress=quiet())

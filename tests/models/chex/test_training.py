"""The recipe ``chex-small``, made tiny: five stages, each of which trains its own parts and no others."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

import rightlung
from rightlung.core import InputError, Query
from rightlung.models.base import TrainingBatch
from rightlung.models.chex.config import PARTS
from rightlung.models.folder import load_folder
from rightlung.training.log import read_log
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_stages
from rightlung.training.setup import Hardware
from tests.models.chex.tiny import BERT, DECODER, IMAGE, TEXTS, create
from tests.training.recipes import quiet

STAGES = ("encoders", "detector", "labels", "post-decoder", "language", "generator")
TINY = [
    "data.image_size=64", "data.mask_grid=8", "data.workers=0", "schedule={steps: 2}", "batch_size=4", "log_every=1",
    "data.train=[{source: 'phantom?count=8&seed=11', cached_studies: 8, texts_per_image: 3, phrases_per_image: 3}]",
    "checkpoint_every=2", "precision=32-true", "ema=0", "augmentation={mirror: words}",
    f"encoders:model.config.image={IMAGE}", "encoders:model.config.dimension=16",
    f"encoders:model.config.text={{vocab_size: 200, max_length: 24, summed_layers: 1, options: {BERT}}}",
    f"detector:model.config.detector={DECODER}", f"detector:model.config.post_decoder={DECODER}",
    "detector:model.config.prefix={length: 3, hidden_size: 8}", "detector:model.config.generator.vocab_size=200",
    "detector:model.config.generator.options={n_embd: 16, n_layer: 1, n_head: 2}",
    "detector:model.config.save_dtype=float32",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    for stage, recipe in read_stages("chex-small", TINY).items():
        train(recipe, out / stage, hardware=Hardware("cpu"), progress=quiet())
    return out


def weights(folder: Path) -> dict[str, Tensor]:
    model = load_folder(folder)
    assert isinstance(model, torch.nn.Module)
    return dict(model.state_dict())


def changed_parts(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """Return the parts of which any weight is not the same bit for bit."""
    assert before.keys() == after.keys()
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def test_every_stage_trains_its_parts_and_no_others(trained: Path) -> None:
    recipes = read_stages("chex-small", TINY)
    assert tuple(recipes) == STAGES
    for before, stage in pairwise(STAGES[1:]):
        changed = changed_parts(weights(trained / before / "model"), weights(trained / stage / "model"))
        assert changed == set(recipes[stage].model.config["trained"]), stage
    for stage, recipe in recipes.items():
        rows = read_log(trained / stage / "log.csv")
        assert len(rows) == 2
        assert all(math.isfinite(row[name]) for row in rows for name in recipe.losses), stage


def test_the_detector_stage_starts_with_the_encoders_of_the_first(trained: Path) -> None:
    first, start = weights(trained / "encoders" / "model"), weights(trained / "detector" / "start")
    encoders = [name for name in first if name.startswith(("image_encoder.", "text_encoder."))]
    assert encoders
    assert all(torch.equal(first[name], start[name]) for name in encoders)
    assert changed_parts(start, weights(trained / "detector" / "model")) == {"image_encoder", "detector"}


def test_the_trained_model_answers(trained: Path) -> None:
    model = rightlung.load(trained / "generator" / "model")
    study = rightlung.open_source("phantom?count=1&seed=7&size=64")[0]
    (grounding,) = model.ground([study.image], ["left effusion"])
    assert len(grounding.boxes) > 0
    assert isinstance(model.describe(study.image, Query("left effusion"))[0], str)
    assert model.config.trained == ("post_decoder", "generator")


def test_another_prefix_keeps_all_weights_but_its_own(trained: Path, tmp_path: Path) -> None:
    changes = [*TINY, "generator:model.kind=chex", "generator:model.config.prefix.length=1"]
    recipe = read_stages("chex-small", changes)["generator"]
    recipe = replace(recipe, model=replace(recipe.model, start=str(trained / "language" / "model")))
    train(recipe, tmp_path / "run", hardware=Hardware("cpu"), progress=quiet())
    before, start = weights(trained / "language" / "model"), weights(tmp_path / "run" / "start")
    new = {name for name in before if not torch.equal(before[name], start[name])}
    assert new == {name for name in before if name.startswith("generator.prefix.") and name.split(".")[2] != "0"}
    config = rightlung.load(tmp_path / "run" / "model").config
    assert (config.prefix.length, config.prefix.hidden_size) == (1, 8)


def test_fields_of_the_encoders_belong_to_the_model_to_start_from(trained: Path) -> None:
    recipe = read_stages("chex-small", [*TINY, "detector:model.config.dimension=32"])["detector"]
    with pytest.raises(InputError, match="dimension: remove it"):
        train(recipe, trained / "again", hardware=Hardware("cpu"), progress=quiet())


@pytest.mark.parametrize("part", PARTS)
def test_frozen_parts_have_no_gradient_and_stay_in_evaluation_mode(part: str) -> None:
    model = create(trained=[part]).train()
    for name in PARTS:
        module = model.get_submodule(name)
        assert module.training is (name == part)
        assert {weight.requires_grad for weight in module.parameters()} == {name == part}


def test_pretraining_looks_at_no_image_and_trains_the_generator() -> None:
    model = create(trained=["generator"], losses=["language_pretraining"]).train()
    images = torch.rand(2, 1, 64, 64)
    losses = [model.eval()(TrainingBatch(one, TEXTS[:2]))["language_pretraining"] for one in (images, 1 - images)]
    assert losses[0].item() == losses[1].item()
    losses[0].backward()
    learning = {name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
    assert learning == {"generator"}

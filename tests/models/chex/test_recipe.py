"""The recipe ``chex``: the stages, weights and sizes of the paper's supplement D.3."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rightlung.core import InputError
from rightlung.core.settings import read_settings
from rightlung.lexicon.labels import label_set
from rightlung.models.chex import Chex, ChexConfig
from rightlung.models.folder import load_folder
from rightlung.training.log import read_log
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_stages
from tests.models.chex.tiny import BERT, DECODER
from tests.training.recipes import CPU, quiet

MIMIC, VINDR = 227_382, 15 * 15_000
STAGES = read_stages("chex")

MIMIC_LIKE = "source: 'phantom?count=4&seed=11', cached_studies: 4, phrase_masks: none"
VINDR_LIKE = "{source: 'phantom?count=4&seed=12', cached_studies: 4, texts_per_image: 0}"
TINY = [
    "data.image_size=64", "data.mask_grid=8", "data.workers=0", "schedule={steps: 1}", "batch_size=4", "log_every=1",
    "gradient_accumulation=1", "checkpoint_every=1", "precision=32-true",
    f"data.train=[{{{MIMIC_LIKE}, texts_per_image: 2}}]",
    f"detector:data.train=[{{{MIMIC_LIKE}, texts_per_image: 2}}, {VINDR_LIKE}]",
    f"encoders:model.config.image={{kind: vit, size: 64, options: {{patch_size: 16, {str(BERT)[1:]}}}",
    "encoders:model.config.text={kind: clip_text_model, pooling: eos, end_token: true, vocab_size: 200, "
    f"max_length: 24, options: {BERT}}}",
    "encoders:model.config.dimension=16", "detector:model.config.frozen_image_layers=1",
    f"detector:model.config.detector={DECODER}", f"detector:model.config.post_decoder={DECODER}",
    "detector:model.config.prefix={length: 3, hidden_size: 8}",
    "detector:model.config.generator={vocab_size: 200, max_length: 24, options: {n_embd: 16, n_layer: 1, n_head: 2}}",
]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "epochs", "images", "learning_rate", "warmup_batches"),
    [
        ("detector", 50, MIMIC + VINDR, 1e-4, 1000),
        ("post-decoder", 200, MIMIC, 1e-3, 1000),
        ("language", 50, MIMIC, 3e-4, 10_000),
        ("generator", 20, MIMIC, 3e-4, 10_000),
    ],
)
def test_steps_follow_from_the_epochs_of_the_paper(
    stage: str, epochs: int, images: int, learning_rate: float, warmup_batches: int
) -> None:
    recipe = STAGES[stage]
    per_step = recipe.batch_size * recipe.gradient_accumulation
    assert per_step == 256
    assert recipe.schedule.steps == pytest.approx(epochs * images / per_step, abs=1)
    assert recipe.schedule.warmup_steps == pytest.approx(warmup_batches / recipe.gradient_accumulation, abs=1)
    assert recipe.optimizer.learning_rate == learning_rate
    assert learning_rate * recipe.schedule.final_learning_rate_factor == pytest.approx(1e-7, rel=1e-3)
    assert (recipe.optimizer.weight_decay, recipe.optimizer.clip_norm) == (1e-5, 1.0)
    assert sum(entry.share for entry in recipe.data.train) == images


def test_the_findings_are_those_of_the_data_sets() -> None:
    recipe = STAGES["detector"]
    config = read_settings(ChexConfig, {**recipe.model.config, "losses": list(recipe.losses)})
    assert list(config.findings) == [*label_set("vindr-22").findings.values()]
    assert list(config.region_findings) == [*label_set("imagenome-53").findings.values()]
    for stage in list(STAGES.values())[1:]:
        options = stage.data.target_options
        assert "regions" not in options or tuple(options["regions"]["findings"]) == config.region_findings
    assert (config.findings_per_batch, config.regions_per_batch, config.max_generated) == (10, 20, 32)


def test_boxes_are_asked_for_from_stage_2_on_only() -> None:
    asked = {name: recipe.model.config.get("box_queries", 0) for name, recipe in STAGES.items()}
    assert asked == {"encoders": 0, "detector": 0, "post-decoder": 0.4, "language": 0, "generator": 0.4}


def test_only_vindr_has_boxes_of_findings_and_only_mimic_has_sentences() -> None:
    mimic, vindr = STAGES["detector"].data.train
    assert (mimic.phrase_masks, vindr.phrase_masks) == ("none", "exact")
    assert (mimic.texts_per_image > 0, vindr.texts_per_image) == (True, 0)


@pytest.mark.parametrize("change", ["data.train[0].texts_per_image=0", "detector:data.sources_per_batch=one"])
def test_a_batch_without_any_text_is_refused(change: str) -> None:
    with pytest.raises(InputError, match=r"data\.train\[.\]\.texts_per_image: 0 needs another entry with texts"):
        read_stages("chex", [change])


def test_one_run_learns_from_sources_with_different_targets(tmp_path: Path) -> None:
    stages = read_stages("chex", TINY)
    for stage in ("encoders", "detector"):  # the others have one source, as in chex-small
        train(stages[stage], tmp_path / stage, hardware=CPU, progress=quiet())
    (row,) = read_log(tmp_path / "detector" / "log.csv")
    assert all(math.isfinite(row[name]) and row[name] > 0 for name in stages["detector"].losses)
    assert isinstance(load_folder(tmp_path / "detector" / "model"), Chex)

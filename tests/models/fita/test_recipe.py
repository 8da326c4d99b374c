"""The recipes ``fita`` and ``fita-small``: every stage trains, and rows of the ablation are changes of one recipe."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rightlung.core import InputError
from rightlung.core.settings import read_settings
from rightlung.models.fita import Fita, FitaConfig
from rightlung.models.folder import load_folder
from rightlung.training.log import read_log
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_stages
from tests.models.fita.tiny import BERT, REPORTS, batch, create, picture
from tests.training.recipes import CPU, quiet

TINY = [
    "classifier:model.config.image={kind: resnet, size: 64, pyramid_levels: [-2], options: {embedding_size: 8, "
    "hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], layer_type: basic}}",
    "data.image_size=64", "data.mask_grid=8", "data.workers=0", "schedule={steps: 2}", "batch_size=8", "log_every=1",
    "checkpoint_every=2", "precision=32-true",
    "data.train=[{source: 'phantom?count=16&seed=11', cached_studies: 16}]",
    "data.validation={source: 'phantom?count=8&seed=12', cached_studies: 8, every: 2}",
    "text:model.config.dimension=16", "text:model.config.heads=2", "text:model.config.min_count=1",
    f"text:model.config.text={{options: {BERT}, triplets_per_batch: 16}}",
    "text:model.config.writing={max_words: 30}",
]  # fmt: skip
SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {"rra": False, "connection": "last", "graph": False, "ifr": False, "tfr": False},
    "+RRA": {"connection": "last", "graph": False, "ifr": False, "tfr": False},
    "+U": {"graph": False, "ifr": False, "tfr": False},
    "+graph": {"ifr": False, "tfr": False},
    "+IFR": {"tfr": False},
    "+TFR": {"ifr": False},
    "IFR+TFR": {},
}


@pytest.mark.parametrize("name", ["fita", "fita-small"])
def test_all_stages_train_and_the_model_comes_back(name: str, tmp_path: Path) -> None:
    stages = read_stages(name, TINY)
    assert list(stages) == ["classifier", "text", "report"]
    for stage, recipe in stages.items():
        train(recipe, tmp_path / stage, hardware=CPU, progress=quiet())
        rows = read_log(tmp_path / stage / "log.csv")
        assert all(math.isfinite(row[term]) for row in rows for term in recipe.losses)
    text, model = (load_folder(tmp_path / stage / "model") for stage in ("text", "report"))
    assert isinstance(model, Fita)
    assert model.graph is not None
    assert model.graph.counts[-1, -1] > 0
    for part, kept in (("text_refiner", True), ("classifier", True), ("decoder", False)):
        before, after = (getattr(one, part).state_dict() for one in (text, model))
        assert all(torch.equal(before[key], after[key]) for key in before) == kept
    (report,) = model.report(picture(0))
    assert report.text


def test_without_a_text_refiner_there_is_no_first_stage(tmp_path: Path) -> None:
    derived = tmp_path / "image-refiner.yaml"
    config = "dimension: 16, heads: 2, hidden_size: 16, tfr: false, min_count: 1, writing: {max_words: 30}"
    changes = [
        f"report:model={{start: 'stage:classifier', kind: fita, config: {{{config}}}}}",
        "report:losses={report_generation: 1, image_classification: 1}",
    ]
    derived.write_text(yaml.safe_dump({"base": "fita-small", "without": ["text"], "changes": changes}))
    stages = read_stages(derived, [change for change in TINY if not change.startswith("text:")])
    assert list(stages) == ["classifier", "report"]
    for stage, recipe in stages.items():
        train(recipe, tmp_path / stage, hardware=CPU, progress=quiet())
    model = load_folder(tmp_path / "report" / "model")
    assert (model.text_refiner, model.graph is not None) == (None, True)
    assert model.graph.counts[-1, -1] > 0


def test_the_recipe_of_the_paper_has_its_settings() -> None:
    recipe = read_stages("fita")["text"]
    config = read_settings(FitaConfig, {**recipe.model.config, "losses": list(recipe.losses)})
    assert (config.layers, config.dimension, config.hidden_size, config.heads, config.writing.beams) == (
        3,
        512,
        512,
        8,
        3,
    )
    assert (config.min_count, config.writing.max_words + 2, config.writing.length_penalty) == (10, 100, 0)
    assert recipe.schedule.steps == pytest.approx(30 * 270_790 / recipe.batch_size, abs=1)
    assert (config.text.pretrained, config.text.causal) == ("google-bert/bert-base-uncased", True)


@pytest.mark.parametrize("row", SWITCHES)
def test_a_row_of_the_ablation_is_a_change_of_the_configuration(row: str) -> None:
    switches = SWITCHES[row]
    losses = ["report_generation", "image_classification"]
    model = create(**switches, losses=losses).train()
    terms = model(batch(*REPORTS))
    assert list(terms) == losses
    torch.autograd.backward(list(terms.values()))
    assert [model.graph is not None, model.image_refiner is not None, model.text_refiner is not None] == [
        switches.get(name, True) for name in ("graph", "ifr", "tfr")
    ]
    assert len(model.report(picture(0))) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"graph": False}, "ifr refines the symptoms"),
        ({"tfr": False}, "image_text_contrastive needs tfr"),
        ({"losses": ["text_triplet", "report_generation"]}, "those of the first stage"),
        ({"symptoms": ["scoliosis"]}, "symptom"),
        ({"heads": 3}, "not a multiple"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create(**changed)


def test_a_graph_needs_a_trained_classifier() -> None:
    with pytest.raises(InputError, match="start from one"):
        Fita.create({"dimension": 16, "heads": 2}, REPORTS, 0)
    with pytest.raises(InputError, match="starts from a classifier; got a str"):
        Fita.from_encoders("starter", {}, REPORTS, 0)

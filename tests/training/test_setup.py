"""What a run is prepared from: some of the cached studies, and a model with a changed configuration."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.core import InputError, Polarity, Study
from rightlung.models.folder import load_folder, save_model
from rightlung.models.gloria import Gloria
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from rightlung.training import setup
from rightlung.training.batches import Batches
from rightlung.training.folder import RunFolder
from rightlung.training.log import TrainingProgress
from rightlung.training.recipe import DataEntry
from rightlung.training.setup import save_initial_model
from tests.models.gloria.test_model import create
from tests.training.recipes import run, small
from tests.training.test_batches import opened

CPU = torch.device("cpu")
ENTRY = DataEntry(source="phantom?count=24&seed=11", cached_studies=24)
NOTHING = {"no finding", "support devices"}


def abnormal(study: Study) -> set[str]:
    """The sentences of a study that say, or say that it may be, that a condition is there."""
    found = set()
    for phrase in study.phrases:
        said = {name for name, polarity in phrase.findings.items() if polarity is not Polarity.NEGATIVE}
        if said - NOTHING:
            found.add(phrase.text)
    return found


def test_only_studies_with_an_abnormal_sentence_are_left_and_only_such_sentences_come() -> None:
    entry = replace(ENTRY, paired_text="abnormal", texts_per_image=2)
    studies = opened(entry)[1]
    known = make_studies(default_config(), 11, range(24), 64)
    telling = {study.id: texts for study in known if (texts := abnormal(study))}
    assert 0 < len(telling) < 24
    assert {studies.annotations(number).id for number in range(len(studies))} == set(telling)
    batch = Batches([(entry, studies)], len(studies), 1, CPU).batch_at(0)
    for image, text in zip(batch.image_of_text, batch.texts, strict=True):
        assert text in telling[batch.ids[image]]


def test_examples_are_the_first_studies_with_a_target() -> None:
    entry = replace(ENTRY, phrases_per_image=1, few_shot_studies=3, positive_share=1.0)
    studies = opened(entry)[1]
    placed = [study.id for study in make_studies(default_config(), 11, range(24), 64)
              if any(phrase.mask is not None for phrase in study.phrases)]  # fmt: skip
    assert [studies.annotations(number).id for number in range(len(studies))] == placed[:3]
    batch = Batches([(entry, studies)], 3, 1, CPU).batch_at(0)
    assert batch.targets["phrases"]["image_indices"] == [0, 1, 2]
    assert batch.targets["phrases"]["has_mask"].all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"few_shot_studies": 25}, r"\.few_shot_studies is 25, but only \d+ of the 24 studies of phantom"),
        ({"few_shot_studies": 1, "phrase_masks": "none"}, r"\.few_shot_studies is 1, but only 0 of the 24 studies"),
        ({"cached_studies": None, "few_shot_studies": 2}, r"\.few_shot_studies needs data\.train\[0\]\.cached_studies"),
        ({"cached_studies": None, "paired_text": "abnormal"}, r"\.paired_text 'abnormal' needs .*\.cached_studies"),
        ({"phrase_masks": "regions", "source": "phantom?count=24&seed=11&size=96"}, r"\.source says size=96, but data"),
    ],
)
def test_what_cannot_be_chosen_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        opened(replace(ENTRY, **changes))


def test_a_source_without_an_abnormal_sentence_is_refused() -> None:
    known = make_studies(default_config(), 11, range(24), 64)
    normal = next(number for number, study in enumerate(known) if not abnormal(study))
    entry = DataEntry(source=f"phantom?count=1&seed=11&start={normal}", cached_studies=1, paired_text="abnormal")
    with pytest.raises(InputError, match=r"text 'abnormal': no study of phantom\?count=1&seed=11&start=\d+ has an abn"):
        opened(entry)


@pytest.fixture(scope="module", params=["float32", "float16"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "model"
    save_model(create(attention={"temperature": 3.0}, save_dtype=request.param), folder)
    return folder


def kept(folder: Path, start: Path | str, config: str) -> Any:
    recipe = small(folder, f"model={{start: {start}, config: {config}}}", "losses={global: 1, mask_cross_entropy: 1}")
    run = RunFolder(folder / "run")
    run.path.mkdir()
    save_initial_model(recipe, None, run, [])
    return load_folder(run.start)


def test_a_model_goes_on_with_another_configuration_and_the_weights_it_had(tmp_path: Path, start: Path) -> None:
    before = load_folder(start)
    after = kept(tmp_path, start, "{duplicate_texts: ignore, attention: {temperature: 7.0}}")
    assert isinstance(after, Gloria)
    wanted = before.to_config()
    wanted |= {"losses": ["global", "mask_cross_entropy"], "duplicate_texts": "ignore"}
    wanted["attention"] = wanted["attention"] | {"temperature": 7.0}  # what is beside it stays
    assert after.to_config() == wanted
    one, other = before.state_dict(), after.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert after.extra_files() == before.extra_files()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "wrong-lung-retrained",
            "model.start: 'wrong-lung-retrained' is a recipe, not a model; train it first (rightlung train "
            "wrong-lung-retrained --out RUN) and give --set model.start=RUN/model",
        ),
        ("./runs/none/model", "model.start: there is no model folder ./runs/none/model"),
        ("startr", "model.start: unknown model 'startr'"),
    ],
)
def test_a_model_to_start_from_that_is_not_there_is_said_with_what_to_do(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        kept(tmp_path, name, "{}")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{duplicate_text: ignore}", r"model\.config: unknown field of .*; did you mean 'duplicate_texts'"),
        ("{attention: {similarity: cosin}}", r"model\.config: unknown attention\.similarity 'cosin'"),
        ("{attention: {no_attention_token: true}}", r"model\.config: the weights do not fit .*no_attention_token"),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_go_with_the_weights_is_refused(
    tmp_path: Path, start: Path, config: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        kept(tmp_path, start, config)


def test_a_missing_source_is_noticed_before_any_other_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> None:
        raise AssertionError("studies are cached")

    monkeypatch.setattr(setup, "open_studies", fill)
    one = 'source: "phantom?count=16&seed=11", cached_studies: 16'
    for change in (
        f"data.train=[{{{one}}}, {{source: 'manifest:{tmp_path}/nih.tar'}}]",
        f"data.validation={{source: 'manifest:{tmp_path}/nih.tar', every: 4}}",
    ):
        with pytest.raises(InputError, match=r"nih\.tar"):
            setup.open_datasets(small(tmp_path, change), CPU, TrainingProgress())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["model={kind: glora}"], "unknown kind of model 'glora'; did you mean 'gloria'"),
        (["model={kind: gloria}", "losses={gobal: 1}"], "losses: unknown loss of Gloria 'gobal'; did you mean"),
        (["model={kind: uniter}", "losses={global: 1}"], "losses: unknown loss of Uniter 'global'"),
        (["model={start: starter}", "losses={gobal: 1}"], "losses: unknown loss of Gloria 'gobal'; did you mean"),
        (["model={kind: gloria, config: {losses: [local]}}"], r"model\.config\.losses: remove it"),
        (["model={kind: gloria, config: {dimensions: 3}}", "losses={global: 1}"], r"model\.config: unknown field"),
        (["model={start: starter, config: {dimensions: 3}}", "losses={global: 1}"], r"model\.config: unknown field"),
    ],
)  # fmt: skip
def test_a_wrong_kind_configuration_or_loss_is_refused_before_any_data_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str], said: str
) -> None:
    monkeypatch.setattr(setup, "open_datasets", lambda *_: pytest.fail("data is opened"))
    with pytest.raises(InputError, match=said):
        run(tmp_path, *changes)
    assert not (tmp_path / "run" / "recipe.yaml").exists()  # the folder can be used for the corrected recipe

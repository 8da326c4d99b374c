"""The checklist states what a run knows and leaves the rest open."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rightlung.audit import audit
from rightlung.audit.checklist import FILLED, OPEN, checklist
from rightlung.core import Grounding, Heatmap, Query
from rightlung.predictions import Prediction, PredictionWriter
from rightlung.results.estimate import BootstrapSettings
from rightlung.studies import open_source

SOURCE = "phantom?count=3&seed=3&size=64"
ITEMS = yaml.safe_load(files("rightlung.audit").joinpath("checklist.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("audited")
    with PredictionWriter(folder / "p", source=SOURCE, model="starter?map=grad-cam") as writer:
        for study in open_source(SOURCE):
            for index, phrase in enumerate(study.phrases):
                grounding = Grounding(Heatmap(np.random.default_rng(index).random((6, 6))))
                writer.write(Prediction(study.id, f"phrase:{index}", "none", Query(phrase.text), grounding))
    return audit(folder / "p", out=folder / "out", cases=0, settings=BootstrapSettings(resamples=100, flips=200))


def rows(text: str) -> dict[int, str]:
    """Return what each item is filled with."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {int(line[0]): line[3] for line in lines if line[0].isdigit()}


def test_every_audit_has_all_44_items_and_those_it_cannot_know_are_open(audited: Any) -> None:
    found = rows((audited.folder / "checklist.md").read_text(encoding="utf-8"))
    assert sorted(found) == list(range(1, 45))
    assert {number for number, text in found.items() if text == OPEN} >= {1, 4, 8, 11, 18, 34, 44}
    assert found[7].startswith("phantom?count=3&amp;seed=3&amp;size=64")
    assert "from 3 studies of" in found[35]
    assert f"{audited.result['overall']['pointing']['model']['estimate']:.2f}" in found[37]
    assert audited.result["protocol"]["hash"] in found[42]
    assert found[22].startswith("starter, kind gloria")
    assert "view: " in found[36]
    assert {one["attribute"] for one in audited.result["subgroups"]} <= {"sex", "age_band", "view"}


def test_a_model_that_is_not_here_is_named_and_nothing_is_said_about_its_weights(audited: Any, tmp_path: Path) -> None:
    text = checklist({**audited.result, "model": "someone/elses-model"})
    assert rows(text)[22] == "someone/elses-model; own map"
    assert rows(text)[43] == OPEN
    assert rows(checklist({**audited.result, "model": None}))[22] == OPEN


def test_every_item_that_can_be_filled_has_a_function_and_every_function_an_item() -> None:
    assert {item["from"] for item in ITEMS if "from" in item} == set(FILLED)

"""A quick run of three variants, from training to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rightlung.reproduce import experiment
from rightlung.reproduce.experiment import Reproduced, reproduce
from rightlung.reproduce.plan import Plan
from rightlung.training.loop import Hardware
from tests.reproduce.test_experiment import never

VARIANTS = ("chex", "no-s", "no-text-pretraining")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    out = tmp_path_factory.mktemp("chex")
    return Plan(
        "chex", out, source="phantom?count=5&seed=3&size=64", only=VARIANTS, pixels=48, quick=True,
        hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(plan: Plan) -> Reproduced:
    return reproduce(plan, commands=("typed",))


@pytest.fixture(scope="module")
def content(plan: Plan, done: Reproduced) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan.out / "results.json").read_text())
    return found


def cells(content: dict[str, Any], table: str) -> dict[str, list[Any]]:
    return {row[0]: row[1:] for row in content["tables"][table]["rows"]}


def test_the_page_has_the_tables_and_figures(content: dict[str, Any], done: Reproduced) -> None:
    assert done.left_out == ()
    assert {"t2", "t3", "t4", "t5", "t6", "f5", "f6a", "f6b-queried", "f8", "f9", "maps", "claims"} <= content[
        "tables"
    ].keys()
    assert [*cells(content, "t3")] == ["ChEX", "No-S"]
    assert [*cells(content, "t4")] == ["ChEX", "no text pretraining"]
    assert len(cells(content, "t6")) == 8
    assert content["tables"]["t4"]["header"][1:] == [
        "RE, F1, micro, 14", "paper, cig", "RG, F1, micro, 14", "paper, mimic",
    ]  # fmt: skip


def test_our_numbers_stand_next_to_the_papers(content: dict[str, Any], plan: Plan) -> None:
    header, row = content["tables"]["t3"]["header"][1:], cells(content, "t3")["No-S"]
    printed = dict(zip(header, row, strict=True))
    assert printed["paper, ms-cxr"] == "50.66"  # the last of two: mAP of sentences
    assert "52.37" in json.dumps(cells(content, "t6")["anatomy positive, pathology yes"])
    for name in ("SG, mIoU of boxes", "OD, mAP", "RC, weighted AUROC", "RE, F1, micro, 14", "RG, F1, micro, 14"):
        assert 0 <= printed[name]["estimate"] <= 1, name
    page = (plan.out / "results.md").read_text()
    assert "52.37 in Table 6" in page
    assert "Test run (--quick)" in page


def test_all_hints_are_asked_of_every_variant(content: dict[str, Any]) -> None:
    for name, count in (("f5", 3), ("f6a", 3), ("f8", 8), ("f6b-queried", 5)):
        rows = cells(content, name)
        assert [*rows] == ["ChEX", "No-S", "no text pretraining"], name
        assert all(len(row) == count and all(isinstance(cell, dict) for cell in row) for row in rows.values()), name


def test_shared_stages_are_trained_once(plan: Plan, done: Reproduced) -> None:
    stages = sorted(path.name for path in (plan.out / "runs" / "shared").glob("*/*") if path.is_dir())
    # ChEX: four before the last; No-S: its own but for the encoders; without pretraining: those of ChEX.
    assert stages == ["detector"] * 2 + ["encoders"] + ["language"] * 2 + ["post-decoder"] * 2
    about = json.loads((plan.measures("chex") / "about.json").read_text())
    assert about["training"]["steps"] == 5 * 2


def test_what_is_done_is_not_done_again(plan: Plan, done: Reproduced, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "measure", "ask"):
        monkeypatch.setattr(experiment, name, never)
    assert reproduce(plan, page=False).left_out == ()


def test_runs_wait_for_the_run_that_trains_what_they_share(plan: Plan) -> None:
    assert experiment._waits_for(plan, plan.wanted()) == {"no-s": "chex", "no-text-pretraining": "chex"}


def test_tables_of_instances_are_kept(plan: Plan, done: Reproduced) -> None:
    kept = {path.name for path in Path(plan.measures("chex")).glob("*.parquet")}
    assert {
        "sg.parquet",
        "od.parquet",
        "rc.parquet",
        "re.parquet",
        "rg.parquet",
        "re-by-name.parquet",
        "interactive.parquet",
    } <= kept

"""A quick run of some variants and the baselines, from training to the page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rightlung.core import Report
from rightlung.models.chex import ReportSettings
from rightlung.models.chex.reports import write_report
from rightlung.reproduce import experiment, models
from rightlung.reproduce.chex.measuring import PROMPT_SETS
from rightlung.reproduce.experiment import Reproduced, reproduce
from rightlung.reproduce.plan import Plan
from rightlung.reproduce.tasks import tasks_of
from rightlung.reproduce.variants import Job
from rightlung.training.loop import Hardware
from tests.reproduce.test_experiment import never

BASELINES = (
    "detr", "transvg", "classifier", "loc-adpd", "clip", "clip-cropped", "retrieval", "reporter", "image-blind",
)  # fmt: skip
WRITTEN_WITH: list[ReportSettings] = []
"""The settings of all reports, in the order in which they were written."""
VARIANTS = ("chex", "no-s", "no-text-pretraining", *BASELINES)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    out = tmp_path_factory.mktemp("chex")
    return Plan(
        "chex", out, source="phantom?count=5&seed=3&size=64", only=VARIANTS, pixels=48, quick=True, measure=False,
        hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def asked(plan: Plan) -> Reproduced:
    def noted(model: Any, images: Any, extents: Any, settings: ReportSettings) -> list[Report]:
        WRITTEN_WITH.append(settings)
        return write_report(model, images, extents, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rightlung.models.chex.model.write_report", noted)
        return reproduce(plan, page=False, commands=("typed",))


@pytest.fixture(scope="module")
def done(plan: Plan, asked: Reproduced) -> Iterator[Reproduced]:
    """Measure without the models, and write the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rightlung.scoring.meteor.shutil.which", lambda _: None)  # METEOR takes long to start
        patch.setattr(experiment, "run_job", never)
        yield reproduce(replace(plan, measure=True, only=("none",)), commands=("later",))


@pytest.fixture(scope="module")
def content(plan: Plan, done: Reproduced) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan.out / "results.json").read_text())
    return found


def cells(content: dict[str, Any], table: str) -> dict[str, list[Any]]:
    return {row[0]: row[1:] for row in content["tables"][table]["rows"]}


def test_what_needs_no_model_can_be_measured_later(plan: Plan, asked: Reproduced, done: Reproduced) -> None:
    assert asked == Reproduced((), ())
    assert [path.name for path in done.files][:3] == ["page.html", "results.md", "results.json"]
    assert "chex: " not in "; ".join(done.left_out)


def test_the_page_begins_with_the_finding_one_figure_and_one_table(content: dict[str, Any], plan: Plan) -> None:
    page = (plan.out / "results.md").read_text()
    assert (
        page.index("ChEX is ahead of every trained baseline in") < page.index("### Figure 3") < page.index("Table 2:")
    )
    assert page.index("Table 2:") < page.index("## Ablations") < page.index("## Every baseline")
    assert [*content["tables"]][:1] == ["t2"]
    assert {f"figure-{name}" for name in ("f3", "f5", "f6a", "f6b", "f8", "f9")} <= content["figures"].keys()
    assert "### Best cases by ROUGE-L" in page
    assert "Figure 5a" in page


def test_every_table_has_the_models_that_can_do_its_task(content: dict[str, Any]) -> None:
    kinds = ["supervised detection", "weakly supervised", "supervised grounding", "contrastive", "generative"]
    reports = ["ChEX", "report generator", "CLIP, retrieval", "image-blind"]
    descriptions = ["ChEX", "CLIP, retrieval", "image-blind"]
    assert content["tables"]["t2"]["header"][1:] == ["ChEX", *kinds, "image-blind"]
    assert content["tables"]["t3"]["header"][1:] == ["ChEX", "No-S"]
    # No run was validated, so how training ended is not known.
    assert content["tables"]["training"]["header"] == ["model", "seed", "steps", "images", "seconds", "device"]
    assert [*cells(content, "t2")] == [*cells(content, "t3")]
    assert {name: [*cells(content, f"t{name}")] for name in ("4", "5", *map(str, range(7, 15)))} == {
        "4": ["ChEX", "no text pretraining"],
        "5": ["by box", "by name"],
        "7": ["ChEX", "CLIP", "TransVG", "image-blind"],
        "8": ["ChEX", "Conditional DETR", "classifier", "Loc-ADPD", "CLIP", "image-blind"],
        "9": ["ChEX", "classifier", "Loc-ADPD", "CLIP", "CLIP, cropped", "image-blind"],
        "10": descriptions,
        "11": descriptions,
        "12": reports,
        "13": reports,
        "14": reports,
    }
    assert len(cells(content, "t6")) == len(PROMPT_SETS) == 8
    assert content["tables"]["t4"]["header"][3:] == [
        "RE, F1, micro, 14", "paper, cig", "RG, F1, micro, 14", "paper, mimic",
    ]  # fmt: skip


def test_our_numbers_stand_next_to_the_papers(content: dict[str, Any], plan: Plan) -> None:
    printed = {measure: row[1] for measure, row in cells(content, "t3").items()}  # No-S
    assert "52.37" in json.dumps(cells(content, "t6")["anatomy positive, pathology yes"])
    for name in ("SG, mIoU of boxes", "OD, mAP", "RC, weighted AUROC", "RE, F1, micro, 14", "RG, F1, micro, 14"):
        assert 0 <= printed[name]["estimate"] <= 1, name
    assert content["tables"]["t8"]["header"][1:5] == ["mAP", "paper, vindr", "paper, nih8", "paper, ms-cxr"]
    assert cells(content, "t8")["Conditional DETR"][1:4] == ["13.35", "3.93", "13.50"]
    assert cells(content, "t8")["image-blind"][1:4] == ["–", "–", "–"]
    assert cells(content, "t9")["CLIP, cropped"][1::2] == ["60.53", "61.80"]
    finding = content["tables"]["t14"]["header"].index("Pleural Effusion")
    assert content["tables"]["t14"]["rows"][0][finding + 1] == "69.11"
    page = (plan.out / "results.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| SG, mAP of sentences | ") and "50.66" in line]
    assert [cell.partition("paper ")[2].rstrip(") ") for cell in line.split("|")[2:4]] == ["44.47", "50.66"]
    assert "52.37 in Table 6" in page
    assert "Test run (--quick)" in page


def test_all_hints_are_asked_of_every_variant_and_of_the_image_blind_baseline(content: dict[str, Any]) -> None:
    for name, count in (("f5", 3), ("f6a", 3), ("f8", 8), ("f6b-queried", 5)):
        rows = cells(content, name)
        assert [*rows] == ["ChEX", "image-blind", "No-S", "no text pretraining"], name
        assert all(len(row) == count and all(isinstance(cell, dict) for cell in row) for row in rows.values()), name


def test_reports_are_asked_as_in_the_paper_unless_a_table_says_otherwise(asked: Reproduced) -> None:
    assert WRITTEN_WITH[0] == ReportSettings(findings="yes", regions="positive")
    assert set(WRITTEN_WITH) == {ReportSettings(**settings) for settings in PROMPT_SETS.values()}  # type: ignore[arg-type]


def test_shared_stages_are_trained_once(plan: Plan, asked: Reproduced) -> None:
    stages = sorted(path.name for path in (plan.out / "runs" / "shared").glob("*/*") if path.is_dir())
    # ChEX: four before the last; No-S: its own but for the encoders; without pretraining: those of ChEX.
    assert stages == ["detector"] * 2 + ["encoders"] + ["language"] * 2 + ["post-decoder"] * 2
    about = json.loads((plan.measures("chex") / "about.json").read_text())
    assert about["training"]["steps"] == 5 * 2


def test_what_is_done_is_not_done_again(plan: Plan, done: Reproduced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "train", never)
    for name in ("measure", "ask"):
        monkeypatch.setattr(models, name, never)
    monkeypatch.setattr("rightlung.reproduce.chex.measuring.measure", never)
    assert reproduce(replace(plan, measure=True), page=False).left_out == ()


def test_runs_wait_for_what_they_share_or_start_from(plan: Plan, tmp_path: Path) -> None:
    jobs = [Job(one, 1) for one in plan.paper.variants if one.slug in ("chex", "no-s", "prefix-1", "clip", "retrieval")]
    fresh = replace(plan, out=tmp_path)
    tasks = {task.name: task for task in tasks_of(fresh, jobs, dict.fromkeys(jobs, ""), tmp_path / "plan")}
    assert {name: task.after for name, task in tasks.items()} == {
        "chex": (), "clip": (), "retrieval": ("clip",), "no-s": ("chex",), "prefix-1": ("chex",),
    }  # fmt: skip
    files = {name: file for name, task in tasks.items() for file in task.files.values()}
    stages = {name: file.parent.name for name, file in files.items()}
    assert stages == {"retrieval": "clip", "no-s": "encoders", "prefix-1": "language"}
    assert files["no-s"] != files["prefix-1"]
    assert all(file.name == "finished.json" for file in files.values())


def test_answers_are_kept_without_maps(plan: Plan, asked: Reproduced) -> None:
    kept = pq.read_table(plan.measures("chex") / "answers.parquet")
    assert "map" not in kept.column_names
    assert {name.partition(":")[0] for name in kept["query"].to_pylist()} == {"phrase", "region", "image"}
    scores = [one["score"] for row in kept["finding_scores"].to_pylist() if row for one in row]
    assert len(scores) > 100
    assert all(one == float(f"{one:.4g}") for one in scores)


def test_a_folder_with_some_of_the_measures_makes_a_page_that_lists_the_rest(
    plan: Plan, done: Reproduced, tmp_path: Path
) -> None:
    for name in ("studies", "measures"):
        shutil.copytree(plan.out / name, tmp_path / name)
    shutil.rmtree(tmp_path / "measures" / "clip")
    (tmp_path / "measures" / "no-s" / "about.json").unlink()
    (tmp_path / "measures" / "detr" / "tasks.json").unlink()
    (tmp_path / "measures" / "detr" / "answers.parquet").write_bytes(b"half")
    reproduce(replace(plan, out=tmp_path, only=("none",), measure=True))
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["tables"]["t3"]["header"] == ["measure", "ChEX"]
    assert any(one.startswith("Not measured: detr (answers.parquet") for one in content["missing"])
    assert {"Not measured: CLIP.", "Not measured: No-S.", "measures/no-s: unfinished, left out."} <= {
        *content["missing"]
    }

"""A quick run of some variants, from training to the page."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.reproduce.eclip.embeddings import EMBEDDINGS, Embedded
from rightlung.reproduce.eclip.measuring import BY_CHANCE, PLANTED
from rightlung.reproduce.experiment import Reproduced, reproduce
from rightlung.reproduce.plan import Plan
from rightlung.training.loop import Hardware

VARIANTS = ("clip", "clip-expert", "clip-expert-post", "map-none", "gloria-expert", "shortcut-clip")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduced]:
    out = tmp_path_factory.mktemp("eclip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rightlung.reproduce.eclip.measuring.SHORTCUT_STUDIES", 8)
        plan = Plan(
            "eclip", out, source="phantom?count=24&seed=3&size=64", only=VARIANTS, pixels=48, quick=True,
            hardware=Hardware(accelerator="cpu"),
        )  # fmt: skip
        return out, reproduce(plan, commands=("typed",))


def test_a_quick_run_writes_the_page(done: tuple[Path, Reproduced]) -> None:
    out, found = done
    assert found.left_out == ()
    assert [path.name for path in found.files][:3] == ["page.html", "results.md", "results.json"]
    page = (out / "results.md").read_text()
    assert page.index("## Finding") < page.index("What is an expert's map worth?") < page.index("Table 1: CLIP, ResNet")
    assert page.index("Table 1: CLIP, ResNet") < page.index("## Claims")
    content: dict[str, Any] = json.loads((out / "results.json").read_text())
    rows = {row[0]: row for row in content["tables"]["t1-clip"]["rows"]}
    prior = "location prior (never sees an image)"
    assert {"CLIP, ResNet", "+ expert", "+ expert, post-trained", prior} == rows.keys()


def test_every_model_has_a_table_for_each_task(done: tuple[Path, Reproduced]) -> None:
    measures = done[0] / "measures"
    studies = set(pq.read_table(measures / "clip" / "zero-shot.parquet")["study"].to_pylist())
    assert len(studies) == 24
    for direction in ("image-to-text", "text-to-image"):
        assert {direction} == {*pq.read_table(measures / "clip" / f"{direction}.parquet")["target"].to_pylist()}
    gloria = json.loads((measures / "gloria-expert" / "geometry.json").read_text())
    assert gloria["temperature"] == pytest.approx(0.1)  # GLoRIA's factor is a plain number, 10
    levels = json.loads((measures / "clip" / "geometry.json").read_text())
    assert 0 < levels["temperature"] < 1
    assert 0 <= levels["gap"] <= 2
    planted, clean = (pq.read_table(measures / "shortcut-clip" / f"{name}.parquet") for name in (PLANTED, BY_CHANCE))
    assert planted["study"].to_pylist() == clean["study"].to_pylist()
    assert planted["finding_label"].to_pylist() == clean["finding_label"].to_pylist()
    assert planted["finding_score"].to_pylist() != clean["finding_score"].to_pylist()


def test_the_embeddings_of_expert_images_are_kept_for_the_umap(done: tuple[Path, Reproduced]) -> None:
    measures = done[0] / "measures"
    for name, expected in (("clip", 0), ("clip-expert", 1)):
        embedded, expert = Embedded.read(measures / name / EMBEDDINGS)
        assert len(embedded.images) == len(embedded.texts) == len(embedded.studies) == 24
        assert bool(expert) is bool(expected)
        for study, vector in expert.items():
            plain = embedded.images[embedded.studies.index(study)]
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-2)
            assert not np.allclose(vector, plain, atol=1e-3)


def test_the_page_says_why_there_is_no_umap(done: tuple[Path, Reproduced]) -> None:
    missing = (done[0] / "results.md").read_text().partition("## Missing")[2].partition("\n## ")[0]
    assert ("the extra" in missing) is (find_spec("umap") is None)


def test_retrieval_is_shown_next_to_answers_that_see_no_image(done: tuple[Path, Reproduced]) -> None:
    tables: dict[str, Any] = json.loads((done[0] / "results.json").read_text())["tables"]
    rows = {row[0]: row for row in tables["image-to-text"]["rows"]}
    assert tables["image-to-text"]["header"][1:5] == ["R@1", "R@5", "R@10", "median rank"]
    chance = rows["uniform chance"]
    assert chance[1]["estimate"] == pytest.approx(1 / 24, abs=1e-6)  # all 24 reports differ
    assert chance[4]["estimate"] == pytest.approx(12.5)
    assert rows["most frequent reports first (no image)"][1]["estimate"] == pytest.approx(1 / 24, abs=1e-6)
    assert "uniform chance" in {row[0] for row in tables["text-to-image"]["rows"]}

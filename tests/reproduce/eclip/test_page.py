"""A quick run of some variants, from training to the page, and the judging of claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.reproduce.claims import HOLDS, NOT_SHOWN, SEED_DEPENDENT
from rightlung.reproduce.eclip.claims import POINTING, PairClaim, judge
from rightlung.reproduce.eclip.measuring import BY_CHANCE, PLANTED
from rightlung.reproduce.experiment import Reproduced, reproduce
from rightlung.reproduce.plan import Plan
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import BootstrapSettings
from rightlung.training.loop import Hardware


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduced]:
    out = tmp_path_factory.mktemp("eclip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rightlung.reproduce.eclip.measuring.SHORTCUT_STUDIES", 8)
        plan = Plan(
            "eclip", out, source="phantom?count=24&seed=3&size=64", only=("clip", "clip-expert", "shortcut-clip"),
            pixels=48, quick=True, hardware=Hardware(accelerator="cpu"),
        )  # fmt: skip
        return out, reproduce(plan, commands=("typed",))


def test_a_quick_run_writes_the_page(done: tuple[Path, Reproduced]) -> None:
    out, found = done
    assert [path.name for path in found.files][:3] == ["page.html", "results.md", "results.json"]
    page = (out / "results.md").read_text()
    assert page.index("## Finding") < page.index("What is an expert's map worth?") < page.index("Table 1: CLIP, ResNet")
    assert page.index("Table 1: CLIP, ResNet") < page.index("## Claims")
    content: dict[str, Any] = json.loads((out / "results.json").read_text())
    rows = {row[0]: row for row in content["tables"]["t1-clip"]["rows"]}
    assert {"CLIP, ResNet", "+ expert", "location prior (never sees an image)"} == rows.keys()


def test_every_model_has_a_table_for_each_task(done: tuple[Path, Reproduced]) -> None:
    measures = done[0] / "measures"
    studies = set(pq.read_table(measures / "clip" / "zero-shot.parquet")["study"].to_pylist())
    assert len(studies) == 24
    ranks = pq.read_table(measures / "clip" / "retrieval.parquet")
    assert set(ranks["target"].to_pylist()) == {"image-to-text", "text-to-image"}
    levels = json.loads((measures / "clip" / "geometry.json").read_text())
    assert 0 < levels["temperature"] < 1
    assert 0 <= levels["gap"] <= 2
    planted, clean = (pq.read_table(measures / "shortcut-clip" / f"{name}.parquet") for name in (PLANTED, BY_CHANCE))
    assert planted["study"].to_pylist() == clean["study"].to_pylist()
    assert planted["finding_label"].to_pylist() == clean["finding_label"].to_pylist()
    assert planted["finding_score"].to_pylist() != clean["finding_score"].to_pylist()


class MadeUp(TaskFiles):
    """Tables of pointing for two variants with two seeds each."""

    def __init__(self, values: dict[str, list[Any]]) -> None:
        super().__init__(None, BootstrapSettings(resamples=200), "percentile")  # type: ignore[arg-type]
        self._known["values", "", "", ""] = values  # type: ignore[assignment]

    def tables(self, variant: str, task: str) -> list[pa.Table]:
        found: list[pa.Table] = [
            pa.table({"condition": ["none"] * 60, "patient": [f"p{n}" for n in range(60)], "pointing": column})
            for column in self._known["values", "", "", ""][variant]  # type: ignore[index]
        ]
        return found


@pytest.mark.parametrize(
    ("gains", "verdict"), [((0.3, 0.3), HOLDS), ((0.0, 0.0), NOT_SHOWN), ((0.9, -0.1), SEED_DEPENDENT)]
)
def test_a_claim_needs_an_effect_that_every_seed_has(gains: tuple[float, float], verdict: str) -> None:
    chance = np.random.default_rng(0)
    host = [chance.random(60), chance.random(60)]
    better = [one + gain + 0.05 * chance.standard_normal(60) for one, gain in zip(host, gains, strict=True)]
    claim = PairClaim("here", "It helps.", "first", "second", POINTING)
    (judged,) = judge(MadeUp({"first": better, "second": host}), [claim])
    expected = np.mean([one.mean() for one in better]) - np.mean([one.mean() for one in host])
    assert judged.found.value == pytest.approx(expected)
    assert judged.seeds == pytest.approx([one.mean() - two.mean() for one, two in zip(better, host, strict=True)])
    assert judged.verdict == verdict


def test_claims_are_judged_together() -> None:
    """With Holm's correction, an effect that one test would show may not be shown among many."""
    chance = np.random.default_rng(1)
    host = [chance.random(60)]
    better = [host[0] + 0.1 + 0.45 * chance.standard_normal(60)]
    files = MadeUp({"first": better, "second": host})
    claim = PairClaim("here", "It helps.", "first", "second", POINTING)
    (alone,) = judge(files, [claim])
    among = judge(files, [claim] * 40)
    assert among[0].found.p_adjusted == pytest.approx(min(1.0, 40 * alone.found.p))

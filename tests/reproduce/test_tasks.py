"""What is left of a plan as tasks, and the order in which benchmarks/run_all.py runs those of several plans."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from rightlung.reproduce.plan import Plan
from rightlung.reproduce.processes import Task
from rightlung.reproduce.tasks import PREPARE, plan_tasks
from tests.reproduce.conftest import Done

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run_all() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("run_all")


def test_nothing_is_left_of_what_is_done(done: Done) -> None:
    assert plan_tasks(done.plan, 2).tasks == []


def test_a_new_plan_prepares_its_studies_and_pools_first(done: Done, tmp_path: Path) -> None:
    found = plan_tasks(replace(done.plan, out=tmp_path), 2)
    tasks = {task.name: task for task in found.tasks}
    pools = [name for name in tasks if name.startswith("pool-")]
    assert [*tasks] == [PREPARE, *pools, "retrained", "thirty-shot", "uniter"]
    assert all(tasks[name].prepares for name in (PREPARE, *pools))
    assert [*tasks["retrained"].after] == [PREPARE, *(name for name in pools if name in tasks["retrained"].after)]
    assert tasks["thirty-shot"].after[-1] == "retrained"
    assert len(tasks[PREPARE].command) == len(tasks["uniter"].command) - 2  # the plan alone, without a run
    assert found.images["retrained"] > 0


def test_long_chains_come_first_and_a_pool_has_one_name_in_all_experiments(run_all: ModuleType) -> None:
    def task(name: str, *after: str, prepares: bool = False) -> Task:
        return Task(name, name, ["python"], after, prepares=prepares)

    tasks = [
        task("short", "pool-1"), task("long"), task("first", "pool-1"), task("second", "first"),
        task("pool-1", prepares=True), task("pool-2", prepares=True),
    ]  # fmt: skip
    images = {"short": 10, "long": 50, "first": 20, "second": 40}
    names = [one.name for one in run_all.ordered(tasks, images)]
    assert names == ["pool-1", "pool-2", "first", "long", "second", "short"]
    file = Path("finished.json")
    own = run_all.prefixed("eclip", Task("b", "b", ["python"], ("a", "pool-1"), {"a": file}))
    assert (own.name, own.after, own.files) == ("eclip-b", ("eclip-a", "pool-1"), {"eclip-a": file})


def test_the_command_for_the_page_has_the_plan(run_all: ModuleType, tmp_path: Path) -> None:
    plan = Plan(
        "fita", tmp_path, train="manifest:a?x=1", changes=("data.cache_folder=/pools", "seed=3"), only=("kiut",)
    )
    command = run_all.page_command(plan)
    assert command == (
        f"rightlung reproduce fita --out {tmp_path} --seeds 3 --train 'manifest:a?x=1' --set seed=3 --only kiut"
    )

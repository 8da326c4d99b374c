"""Papers by name, their variants and runs, and the recipe of every run under the options of the command."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rightlung.core import InputError
from rightlung.reproduce.papers import find_paper, list_papers
from rightlung.reproduce.plan import Plan, changes_of, check_plan, ignored_by_few_shots, recipe_digest, recipes_of
from rightlung.reproduce.variants import Job, Variant, jobs, with_starts
from rightlung.reproduce.wrong_lung.variants import VARIANTS
from rightlung.training.loop import Hardware

BASE = Variant("base", "Base", "paper", "", "base")
FEW = Variant("few", "Few", "ours", "", "few", start=BASE)
OWN = {"train": "phantom?count=30&seed=5", "validation": "phantom?count=9&seed=6"}


def job(slug: str, seed: int = 1) -> Job:
    return Job(next(variant for variant in VARIANTS if variant.slug == slug), seed)


def plan(out: Path, **changes: Any) -> Plan:
    return Plan("wrong-lung", out, **changes)


def test_papers_are_found_by_name_and_a_slip_is_answered_with_the_nearest() -> None:
    assert [paper.name for paper in list_papers()] == ["wrong-lung", "chex", "eclip", "xbench", "fita"]
    paper = find_paper("wrong-lung")
    assert {variant.slug: variant.name for variant in paper.variants}["sided"] == "+Sided"
    with pytest.raises(InputError, match="unknown paper 'wrong-lungs'; did you mean 'wrong-lung'"):
        find_paper("wrong-lungs")


def test_runs_are_named_by_variant_and_seed_with_all_first_seeds_first() -> None:
    variants = (BASE, FEW)
    assert [one.slug for one in jobs(variants, seeds=2)] == ["base", "few", "base-seed2", "few-seed2"]
    named = [one.slug for one in jobs(variants, ("few", "base-seed2"), 2)]
    assert named == ["few", "few-seed2", "base-seed2"]  # by seed, then as they are named
    assert jobs(variants, ("none",)) == []
    assert len({one.order for one in jobs(variants)}) == 6
    for wrong in ("bas", "base-seed9"):
        with pytest.raises(InputError, match=f"unknown variant '{wrong}'; did you mean 'base"):
            jobs(variants, (wrong,))


def test_a_run_comes_after_the_one_that_it_starts_from_which_is_wanted_with_it() -> None:
    found = with_starts(jobs((FEW, replace(FEW, slug="other")), seeds=2))
    assert [one.slug for one in found] == ["base", "few", "other", "base-seed2", "few-seed2", "other-seed2"]


def test_a_plan_goes_to_another_process_and_comes_back_the_same(tmp_path: Path) -> None:
    given = plan(tmp_path, only=("sided",), changes=("seed=3",), hardware=Hardware(accelerator="cpu"), limit=7, **OWN)
    assert Plan.from_json(json.loads(json.dumps(given.as_json()))) == given


def test_quick_takes_one_seed_small_targets_and_its_own_studies_unless_told(tmp_path: Path) -> None:
    quick, full = plan(tmp_path, quick=True), plan(tmp_path)
    assert (len(full.wanted()), len(quick.wanted())) == (3 * len(VARIANTS), len(VARIANTS))
    assert (full.protocol.pixels, quick.protocol.pixels) == (224, 64)
    assert replace(quick, pixels=48).protocol.pixels == 48
    assert (full.measured_on, quick.measured_on) == (quick.paper.source, quick.paper.quick_source)
    assert replace(quick, source="phantom?count=3").measured_on == "phantom?count=3"


@pytest.mark.parametrize("quick", [True, False])
def test_the_recipes_of_all_runs_can_be_read(tmp_path: Path, quick: bool) -> None:
    given = plan(tmp_path, quick=quick)
    for one in given.wanted():
        recipe = recipes_of(given, one)[""]
        assert recipe.seed == one.seed
        assert recipe.schedule.steps <= 4 or not quick
        assert recipe.data.cache_folder == str(tmp_path / "pools")


def test_few_shots_start_from_the_run_of_their_own_seed_and_keep_their_thirty(tmp_path: Path) -> None:
    recipe = recipes_of(plan(tmp_path), job("thirty-shot", 2))[""]
    assert recipe.model.start == str(tmp_path / "runs" / "retrained-seed2" / "model")
    assert (recipe.schedule.steps, recipe.schedule.patience) == (500, 25)
    assert (recipe.data.train[0].few_shot_studies, recipe.batch_size) == (30, 30)
    assert recipes_of(plan(tmp_path, quick=True), job("thirty-shot"))[""].schedule.patience == 3


def test_a_change_is_for_all_or_for_one_and_leaves_thirty_shots_thirty() -> None:
    changes = (
        "schedule.steps=3000", "batch_size=256", "data.train[0].few_shot_studies=5", "optimizer.learning_rate=1",
        "data.image_size=96",
        "sided:optimizer.learning_rate=2", "thirty-shot:schedule.steps=400", "sided-seed2:seed=9",
    )  # fmt: skip
    assert changes_of(changes, job("thirty-shot")) == [
        "optimizer.learning_rate=1",
        "data.image_size=96",
        "schedule.steps=400",
    ]
    assert changes_of(changes, job("sided")) == [*changes[:5], "optimizer.learning_rate=2"]
    assert changes_of(changes, job("sided", 2)) == [*changes[:5], "optimizer.learning_rate=2", "seed=9"]
    assert ignored_by_few_shots(changes, [job("thirty-shot")]) == [*changes[:3]]
    assert ignored_by_few_shots(changes, [job("sided")]) == []


def test_a_change_can_be_for_one_training_stage(tmp_path: Path) -> None:
    shorter = Plan("fita", tmp_path, seeds=1, changes=("report:schedule={steps: 7, warmup_steps: 1}",))
    check_plan(shorter)
    for run in shorter.jobs(("kiut", "fita")):
        changed, given = (recipes_of(one, run) for one in (shorter, replace(shorter, changes=())))
        assert {name for name in given if changed[name].schedule != given[name].schedule} == {"report"}
        assert changed["report"].schedule.steps == 7
    only_text = replace(shorter, changes=("text:schedule={steps: 7, warmup_steps: 1}",), only=("kiut",))
    with pytest.raises(InputError, match="unknown variant 'text'"):  # kiut has no such stage
        check_plan(only_text)


def test_studies_of_ones_own_win_over_those_of_the_recipes(tmp_path: Path) -> None:
    for quick, slug, pools in (
        (True, "sided", (30, 9)), (True, "thirty-shot", (24, 9)), (False, "abnormal", (30, 9)),
    ):  # fmt: skip
        data = recipes_of(plan(tmp_path, quick=quick, **OWN), job(slug))[""].data
        assert data.validation is not None
        assert (data.train[0].source, data.validation.source) == (OWN["train"], OWN["validation"])
        assert (data.train[0].cached_studies, data.validation.cached_studies) == pools


def test_a_changed_field_makes_another_digest_and_another_place_does_not(tmp_path: Path) -> None:
    given, few = plan(tmp_path / "a", quick=True), job("thirty-shot")
    same = recipe_digest(given, few)
    assert recipe_digest(replace(given, out=tmp_path / "b"), few) == same
    assert recipe_digest(replace(given, changes=("data.workers=3", "log_every=7")), few) == same
    assert recipe_digest(replace(given, changes=("thirty-shot:schedule.steps=9",)), few) != same
    assert recipe_digest(replace(given, changes=("retrained:schedule.steps=9",)), few) != same  # which it starts from


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"changes": ("sidd:schedule.steps=9",)}, "unknown variant 'sidd'; did you mean 'sided'"),
        ({"only": ("sided",), "changes": ("abnormal:seed=9",)}, "abnormal is not among the selected ones"),
        ({"only": ("none",), "changes": ("seed=3",)}, "no variant is selected"),
        ({"source": "manifest:here"}, "the training data must be given, too: --train SOURCE"),
        ({"source": "manifest:here", "train": "manifest:there"}, "must be given, too: --validation SOURCE"),
        ({"hardware": Hardware(accelerator="mps")}, "--accelerator mps: not available on this machine; use cpu"),
        ({"only": ("thirty-shot",), "changes": ("retrained:seed=9",)}, None),  # which it starts from
        ({"source": "manifest:here", "only": ("none",)}, None),
        ({"source": "phantom?count=3"}, None),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], said: str | None
) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(InputError, match=said) if said else nullcontext():
        check_plan(plan(tmp_path, **changed))

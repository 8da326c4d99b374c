"""The whole reproduction in its quick form: tiny models, and grounders whose answers are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rightlung.core import InputError
from rightlung.reproduce.wrong_lung import run as running
from rightlung.reproduce.wrong_lung.run import Plan, has_plateau, plain_plan, plan_from, recipe_of, reproduce
from rightlung.reproduce.wrong_lung.variants import BY_SLUG, VARIANTS, Job, jobs
from rightlung.training.loop import Machine
from rightlung.training.recipe import shipped_recipes

CPU = Machine(accelerator="cpu")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[str], list[Path]]:
    plan = Plan(tmp_path_factory.mktemp("wrong-lung"), quick=True, machine=CPU)
    said: list[str] = []
    files = reproduce(plan, commands=("typed",), say=said.append)
    return plan, said, files


def test_every_variant_is_trained_measured_and_on_the_page(done: tuple[Plan, list[str], list[Path]]) -> None:
    plan, said, files = done
    result = json.loads((plan.out / "results.json").read_text())
    page = (plan.out / "page.html").read_text()
    for variant in VARIANTS:
        about = json.loads((plan.out / "measures" / variant.slug / "about.json").read_text())
        assert about["training"]["steps"] <= 4
        assert about["measured"]["errors"] == 0
        assert variant.name.replace('"', "&quot;") in page or variant.name in page
    assert "Not measured" not in page
    assert (plan.out / "figures" / "example-1.png").stat().st_size > 1000
    assert result
    assert files[0].name == "page.html"
    assert any("oracle" in sentence for sentence in said)


def test_the_fine_tuned_start_from_the_retrained_and_stop_by_patience(done: tuple[Plan, list[str], list[Path]]) -> None:
    plan, _, _ = done
    recipe = recipe_of(plan, Job(BY_SLUG["thirty-shot"], 1))
    assert recipe.model.start == str(plan.out / "runs" / "retrained" / "model")
    assert recipe.schedule.patience == 3
    assert recipe.data.train[0].targets == "regions"
    full = recipe_of(replace(plan, quick=False), Job(BY_SLUG["thirty-shot"], 1))
    assert (full.schedule.steps, full.schedule.patience) == (500, 25)
    assert (full.data.train[0].examples, full.batch.size) == (30, 30)


def test_what_is_done_is_not_done_again(
    done: tuple[Plan, list[str], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _, _ = done

    def never(*_: object, **__: object) -> None:
        raise AssertionError("asked or trained again")

    for name in ("train", "measure", "measure_prior"):
        monkeypatch.setattr(running, name, never)
    assert reproduce(plan)[0] == plan.out / "page.html"
    (plan.out / "measures" / "no-attn" / "about.json").rename(plan.out / "kept.json")
    try:
        with pytest.raises(AssertionError, match="again"):
            reproduce(plan)
    finally:
        (plan.out / "kept.json").rename(plan.out / "measures" / "no-attn" / "about.json")


def test_several_at_once_give_the_same_as_one_after_the_other(
    done: tuple[Plan, list[str], list[Path]], tmp_path: Path
) -> None:
    plan, _, _ = done
    other = replace(plan, out=tmp_path, only=("retrained", "thirty-shot"))
    reproduce(other, at_once=2, page=False)
    for slug in other.only:
        for name in ("answers", "scores"):
            one, two = (where.out / "measures" / slug / f"{name}.parquet" for where in (plan, other))
            assert one.read_bytes() == two.read_bytes()


def test_a_model_of_ones_own_is_one_more_row(done: tuple[Plan, list[str], list[Path]], tmp_path: Path) -> None:
    plan, _, _ = done
    model = str(plan.out / "runs" / "retrained" / "model")
    reproduce(replace(plan, out=tmp_path, only=("none",), models=(model,)))
    assert model in (tmp_path / "page.html").read_text()


def test_known_grounders_that_move_the_wrong_way_end_the_run(
    done: tuple[Plan, list[str], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rightlung.reproduce.wrong_lung import rehearsal

    plan, _, _ = done
    monkeypatch.setattr(rehearsal, "TextBlind", rehearsal.ImageBlind)  # which reads, whatever it is called
    with pytest.raises(InputError, match="machinery is broken: one blind to the text"):
        reproduce(replace(plan, out=tmp_path, only=("none",)))


def test_each_variant_has_its_recipe_and_the_telling_ones_three_seeds() -> None:
    assert {variant.recipe for variant in VARIANTS} <= set(shipped_recipes())
    assert [job.slug for job in jobs(("no-attn", "uniter"))] == ["no-attn", "uniter", "no-attn-seed2", "no-attn-seed3"]
    assert sum(variant.telling for variant in VARIANTS) == 4
    assert jobs(("none",)) == []
    with pytest.raises(InputError, match="did you mean 'no-attn'"):
        jobs(("no-atn",))


def test_studies_of_ones_own_need_something_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text("")
    with pytest.raises(InputError, match="--train must name what the variants learn from"):
        reproduce(Plan(tmp_path / "out", source=f"manifest:{tmp_path}", machine=CPU))


def test_a_plan_goes_to_another_process_and_comes_back_the_same(tmp_path: Path) -> None:
    plan = Plan(tmp_path, only=("sided",), changes=("seed=3",), machine=CPU, limit=7)
    assert plan_from(json.loads(json.dumps(plain_plan(plan)))) == plan


@pytest.mark.parametrize(
    ("losses", "stopped", "expected"),
    [
        ([5, 4, 3, 2.5, 2.4, 2.4, 2.4, 2.39, 2.4], False, True),
        ([5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1], False, False),
        ([5, 4, 3], False, None),
        ([5, 4, 3], True, True),
    ],
)
def test_a_run_that_still_gets_better_has_no_plateau(losses: list[float], stopped: bool, expected: bool | None) -> None:
    assert has_plateau(losses, stopped) is expected

"""The whole reproduction in its quick form: tiny models, and grounders whose answers are known."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.core import Box, InputError, Phrase, Study
from rightlung.reproduce.wrong_lung import run as running
from rightlung.reproduce.wrong_lung.instances import prepare
from rightlung.reproduce.wrong_lung.known import ImageBlind
from rightlung.reproduce.wrong_lung.plan import Plan, changes_of, plain_plan, plan_from, recipe_digest, recipe_of
from rightlung.reproduce.wrong_lung.rehearsal import check_known, measure_known
from rightlung.reproduce.wrong_lung.run import Outcome, has_plateau, own_slug, reproduce
from rightlung.reproduce.wrong_lung.variants import BY_SLUG, VARIANTS, Job, jobs, with_starts
from rightlung.studies import open_source
from rightlung.training.keeping import KeptPool
from rightlung.training.loop import Machine, train
from rightlung.training.recipe import shipped_recipes
from rightlung.training.watching import TrainingProgress
from tests.reproduce.wrong_lung.test_instances import Listed, grey

CPU = Machine(accelerator="cpu")
TRAINED = ("retrained", "no-attn", "thirty-shot", "uniter", "sided")
"""One of each kind; the others are trained, and not measured."""

Whole = tuple[Plan, list[str], Outcome]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Here and in processes of their own: sums come out the same bit for bit only if divided the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    plan = Plan(tmp_path_factory.mktemp("wrong-lung"), only=TRAINED, quick=True, machine=CPU)
    said: list[str] = []
    outcome = reproduce(plan, commands=("typed",), say=said.append)
    return plan, said, outcome


@pytest.fixture
def copy(done: Whole, tmp_path: Path) -> Plan:
    """The whole folder once more, to be spoilt."""
    shutil.copytree(done[0].out, tmp_path / "copy")
    return replace(done[0], out=tmp_path / "copy")


def forget(plan: Plan, *slugs: str) -> None:
    for slug in slugs:
        for kind in ("runs", "measures"):
            shutil.rmtree(plan.out / kind / slug)


def about(plan: Plan, slug: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan.out / "measures" / slug / "about.json").read_text())
    return found


def never(*_: object, **__: object) -> None:
    raise AssertionError("asked or trained again")


def test_every_variant_is_trained_measured_and_on_the_page(done: Whole) -> None:
    plan, said, outcome = done
    page = (plan.out / "page.html").read_text()
    for slug in TRAINED:
        found = about(plan, slug)
        assert found["training"]["steps"] <= 4
        assert found["training"]["quick"] is True
        assert found["measured"]["errors"] == 0
        assert found["comparable"] is (slug != "uniter")
        name = BY_SLUG[slug].name
        assert name.replace('"', "&quot;") in page or name in page
    assert json.loads((plan.out / "results.json").read_text())
    assert (plan.out / "figures" / "example-1.png").stat().st_size > 1000
    assert outcome.files[0].name == "page.html"
    assert outcome.left_out == ()
    assert json.loads((plan.out / "run.json").read_text()) == {"quick": True, "missing": {}}
    assert any("oracle" in sentence for sentence in said)


@pytest.mark.parametrize("slug", [variant.slug for variant in VARIANTS if variant.slug not in TRAINED])
def test_every_other_variant_can_be_trained(done: Whole, tmp_path: Path, slug: str) -> None:
    recipe = recipe_of(done[0], Job(BY_SLUG[slug], 1))
    assert train(recipe, tmp_path / slug, machine=CPU, progress=TrainingProgress(shown=False)).steps <= 4


def test_each_run_says_by_its_number_what_it_is_at_and_nothing_else(done: Whole) -> None:
    _, said, _ = done
    told = [sentence for sentence in said if sentence.startswith("[")]
    names = [job.slug for job in jobs(TRAINED, 1)]
    expected = [
        f"[{number}/5] {name}: {what}" for number, name in enumerate(names, 1) for what in ("training", "measuring")
    ]
    assert told == expected


def test_a_run_with_a_name_says_it_in_every_line_and_at_most_every_twenty_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("rightlung.training.watching.monotonic", lambda: now[0])
    monkeypatch.setattr("rightlung.core.progress.monotonic", lambda: now[0])
    said: list[str] = []
    progress = TrainingProgress(say=said.append, prefix="[3/23] no-attn: ")
    progress.tell("1 study is left out")
    progress.begin(0, 4, 8)
    for step, at in ((1, 1.0), (2, 21.0), (3, 40.0), (4, 40.9)):
        now[0] = at
        progress.show(step, 0.5)
    assert said[0] == "[3/23] no-attn: 1 study is left out"
    assert [line.partition(" of")[0] for line in said[1:]] == ["[3/23] no-attn: training: 2"]


def test_the_fine_tuned_start_from_the_retrained_and_stop_by_patience(done: Whole) -> None:
    plan, _, _ = done
    recipe = recipe_of(plan, Job(BY_SLUG["thirty-shot"], 1))
    assert recipe.model.start == str(plan.out / "runs" / "retrained" / "model")
    assert recipe.schedule.patience == 3
    assert recipe.data.train[0].targets == "regions"
    full = recipe_of(replace(plan, quick=False), Job(BY_SLUG["thirty-shot"], 1))
    assert (full.schedule.steps, full.schedule.patience) == (500, 25)
    assert (full.data.train[0].examples, full.batch.size) == (30, 30)


def test_what_is_done_is_not_done_again_wherever_its_folder_lies(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "measure", "measure_prior"):
        monkeypatch.setattr(running, name, never)
    reproduce(copy, page=False)
    (copy.out / "measures" / "no-attn" / "about.json").unlink()
    with pytest.raises(AssertionError, match="again"):
        reproduce(copy, page=False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"changes": ("schedule.steps=9",)}, "retrained was trained by another recipe, which differs in schedule.ste"),
        ({"changes": ("no-attn:optimiser.rate=1e-4",)}, "no-attn was trained by .*differs in optimiser.rate"),
        ({"changes": ("nonsense.x=9",)}, "unknown field of Recipe 'nonsense'"),
        ({"changes": ("sidd:schedule.steps=9",)}, "unknown variant 'sidd'; did you mean 'sided'"),
        ({"changes": ("abnormal:schedule.steps=9",)}, "abnormal is not among those wanted"),
        ({"changes": ("seed=3",), "only": ("none",)}, "no variant is wanted"),
        ({"train": "phantom?count=30&seed=5"}, r"differs in data.train\[0\].source"),
        ({"train": "phantom?count=0&seed=5"}, "count"),
        ({"train": "manifest:/nowhere"}, "/nowhere"),
        ({"models": ("a/b", "a-b")}, "a/b"),
        ({"machine": Machine(accelerator="mps")}, "--accelerator mps: there is none here"),
    ],
)
def test_another_command_for_the_same_folder_is_refused_before_anything_is_done(
    done: Whole, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(running, "prepare", never)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    plan, _, _ = done
    with pytest.raises(InputError, match=said):
        reproduce(replace(plan, **changed))


def test_a_run_that_is_not_measured_is_held_to_its_recipe_too(copy: Plan) -> None:
    shutil.rmtree(copy.out / "measures" / "retrained")
    with pytest.raises(InputError, match=r"holds a run of another recipe, which differs in optimiser\.rate"):
        reproduce(replace(copy, changes=("retrained:optimiser.rate=1e-4",)))


def test_a_changed_field_makes_another_digest_and_another_place_does_not(tmp_path: Path) -> None:
    plan = Plan(tmp_path / "a", quick=True)
    job = Job(BY_SLUG["thirty-shot"], 1)
    same = recipe_digest(plan, job)
    assert recipe_digest(replace(plan, out=tmp_path / "b"), job) == same
    assert recipe_digest(replace(plan, changes=("data.workers=3", "log_every=7")), job) == same
    assert recipe_digest(replace(plan, changes=("thirty-shot:schedule.steps=9",)), job) != same
    assert recipe_digest(replace(plan, changes=("retrained:schedule.steps=9",)), job) != same  # which it starts from


def test_several_at_once_give_the_same_as_one_after_the_other(done: Whole, copy: Plan) -> None:
    forget(copy, "retrained", "thirty-shot")
    said: list[str] = []
    assert reproduce(copy, at_once=2, page=False, say=said.append).left_out == ()
    assert sum(sentence.endswith(": done") for sentence in said) == 2
    for slug in ("retrained", "thirty-shot"):
        for name in ("answers", "scores"):
            one, two = (where.out / "measures" / slug / f"{name}.parquet" for where in (done[0], copy))
            assert one.read_bytes() == two.read_bytes()


def test_the_pools_of_all_runs_are_filled_before_the_first_is_trained(
    copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(copy, *TRAINED)
    shutil.rmtree(copy.out / "pools")
    there: list[set[Path]] = []

    def look(*_: object, **__: object) -> None:
        there.append(set((copy.out / "pools").iterdir()))
        raise InputError("no power")

    monkeypatch.setattr(running, "train", look)
    reproduce(copy, page=False)
    wanted = set()
    for job in with_starts(copy.wanted()):
        data = recipe_of(copy, job).data
        assert data.validation is not None
        for entry in (*data.train, data.validation.entry()):
            address = entry.source if entry.targets != "regions" else f"{entry.source}&size={data.size}"
            assert data.keep is not None
            assert entry.pool is not None
            source = open_source(address)
            wanted.add(KeptPool(data.keep, source, entry.pool, data.size, data.grid, entry.targets).path)
    assert there[0] == wanted
    assert len(wanted) == 4  # for training and validation, those of the few shots apart


def test_a_process_only_opens_what_is_prepared(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prepare", "measure"):
        monkeypatch.setattr(running, name, never)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    (copy.out / "plan.json").write_text(json.dumps(plain_plan(copy)))
    assert running.main([str(copy.out / "plan.json"), "retrained", "[1/1] retrained"]) == 0


def test_a_variant_that_cannot_be_trained_is_found_before_training_and_the_rest_goes_on(
    copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(copy, "thirty-shot", "no-attn")
    order: list[str] = []

    def noted(recipe: Any, out: Any, **rest: Any) -> Any:
        order.append(Path(out).name)
        return train(recipe, out, **rest)

    monkeypatch.setattr(running, "train", noted)
    changed = replace(copy, changes=("thirty-shot:data.train[0].examples=25",))
    with pytest.raises(InputError, match="asks for 25, but only"):  # nothing would come of it
        reproduce(replace(changed, only=("thirty-shot",)), page=False)
    outcome = reproduce(changed, page=False, say=order.append)
    told = next(number for number, text in enumerate(order) if "thirty-shot cannot be trained" in text)
    assert told < order.index("no-attn")
    assert (copy.out / "measures" / "no-attn" / "about.json").exists()
    missing = json.loads((copy.out / "run.json").read_text())["missing"]
    assert list(missing) == ["thirty-shot"]
    assert "asks for 25, but only" in missing["thirty-shot"]
    assert outcome.left_out == (f"thirty-shot: {missing['thirty-shot']}",)
    assert reproduce(copy, page=False).left_out == ()
    assert json.loads((copy.out / "run.json").read_text())["missing"] == {}


def test_what_starts_from_a_run_that_failed_is_missing_too(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(copy, "retrained", "thirty-shot")

    def fails(*_: object, **__: object) -> None:
        raise InputError("the loss is no number")

    monkeypatch.setattr(running, "train", fails)
    left_out = reproduce(copy, page=False).left_out
    assert left_out == (
        "retrained: the loss is no number",
        "thirty-shot: it starts from retrained, which failed",
    )


def test_a_model_of_ones_own_is_one_more_row_marked_where_it_is_shown_boxes_and_all_commands_are_kept(
    copy: Plan,
) -> None:
    shutil.copytree(copy.out / "runs" / "uniter" / "model", copy.out / "retrained")
    model = str(copy.out / "retrained")
    plan = replace(copy, only=("none",), models=(model,))
    reproduce(plan, commands=("typed later",), page=False)
    reproduce(plan, commands=("typed later",))
    page = (copy.out / "page.html").read_text()
    assert f"{model} *" in page
    assert about(copy, own_slug(model))["comparable"] is False
    assert about(copy, "retrained")["name"] == "GLoRIA Retrained"
    assert json.loads((copy.out / "commands.json").read_text()) == {"commands": ["typed", "typed later"]}
    assert "typed\ntyped later" in page


def test_a_model_is_measured_again_when_its_weights_are_others(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.out / "mine"
    plan = replace(copy, only=("none",), models=(str(model),))
    digests = []
    for slug in ("retrained", "no-attn"):
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(copy.out / "runs" / slug / "model", model)
        reproduce(plan, page=False)
        digests.append(about(plan, own_slug(str(model)))["weights"])
        assert digests[-1] == about(plan, slug)["weights"]
    assert digests[0] != digests[1]
    monkeypatch.setattr(running, "measure", never)
    reproduce(plan, page=False)


def test_models_whose_rows_would_be_the_same_are_refused(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy.out)
    for name in ("a/b", "a-b", "sided"):
        shutil.copytree(copy.out / "runs" / "sided" / "model", name)
    assert own_slug("sided") == "own-sided"
    with pytest.raises(InputError, match="--model a/b and --model a-b would be the same row"):
        reproduce(replace(copy, only=("none",), models=("a/b", "a-b")))
    reproduce(replace(copy, only=("none",), models=("a/b",)), page=False)
    with pytest.raises(InputError, match="is the row of --model a/b"):
        reproduce(replace(copy, only=("none",), models=("a-b",)))


def test_a_model_that_answers_some_questions_or_none_is_told(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from rightlung.core import Grounding, Heatmap

    class Some:
        def ground(self, images: Sequence[Any], phrases: Sequence[Any]) -> list[Grounding]:
            if any(not isinstance(phrase, str) or "nodule" in phrase for phrase in phrases):
                raise ValueError("nodules")
            return [Grounding(Heatmap(np.ones((2, 2)))) for _ in images]

    class Silent:
        def ground(self, images: Sequence[Any], phrases: Sequence[Any]) -> list[Grounding]:
            raise ValueError("nothing")

    made: dict[str, Callable[[], Any]] = {"some": Some, "silent": Silent}
    monkeypatch.setattr(running, "load", lambda name, _: made[name]())
    left_out = reproduce(replace(copy, only=("none",), models=("some", "silent")), page=False).left_out
    errors = about(copy, "own-some")["measured"]["errors"]
    assert errors > 0
    assert left_out[1].startswith(f"own-some: {errors} of ")
    assert left_out[0].startswith("own-silent: the model answered none of the first")


def test_known_grounders_that_move_the_wrong_way_end_the_run(
    done: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _, _ = done
    monkeypatch.setattr(
        "rightlung.reproduce.wrong_lung.rehearsal.TextBlind", ImageBlind
    )  # which reads, whatever it is called
    with pytest.raises(InputError, match="machinery is broken: one blind to the text"):
        reproduce(replace(plan, out=tmp_path, only=("none",)))


def test_what_studies_without_exact_masks_cannot_show_is_not_checked_and_said(tmp_path: Path) -> None:
    regions = {"left lung": Box(0.55, 0.1, 0.9, 0.8), "right lung": Box(0.1, 0.1, 0.45, 0.8)}
    studies = [
        Study(
            f"s{number}",
            grey(number),
            f"p{number}",
            regions=regions,
            phrases=(Phrase(text, regions=(f"{side} lung",)),),
        )
        for number, (side, text) in enumerate(
            [("left", "Left lung."), ("right", "Right lung."), ("left", "On the left.")]
        )
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure_known(prepare(Listed(studies), tmp_path, size=32), tmp_path, "cpu")
        said = check_known(tmp_path)
    assert said[0] == "not checked, as no instance allows it: the oracle's lowest AUROC on exact masks is ?"
    assert sum(sentence.startswith("not checked") for sentence in said) < len(said)
    assert not any("nan" in sentence for sentence in said)


def test_studies_of_ones_own_win_over_those_of_a_quick_run(tmp_path: Path) -> None:
    plan = Plan(tmp_path, quick=True, train="phantom?count=30&seed=5", validation="phantom?count=9&seed=6")
    for slug, pools in (("sided", (30, 9)), ("thirty-shot", (24, 9))):
        data = recipe_of(plan, Job(BY_SLUG[slug], 1)).data
        assert data.validation is not None
        assert (data.train[0].source, data.validation.source) == (plan.train, plan.validation)
        assert (data.train[0].pool, data.validation.pool) == pools


def test_a_change_is_for_all_or_for_one_and_leaves_thirty_shots_thirty() -> None:
    changes = (
        "schedule.steps=3000", "batch.size=256", "data.train[0].examples=5", "optimiser.rate=1", "data.size=96",
        "sided:optimiser.rate=2", "thirty-shot:schedule.steps=400", "sided-seed2:seed=9",
    )  # fmt: skip
    assert changes_of(changes, Job(BY_SLUG["thirty-shot"], 1)) == [
        "optimiser.rate=1", "data.size=96", "schedule.steps=400",
    ]  # fmt: skip
    assert changes_of(changes, Job(BY_SLUG["sided"], 1)) == [*changes[:5], "optimiser.rate=2"]
    assert changes_of(changes, Job(BY_SLUG["sided"], 2)) == [*changes[:5], "optimiser.rate=2", "seed=9"]


@pytest.mark.parametrize("quick", [True, False])
def test_the_recipes_of_all_runs_can_be_read(tmp_path: Path, quick: bool) -> None:
    for job in Plan(tmp_path, quick=quick).wanted():
        assert recipe_of(Plan(tmp_path, quick=quick), job).seed == job.seed


def test_each_variant_has_its_recipe_and_three_seeds() -> None:
    assert {variant.recipe for variant in VARIANTS} <= set(shipped_recipes())
    assert [job.slug for job in jobs(("no-attn", "uniter"), seeds=2)] == [
        "no-attn", "uniter", "no-attn-seed2", "uniter-seed2"
    ]  # fmt: skip
    assert len(jobs()) == 3 * len(VARIANTS)
    assert jobs(("none",)) == []
    with pytest.raises(InputError, match="did you mean 'no-attn'"):
        jobs(("no-atn",))


def test_a_run_comes_after_the_one_that_it_starts_from_which_is_wanted_with_it() -> None:
    found = with_starts(jobs(("thirty-shot-exact", "thirty-shot"), 1))
    assert [job.slug for job in found] == ["retrained", "thirty-shot", "thirty-shot-exact"]


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

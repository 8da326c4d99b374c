"""A whole experiment in its quick form: what is done, what is not done again, what is refused, what is left out."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import Grounding, Heatmap, InputError
from rightlung.judgements.judgement import REQUIRED
from rightlung.predictions import open_predictions
from rightlung.reproduce import experiment, models
from rightlung.reproduce.experiment import main, reproduce
from rightlung.reproduce.models import own_slug
from rightlung.reproduce.plan import Plan, recipes_of
from rightlung.reproduce.processes import Task
from rightlung.reproduce.sanity import ImageBlind
from rightlung.reproduce.variants import Job, with_starts
from rightlung.reproduce.wrong_lung import PAPER
from rightlung.reproduce.wrong_lung.variants import VARIANTS
from rightlung.training.log import TrainingProgress
from rightlung.training.loop import train
from tests.reproduce.conftest import TRAINED, Done


@pytest.fixture
def copy(done: Done, tmp_path: Path) -> Plan:
    """The whole folder once more, elsewhere, to be spoilt."""
    shutil.copytree(done.plan.out, tmp_path / "copy")
    return replace(done.plan, out=tmp_path / "copy")


def forget(plan: Plan, *slugs: str) -> None:
    for slug in slugs:
        for kind in ("runs", "measures", "predictions"):
            shutil.rmtree(plan.out / kind / slug)


def about(plan: Plan, slug: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan.out / "measures" / slug / "about.json").read_text())
    return found


def left_out(plan: Plan, **options: Any) -> tuple[str, ...]:
    return reproduce(plan, page=False, **options).left_out


def never(*_: object, **__: object) -> None:
    raise AssertionError("done again")


def test_every_variant_is_trained_asked_and_measured_and_says_by_its_number_what_it_is_at(done: Done) -> None:
    for slug in TRAINED:
        found = about(done.plan, slug)
        assert (found["training"]["quick"], found["measured"]["errors"]) == (True, 0)
        assert 0 < found["training"]["steps"] <= 4
        assert found["comparable"] is (slug != "uniter")
        assert (done.plan.out / "predictions" / slug).is_dir()
    assert about(done.plan, "prior")["group"] == about(done.plan, "oracle")["group"] == "reference"
    assert (done.outcome.files, done.outcome.left_out) == ((), ())
    run = json.loads((done.plan.out / "run.json").read_text())
    assert (run["quick"], run["missing"]) == (True, {})
    assert run["train"].startswith("phantom?count=")
    told = [one for one in done.said if one.endswith((": training", ": measuring"))]  # and progress, on a slow machine
    assert told == [
        f"[{number}/3] {name}: {what}" for number, name in enumerate(TRAINED, 1) for what in ("training", "measuring")
    ]  # fmt: skip


@pytest.mark.parametrize("slug", ["no-attn", "abnormal", "rand-sents", "sided-abstaining", "thirty-shot-exact"])
def test_other_kinds_of_variants_can_be_trained(done: Done, tmp_path: Path, slug: str) -> None:
    (variant,) = (variant for variant in VARIANTS if variant.slug == slug)
    recipe = recipes_of(done.plan, Job(variant, 1))[""]
    assert train(recipe, tmp_path, hardware=done.plan.hardware, progress=TrainingProgress(shown=False)).steps <= 4


def test_what_is_done_is_not_done_again_wherever_its_folder_lies(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "train", never)
    for name in ("measure", "ask", "answers"):
        monkeypatch.setattr(models, name, never)
    assert left_out(copy) == ()
    (copy.out / "measures" / "uniter" / "about.json").unlink()
    with pytest.raises(AssertionError, match="done again"):
        left_out(copy)


def test_answers_that_are_kept_are_only_measured_again_and_held_to_their_recipe(
    copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = copy.out / "measures" / "retrained"
    before = (place / "instances.parquet").read_bytes()
    shutil.rmtree(place)
    monkeypatch.setattr("rightlung.models.gloria.Gloria.ground", never)
    with pytest.raises(
        InputError, match=r"contains a run of another recipe, which differs in optimizer\.learning_rate"
    ):
        reproduce(replace(copy, changes=("retrained:optimizer.learning_rate=1e-4",)))
    assert left_out(copy) == ()
    assert (place / "instances.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"changes": ("schedule.steps=9",)}, "retrained was trained with another recipe, which differs in schedule"),
        (
            {"changes": ("uniter:optimizer.learning_rate=1e-4",)},
            "uniter was trained with .*differs in optimizer.learning_rate",
        ),
        ({"changes": ("nonsense.x=9",)}, "unknown field of Recipe 'nonsense'"),
        ({"train": "phantom?count=30&seed=5"}, r"differs in data.train\[0\].source"),
        ({"train": "phantom?count=0&seed=5"}, "count"),
        ({"train": "manifest:/nowhere"}, "/nowhere"),
        ({"models": ("nobody/here",)}, "nobody/here"),
        ({"limit": 3}, "was prepared with .*limit None, not 3"),
        ({"source": "phantom?count=6&seed=14&size=64"}, "was prepared with .*seed=13.*, not 'phantom.*seed=14"),
        ({"judgements": Path("table.csv")}, "--judgements TABLE and --key KEY must be given together"),
        ({"judgements": Path("table.csv"), "key": Path("key.csv")}, r"key\.csv does not exist"),
        ({"judgements": Path("unjudged.csv"), "key": Path("codes.csv")}, r"unjudged\.csv: no row is judged"),
    ],
)
def test_another_command_for_the_same_folder_is_refused_before_anything_is_done(
    done: Done, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("codes.csv").write_text("code,model\nA7,retrained\n")
    Path("unjudged.csv").write_text(f"{','.join(REQUIRED)}\nann,a,phrase:0,opacity,A7,,,\n")
    if not {"limit", "source"} & set(changed):  # which are compared with what is prepared
        monkeypatch.setattr("rightlung.reproduce.prepared.prepare_studies", never)
    files = {name: changed.pop(name) for name in ("judgements", "key") if name in changed}
    with pytest.raises(InputError, match=said):
        reproduce(replace(done.plan, **changed), **files)


def test_several_at_once_give_the_same_as_one_after_the_other(
    done: Done, copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every task is what its process does; that several of them run at once is in `test_processes`."""
    forget(copy, "retrained", "thirty-shot")
    before = {path.name for path in (copy.out / "pools").iterdir()}
    shutil.rmtree(copy.out / "pools")
    seen: list[tuple[str, tuple[str, ...]]] = []

    def work_off(tasks: Sequence[Task], at_once: int, logs: Path, **_: Any) -> dict[str, str]:
        assert (at_once, logs) == (2, copy.out / "logs")
        for task in tasks:
            seen.append((task.title, task.after))
            assert [*task.command[:3]] == [sys.executable, "-m", "rightlung.reproduce.experiment"]
            assert main(task.command[3:]) == 0
        return {}

    monkeypatch.setattr(experiment, "in_processes", work_off)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert left_out(copy, at_once=2) == ()
    pools = {path.name for path in (copy.out / "pools").iterdir()}
    assert (len(pools), pools <= before) == (4, True)  # for training and validation, those of the few shots apart
    assert [title.partition(" of ")[0] for title, _ in seen] == ["pool"] * 4 + ["[1/3] retrained", "[2/3] thirty-shot"]
    own, shots = ({*after} for _, after in seen[4:])
    assert {name.removeprefix("pool-") for name in own | shots} == {*pools, "retrained"}
    assert (len(own), len(shots)) == (2, 3)
    for slug in ("retrained", "thirty-shot"):
        one, two = (plan.out / "measures" / slug / "instances.parquet" for plan in (done.plan, copy))
        assert one.read_bytes() == two.read_bytes()


def test_a_pool_that_cannot_be_filled_leaves_out_exactly_its_runs(
    copy: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(copy, "retrained", "thirty-shot", "uniter")
    shutil.rmtree(copy.out / "pools")
    Path(tmp_path / "manifest.jsonl").write_text('{"id": "a", "file": "a.png", "split": "train"}\n')
    Path(tmp_path / "a.png").write_bytes(b"no image")
    changes = (f"uniter:data.train[0].source=manifest:{tmp_path}", "uniter:data.train[0].cached_studies=1",
               "thirty-shot:data.validation.source=manifest:/nowhere")  # fmt: skip

    def fail_where_pools_do(tasks: Sequence[Task], *_: Any, **__: Any) -> dict[str, str]:
        failed: dict[str, str] = {}
        for task in tasks:
            if task.prepares and main(task.command[3:]):
                failed[task.name] = capsys.readouterr().err.strip().rpartition("error: ")[2]
            elif lost := task.waits_for(failed):
                failed[task.name] = failed[lost]
        return failed

    monkeypatch.setattr(experiment, "in_processes", fail_where_pools_do)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    first, second = left_out(replace(copy, changes=(*copy.changes, *changes)), at_once=2)
    assert first == "thirty-shot: /nowhere does not exist"  # known without a process
    assert second.startswith("uniter: ")
    assert "a.png" in second


def test_a_process_only_opens_what_is_prepared_and_tells_why_it_ends(
    copy: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rightlung.reproduce.prepared.prepare_studies", never)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    arguments = [str(copy.out / "plan.json"), "uniter", "[1/1] uniter"]
    Path(arguments[0]).write_text(json.dumps(copy.as_json()))
    assert main(arguments) == 0
    Path(arguments[0]).write_text(json.dumps(replace(copy, changes=("uniter:seed=9",)).as_json()))
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_variant_that_cannot_be_trained_is_found_before_training_and_the_rest_goes_on(
    done: Done, copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(copy, "thirty-shot", "uniter")
    order: list[str] = []

    def fails(recipe: Any, out: Path, **_: Any) -> None:
        order.append(out.name)
        raise InputError("no power")

    monkeypatch.setattr(experiment, "train", fails)
    changed = replace(copy, changes=("thirty-shot:data.train[0].few_shot_studies=25",))
    with pytest.raises(InputError, match="is 25, but only"):  # nothing would come of it
        left_out(replace(changed, only=("thirty-shot",)))
    few, uniter = left_out(changed, say=order.append)
    assert order.index("uniter") > next(n for n, text in enumerate(order) if "thirty-shot cannot be trained" in text)
    assert few.startswith("thirty-shot: ")
    assert uniter == "uniter: no power"
    missing = json.loads((copy.out / "run.json").read_text())["missing"]
    assert [f"{slug}: {reason}" for slug, reason in missing.items()] == [few, uniter]
    for slug in missing:  # now they are there
        for kind in ("runs", "measures"):
            shutil.copytree(done.plan.out / kind / slug, copy.out / kind / slug)
    assert left_out(copy) == ()
    assert json.loads((copy.out / "run.json").read_text())["missing"] == {}


def test_pools_are_filled_before_the_first_training_and_what_starts_from_a_failed_run_is_missing(
    copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(copy, "retrained", "thirty-shot")
    shutil.rmtree(copy.out / "pools")
    pools: list[int] = []

    def fails(*_: object, **__: object) -> None:
        pools.append(len([*(copy.out / "pools").iterdir()]))
        raise InputError("the loss is no number")

    monkeypatch.setattr(experiment, "train", fails)
    assert left_out(copy) == (
        "retrained: the loss is no number", "thirty-shot: it starts from retrained, which failed",
    )  # fmt: skip
    assert pools == [4]  # for training and validation, those of the few shots apart
    assert [job.slug for job in with_starts(copy.wanted())] == [*TRAINED]


def test_a_known_model_that_moves_the_wrong_way_ends_the_run(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    paper = replace(PAPER, quick_source=copy.measured_on)
    monkeypatch.setattr("rightlung.reproduce.wrong_lung.PAPER", paper)
    monkeypatch.setattr("rightlung.reproduce.sanity.TextBlind", ImageBlind)  # which reads, whatever it is called
    for kind in ("measures", "predictions"):
        shutil.rmtree(copy.out / kind / "blind-to-text")
    with pytest.raises(InputError, match="sanity checks failed, so the code is broken: a model blind to the text"):
        left_out(replace(copy, source=None, only=("none",)))


# ------------------------------------------------------------------ models of one's own


def test_an_own_model_is_one_more_row_and_measured_again_when_its_weights_are_others(
    copy: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.out)
    plan, digests = replace(copy, only=("none",), models=("mine",)), []
    for slug in ("retrained", "uniter"):
        shutil.rmtree("mine", ignore_errors=True)
        shutil.copytree(f"runs/{slug}/model", "mine")
        assert left_out(plan, commands=("typed later",)) == ()
        found = about(plan, "own-mine")
        digests.append(found["weights"])
        assert digests[-1] == about(plan, slug)["weights"]
        assert (found["name"], found["group"], found["comparable"]) == ("mine", "ours", slug != "uniter")
    assert digests[0] != digests[1]
    assert json.loads((copy.out / "commands.json").read_text()) == {"commands": ["typed", "typed later"]}
    monkeypatch.setattr(models, "measure", never)
    assert left_out(plan) == ()
    monkeypatch.setattr(models, "code_fingerprint", lambda model, name: "edited")
    with pytest.raises(AssertionError, match="done again"):
        left_out(plan)


def test_own_models_whose_rows_would_be_the_same_are_refused(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "load", lambda name, device: ImageBlind())
    assert own_slug("sided") == "own-sided"  # no variant
    with pytest.raises(InputError, match="--model a/b and --model a-b would use the same row, own-a-b"):
        left_out(replace(copy, only=("none",), models=("a/b", "a-b")))
    left_out(replace(copy, only=("none",), models=("a/b",)))
    with pytest.raises(InputError, match="is used by --model a/b"):
        left_out(replace(copy, only=("none",), models=("a-b",)))


def test_the_released_checkpoint_is_the_papers_own_row(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    class Released(ImageBlind):
        kind = "released-gloria"

    monkeypatch.setattr(models, "load", lambda name, device: Released())
    assert left_out(replace(copy, only=("none",), models=("here/gloria.ckpt",))) == ()
    found = about(copy, "gloria")
    assert (found["name"], found["group"], found["seed"]) == ("GLoRIA (released weights)", "paper", None)
    with pytest.raises(InputError, match=r"is used by --model here/gloria\.ckpt"):
        left_out(replace(copy, only=("none",), models=("elsewhere/gloria.ckpt",)))


class Without:
    """Has no answer about phrases with a word."""

    def __init__(self, word: str) -> None:
        self.word = word

    def ground(self, images: Sequence[Any], phrases: Sequence[Any]) -> list[Grounding]:
        if any(self.word in getattr(phrase, "text", phrase) for phrase in phrases):
            raise ValueError(self.word)
        return [Grounding(Heatmap(np.ones((2, 2)))) for _ in images]


def test_a_model_that_answers_some_questions_or_none_is_told(copy: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"some": Without("nodule"), "silent": Without(""), "none": object()}
    monkeypatch.setattr(models, "load", lambda name, device: made[name])
    silent, some = left_out(replace(copy, only=("none",), models=("some", "silent")))
    assert silent.startswith("own-silent: the model answered none of the first")
    found = about(copy, "own-some")["measured"]
    answers = open_predictions(copy.out / "predictions" / "own-some")
    assert found["errors"] == sum(one.error is not None for one in answers) > 0
    assert some == f"own-some: {found['errors']} of {len([*answers])} questions have no answer"
    with pytest.raises(InputError, match="--model none: object does not implement ground"):
        left_out(replace(copy, only=("none",), models=("none",)))

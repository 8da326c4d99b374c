"""Runs from a recipe to a model folder: what they write, how they end, and what stops them."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from rightlung.core import InputError, OutputError
from rightlung.models.folder import load_folder
from rightlung.training.checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from rightlung.training.failures import load_batch
from rightlung.training.log import Log, TrainingProgress, read_log
from rightlung.training.loop import train
from rightlung.training.recipe import Recipe
from rightlung.training.recipe_file import read_recipe
from rightlung.training.weights import learning_rate_at
from tests.training.recipes import CPU, final_weights, quiet, run, same, small
from tests.training.tiny import Tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop")
    validation = "data.validation={source: 'phantom?count=8&seed=12', every: 4, cached_studies: 8}"
    run(folder, validation, "schedule.steps=12", "losses.supervised=1")
    return folder / "run"


def test_a_run_writes_recipe_log_curve_and_a_model_that_can_be_asked(finished: Path) -> None:
    assert read_recipe(finished / "recipe.yaml").schedule.steps == 12
    assert isinstance(load_folder(finished / "model"), Tiny)
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    rows = read_log(finished / "log.csv")
    assert [row["step"] for row in rows] == [2, 3, 4, 6, 8, 9, 10, 12]
    assert all(row["loss"] == pytest.approx(row["global"] + row["supervised"], rel=1e-4) for row in rows)
    judged = [row for row in rows if "validation loss" in row]
    assert [row["step"] for row in judged] == [4, 8, 12]
    assert all(0 <= row["validation auroc"] <= 1 and 0 <= row["validation pointing"] <= 1 for row in judged)
    done = json.loads((finished / "finished.json").read_text())
    best = min(judged, key=lambda row: row["validation loss"])
    assert done["best"]["step"] == best["step"]
    assert done["validation"]["loss"] == pytest.approx(judged[-1]["validation loss"], rel=1e-4)


def test_the_last_two_checkpoints_are_kept(finished: Path) -> None:
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == [
        "step-00000009.safetensors",
        "step-00000012.safetensors",
    ]


def test_the_model_is_the_average_of_the_weights(tmp_path: Path) -> None:
    """Followed by hand from the weights after each step."""
    run(tmp_path, "schedule.steps=4", "checkpoint_every=1", "ema=0.6", name="followed")
    after: list[dict[str, torch.Tensor]] = []
    for steps in range(1, 5):  # the rate of each step depends on the number of steps, so stop instead
        stopped_after(tmp_path, steps, f"part-{steps}", "schedule.steps=4", "ema=0.6")
        checkpoint = last_checkpoint(tmp_path / f"part-{steps}" / "checkpoints")
        assert checkpoint is not None
        assert checkpoint.step == steps
        after.append({name: value for name, value in checkpoint.tensors.items() if name.startswith("weights/")})
    start = load_folder(tmp_path / "followed" / "start").state_dict()
    model = load_folder(tmp_path / "followed" / "model").state_dict()
    for name, value in start.items():
        expected = value.double()
        for step, weights in enumerate(after, start=1):
            decay = min(0.6, step / (step + 9))
            expected = decay * expected + (1 - decay) * weights[f"weights/{name}"].double()
        torch.testing.assert_close(model[name].double(), expected, atol=1e-6, rtol=1e-5)


def stopped_after(folder: Path, step: int, name: str, *changes: str) -> None:
    """Press Ctrl-C during a step; a run of that many steps is simply finished."""
    recipe = small(folder, *changes)
    called = 0
    before = Tiny.forward

    def forward(self: Tiny, batch: object, gather: object = None) -> object:
        nonlocal called
        called += 1
        if called == step:
            os.kill(os.getpid(), signal.SIGINT)
        return before(self, batch, gather)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tiny, "forward", forward)
        said = pytest.raises(KeyboardInterrupt, match=f"stopped after step {step} of .*--resume")
        with said if step < recipe.schedule.steps else nullcontext():
            train(recipe, folder / name, hardware=CPU, progress=quiet())


def test_ctrl_c_keeps_the_step_and_resuming_ends_with_the_same_weights(tmp_path: Path) -> None:
    run(tmp_path, name="whole")
    stopped_after(tmp_path, 4, "stopped")
    assert last_checkpoint(tmp_path / "stopped" / "checkpoints").step == 4  # type: ignore[union-attr]
    assert run(tmp_path, resume=True, name="stopped").resumed_from == 4
    assert same(final_weights(tmp_path / "whole"), final_weights(tmp_path / "stopped"))
    steps = [row["step"] for row in read_log(tmp_path / "stopped" / "log.csv")]
    assert steps == sorted(set(steps))


def test_the_schedule_rises_and_falls_along_a_cosine(tmp_path: Path) -> None:
    schedule = "schedule={steps: 110, warmup_steps: 10, final_learning_rate_factor: 0.1}"
    recipe = small(tmp_path, schedule, "optimizer.learning_rate=2.0")
    assert [learning_rate_at(step, recipe) for step in (0, 4, 9)] == pytest.approx([0.2, 1.0, 2.0])
    for step in (10, 35, 60, 109):
        share = 0.1 + 0.9 * (1 + math.cos(math.pi * (step - 10) / 100)) / 2
        assert learning_rate_at(step, recipe) == pytest.approx(2.0 * share)


def test_accumulating_two_batches_is_the_mean_of_their_gradients(tmp_path: Path) -> None:
    """One step of plain descent: by hand from the two batches of the first step."""
    changes = ["optimizer={name: sgd, learning_rate: 0.1, weight_decay: 0, betas: [0, 0], clip_norm: 0}", "ema=0"]
    changes += ["schedule={steps: 1}", "batch_size=4", "gradient_accumulation=2", "model.config.dropout=0"]
    run(tmp_path, *changes)
    recipe = small(tmp_path, *changes)
    model = load_folder(tmp_path / "run" / "start").train()
    for batch in batches_of(recipe, 2):
        terms = model(batch)
        ((terms["global"] + 0.5 * terms["supervised"]) / 2).backward()
    trained = load_folder(tmp_path / "run" / "model").state_dict()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(trained[name], parameter.detach() - 0.1 * parameter.grad)


def batches_of(recipe: Recipe, count: int) -> Sequence[object]:
    from rightlung.training.batches import Batches
    from rightlung.training.setup import open_datasets

    entries = open_datasets(recipe, torch.device("cpu"), quiet())
    batches = Batches(entries, recipe.batch_size, recipe.seed, torch.device("cpu"), recipe.augmentation)
    return list(batches.iterate(0, count))


def test_gradients_are_clipped_and_some_parameters_may_have_a_rate_of_their_own(tmp_path: Path) -> None:
    changes = [
        "optimizer={name: sgd, learning_rate: 1.0, weight_decay: 0, betas: [0, 0], clip_norm: 0.01}",
        "optimizer.learning_rate_factors={words: 0}",
    ]
    changes += ["schedule={steps: 1}", "ema=0"]
    run(tmp_path, *changes)
    start = load_folder(tmp_path / "run" / "start").state_dict()
    moved = load_folder(tmp_path / "run" / "model").state_dict()
    assert torch.equal(start["words.weight"], moved["words.weight"])
    length = math.sqrt(sum(float((moved[name] - start[name]).square().sum()) for name in start))
    assert 0.0 < length <= 0.01 + 1e-6
    with pytest.raises(InputError, match=r"optimizer.learning_rate_factors.wrods: no parameter's name begins"):
        run(tmp_path, "optimizer.learning_rate_factors={wrods: 2}", name="other")


def test_a_model_can_be_trained_further(tmp_path: Path, finished: Path) -> None:
    run(tmp_path, "model={start: " + str(finished / "model") + "}", "schedule.steps=1")
    start = load_folder(tmp_path / "run" / "start").state_dict()
    assert same(start, load_folder(finished / "model").state_dict())


def test_a_loss_that_is_no_number_stops_with_its_batch_kept(tmp_path: Path) -> None:
    recipe = small(tmp_path)
    poisoned = batches_of(recipe, 2)[1]
    name = next(one for one in poisoned.ids if one not in batches_of(recipe, 1)[0].ids)  # type: ignore[attr-defined]
    with pytest.raises(InputError) as caught:
        run(tmp_path, f"model.config.poison={name}", "schedule.steps=40", "log_every=20", "checkpoint_every=20")
    sentence = str(caught.value)
    assert "at step 2, learning rate 0.01: supervised nan" in sentence
    kept = load_batch(tmp_path / "run" / "failed-step-2")
    assert name in kept.ids
    assert torch.equal(kept.images, poisoned.images)  # type: ignore[attr-defined]
    assert kept.targets["phrases"]["texts"] == poisoned.targets["phrases"]["texts"]  # type: ignore[attr-defined]
    assert last_checkpoint(tmp_path / "run" / "checkpoints") is None  # spoilt weights are never kept
    with pytest.raises(InputError, match="does not hold a batch"):
        load_batch(tmp_path)


def test_too_little_memory_is_answered_with_a_batch_size_that_fits(tmp_path: Path) -> None:
    said = "batch_size 12; 3 would fit: --set batch_size=3 --set gradient_accumulation=4"
    with pytest.raises(InputError, match=said):
        run(tmp_path, "model.config.breaks_above=5", "batch_size=12")
    with pytest.raises(InputError, match="even for a batch of 1"):
        run(tmp_path, "model.config.breaks_above=0", name="none")


def test_an_unknown_term_of_the_loss_is_answered_with_the_nearest_and_can_be_mended(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'gobal'; did you mean 'global'"):
        run(tmp_path, "losses={gobal: 1}")
    assert run(tmp_path, "schedule.steps=1").steps == 1  # the same folder: nothing was worth keeping


def test_a_folder_is_used_for_one_run_only(tmp_path: Path, finished: Path) -> None:
    recipe = read_recipe(finished / "recipe.yaml")
    with pytest.raises(InputError, match="contains this run, finished"):
        train(recipe, finished, hardware=CPU, progress=quiet())
    assert train(recipe, finished, resume=True, hardware=CPU, progress=quiet()).steps == 12
    other = read_recipe(finished / "recipe.yaml", ["seed=9", "schedule.steps=13"])
    with pytest.raises(InputError, match=r"another recipe, which differs in schedule.steps, seed"):
        train(other, finished, resume=True, hardware=CPU, progress=quiet())
    stopped_after(tmp_path, 2, "run")
    with pytest.raises(InputError, match="not finished; add --resume"):
        run(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match=r"contains .thesis.tex. but no run"):
        run(tmp_path, name="full")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        run(tmp_path, name="file")


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    from rightlung.training.folder import RunFolder

    with RunFolder(tmp_path / "run").locked(), pytest.raises(InputError, match="another process is training in"):
        run(tmp_path)


def test_a_checkpoint_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, Checkpoint(step, {"a": torch.full((3,), step)}, {"n": step}))
    (tmp_path / ".step-00000004.safetensors.writing").write_bytes(b"half")
    whole = (tmp_path / "step-00000003.safetensors").read_bytes()
    (tmp_path / "step-00000003.safetensors").write_bytes(whole[:-3])
    found = last_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.metadata, found.tensors["a"].tolist()) == (2, {"n": 2}, [2, 2, 2])
    assert last_checkpoint(tmp_path / "none") is None


def test_a_run_without_a_readable_checkpoint_is_restarted_only_on_request(tmp_path: Path) -> None:
    for name in ("run", "whole"):
        run(tmp_path, "schedule.steps=6", name=name)
    folder = tmp_path / "run"
    (folder / "finished.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(
        InputError, match=r"checkpoints: no checkpoint can be read; add --restart to train again from st"
    ):
        run(tmp_path, "schedule.steps=6", resume=True)
    outcome = train(small(tmp_path, "schedule.steps=6"), folder, restart=True, hardware=CPU, progress=quiet())
    assert outcome.resumed_from == 0
    assert same(final_weights(folder), final_weights(tmp_path / "whole"))


def test_a_run_says_that_its_last_checkpoint_is_damaged(tmp_path: Path) -> None:
    run(tmp_path, "schedule.steps=6")
    (tmp_path / "run" / "finished.json").unlink()
    last = tmp_path / "run" / "checkpoints" / "step-00000006.safetensors"
    last.write_bytes(last.read_bytes()[:-3])
    told: list[str] = []
    progress = TrainingProgress(say=told.append)
    outcome = train(small(tmp_path, "schedule.steps=6"), tmp_path / "run", resume=True, hardware=CPU, progress=progress)
    assert outcome.resumed_from == 3
    assert f"{last} is damaged; the run continues from step 3" in told


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"step": 1}'])
def test_a_damaged_outcome_is_named(finished: Path, tmp_path: Path, content: str) -> None:
    copy = shutil.copytree(finished, tmp_path / "run")
    (copy / "finished.json").write_text(content)
    with pytest.raises(InputError, match=r"run/finished\.json"):
        train(read_recipe(copy / "recipe.yaml"), copy, resume=True, hardware=CPU, progress=quiet())


def test_a_log_goes_on_after_the_checkpoint_and_forgets_what_will_come_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.csv", 0)
    for step in (1, 2, 3):
        log.add({"step": step, "loss": step / 3})
    with (tmp_path / "log.csv").open("a") as file:
        file.write("4,0.")  # the process was killed here
    again = Log(tmp_path / "log.csv", 2)
    again.add({"step": 3, "loss": 0.25, "validation loss": 0.5})
    assert [row["step"] for row in read_log(tmp_path / "log.csv")] == [1, 2, 3]
    assert read_log(tmp_path / "log.csv")[2] == {"step": 3, "loss": 0.25, "validation loss": 0.5}


def test_mixed_precision_trains_in_bfloat16_and_keeps_single_weights(tmp_path: Path) -> None:
    run(tmp_path, "precision=bf16-mixed", "schedule.steps=2", name="mixed")
    run(tmp_path, "schedule.steps=2", name="single")
    mixed, single = final_weights(tmp_path / "mixed"), final_weights(tmp_path / "single")
    assert all(value.dtype == torch.float32 for value in mixed.values())
    assert not same(mixed, single)
    torch.testing.assert_close(mixed["model/words.weight"], single["model/words.weight"], atol=0.05, rtol=0)


def test_kinds_that_cannot_be_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'gloria'"):
        run(tmp_path, "model.kind=glora")
    with pytest.raises(InputError, match="has no create"):
        run(tmp_path, "model.kind=collections:Counter")


def test_a_finished_run_that_was_moved_knows_where_its_model_is(tmp_path: Path) -> None:
    first = run(tmp_path)
    (tmp_path / "run").rename(tmp_path / "moved")
    again = run(tmp_path, resume=True, name="moved")
    assert again.model == str(tmp_path / "moved" / "model")
    assert (again.steps, again.loss) == (first.steps, first.loss)

"""Runs that end when the validation loss falls no further, interrupted or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rightlung.training import loop
from rightlung.training.checkpoint import last_checkpoint, save_checkpoint
from rightlung.training.log import Row, out_of_patience, read_log
from tests.training.recipes import final_weights, run, same
from tests.training.tiny import Tiny

LOSSES = [3.0, 2.0, 2.5, 2.0, 1.5, 1.5, 1.75, 1.6, 1.0, 0.5]
"""At steps 2, 4, 6, …: the last lower one of a patience of 3 is the fifth, so that the run ends with the eighth."""
CHANGES = ("data.validation={source: 'phantom?count=4&seed=12', every: 2, cached_studies: 4, grounded_phrases: 0}",
           "schedule={steps: 20, patience: 3}", "checkpoint_every=5", "log_every=3")  # fmt: skip


class Killed(BaseException):
    """As if the process had been killed: nobody catches it."""


@pytest.mark.parametrize(
    ("losses", "patience", "ends"),
    [
        ([], 1, False),
        ([1.0], 1, False),
        ([1.0, 0.9], 1, False),
        ([1.0, 1.0], 1, True),
        ([1.0, 1.1], 1, True),
        ([1.0, 1.1, 1.2], 3, False),
        ([1.0, 1.1, 1.2, 1.0], 3, True),
        ([1.0, 1.1, 1.2, 0.99], 3, False),
        ([1.0, 0.5, 0.6, 0.4], 2, False),
        ([1.0, 0.123456, 0.1234561], 1, True),
        ([1.0, 0.1234561, 0.123456], 1, True),  # no lower in the six digits that the log has
        ([1.0, 1.0, 1.0], None, False),
    ],
)
def test_patience_is_lost_after_so_many_validations_without_a_lower_loss(
    losses: list[float], patience: int | None, ends: bool
) -> None:
    rows: list[Row] = []
    for step, loss in enumerate(losses):
        rows += [{"step": step, "validation loss": loss}, {"step": step + 0.5, "loss": 9.0}]
    assert out_of_patience(rows, patience) is ends


def judging(run: Path) -> Callable[..., Row]:
    """Validation with losses known beforehand, by how many stand in the log."""

    def validate(*_: Any) -> Row:
        done = sum("validation loss" in row for row in read_log(run / "log.csv")) if (run / "log.csv").exists() else 0
        return {"validation loss": LOSSES[done]}

    return validate


def patient(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, resume: bool = False) -> loop.TrainingOutcome:
    monkeypatch.setattr(loop, "validate", judging(folder / name))
    return run(folder, *CHANGES, resume=resume, name=name)


def test_a_run_ends_when_the_loss_falls_no_further_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = patient(tmp_path, "run", monkeypatch)
    assert (outcome.steps, outcome.stopped_early) == (16, True)
    assert outcome.best == {"step": 10, "loss": 1.5}
    assert outcome.validation["loss"] == 1.6
    done = json.loads((tmp_path / "run" / "finished.json").read_text())
    assert (done["steps"], done["stopped_early"]) == (16, True)
    rows = read_log(tmp_path / "run" / "log.csv")
    assert [row["step"] for row in rows if "validation loss" in row] == list(range(2, 17, 2))
    assert rows[-1]["step"] == 16
    checkpoint = last_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.step == 16
    again = run(tmp_path, *CHANGES, resume=True)
    assert (again.steps, again.stopped_early) == (16, True)


def test_a_run_whose_loss_keeps_falling_has_all_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "validate", lambda *_: {"validation loss": 1.0})
    changes = (CHANGES[0], "schedule={steps: 6, patience: 3}")
    outcome = run(tmp_path, *changes)
    assert (outcome.steps, outcome.stopped_early) == (6, False)  # three validations are no three after the first


@pytest.mark.parametrize("moment", ["in step 9", "in step 16", "before the checkpoint", "before the model is saved"])
def test_a_killed_run_ends_at_the_same_step_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    patient(tmp_path, "whole", monkeypatch)
    forward, steps = Tiny.forward, 0

    def counted(self: Tiny, *arguments: Any) -> Any:
        nonlocal steps
        steps += self.training  # the batch is looked at again, without learning from it
        if moment == f"in step {steps}":
            raise Killed
        return forward(self, *arguments)

    def saved(folder: Path, checkpoint: Any) -> Path:
        if moment == "before the checkpoint" and checkpoint.step == 16:
            raise Killed
        return save_checkpoint(folder, checkpoint)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Tiny, "forward", counted)
        patch.setattr(loop, "save_checkpoint", saved)
        if moment == "before the model is saved":
            patch.setattr(loop, "save_model", killed)
        with pytest.raises(Killed):
            patient(tmp_path, "killed", monkeypatch)
    outcome = patient(tmp_path, "killed", monkeypatch, resume=True)
    resumed_from = {"in step 9": 5, "in step 16": 15, "before the checkpoint": 15, "before the model is saved": 16}
    assert outcome.resumed_from == resumed_from[moment]
    assert (outcome.steps, outcome.stopped_early) == (16, True)
    assert outcome.best == {"step": 10, "loss": 1.5}
    assert same(final_weights(tmp_path / "killed"), final_weights(tmp_path / "whole"))
    logs = [read_log(tmp_path / name / "log.csv") for name in ("whole", "killed")]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]]

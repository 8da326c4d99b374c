"""The training loop, from a recipe to a model folder, to be read from top to bottom.

Everything random follows from the recipe's seed, the step and the process. So a checkpoint is weights, optimiser and a
number, and a run that is killed goes on to the same weights as one that was not.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rightlung.core import InputError
from rightlung.core.errors import is_out_of_memory, unknown_name
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.training.batches import Batches, step_seed
from rightlung.training.checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from rightlung.training.folder import RunFolder
from rightlung.training.gathering import anywhere, gather
from rightlung.training.recipe import Recipe
from rightlung.training.record import Interruption, Record
from rightlung.training.setup import (
    Machine,
    check_same_data,
    keep_start,
    launched,
    lengths,
    model_class,
    open_all,
    validation_batches,
)
from rightlung.training.sharding import named_parameters
from rightlung.training.trouble import enough_memory, out_of_memory
from rightlung.training.validation import validate
from rightlung.training.watching import Board, Log, Row, TrainingProgress, draw_curve, out_of_patience
from rightlung.training.weights import Weights, build_optimiser, copied, move, rate_at, set_rate

__all__ = ["Machine", "TrainingOutcome", "train"]

SHOWN = "validation "
SMALLER = "a smaller batch.size or a smaller model may fit"


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How a run ended."""

    model: str
    steps: int
    resumed_from: int
    loss: float
    validation: Mapping[str, float]  # of the last step
    best: Mapping[str, float]  # the step of the lowest validation loss, and that loss
    seconds: float
    images_per_second: float
    device: str
    left_out: Sequence[str] = ()  # what is wrong with the studies that could not be used
    stopped_early: bool = False  # because the validation loss fell no further


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    machine: Machine | None = None,
    progress: TrainingProgress | None = None,
) -> TrainingOutcome:
    """Train by a recipe into a folder; ``resume`` goes on from the last checkpoint there.

    Ctrl-C writes a checkpoint after the current step and raises `KeyboardInterrupt`.
    """
    fabric = launched(recipe, machine or Machine())
    folder, rank = RunFolder(Path(out)), fabric.global_rank
    shown = progress if progress is not None and rank == 0 else TrainingProgress(shown=rank == 0)
    if (done := folder.check(recipe, resume)) is not None:
        return TrainingOutcome(**done)
    fabric.barrier()  # all have looked before one changes anything
    with folder.locked() if rank == 0 else contextlib.nullcontext():
        if rank == 0:
            folder.begin(recipe)
        sharded = machine is not None and machine.strategy == "fsdp"
        return _Training(recipe, folder, fabric, sharded, shown).run()


class _Training:
    """One run. What it needs is made in the order below; `run` is the loop."""

    def __init__(self, recipe: Recipe, folder: RunFolder, fabric: Any, sharded: bool, shown: TrainingProgress) -> None:
        self.recipe, self.folder, self.fabric, self.shown = recipe, folder, fabric, shown
        self.rank, self.world, self.where = fabric.global_rank, fabric.world_size, str(fabric.device)
        self.joint: Gather | None = gather if self.world > 1 else None
        self.batch: TrainingBatch | None = None
        self.entries = open_all(recipe, fabric.device, shown)
        self.validation, self.unjudged = validation_batches(recipe, fabric.device, shown) if not self.rank else ([], ())
        self.model = self._start()
        self._optimise(sharded)
        self.start = self._resume()
        self.batches = self._batches(recipe.batch.size, self.rank, self.world)
        self.record = Record(recipe, fabric, folder, self.batches)
        self.log = Log(folder.log, self.start) if self.rank == 0 else None
        self.board = Board(folder.board, self.start) if self.rank == 0 else None

    def _batches(self, size: int, rank: int = 0, world: int = 1) -> Batches:
        recipe = self.recipe
        given = self.entries, size, recipe.seed, self.fabric.device, recipe.augmentation
        run = recipe.schedule.steps * recipe.batch.accumulate
        return Batches(*given, rank=rank, world=world, data=recipe.data, run=run)

    def _start(self) -> nn.Module:
        """Return the model before the first step: kept in the folder, so that all processes and resumptions agree."""
        kind = self.recipe.model.kind
        maker = None if kind is None else model_class(kind)
        if self.rank == 0 and not self.folder.start.is_dir():
            keep_start(self.recipe, maker, self.folder, self.entries)
        self.fabric.barrier()
        model: object = load_folder(self.folder.start)
        if not isinstance(model, nn.Module):
            raise InputError(f"a {type(model).__name__} is no torch.nn.Module and cannot be trained")
        model.train()
        if self.fabric.device.type == "cuda":
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the stubs lack it
            torch.backends.cudnn.benchmark = True
        return model

    def _optimise(self, sharded: bool) -> None:
        """Make the optimiser, and the average of the weights."""
        averaged = copied(self.model).to(self.fabric.device)
        self.wrapped = self.fabric.setup_module(_Losses(self.model))
        parameters = dict(named_parameters(self.wrapped) if sharded else self.model.named_parameters())
        self.plain_optimiser = build_optimiser(parameters, self.recipe.optimiser)
        self.optimiser = self.fabric.setup_optimizers(self.plain_optimiser)
        # Without Fabric's own layer, which sharding does not know.
        inner = getattr(self.wrapped, "_forward_module", self.wrapped)
        self.weights = Weights(self.model, averaged, inner, self.plain_optimiser, self.recipe.averaging, sharded)

    def _resume(self) -> int:
        """Take up where the last checkpoint left off, and return its step."""
        checkpoint = last_checkpoint(self.folder.checkpoints)
        if checkpoint is None:
            return 0
        check_same_data(checkpoint, self.entries, self.world)
        self.weights.load(checkpoint.tensors)
        self.fabric.strategy.precision.load_state_dict(checkpoint.facts["precision"])
        return checkpoint.step

    def run(self) -> TrainingOutcome:
        """Train, and save the model."""
        recipe, log = self.recipe, self.log
        steps, parts = recipe.schedule.steps, recipe.batch.accumulate
        drawn = self.batches.from_number(self.start * parts, steps * parts)
        began = time.monotonic()
        last: Row = {name: value for row in (log.rows if log else []) for name, value in row.items()}
        step, ended = self.start, self._out_of_patience()
        images_a_step = recipe.batch.size * parts * self.world
        with (
            contextlib.closing(drawn),
            self.shown.begin(step, steps, images_a_step),
            Interruption() as interrupted,
        ):
            while step < steps and not ended:
                self._step(step, drawn)
                step += 1
                self.weights.follow(step)

                stop = interrupted.now if self.world == 1 else False
                at_checkpoint = step % recipe.checkpoint_every == 0 or step == steps or stop
                at_validation = recipe.data.validation is not None and (
                    step % recipe.data.validation.every == 0 or step == steps
                )
                if not (at_checkpoint or at_validation or step % recipe.log_every == 0):
                    continue
                row = self.record.row(step)  # waits for the device; a loss that is no number ends the run here
                if self.world > 1:  # all of them stop at the same step
                    stop = anywhere(self.fabric, interrupted.now)
                    at_checkpoint = at_checkpoint or stop
                if at_checkpoint or at_validation:
                    self._check_weights(step)
                if at_validation:
                    row |= self._validate(step)
                self._show(step, row)
                last |= row
                if at_validation and recipe.schedule.patience is not None:
                    ended = self._out_of_patience()
                if at_checkpoint or ended:
                    self._save(step)
                if stop and step < steps and not ended:
                    if self.rank == 0:
                        draw_curve(self.folder.log, self.folder.curve)
                    raise KeyboardInterrupt(f"stopped after step {step} of {steps}; --resume goes on from there")
        return self._finish(step, last, time.monotonic() - began)

    def _step(self, step: int, drawn: Iterator[TrainingBatch]) -> None:
        """Draw the batches of a step and move the weights."""
        recipe, parts = self.recipe, self.recipe.batch.accumulate
        rate = rate_at(step, recipe.optimiser.rate, recipe.schedule)
        set_rate(self.plain_optimiser, rate)
        torch.manual_seed(step_seed(recipe.seed, step, self.rank, "dropout"))
        failed = False
        try:
            for part in range(parts):
                self.batch = None  # the one before: its memory is wanted
                self.batch = next(drawn)
                with self.fabric.no_backward_sync(self.wrapped, enabled=part < parts - 1):
                    terms = self.wrapped(_Held(self.batch, self.joint))
                    loss = _weighted(terms, recipe.losses)
                    self.fabric.backward(loss / parts)
                self.record.add(step, part, loss, terms)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = True
        if failed:  # outside the handler, whose traceback would keep the memory
            self.optimiser.zero_grad(set_to_none=True)
            self.batch = None
            attempt = partial(self._attempt, step) if self.world == 1 else None
            raise out_of_memory(recipe.batch.size, parts, self.where, attempt)
        with enough_memory(self.where, f"to move the weights at step {step + 1}", SMALLER):
            most = recipe.optimiser.clip or math.inf  # of which the norm is wanted all the same
            norm = self.fabric.clip_gradients(self.wrapped, self.optimiser, max_norm=most, error_if_nonfinite=False)
            self.record.norm(step, norm)
            move(self.optimiser, step, rate)
        self.optimiser.zero_grad(set_to_none=True)

    def _attempt(self, step: int, size: int) -> None:
        """Run forward and backward once with a batch of another size."""
        batch = self._batches(size).one(step)
        try:
            with self.fabric.autocast():
                loss = _weighted(self.model(batch, None), self.recipe.losses)
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self.model.zero_grad(set_to_none=True)

    def _check_weights(self, step: int) -> None:
        """See what this step has made of the weights: what is spoilt is neither judged nor kept."""
        if self.batch is None:
            return
        self.record.check_weights(step, self.batch, {}, self.weights.finite())
        with enough_memory(self.where, f"to look at a batch of {self.recipe.batch.size} again", SMALLER):
            self.record.check_weights(step, self.batch, _seen_again(self.wrapped, self.batch, self.joint), True)

    def _validate(self, step: int) -> Row:
        judged, settings = self.weights.averaged_model(), self.recipe.data.validation
        found: Row = {}
        if self.rank == 0 and self.validation and settings is not None:
            size = len(self.validation[0])
            with enough_memory(self.where, f"to validate with {size} images at a time", SMALLER):
                found = validate(judged, self.validation, self.recipe.losses, settings.grounded)
            self.record.check_validation(step, self.validation[0], found)
        self.fabric.barrier()
        return found

    def _show(self, step: int, row: Row) -> None:
        row["images per second"] = self.shown.images_per_second(step)
        if self.log is not None and self.board is not None:
            self.log.add(row)
            self.board.add(row)
            self.shown.show(step, row["loss"])

    def _save(self, step: int) -> None:
        tensors = self.weights.tensors()
        if self.rank == 0:
            facts = {
                "precision": self.fabric.strategy.precision.state_dict(),
                "studies": lengths(self.entries),
                "processes": self.world,
            }
            save_checkpoint(self.folder.checkpoints, Checkpoint(step, tensors, facts))
        self.fabric.barrier()

    def _out_of_patience(self) -> bool:
        here = self.log is not None and out_of_patience(self.log.rows, self.recipe.schedule.patience)
        return anywhere(self.fabric, here)

    def _finish(self, step: int, last: Row, seconds: float) -> TrainingOutcome:
        if not self.weights.finite():  # in a checkpoint of the last step, which was all that there was to do
            raise InputError(f"{self.folder.checkpoints}: the weights after step {step} are no numbers")
        trained = self.weights.averaged_model()
        outcome = TrainingOutcome(
            model=str(self.folder.model),
            steps=step,
            resumed_from=self.start,
            loss=last.get("loss", math.nan),
            validation={name.removeprefix(SHOWN): value for name, value in last.items() if name.startswith(SHOWN)},
            best=_best(self.log.rows if self.log is not None else []),
            seconds=seconds,
            images_per_second=last.get("images per second", math.nan),
            device=self.where,
            left_out=[problem for _, studies in self.entries for problem in studies.problems] + list(self.unjudged),
            stopped_early=step < self.recipe.schedule.steps,
        )
        if self.rank == 0:
            if self.board is not None:
                self.board.close()
            save_model(trained, self.folder.model, self.recipe.card)  # type: ignore[arg-type]  # checked with the start
            draw_curve(self.folder.log, self.folder.curve)
            self.folder.finish(asdict(outcome))
        self.fabric.barrier()
        return outcome


def _best(rows: Sequence[Row]) -> dict[str, float]:
    judged = [{"step": row["step"], "loss": row["validation loss"]} for row in rows if "validation loss" in row]
    return min(judged, key=lambda row: row["loss"], default={})


class _Held:
    """A batch as one thing: Fabric would otherwise take it apart to change the precision of its tensors."""

    def __init__(self, batch: TrainingBatch, joint: Gather | None) -> None:
        self.batch, self.joint = batch, joint


class _Losses(nn.Module):
    """The model as the one call that is wrapped for several devices and for mixed precision."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, held: _Held) -> dict[str, Tensor]:
        """Return the terms of the loss."""
        terms: dict[str, Tensor] = self.model(held.batch, held.joint)
        return terms


def _weighted(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    for name in weights:
        if name not in terms:
            raise unknown_name("term of the model's loss in losses:", name, terms)
    return torch.stack([weight * terms[name].float() for name, weight in weights.items() if weight > 0]).sum()


@torch.no_grad()
def _seen_again(wrapped: Any, batch: TrainingBatch, joint: Gather | None) -> dict[str, Tensor]:
    """Return the terms of a batch's loss with the weights as they are now. All processes must call it."""
    wrapped.eval()  # nothing is drawn by chance, and no running statistic moves
    try:
        terms: dict[str, Tensor] = wrapped(_Held(batch, joint))
    finally:
        wrapped.train()
    return terms

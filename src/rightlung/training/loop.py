"""The training loop, from a recipe to a model folder, to be read from top to bottom.

Everything random follows from the recipe's seed, the step and the process. So a checkpoint is weights, optimiser and a
number, and a run that is killed goes on to the same weights as one that was not.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rightlung.core import InputError
from rightlung.core.errors import unknown_name
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.training.batches import Batches, step_seed
from rightlung.training.checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from rightlung.training.curve import draw_curve
from rightlung.training.folder import RunFolder
from rightlung.training.gathering import gather
from rightlung.training.preparing import (
    Entries,
    Machine,
    check_same_data,
    keep_start,
    launched,
    left_out,
    lengths,
    model_class,
    open_all,
    validation_batches,
)
from rightlung.training.recipe import Recipe
from rightlung.training.record import Interruption, Record
from rightlung.training.sharding import named_parameters
from rightlung.training.trouble import enough_memory, is_out_of_memory, out_of_memory
from rightlung.training.validation import validate
from rightlung.training.watching import Board, Log, Row, TrainingProgress, out_of_patience
from rightlung.training.weights import Weights, build_optimiser, copied, move, rate_at, set_rate

__all__ = ["Machine", "Outcome", "train"]

SHOWN = "validation "
SMALLER = "a smaller batch.size or a smaller model may fit"


@dataclass(frozen=True, slots=True)
class Outcome:
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
) -> Outcome:
    """Train by a recipe into a folder; ``resume`` goes on from the last checkpoint there.

    Ctrl-C writes a checkpoint after the current step and raises `KeyboardInterrupt`.
    """
    fabric = launched(recipe, machine or Machine())
    folder, rank = RunFolder(Path(out)), fabric.global_rank
    shown = progress if progress is not None and rank == 0 else TrainingProgress(shown=rank == 0)
    if (done := folder.check(recipe, resume)) is not None:
        return Outcome(**done)
    fabric.barrier()  # all have looked before one changes anything
    with folder.locked() if rank == 0 else contextlib.nullcontext():
        if rank == 0:
            folder.begin(recipe)
        return _run(recipe, folder, fabric, sharded=machine is not None and machine.strategy == "fsdp", shown=shown)


def _run(recipe: Recipe, folder: RunFolder, fabric: Any, sharded: bool, shown: TrainingProgress) -> Outcome:
    rank, world = fabric.global_rank, fabric.world_size

    # The data, and the model before the first step: kept in the folder, so that every process and every resumption
    # begins with the same.
    entries = open_all(recipe, fabric.device, shown)
    validation, unjudged = validation_batches(recipe, fabric.device, shown) if rank == 0 else ([], ())
    maker = None if recipe.model.kind is None else model_class(recipe.model.kind)
    if rank == 0 and not folder.start.is_dir():
        keep_start(recipe, maker, folder, entries)
    fabric.barrier()
    model = load_folder(folder.start)
    if not isinstance(model, nn.Module):
        raise InputError(f"a {type(model).__name__} is no torch.nn.Module and cannot be trained")
    model.train()

    # Weights, their average, the optimiser; and where the last checkpoint left them.
    if fabric.device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the stubs lack it
        torch.backends.cudnn.benchmark = True
    averaged = copied(model).to(fabric.device)
    wrapped = fabric.setup_module(_Losses(model))
    parameters = dict(named_parameters(wrapped) if sharded else model.named_parameters())
    plain_optimiser = build_optimiser(parameters, recipe.optimiser)
    optimiser = fabric.setup_optimizers(plain_optimiser)
    inner = getattr(wrapped, "_forward_module", wrapped)  # without Fabric's own layer, which sharding does not know
    weights = Weights(model, averaged, inner, plain_optimiser, recipe.averaging, sharded)
    start = 0
    if (checkpoint := last_checkpoint(folder.checkpoints)) is not None:
        check_same_data(checkpoint, entries, world)
        weights.load(checkpoint.tensors)
        fabric.strategy.precision.load_state_dict(checkpoint.facts["precision"])
        start = checkpoint.step

    steps, parts = recipe.schedule.steps, recipe.batch.accumulate
    batches = Batches(
        entries,
        recipe.batch.size,
        recipe.seed,
        fabric.device,
        recipe.augmentation,
        rank=rank,
        world=world,
        boxes=recipe.data.boxes,
    )
    drawn = batches.from_number(start * parts, steps * parts)
    joint: Gather | None = gather if world > 1 else None
    record = Record(recipe, fabric, folder, batches)
    log = Log(folder.log, start) if rank == 0 else None
    board = Board(folder.board, start) if rank == 0 else None
    began, last = time.monotonic(), {name: value for row in (log.rows if log else []) for name, value in row.items()}
    step, where = start, str(fabric.device)
    images_a_step = recipe.batch.size * parts * world
    batch: TrainingBatch | None = None
    ended = log is not None and out_of_patience(log.rows, recipe.schedule.patience)
    if world > 1:
        ended = _anywhere(fabric, ended)
    with contextlib.closing(drawn), shown.begin(start, steps, images_a_step), Interruption() as interrupted:
        while step < steps and not ended:
            set_rate(plain_optimiser, rate_at(step, recipe.optimiser.rate, recipe.schedule))
            torch.manual_seed(step_seed(recipe.seed, step, rank, "dropout"))
            try:
                for part in range(parts):
                    batch = None  # the one before: its memory is wanted
                    batch = next(drawn)
                    with fabric.no_backward_sync(wrapped, enabled=part < parts - 1):
                        terms = wrapped(_Held(batch, joint))
                        loss = _weighted(terms, recipe.losses)
                        fabric.backward(loss / parts)
                    record.add(step, part, loss, terms)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                failed = True
            else:
                failed = False
            if failed:  # outside the handler, whose traceback would keep the memory
                optimiser.zero_grad(set_to_none=True)
                batch = None
                attempt = _attempt(recipe, entries, fabric, model, step) if world == 1 else None
                raise out_of_memory(recipe.batch.size, parts, where, attempt)
            with enough_memory(where, f"to move the weights at step {step + 1}", SMALLER):
                most = recipe.optimiser.clip or math.inf  # of which the norm is wanted all the same
                norm = fabric.clip_gradients(wrapped, optimiser, max_norm=most, error_if_nonfinite=False)
                record.norm(step, norm)
                move(optimiser, step, rate_at(step, recipe.optimiser.rate, recipe.schedule))
            optimiser.zero_grad(set_to_none=True)
            step += 1
            weights.follow(step)

            stop = interrupted.now if world == 1 else False
            at_checkpoint = step % recipe.checkpoint_every == 0 or step == steps or stop
            at_validation = recipe.data.validation is not None and (
                step % recipe.data.validation.every == 0 or step == steps
            )
            if not (at_checkpoint or at_validation or step % recipe.log_every == 0):
                continue
            row = record.row(step)  # waits for the device; a loss that is no number ends the run here
            if world > 1:  # all of them stop at the same step
                stop = _anywhere(fabric, interrupted.now)
                at_checkpoint = at_checkpoint or stop
            if (at_checkpoint or at_validation) and batch is not None:
                # What this step has made of the weights shows only now, and what is spoilt is neither judged nor kept.
                record.check_weights(step, batch, {}, weights.finite())
                with enough_memory(where, f"to look at a batch of {recipe.batch.size} again", SMALLER):
                    record.check_weights(step, batch, _seen_again(wrapped, batch, joint), True)
            if at_validation:
                judged = weights.averaged_model()
                if rank == 0 and validation and recipe.data.validation is not None:
                    with enough_memory(where, f"to validate with {len(validation[0])} images at a time", SMALLER):
                        found = validate(judged, validation, recipe.losses, recipe.data.validation.grounded)
                    record.check_validation(step, validation[0], found)
                    row |= found
                fabric.barrier()
            row["images per second"] = shown.images_per_second(step)
            if log is not None and board is not None:
                log.add(row)
                board.add(row)
                shown.show(step, row["loss"])
            last |= row
            if at_validation and recipe.schedule.patience is not None:
                ended = log is not None and out_of_patience(log.rows, recipe.schedule.patience)
                if world > 1:
                    ended = _anywhere(fabric, ended)
            if at_checkpoint or ended:
                tensors = weights.tensors()
                if rank == 0:
                    facts = {
                        "precision": fabric.strategy.precision.state_dict(),
                        "studies": lengths(entries),
                        "processes": world,
                    }
                    save_checkpoint(folder.checkpoints, Checkpoint(step, tensors, facts))
                fabric.barrier()
            if stop and step < steps and not ended:
                if rank == 0:
                    draw_curve(folder.log, folder.curve)
                raise KeyboardInterrupt(f"stopped after step {step} of {steps}; --resume goes on from there")

    if not weights.finite():  # in a checkpoint of the last step, which was all that there was to do
        raise InputError(f"{folder.checkpoints}: the weights after step {step} are no numbers")
    trained = weights.averaged_model()
    outcome = Outcome(
        model=str(folder.model),
        steps=step,
        resumed_from=start,
        loss=last.get("loss", math.nan),
        validation={name.removeprefix(SHOWN): value for name, value in last.items() if name.startswith(SHOWN)},
        best=_best(log.rows if log is not None else []),
        seconds=time.monotonic() - began,
        images_per_second=last.get("images per second", math.nan),
        device=where,
        left_out=(*left_out(entries), *unjudged),
        stopped_early=step < steps,
    )
    if rank == 0:
        if board is not None:
            board.close()
        save_model(trained, folder.model, recipe.card)  # type: ignore[arg-type]  # checked when the start was saved
        draw_curve(folder.log, folder.curve)
        folder.finish(asdict(outcome))
    fabric.barrier()
    return outcome


def _best(rows: Sequence[Row]) -> dict[str, float]:
    judged = [row for row in rows if "validation loss" in row]
    if not judged:
        return {}
    row = min(judged, key=lambda row: row["validation loss"])
    return {"step": row["step"], "loss": row["validation loss"]}


def _anywhere(fabric: Any, here: bool) -> bool:
    """Whether something is so in any process. All of them must ask."""
    return bool(fabric.all_reduce(torch.tensor(float(here), device=fabric.device), reduce_op="max"))


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


def _attempt(recipe: Recipe, entries: Entries, fabric: Any, model: nn.Module, step: int) -> Callable[[int], None]:
    """Return a function that runs forward and backward once with batches of another size."""

    def attempt(size: int) -> None:
        batch = Batches(entries, size, recipe.seed, fabric.device, recipe.augmentation, boxes=recipe.data.boxes).one(
            step
        )
        try:
            with fabric.autocast():
                loss = _weighted(model(batch, None), recipe.losses)
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            model.zero_grad(set_to_none=True)

    return attempt

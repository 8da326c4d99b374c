"""The training loop, from a recipe to a model folder. Read it from top to bottom.

All randomness follows from the recipe's seed, the step and the process. A checkpoint therefore holds weights, optimizer
state and the step, and a run that is killed and resumed ends with the same weights as one that was not.
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
from rightlung.core.errors import unknown_name
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.training import setup
from rightlung.training.augmentation import PIXELS_ONLY
from rightlung.training.batches import Batches, prefetched, seed_from_key
from rightlung.training.checkpoint import Checkpoint, checkpoint_files, last_checkpoint, save_checkpoint
from rightlung.training.distributed import any_process, gather
from rightlung.training.failures import explain_out_of_memory, out_of_memory_error, step_failure
from rightlung.training.folder import RunFolder
from rightlung.training.fsdp import ShardedTrainState, named_parameters
from rightlung.training.log import Log, Row, TensorBoard, TrainingProgress, draw_curve, out_of_patience
from rightlung.training.metrics import Metrics
from rightlung.training.recipe import Recipe
from rightlung.training.setup import Hardware
from rightlung.training.signals import Interruption
from rightlung.training.validation import validate
from rightlung.training.weights import TrainState, build_optimizer, frozen_copy, learning_rate_at, set_learning_rate

__all__ = ["Hardware", "TrainingOutcome", "train"]

VALIDATION_PREFIX = "validation "
OUT_OF_MEMORY_ADVICE = "try a smaller batch_size or a smaller model"


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How a run ended."""

    model: str
    steps: int
    resumed_from: int
    loss: float
    validation: Mapping[str, float]  # at the last step
    best: Mapping[str, float]  # step and value of the lowest validation loss
    seconds: float
    images_per_second: float
    device: str
    left_out: Sequence[str] = ()  # why studies were left out
    stopped_early: bool = False  # out of patience


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    restart: bool = False,
    hardware: Hardware | None = None,
    progress: TrainingProgress | None = None,
) -> TrainingOutcome:
    """Train by a recipe into a folder.

    ``resume`` continues from the last checkpoint there; ``restart`` removes the checkpoints and trains from step 0.
    Ctrl-C writes a checkpoint after the current step and raises `KeyboardInterrupt`.
    """
    fabric = setup.launch(recipe, hardware or Hardware())
    folder, rank = RunFolder(Path(out)), fabric.global_rank
    progress = progress if progress is not None and rank == 0 else TrainingProgress(shown=rank == 0)
    if (done := folder.check(recipe, resume, restart)) is not None:
        try:
            return TrainingOutcome(**done)
        except TypeError:
            raise InputError(f"{folder.finished} is damaged; remove it, and --resume finishes the run again") from None
    if restart or not folder.start.is_dir():
        setup.check_model(recipe, folder)
    fabric.barrier()  # every process has checked the folder before one of them changes it
    with folder.locked() if rank == 0 else contextlib.nullcontext():
        if rank == 0:
            folder.begin(recipe, restart)
        sharded = hardware is not None and hardware.strategy == "fsdp"
        return _Training(recipe, folder, fabric, sharded, progress).run()


class _Training:
    """One run."""

    def __init__(
        self, recipe: Recipe, folder: RunFolder, fabric: Any, sharded: bool, progress: TrainingProgress
    ) -> None:
        self.recipe, self.folder, self.fabric, self.progress = recipe, folder, fabric, progress
        self.rank, self.world_size, self.device = fabric.global_rank, fabric.world_size, str(fabric.device)
        self.gather: Gather | None = gather if self.world_size > 1 else None
        self.batch: TrainingBatch | None = None
        if recipe.augmentation.mirror == "pixels":
            progress.tell(PIXELS_ONLY)
        self.entries = setup.open_datasets(recipe, fabric.device, progress)
        self.validation, self.unread = (
            setup.validation_batches(recipe, fabric.device, progress) if self.rank == 0 else ([], ())
        )
        # Validation losses are compared across steps, so their weights must not change.
        self._final_loss_weights = recipe.loss_weights(recipe.schedule.steps)
        self.model = self._initial_model()
        self._set_up_optimizer(sharded)
        self.first_step = self._resume()
        self.batches = self._batches(recipe.batch_size, self.rank, self.world_size)
        self.metrics = Metrics(recipe, fabric, folder, self.batches)
        self.log = Log(folder.log, self.first_step) if self.rank == 0 else None
        self.board = TensorBoard(folder.board, self.first_step) if self.rank == 0 else None
        self.last: Row = {name: value for row in (self.log.rows if self.log else []) for name, value in row.items()}

    def _batches(self, size: int, rank: int = 0, world_size: int = 1) -> Batches:
        recipe = self.recipe
        given = self.entries, size, recipe.seed, self.fabric.device, recipe.augmentation
        total = recipe.schedule.steps * recipe.gradient_accumulation
        return Batches(*given, rank=rank, world_size=world_size, data=recipe.data, total_batches=total)

    def _initial_model(self) -> nn.Module:
        """Load the model before the first step, saved once so that all processes and resumed runs start from it."""
        # In every process: loading the folder needs the class.
        model_class = setup.trainable_class(self.recipe.model.kind)
        if self.rank == 0 and not self.folder.start.is_dir():
            setup.save_initial_model(self.recipe, model_class, self.folder, self.entries)
        self.fabric.barrier()
        model: nn.Module = load_folder(self.folder.start).train()
        if self.fabric.device.type == "cuda":
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from the stubs
            torch.backends.cudnn.benchmark = True
        return model

    def _set_up_optimizer(self, sharded: bool) -> None:
        ema_model = frozen_copy(self.model).to(self.fabric.device)
        self.wrapped = self.fabric.setup_module(_LossModule(self.model))
        parameters = dict(named_parameters(self.wrapped) if sharded else self.model.named_parameters())
        self.plain_optimizer = build_optimizer(parameters, self.recipe.optimizer)
        self.optimizer = self.fabric.setup_optimizers(self.plain_optimizer)
        # Without Fabric's own wrapper, which FSDP does not know.
        inner = getattr(self.wrapped, "_forward_module", self.wrapped)
        kind = ShardedTrainState if sharded else TrainState
        self.state = kind(self.model, ema_model, inner, self.plain_optimizer, self.recipe.ema)

    def _resume(self) -> int:
        """Load the last checkpoint, if any, and return its step."""
        checkpoint, files = last_checkpoint(self.folder.checkpoints), checkpoint_files(self.folder.checkpoints)
        if checkpoint is None:
            if files:
                raise InputError(
                    f"{self.folder.checkpoints}: no checkpoint can be read; add --restart to train again from step 0"
                )
            return 0
        if not files[-1].stem.endswith(f"-{checkpoint.step:08d}"):
            self.progress.tell(f"{files[-1]} is damaged; the run continues from step {checkpoint.step}")
        setup.check_same_data(checkpoint, self.entries, self.world_size)
        self.state.load_state_dict(checkpoint.tensors)
        self.fabric.strategy.precision.load_state_dict(checkpoint.metadata["precision"])
        return checkpoint.step

    def run(self) -> TrainingOutcome:
        steps, parts = self.recipe.schedule.steps, self.recipe.gradient_accumulation
        step, done = self.first_step, self._out_of_patience()
        batches = self.batches.iterate(step * parts, steps * parts)
        used = prefetched(batches) if self.device.startswith("cuda") else batches
        images_per_step = self.recipe.batch_size * parts * self.world_size
        began = time.monotonic()
        with (
            contextlib.closing(batches),
            contextlib.closing(used),
            self.progress.begin(step, steps, images_per_step),
            Interruption() as interruption,
        ):
            while step < steps and not done:
                self._guarded_step(step, used)
                step += 1
                done = self._after_step(step, interruption)
        return self._finish(step, time.monotonic() - began)

    def _train_step(self, step: int, batches: Iterator[TrainingBatch]) -> None:
        """One optimizer step: forward and backward over its batches, clip, update the weights and their average."""
        recipe, parts = self.recipe, self.recipe.gradient_accumulation
        loss_weights = recipe.loss_weights(step)
        set_learning_rate(self.plain_optimizer, learning_rate_at(step, recipe))
        torch.manual_seed(seed_from_key(recipe.seed, step, self.rank, "dropout"))
        for part in range(parts):
            self.batch = None  # free the last batch before the next is drawn
            self.batch = next(batches)
            with self.fabric.no_backward_sync(self.wrapped, enabled=part < parts - 1):
                terms = self.wrapped(_Inputs(self.batch, self.gather))
                loss = _weighted_sum(terms, loss_weights)
                self.fabric.backward(loss / parts)
            self.metrics.add(step, part, loss, terms)
        clip_norm = recipe.optimizer.clip_norm or math.inf  # without clipping, the norm is still logged
        norm = self.fabric.clip_gradients(self.wrapped, self.optimizer, max_norm=clip_norm, error_if_nonfinite=False)
        self.metrics.add_norm(step, norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.state.update_ema(step + 1)

    def _guarded_step(self, step: int, batches: Iterator[TrainingBatch]) -> None:
        """Train one step; explain out-of-memory errors and overflowing updates."""
        try:
            return self._train_step(step, batches)
        except (RuntimeError, MemoryError) as error:
            failure = step_failure(error, step, learning_rate_at(step, self.recipe))
        # Outside the handler, whose traceback would keep the step's tensors in memory.
        self.optimizer.zero_grad(set_to_none=True)
        self.batch = None
        if failure is not None:
            raise failure
        attempt = partial(self._try_batch_size, step) if self.world_size == 1 else None
        raise out_of_memory_error(self.recipe.batch_size, self.recipe.gradient_accumulation, self.device, attempt)

    def _try_batch_size(self, step: int, size: int) -> None:
        """Run forward and backward once with another batch size."""
        batch = self._batches(size).batch_at(step)
        try:
            with self.fabric.autocast():
                loss = _weighted_sum(self.model(batch, None), self.recipe.loss_weights(step))
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self.model.zero_grad(set_to_none=True)

    def _after_step(self, step: int, interruption: Interruption) -> bool:
        """Log, validate and save a checkpoint where these are due; return whether training is over early."""
        recipe, last = self.recipe, step == self.recipe.schedule.steps
        stop = interruption.requested if self.world_size == 1 else False
        at_checkpoint = step % recipe.checkpoint_every == 0 or last or stop
        at_validation = recipe.data.validation is not None and (step % recipe.data.validation.every == 0 or last)
        if not (at_checkpoint or at_validation or step % recipe.log_every == 0):
            return False
        row = self.metrics.row(step)  # waits for the device; a NaN loss ends the run here
        if self.world_size > 1:  # all processes stop at the same step
            stop = any_process(self.fabric, interruption.requested)
            at_checkpoint = at_checkpoint or stop
        if at_checkpoint or at_validation:
            self._check_weights(step)
        if at_validation:
            row |= self._validate(step)
        self._show(step, row)
        self.last |= row
        done = at_validation and recipe.schedule.patience is not None and self._out_of_patience()
        if at_checkpoint or done:
            self._save(step)
        if stop and not last and not done:
            if self.rank == 0:
                draw_curve(self.folder.log, self.folder.curve)
            raise KeyboardInterrupt(f"stopped after step {step} of {recipe.schedule.steps}; continue with --resume")
        return done

    def _check_weights(self, step: int) -> None:
        """End the run if this step made the weights, or the loss they give, NaN: such weights are not saved."""
        if self.batch is None:
            return
        self.metrics.check_weights(step, self.batch, {}, self.state.finite())
        with explain_out_of_memory(
            self.device, f"to check the loss of a batch of {self.recipe.batch_size}", OUT_OF_MEMORY_ADVICE
        ):
            self.metrics.check_weights(step, self.batch, _evaluate(self.wrapped, self.batch, self.gather), True)

    def _validate(self, step: int) -> Row:
        model, settings = self.state.ema_model(), self.recipe.data.validation
        found: Row = {}
        if self.rank == 0 and self.validation and settings is not None:
            size = len(self.validation[0])
            with explain_out_of_memory(self.device, f"to validate with {size} images at a time", OUT_OF_MEMORY_ADVICE):
                found = validate(model, self.validation, self._final_loss_weights, settings.grounded_phrases)
            self.metrics.check_validation(step, self.validation[0], found)
        self.fabric.barrier()
        return found

    def _show(self, step: int, row: Row) -> None:
        row["images per second"] = self.progress.images_per_second(step)
        if self.log is not None and self.board is not None:
            self.log.add(row)
            self.board.add(row)
            self.progress.show(step, row["loss"])

    def _save(self, step: int) -> None:
        tensors = self.state.state_dict()
        if self.rank == 0:
            metadata = {
                "precision": self.fabric.strategy.precision.state_dict(),
                "studies": [len(studies) for _, studies in self.entries],
                "processes": self.world_size,
            }
            save_checkpoint(self.folder.checkpoints, Checkpoint(step, tensors, metadata))
        self.fabric.barrier()

    def _out_of_patience(self) -> bool:
        here = self.log is not None and out_of_patience(self.log.rows, self.recipe.schedule.patience)
        return any_process(self.fabric, here)

    def _finish(self, step: int, seconds: float) -> TrainingOutcome:
        if not self.state.finite():  # resumed from a checkpoint of the last step
            raise InputError(f"{self.folder.checkpoints}: the weights after step {step} contain NaN or infinity")
        trained, last = self.state.ema_model(), self.last
        outcome = TrainingOutcome(
            model=str(self.folder.model),
            steps=step,
            resumed_from=self.first_step,
            loss=last.get("loss", math.nan),
            validation={
                name.removeprefix(VALIDATION_PREFIX): value
                for name, value in last.items()
                if name.startswith(VALIDATION_PREFIX)
            },
            best=_best(self.log.rows if self.log is not None else []),
            seconds=seconds,
            images_per_second=last.get("images per second", math.nan),
            device=self.device,
            left_out=[problem for _, studies in self.entries for problem in studies.problems] + list(self.unread),
            stopped_early=step < self.recipe.schedule.steps,
        )
        if self.rank == 0:
            if self.board is not None:
                self.board.close()
            save_model(trained, self.folder.model, self.recipe.model_card)  # type: ignore[arg-type]  # checked at the start
            draw_curve(self.folder.log, self.folder.curve)
            self.folder.finish(asdict(outcome))
        self.fabric.barrier()
        return outcome


def _best(rows: Sequence[Row]) -> dict[str, float]:
    validated = [{"step": row["step"], "loss": row["validation loss"]} for row in rows if "validation loss" in row]
    return min(validated, key=lambda row: row["loss"], default={})


class _Inputs:
    """A batch as one opaque argument: Fabric would otherwise convert the precision of each of its tensors."""

    def __init__(self, batch: TrainingBatch, gather: Gather | None) -> None:
        self.batch, self.gather = batch, gather


class _LossModule(nn.Module):
    """The model behind one ``forward``, which Fabric wraps for several devices and mixed precision."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: _Inputs) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = self.model(inputs.batch, inputs.gather)
        return terms


def _weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    for name in weights:
        if name not in terms:
            raise unknown_name("term of the model's loss in losses:", name, terms)
    return torch.stack([weight * terms[name].float() for name, weight in weights.items() if weight > 0]).sum()


@torch.no_grad()
def _evaluate(wrapped: Any, batch: TrainingBatch, gather: Gather | None) -> dict[str, Tensor]:
    """Return the terms of a batch's loss with the current weights, in evaluation mode. All processes must call it."""
    wrapped.eval()
    try:
        terms: dict[str, Tensor] = wrapped(_Inputs(batch, gather))
    finally:
        wrapped.train()
    return terms

"""Losses and gradient norms between two rows of the log, and checks for NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.models.base import TrainingBatch
from rightlung.training.batches import Batches
from rightlung.training.distributed import any_process
from rightlung.training.failures import save_batch
from rightlung.training.folder import RunFolder
from rightlung.training.log import Row
from rightlung.training.recipe import Recipe
from rightlung.training.weights import learning_rate_at


class Metrics:
    """Losses and norms since the last row of the log, kept on the device until they are read."""

    def __init__(self, recipe: Recipe, fabric: Any, folder: RunFolder, batches: Batches) -> None:
        self.recipe, self.fabric, self.folder, self.batches = recipe, fabric, folder, batches
        self.names: list[str] = []
        self.steps: list[tuple[int, int]] = []
        self.values: list[Tensor] = []
        self.norms: dict[int, Tensor] = {}

    def add(self, step: int, micro_batch: int, loss: Tensor, terms: Mapping[str, Tensor]) -> None:
        """Add the loss of one batch; ``micro_batch`` is its number among those of the step (gradient accumulation)."""
        self.names = list(terms)
        self.steps.append((step, micro_batch))
        self.values.append(torch.stack([loss.detach().float(), *(term.detach().float() for term in terms.values())]))

    def add_norm(self, step: int, norm: Tensor) -> None:
        """Add the gradient norm of one step."""
        self.norms[step] = norm.detach().float()

    def row(self, step: int) -> Row:
        """Return the means since the last row over all processes; a NaN or infinite value ends the run."""
        values = torch.stack(self.values)
        norms = dict(zip(self.norms, torch.stack(list(self.norms.values())).tolist(), strict=True))
        self._check(values.tolist(), norms)
        means = values.mean(0)
        if self.fabric.world_size > 1:
            means = self.fabric.all_reduce(means, reduce_op="mean")
        row: Row = {"step": step, "learning rate": learning_rate_at(step - 1, self.recipe)}
        row |= dict(zip(("loss", *self.names), means.tolist(), strict=True))
        row["gradient norm"] = sum(norms.values()) / len(norms)
        self.steps, self.values, self.norms = [], [], {}
        return row

    def _check(self, rows: list[list[float]], norms: Mapping[int, float]) -> None:
        bad = {}
        for (step, part), values in zip(self.steps, rows, strict=True):
            # The scaler of 16-mixed skips steps with infinite gradients; otherwise they make the weights NaN.
            norm = norms.get(step, 0.0) if self.recipe.precision != "16-mixed" else 0.0
            last = part == self.recipe.gradient_accumulation - 1
            if not _finite(values) or (last and not math.isfinite(norm)):
                bad[step, part] = values
        if not self._any(bool(bad)):
            return
        (step, part), values = min(bad.items())
        batch = self.batches.batch_at(step * self.recipe.gradient_accumulation + part)  # drawn again
        raise self._failure(step, part, batch, dict(zip(self.names, values[1:], strict=True)), "the gradient")

    def check_weights(self, step: int, batch: TrainingBatch, terms: Mapping[str, Tensor], finite: bool) -> None:
        """End the run if the weights after ``step`` steps, or the loss they give for the last batch, are not finite."""
        values = {name: float(term) for name, term in terms.items()}
        bad = not finite or not _finite(values.values())
        if self._any(bad):
            raise self._failure(step - 1, self.recipe.gradient_accumulation - 1, batch, values, "the weights")

    def check_validation(self, step: int, batch: TrainingBatch, row: Row) -> None:
        """End the run if the validation loss is not finite; ``batch`` is the first validation batch."""
        if not math.isfinite(row["validation loss"]):
            terms = {name: value for name, value in row.items() if name.startswith("validation ")}
            raise self._failure(step - 1, self.recipe.gradient_accumulation - 1, batch, terms, "the validation loss")

    def _any(self, bad: bool) -> bool:
        """Return ``bad``; if it is true in another process only, end this one, too. All processes must call it."""
        if any_process(self.fabric, bad) and not bad:
            raise InputError("the loss of another process became NaN or infinite; its batch is kept in the run folder")
        return bad

    def _failure(
        self, step: int, part: int, batch: TrainingBatch, terms: Mapping[str, float], otherwise: str
    ) -> InputError:
        """Save the batch at which the loss became NaN or infinite, and return the error.

        ``otherwise`` names what is not finite if all terms are. Steps are counted from 1, as in the log.
        """
        learning_rate = learning_rate_at(step, self.recipe)
        suffix = f"-process-{self.fabric.global_rank}" if self.fabric.world_size > 1 else ""
        folder = self.folder.path / f"failed-step-{step + 1}{suffix}"
        shown = {name: str(value) for name, value in terms.items()}
        save_batch(batch, folder, {"step": step + 1, "part": part, "learning_rate": learning_rate, "terms": shown})
        named = ", ".join(f"{name} {value}" for name, value in terms.items() if not math.isfinite(value)) or otherwise
        more = f" and {len(batch.ids) - 3} more" if len(batch.ids) > 3 else ""
        return InputError(
            f"the loss became NaN or infinite at step {step + 1}, learning rate {learning_rate:.3g}: {named}; "
            f"studies {', '.join(batch.ids[:3])}{more}; the batch is saved in {folder} "
            "(read it with rightlung.training.failures.load_batch). "
            "Try a lower optimizer.learning_rate, more schedule.warmup_steps or precision 32-true"
        )


def _finite(values: Iterable[float]) -> bool:
    return all(math.isfinite(value) for value in values)

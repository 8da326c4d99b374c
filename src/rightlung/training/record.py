"""The figures of a run between two rows of its log, and the wish to stop it."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.models.base import TrainingBatch
from rightlung.training.batches import Batches
from rightlung.training.folder import RunFolder
from rightlung.training.gathering import anywhere
from rightlung.training.recipe import Recipe
from rightlung.training.trouble import save_batch
from rightlung.training.watching import Row
from rightlung.training.weights import rate_at


class Record:
    """The figures since the last row, left on the device until somebody looks at them."""

    def __init__(self, recipe: Recipe, fabric: Any, folder: RunFolder, batches: Batches) -> None:
        self.recipe, self.fabric, self.folder, self.batches = recipe, fabric, folder, batches
        self.names: list[str] = []
        self.places: list[tuple[int, int]] = []
        self.figures: list[Tensor] = []
        self.norms: dict[int, Tensor] = {}

    def add(self, step: int, part: int, loss: Tensor, terms: Mapping[str, Tensor]) -> None:
        """Note the loss of one batch."""
        self.names = list(terms)
        self.places.append((step, part))
        self.figures.append(torch.stack([loss.detach().float(), *(term.detach().float() for term in terms.values())]))

    def norm(self, step: int, norm: Tensor) -> None:
        """Note the gradient's norm of one step."""
        self.norms[step] = norm.detach().float()

    def row(self, step: int) -> Row:
        """Return the means since the last row, over all processes; a figure that is no number ends the run."""
        figures = torch.stack(self.figures)
        norms = (
            dict(zip(self.norms, torch.stack(list(self.norms.values())).tolist(), strict=True)) if self.norms else {}
        )
        self._check(figures.tolist(), norms)
        means = figures.mean(0)
        if self.fabric.world_size > 1:
            means = self.fabric.all_reduce(means, reduce_op="mean")
        row: Row = {"step": step, "rate": rate_at(step - 1, self.recipe.optimiser.rate, self.recipe.schedule)}
        row |= dict(zip(("loss", *self.names), means.tolist(), strict=True))
        if norms:
            row["gradient norm"] = sum(norms.values()) / len(norms)
        self.places, self.figures, self.norms = [], [], {}
        return row

    def _check(self, figures: list[list[float]], norms: Mapping[int, float]) -> None:
        bad = {}
        for (step, part), values in zip(self.places, figures, strict=True):
            # The scaler of 16-mixed passes over steps with infinite gradients; elsewhere they ruin the weights.
            norm = norms.get(step, 0.0) if self.recipe.precision != "16-mixed" else 0.0
            last = part == self.recipe.batch.accumulate - 1
            if not _finite(values) or (last and not math.isfinite(norm)):
                bad[step, part] = values
        if not self._ends(bool(bad)):
            return
        (step, part), values = min(bad.items())
        batch = self.batches.one(step * self.recipe.batch.accumulate + part)  # the same as it was
        raise self._ended(step, part, batch, dict(zip(self.names, values[1:], strict=True)), "the gradient")

    def check_weights(self, step: int, batch: TrainingBatch, terms: Mapping[str, Tensor], finite: bool) -> None:
        """End the run where the weights after ``step`` steps are no numbers, or give none for the batch just seen."""
        values = {name: float(term) for name, term in terms.items()}
        bad = not finite or not _finite(values.values())
        if self._ends(bad):
            raise self._ended(step - 1, self.recipe.batch.accumulate - 1, batch, values, "the weights")

    def check_validation(self, step: int, batch: TrainingBatch, row: Row) -> None:
        """End the run where a validation loss is no number; ``batch`` is the first that was looked at."""
        if not math.isfinite(row["validation loss"]):
            terms = {name: value for name, value in row.items() if name.startswith("validation ")}
            raise self._ended(step - 1, self.recipe.batch.accumulate - 1, batch, terms, "the validation loss")

    def _ends(self, bad: bool) -> bool:
        """Whether something is bad here. All processes must call it: where it is bad in another one, this ends, too."""
        if anywhere(self.fabric, bad) and not bad:
            raise InputError("the loss of another process stopped being a number; its batch is kept beside the log")
        return bad

    def _ended(
        self, step: int, part: int, batch: TrainingBatch, terms: Mapping[str, float], otherwise: str
    ) -> InputError:
        """Keep the batch at which a loss stopped being a number, and return the sentence that says so.

        ``otherwise`` is what is no number where all terms are. Steps are counted from 1, as in the log.
        """
        rate = rate_at(step, self.recipe.optimiser.rate, self.recipe.schedule)
        suffix = f"-process-{self.fabric.global_rank}" if self.fabric.world_size > 1 else ""
        folder = self.folder.path / f"failed-step-{step + 1}{suffix}"
        shown = {name: str(value) for name, value in terms.items()}
        save_batch(batch, folder, {"step": step + 1, "part": part, "rate": rate, "terms": shown})
        named = ", ".join(f"{name} {value}" for name, value in terms.items() if not math.isfinite(value)) or otherwise
        more = f" and {len(batch.ids) - 3} more" if len(batch.ids) > 3 else ""
        return InputError(
            f"the loss stopped being a number at step {step + 1}, at a learning rate of {rate:.3g}: {named}; "
            f"studies {', '.join(batch.ids[:3])}{more}; the batch is kept in {folder} "
            "(rightlung.training.trouble.load_batch). "
            "A lower optimiser.rate, a longer schedule.warm_up or precision 32-true may help"
        )


def _finite(values: Iterable[float]) -> bool:
    return all(math.isfinite(value) for value in values)


class Interruption:
    """Ctrl-C (and a cluster's SIGTERM) as something to look at after a step; the second time it interrupts at once."""

    def __init__(self) -> None:
        self.now = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for kind in (signal.SIGINT, signal.SIGTERM):
                self._before[kind] = signal.signal(kind, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for kind, before in self._before.items():
            signal.signal(kind, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.now:
            raise KeyboardInterrupt
        self.now = True

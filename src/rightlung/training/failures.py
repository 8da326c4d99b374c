"""NaN losses and out-of-memory errors: the failing batch is saved, and the error says what to change."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rightlung.core import InputError
from rightlung.core.errors import is_out_of_memory
from rightlung.core.files import read_json, write_json
from rightlung.models.base import TrainingBatch

BATCH_LISTS = ("texts", "ids", "image_of_text")


def save_batch(batch: TrainingBatch, folder: Path, about: Mapping[str, object]) -> None:
    """Save a batch and notes about it, for `load_batch`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, lists = {"images": batch.images}, dict[str, dict[str, list[Any]]]()
    for name, target in batch.targets.items():
        lists[name] = {key: list(value) for key, value in target.items() if not isinstance(value, Tensor)}
        tensors |= {f"{name}/{key}": value for key, value in target.items() if isinstance(value, Tensor)}
    stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(stored, folder / "batch.safetensors")
    own = {name: list(getattr(batch, name)) for name in BATCH_LISTS}
    write_json(folder / "batch.json", {**about, **own, "batch_seed": batch.seed, "targets": lists}, durable=True)


def load_batch(folder: str | Path) -> TrainingBatch:
    """Read a batch that a failed run saved."""
    place = Path(folder)
    try:
        tensors = load_file(place / "batch.safetensors")
        lists = read_json(place / "batch.json")
        targets: dict[str, dict[str, Any]] = lists["targets"]
        for name, value in tensors.items():
            if name != "images":
                kind, _, key = name.partition("/")
                targets[kind][key] = value
        given = {name: lists[name] for name in BATCH_LISTS}
        return TrainingBatch(tensors["images"], targets=targets, seed=lists["batch_seed"], **given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place} does not hold a batch: {error}") from None


def step_failure(error: Exception, step: int, learning_rate: float) -> InputError | None:
    """Return the error that explains a failed step, or None if it ran out of memory; raise any other error again."""
    if is_out_of_memory(error):
        return None
    if "without overflow" not in str(error):  # PyTorch has no exception type for this
        raise error
    return InputError(
        f"the weights overflow single precision at step {step + 1}, learning rate {learning_rate:.3g}; "
        "try a lower optimizer.learning_rate"
    )


@contextlib.contextmanager
def explain_out_of_memory(where: str, what: str, advice: str) -> Iterator[None]:
    """Turn an out-of-memory error into an `InputError` that says what needed the memory and what to try."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(f"{where} has too little memory {what}; {advice}") from None


def out_of_memory_error(size: int, accumulate: int, where: str, attempt: Callable[[int], None] | None) -> InputError:
    """Find the largest batch size (halving) that fits by trying, and return an error that names it.

    Without ``attempt`` (several processes cannot try), half the size is suggested.
    """
    fits = size // 2
    if attempt is None:
        return InputError(f"{where} has too little memory for batch_size {size}; try --set batch_size={max(1, fits)}")
    smallest = size
    while fits >= 1:
        free_memory()
        try:
            attempt(fits)
            break
        except InputError:  # not every size is possible: mirrored images need an even one
            pass
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            smallest = fits
        fits //= 2
    free_memory()
    if not fits:
        even = "" if smallest == size else f", and even for a batch of {smallest}"
        return InputError(f"{where} has too little memory for a batch of {size}{even}")
    advice = f"--set batch_size={fits}"
    if size % fits == 0:
        advice += f" --set gradient_accumulation={accumulate * size // fits} (the same images per step)"
    return InputError(f"{where} has too little memory for batch_size {size}; {fits} would fit: {advice}")


def free_memory() -> None:
    """Free unused memory."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

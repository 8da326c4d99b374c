"""Weights that blow up, memory that is too small, another number of processes: nothing spoilt is kept, all is said."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.core import InputError
from rightlung.core.errors import is_out_of_memory
from rightlung.models.base import TrainingBatch
from rightlung.phantom import loader
from rightlung.phantom.config import default_config
from rightlung.training.checkpoint import Checkpoint, last_checkpoint, save_checkpoint
from rightlung.training.datasets import CachedDataset
from rightlung.training.failures import explain_out_of_memory, load_batch, save_batch
from tests.training.recipes import run
from tests.training.tiny import Tiny

VALIDATION_PREFIX = "data.validation={source: 'phantom?count=8&seed=12', every: 1, cached_studies: 8}"


def nothing_kept(folder: Path) -> bool:
    return last_checkpoint(folder / "checkpoints") is None and not (folder / "model").exists()


@pytest.mark.parametrize("steps", [2, 6])
def test_a_gradient_that_is_no_number_is_noticed_without_clipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    before, called = Tiny.forward, 0

    def forward(self: Tiny, *arguments: Any) -> dict[str, torch.Tensor]:
        nonlocal called
        terms = before(self, *arguments)
        called += 1
        if called == 2:  # the root of 0 is 0, and its slope no number
            terms["global"] = terms["global"] + (self.words.weight.sum() * 0).sqrt()
        return terms

    monkeypatch.setattr(Tiny, "forward", forward)
    with pytest.raises(InputError, match=r"at step 2, learning rate 0.01: the gradient; studies"):
        run(tmp_path, "optimizer.clip_norm=0", f"schedule.steps={steps}", "log_every=20", "checkpoint_every=20")
    assert len(load_batch(tmp_path / "run" / "failed-step-2")) == 4
    assert nothing_kept(tmp_path / "run")


@pytest.mark.parametrize("further", [[], [VALIDATION_PREFIX]])
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_weights_that_blow_up_in_the_last_step_are_never_kept(tmp_path: Path, name: str, further: list[str]) -> None:
    changes = [f"optimizer={{name: {name}, learning_rate: 1e30, clip_norm: 0}}", "schedule={steps: 1}", *further]
    said = r"the loss became NaN or infinite at step 1, learning rate 1e\+30: .*studies phantom-11-"
    with pytest.raises(InputError, match=said):
        run(tmp_path, *changes)
    assert len(load_batch(tmp_path / "run" / "failed-step-1")) == 4
    assert nothing_kept(tmp_path / "run")


def test_a_validation_loss_that_is_no_number_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Tiny.forward

    def forward(self: Tiny, batch: Any, gather: Any = None) -> dict[str, torch.Tensor]:
        terms = before(self, batch, gather)
        judged = any(name.startswith("phantom-12-") for name in batch.ids)
        return {name: value * float("inf") for name, value in terms.items()} if judged else terms

    monkeypatch.setattr(Tiny, "forward", forward)
    with pytest.raises(InputError, match=r"at step 1, .*: validation global inf.*; studies phantom-12-"):
        run(tmp_path, VALIDATION_PREFIX)
    assert nothing_kept(tmp_path / "run")


def test_a_rate_beyond_single_precision_is_answered_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"overflow single precision at step 1, learning rate 1e\+38"):
        run(tmp_path, "optimizer.learning_rate=1e38", "schedule={steps: 1}")
    assert nothing_kept(tmp_path / "run")


def one_step(folder: Path) -> Checkpoint:
    """Run one step and forget that it is finished."""
    run(folder, "schedule.steps=1")
    (folder / "run" / "finished.json").unlink()
    checkpoint = last_checkpoint(folder / "run" / "checkpoints")
    assert checkpoint is not None
    return checkpoint


def test_spoilt_weights_of_an_old_checkpoint_do_not_become_a_model(tmp_path: Path) -> None:
    checkpoint = one_step(tmp_path)
    spoilt = {name: value * float("nan") for name, value in checkpoint.tensors.items()}
    save_checkpoint(tmp_path / "run" / "checkpoints", replace(checkpoint, tensors=spoilt))
    with pytest.raises(InputError, match="the weights after step 1 contain NaN"):
        run(tmp_path, "schedule.steps=1", resume=True)


def test_a_run_goes_on_in_as_many_processes_as_it_began_in(tmp_path: Path) -> None:
    checkpoint = one_step(tmp_path)
    assert checkpoint.metadata["processes"] == 1
    save_checkpoint(
        tmp_path / "run" / "checkpoints", replace(checkpoint, metadata={**checkpoint.metadata, "processes": 2})
    )
    with pytest.raises(InputError, match=r"began in 2 processes and would go on in 1 process, .*--devices and --nodes"):
        run(tmp_path, "schedule.steps=1", resume=True)


def no_memory(*arguments: object, **named: object) -> None:
    raise torch.OutOfMemoryError("no memory left")


def test_too_little_memory_for_a_pool_is_answered_with_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CachedDataset, "from_parts", no_memory)
    said = (
        r"cpu has too little memory to hold the 16 studies of data.train\[0\], .*--set data.train\[0\].cached_studies=8"
    )
    with pytest.raises(InputError, match=said):
        run(tmp_path)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("torch.optim.AdamW.step", "too little memory for batch_size 4; 2 would fit"),
        ("rightlung.training.loop.validate", "too little memory to validate with 4 images at a time; try a smaller"),
        ("rightlung.training.loop._evaluate", "too little memory to check the loss of a batch of 4; try a smaller"),
    ],
)
def test_too_little_memory_after_a_batch_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, said: str
) -> None:
    monkeypatch.setattr(where, no_memory)
    with pytest.raises(InputError, match=said):
        run(tmp_path, VALIDATION_PREFIX)
    assert nothing_kept(tmp_path / "run")


def test_a_batch_that_failed_is_kept_with_all_that_it_has(tmp_path: Path) -> None:
    given = TrainingBatch(
        torch.rand(2, 1, 8, 8), ["a", "b", "c"], ["one", "two"], [0, 0, 1],
        {
            "phrases": {"texts": ["p"], "image_indices": [1], "masks": torch.rand(1, 4, 4)},
            "regions": {"boxes": torch.rand(2, 3, 4), "present": torch.rand(2, 3) > 0.5},
        },
    )  # fmt: skip
    for number, batch in enumerate((given, TrainingBatch(given.images, ["a", "b"]))):
        save_batch(batch, tmp_path / str(number), {})
        again = load_batch(tmp_path / str(number))
        assert torch.equal(batch.images, again.images)
        for name in ("texts", "ids", "image_of_text"):
            assert list(getattr(batch, name)) == list(getattr(again, name)), name
        assert batch.targets.keys() == again.targets.keys()
        for name, target in batch.targets.items():
            assert target.keys() == again.targets[name].keys()
            for key, value in target.items():
                other = again.targets[name][key]
                assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, (name, key)


def test_sizes_that_no_batch_can_have_are_passed_over_when_one_that_fits_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"batch_size 12; 6 would fit"):
        run(tmp_path, "model.config.breaks_above=7", "batch_size=12", "data.train[0].mirror_pairs=true")
    with pytest.raises(InputError, match=r"too little memory for a batch of 12, and even for a batch of 6$"):
        run(tmp_path, "model.config.breaks_above=3", "batch_size=12", "data.train[0].mirror_pairs=true", name="less")


BOOTSTRAPPING = (
    "An attempt has been made to start a new process before the current process has finished its bootstrapping phase."
)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (RuntimeError(BOOTSTRAPPING), False),
        (RuntimeError("a worker ended; it may have run out of memory"), False),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (ValueError("CUDA out of memory"), False),
    ],
)
def test_only_errors_about_memory_are_taken_for_such(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) == is_memory


class BrokenPool:
    """A pool whose processes end as those of a script without ``if __name__ == "__main__":`` do."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, *_: object) -> Future[None]:
        result: Future[None] = Future()
        result.set_exception(BrokenProcessPool())
        return result

    def shutdown(self, **_: object) -> None:
        pass


def test_a_script_that_starts_workers_while_it_is_imported_is_not_told_to_save_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "ProcessPoolExecutor", BrokenPool)
    made = loader.make_ahead(1, iter([[0]]), default_config(), 1, 64)
    said = 'a script must start training, or use workers, below if __name__ == "__main__"'
    with pytest.raises(InputError, match=said), explain_out_of_memory("cpu", "to hold 2 studies", "try fewer"):
        next(made)

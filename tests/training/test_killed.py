"""A run killed outright at any moment goes on to the same weights, bit for bit."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import multiprocessing.process
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rightlung.core import OutputError, files
from rightlung.training.log import read_log
from tests.training.recipes import final_weights, run, same

CHANGES = ("schedule.steps=12", "checkpoint_every=3", "log_every=2")


def _train(folder: Path, waits: str) -> None:
    """Train in a process of its own, which waits to be killed where ``waits`` says."""
    torch.set_num_threads(1)
    before = files.bring_to_disk
    count = 0

    def bring_to_disk(path: Path) -> None:
        nonlocal count
        count += path.name.endswith(".safetensors.writing")
        if waits == "during the second checkpoint" and path.name.endswith(".safetensors.writing") and count == 2:
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])  # as far as the disk had come
            _wait(folder)
        before(path)
        if waits == "before the first gets its name" and path.name.endswith(".safetensors.writing"):
            _wait(folder)
        if waits == "before old ones are removed" and path.name == "checkpoints" and count == 3:
            _wait(folder)

    files.bring_to_disk = bring_to_disk
    if waits == "before the model is saved":
        loop: Any = importlib.import_module("rightlung.training.loop")
        loop.save_model = lambda *_: _wait(folder)
    if waits.startswith("in step "):
        from tests.training.tiny import Tiny

        forward, steps = Tiny.forward, 0

        def counted(self: Tiny, *arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == int(waits.removeprefix("in step ")):
                _wait(folder)
            return forward(self, *arguments)

        Tiny.forward = counted  # type: ignore[assignment,method-assign]
    run(folder, *CHANGES)


def _wait(folder: Path) -> None:
    (folder / "waiting").touch()
    time.sleep(600)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in the processes that are killed: sums are equal only if the work is split over threads in the same way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server() -> Any:
    """New processes from one that has imported everything already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rightlung.training.loop", "tests.training.tiny", "lightning.fabric"])
    return context


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    run(folder, *CHANGES)
    return final_weights(folder / "run")


@pytest.mark.parametrize(
    ("moment", "resumed_from"),
    [
        ("in step 2", 0),
        ("before the first gets its name", 0),
        ("in step 6", 3),
        ("during the second checkpoint", 3),
        ("before old ones are removed", 9),
        ("before the model is saved", 12),
    ],
)
def test_a_killed_run_goes_on_to_the_same_weights(
    tmp_path: Path, server: Any, whole: Any, moment: str, resumed_from: int
) -> None:
    process = server.Process(target=_train, args=(tmp_path, moment))
    process.start()
    _until(tmp_path / "waiting", process)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not (tmp_path / "run" / "finished.json").exists()
    outcome = run(tmp_path, *CHANGES, resume=True)
    assert outcome.resumed_from == resumed_from
    assert same(final_weights(tmp_path / "run"), whole)
    assert [row["step"] for row in read_log(tmp_path / "run" / "log.csv")] == [2, 3, 4, 6, 8, 9, 10, 12]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir() if "partial" in path.name] == []


def test_a_full_disk_ends_a_run_with_one_sentence_and_it_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Any
) -> None:
    before, count = files.bring_to_disk, 0

    def bring_to_disk(path: Path) -> None:
        nonlocal count
        count += path.name.endswith(".safetensors.writing")
        if path.name.endswith(".safetensors.writing") and count == 2:
            path.write_bytes(path.read_bytes()[:100])  # as far as there was room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        before(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "bring_to_disk", bring_to_disk)
        with pytest.raises(OutputError, match="cannot be written: No space left on device"):
            run(tmp_path, *CHANGES)
    assert not list((tmp_path / "run").rglob("*.writing"))
    assert run(tmp_path, *CHANGES, resume=True).resumed_from == 3
    assert same(final_weights(tmp_path / "run"), whole)


def _until(sign: Path, process: multiprocessing.process.BaseProcess) -> None:
    while not sign.exists():
        assert process.is_alive(), "the run ended before it could be killed"
        time.sleep(0.01)


def test_kills_at_many_moments_end_with_the_same_weights(tmp_path: Path, server: Any, whole: Any) -> None:
    """Nobody waits here: the process is killed whenever the log has grown, four times over."""
    log, kills = tmp_path / "run" / "log.csv", 0
    for lines in (1, 3, 5, 7):
        process = server.Process(target=_resume, args=(tmp_path,))
        process.start()
        while process.is_alive() and _lines(log) <= lines:
            time.sleep(0.001)
        kills += process.is_alive()
        process.kill()
        process.join()
    assert kills
    run(tmp_path, *CHANGES, resume=True)
    assert same(final_weights(tmp_path / "run"), whole)


def _lines(log: Path) -> int:
    """How long the log is; a run that begins anew removes it, at any moment."""
    try:
        return len(log.read_text().splitlines())
    except FileNotFoundError:
        return 0


def _resume(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    run(folder, *CHANGES, resume=True)

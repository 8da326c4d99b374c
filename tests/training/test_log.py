"""What a run shows."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import PIL.Image
import pytest

from rightlung.training.log import Log, TensorBoard, TrainingProgress, draw_curve


def test_without_a_terminal_a_line_tells_throughput_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = iter([0.0, 100.0, *([110.0] * 9)])
    monkeypatch.setattr("rightlung.training.log.monotonic", lambda: next(clock))
    monkeypatch.setattr("rightlung.core.progress.monotonic", lambda: next(clock))
    progress = TrainingProgress(say=said.append)
    with progress.begin(0, 100, 8):
        progress.show(50, 1.25)  # 50 steps of 8 images in ten seconds
    assert said == ["training: 50 of 100, loss 1.25  40 images/s  0:00:10 left"]


def test_tensorboard_gets_the_figures_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert (folder, purge_step) == (str(tmp_path), 8)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(tmp_path, 7)
    board.add({"step": 8, "loss": 0.5})
    board.close()
    assert written == [("loss", 0.5, 8), ("closed", 0.0, 0)]


def test_without_tensorboard_nothing_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    board = TensorBoard(tmp_path, 0)
    board.add({"step": 1, "loss": 0.5})
    board.close()
    assert list(tmp_path.iterdir()) == []


def test_the_curve_draws_the_losses_and_the_shares(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.csv", 0)
    assert draw_curve(tmp_path / "log.csv", tmp_path / "none.png") is None
    for step in range(1, 5):
        log.add({"step": step, "rate": 0.1, "loss": 4.0 / step})
    draw_curve(tmp_path / "log.csv", tmp_path / "plain.png")
    log.add({"step": 5, "loss": 0.7, "validation loss": 0.9, "validation pointing": 0.5})
    draw_curve(tmp_path / "log.csv", tmp_path / "judged.png")
    with PIL.Image.open(tmp_path / "plain.png") as plain, PIL.Image.open(tmp_path / "judged.png") as judged:
        assert judged.height > plain.height  # a second panel
        colours = {colour for _, colour in plain.convert("RGB").getcolors(1 << 20) or []}
    assert (31, 92, 153) in colours

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

FLAT_MODEL = """
import numpy as np
from rightlung.core import Grounding, Heatmap

class Flat:
    def ground(self, images, phrases):
        return [Grounding(Heatmap(np.ones((4, 4)))) for _ in images]
"""
"""A model of one's own, as a module next to where the program is called."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the program as a person would: its own process, its own two streams, its exit code."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "100"}
        command = [sys.executable, "-m", "rightlung", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return call


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the program in this process, which has loaded its libraries already; otherwise as `run`."""
    monkeypatch.chdir(tmp_path)

    def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        from rightlung.cli.main import _run

        monkeypatch.setattr(sys, "argv", ["rightlung", *arguments])
        capfd.readouterr()
        code = _run()
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run_here


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest folder of two studies of one patient, the first with a box in the patient's left lung."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("a", "b"):
        PIL.Image.fromarray(np.full((20, 16), 90, dtype=np.uint8)).save(folder / f"{name}.png")
    rows = [
        '{"id": "a", "file": "a.png", "patient": "p", "split": "val", "findings": ["Effusion"],'
        ' "boxes": [{"label": "Effusion", "box": [0.6, 0.5, 0.9, 0.9]}]}',
        '{"id": "b", "file": "b.png", "patient": "p", "split": "train", "text": "Lungs are clear. No effusion."}',
    ]
    (folder / "manifest.jsonl").write_text("\n".join(rows))
    return folder

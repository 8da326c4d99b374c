from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

Run = Callable[..., subprocess.CompletedProcess[str]]

FLAT_MODEL = """
import numpy as np
from rightlung.core import Grounding, Heatmap

class Flat:
    def ground(self, images, phrases):
        return [Grounding(Heatmap(np.ones((4, 4)))) for _ in images]
"""
"""A model of one's own, as a module next to where the program is called."""


def found(result: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    """Return the JSON that a run printed, which ended with ``code``."""
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the program in this process, which has loaded its libraries already, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        from rightlung.cli.main import _run

        monkeypatch.setattr(sys, "argv", ["rightlung", *arguments])
        capfd.readouterr()
        code = _run()
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run_here


def radiograph(bright: tuple[int, int] = (1, 1)) -> NDArray[np.uint8]:
    """Return 60 x 40 pixels that pass for a radiograph, with one bright quarter: its row and column."""
    pixels = np.full((60, 40), 40)
    row, column = bright
    pixels[30 * row : 30 * row + 30, 20 * column : 20 * column + 20] = 200
    return (pixels + np.tile(np.linspace(-15, 15, 30), 2)[:, None].round()).astype(np.uint8)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest folder of two studies of one patient, the first with a box in the patient's left lung."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("a", "b"):
        PIL.Image.fromarray(radiograph()).save(folder / f"{name}.png")
    rows = [
        '{"id": "a", "file": "a.png", "patient": "p", "split": "val", "findings": ["Effusion"],'
        ' "boxes": [{"label": "Effusion", "box": [0.6, 0.5, 0.9, 0.9]}]}',
        '{"id": "b", "file": "b.png", "patient": "p", "split": "train", "text": "Lungs are clear. No effusion."}',
    ]
    (folder / "manifest.jsonl").write_text("\n".join(rows))
    return folder

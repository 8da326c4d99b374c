"""The page's model of one's own, as it stands there, works."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from safetensors.torch import load_file

import rightlung
from rightlung.models.base import Grounder

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

pytestmark = pytest.mark.usefixtures("own_kinds")


def block(part: str) -> str:
    (found,) = [block for block in BLOCKS if part in block]
    return found


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's module in it, as a reader would have it."""
    (tmp_path / "bright.py").write_text(block("class Bright"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "bright", raising=False)
    return tmp_path


def test_a_model_of_ones_own_takes_fewer_than_thirty_lines() -> None:
    assert len(block("class Bright").splitlines()) < 30


def test_it_grounds_a_phantom_image_where_it_is_bright(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = rightlung.load("bright:Bright")
    assert isinstance(model, Grounder)
    image = rightlung.open_source("phantom?count=1&seed=7&size=64")[0].image
    (grounding,) = model.ground([image], ["effusion on the left"])
    assert image.shape == (64, 64)
    assert grounding.heatmap is not None
    small = PIL.Image.fromarray(image).resize((16, 16), PIL.Image.Resampling.BILINEAR)
    assert np.abs(grounding.heatmap.values - np.asarray(small)).max() < 1e-5
    exec(compile(block("to_size"), str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip().isdigit()


def test_it_is_saved_and_loaded_as_the_page_says(own: Path) -> None:
    rightlung.load("bright:Bright")  # the working folder is on the path of modules from here on
    names: dict[str, object] = {}
    exec(compile(block("save_model(Bright()"), str(PAGE), "exec"), names)
    for name in ("model", "same"):
        assert type(names[name]).__name__ == "Bright"
    assert torch.equal(load_file("runs/bright/model.safetensors")["weights"], torch.ones(16, 16))
    image = np.random.default_rng(0).random((40, 30), dtype=np.float32)
    first, second = (rightlung.load(name).ground([image], ["x"])[0] for name in ("bright", "runs/bright"))
    assert first == second


def test_the_list_on_the_page_runs(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rightlung.load("bright:Bright")
    exec(compile(block("list_models"), str(PAGE), "exec"), {})
    assert "bright bright ('ground',) Point at bright pixels." in capsys.readouterr().out


def test_a_trusted_pickle_is_converted_as_the_page_says(own: Path) -> None:
    weights = {"a": torch.rand(3, 2).T, "b": torch.arange(3)}
    torch.save({**weights, "tied": weights["a"]}, "model.pt")
    exec(compile(block("torch.load"), str(PAGE), "exec"), {})
    converted = load_file("weights.safetensors")
    assert all(torch.equal(converted[name], weights[name]) for name in weights)


def test_baselines_are_made_of_studies_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block("Retrieval.fit").replace("count=20", "count=4"), str(PAGE), "exec"), {})
    image = rightlung.open_source("phantom?count=1&seed=8&size=64")[0].image
    for folder in ("runs/retrieval", "runs/frequent-text"):
        assert rightlung.load(folder).report([image])[0].text

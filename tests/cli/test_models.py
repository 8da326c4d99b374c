"""``rightlung models`` as a person or a script calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.models import kinds, registry
from rightlung.models.folder import save_model
from tests.cli.conftest import Run, found
from tests.models.classifier.tiny import tiny_classifier

CARD = "# Nodules: a small classifier\n\nTrained on nothing."
PARAMETERS = sum(parameter.numel() for parameter in tiny_classifier("nodule", "mass").parameters())


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One shipped model, ``nodules``, and no kinds but the built-in classifier."""
    shelf = tmp_path / "shipped"
    monkeypatch.setattr(registry, "SHIPPED", shelf)
    monkeypatch.setattr(kinds, "_registered", {})
    monkeypatch.setattr(kinds, "entry_points", lambda group: [])
    save_model(tiny_classifier("nodule", "mass"), shelf / "nodules", CARD)
    return shelf


def said(result: subprocess.CompletedProcess[str], code: int = 0) -> str:
    """Return what a run told a person, which printed nothing for a program."""
    assert (result.returncode, result.stdout) == (code, "")
    return result.stderr


def test_the_list_has_models_and_kinds(call: Run, shipped: Path) -> None:
    told = said(call("models"))
    (row,) = [line for line in told.splitlines() if line.split()[:1] == ["nodules"]]
    assert row.split()[:6] == ["nodules", "classifier", "ground", "classify", "detect", "0.0"]
    assert row.endswith("Nodules: a small classifier")
    assert "gloria" in told
    listed = found(call("models", "--json"))
    (model,) = listed["models"]
    assert model["size"] == sum(path.stat().st_size for path in (shipped / "nodules").iterdir())
    assert (model["kind"], model["can"]) == ("classifier", ["ground", "classify", "detect"])
    assert [kind["name"] for kind in listed["kinds"]] == [
        "adpd", "anatomy", "chex", "classifier", "clip", "conditional-detr", "eclip", "eclip-gloria", "fita",
        "frequent-text", "gloria", "reporter", "retrieval", "retrieval-reporter", "transvg", "uniter",
    ]  # fmt: skip


def test_without_shipped_models_the_list_says_so(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "none")
    assert "no model is shipped" in said(call("models"))
    assert found(call("models", "--json"))["models"] == []


def test_one_model_is_described_by_name_and_by_folder(call: Run, shipped: Path) -> None:
    told = said(call("models", "nodules"))
    for part in ("can: ground classify detect", '["nodule", "mass"]', "Trained on nothing."):
        assert part in told
    assert told.count(NOT_A_MEDICAL_DEVICE) == 1
    assert f"{PARAMETERS:,} parameters" in told
    summary = found(call("models", str(shipped / "nodules"), "--json"))
    assert summary["parameters"] == PARAMETERS
    assert summary["config"]["findings"] == ["nodule", "mass"]
    assert set(summary["files"]) == {"config.json", "model.safetensors"}
    assert summary["card"].startswith(CARD)


def test_a_class_of_ones_own_is_described(call: Run) -> None:
    summary = found(call("models", "tests.models.savable:Anything", "--json"))
    assert (summary["kind"], summary["can"], summary["parameters"]) == ("anything", ["ground"], 0)
    assert summary["card"] == "Points everywhere, and holds what it is given."
    assert NOT_A_MEDICAL_DEVICE in said(call("models", "tests.models.savable:Anything"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nodule", "did you mean 'nodules'"),
        ("./nowhere", "there is no model folder ./nowhere"),
        ("classifier", "needs weights"),
        ("tests.models.savable:Anythin", "did you mean 'Anything'"),
    ],
)
def test_a_wrong_name_exits_2_with_one_sentence(call: Run, name: str, sentence: str) -> None:
    told = said(call("models", name, "--json"), 2)
    assert sentence in told
    assert told.count("\n") == 1


def test_damage_is_found_when_a_model_is_described_and_a_broken_one_is_listed_as_such(call: Run, shipped: Path) -> None:
    weights = shipped / "nodules" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "model.safetensors is damaged" in said(call("models", "nodules"), 2)
    (shipped / "nodules" / "config.json").write_text("[]")
    assert "config.json must hold a JSON object" in found(call("models", "--json"), 3)["problems"][0]
    assert "config.json must hold a JSON object" in said(call("models"), 3)


OWN_MODULE = """
import torch
from rightlung.core import Grounding, Heatmap

class Mine(torch.nn.Module):
    kind = "mine"

    def ground(self, images, phrases):
        return [Grounding(Heatmap(torch.ones(4, 4).numpy())) for _ in images]

    def to_config(self): return {}
    def tensors(self): return {}
    def extra_files(self): return {}
    @classmethod
    def from_parts(cls, config, tensors, files): return cls()
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_module.py").write_text(OWN_MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine_module", raising=False)


def test_a_class_without_a_docstring_does_not_show_the_one_it_inherits(call: Run, own_module: None) -> None:
    assert found(call("models", "mine_module:Mine", "--json"))["card"] == ""
    assert "Base class for all neural network modules" not in said(call("models", "mine_module:Mine"))


def test_a_saved_model_is_found_once_its_module_is_imported(
    call: Run, own_module: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = registry.load("mine_module:Mine")
    kinds.register("mine", type(model))
    save_model(model, tmp_path / "saved")
    monkeypatch.setattr(kinds, "_registered", {})
    told = said(call("models", "saved"), 2)
    assert "unknown kind of model 'mine'" in told
    assert "rightlung --import MODULE" in told
    for arguments in (["--import", "mine_module", "models", "saved"], ["models", "saved", "--import", "mine_module"]):
        monkeypatch.setattr(kinds, "_registered", {})
        assert found(call(*arguments, "--json"))["class"] == "mine_module:Mine"
    told = said(call("--import", "nowhere_module", "models"), 2)
    assert "--import nowhere_module: the module 'nowhere_module' cannot be imported" in told

"""``rightlung models`` as a person or a script calls it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.main import main
from rightlung.models import kinds, registry
from rightlung.models.classifier import Classifier, NetworkConfig, ResidualNetwork
from rightlung.models.folder import save_model

Call = Callable[..., tuple[int, str, str]]

CARD = "# Nodules: a small classifier\n\nTrained on nothing."
# Stem, two convolutions and norms in each of four blocks, the two shortcuts that shrink, the head; each norm has 2 x 4.
PARAMETERS = (49 * 4 + 8) + 4 * 2 * (9 * 4 * 4 + 8) + 2 * (4 * 4 + 8) + (4 * 2 + 2)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the program and return its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rightlung", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One shipped model, ``nodules``, and no kinds but the built-in classifier."""
    shelf = tmp_path / "shipped"
    monkeypatch.setattr(registry, "SHIPPED", shelf)
    monkeypatch.setattr(kinds, "_registered", {})
    monkeypatch.setattr(kinds, "entry_points", lambda group: [])
    network = ResidualNetwork(NetworkConfig(outputs=2, widths=(4, 4, 4, 4), blocks=(1, 1, 1, 1)))
    save_model(Classifier(network, ["nodule", "mass"], size=64), shelf / "nodules", CARD)
    return shelf


def test_the_list_has_models_and_kinds(call: Call, shipped: Path) -> None:
    code, out, err = call("models")
    assert (code, out) == (0, "")
    (row,) = [line for line in err.splitlines() if line.split()[:1] == ["nodules"]]
    assert row.split()[:5] == ["nodules", "classifier", "ground", "classify", "0.0"]
    assert row.endswith("Nodules: a small classifier")
    assert "gloria" in err
    code, out, err = call("models", "--json")
    assert (code, err) == (0, "")
    listed = json.loads(out)
    (model,) = listed["models"]
    assert model["size"] == sum(path.stat().st_size for path in (shipped / "nodules").iterdir())
    assert (model["kind"], model["can"]) == ("classifier", ["ground", "classify"])
    assert {kind["name"] for kind in listed["kinds"]} == {"classifier", "gloria", "uniter"}


def test_without_shipped_models_the_list_says_so(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "none")
    code, out, err = call("models")
    assert (code, out) == (0, "")
    assert "no model is shipped" in err
    assert json.loads(call("models", "--json")[1])["models"] == []


def test_one_model_is_described_by_name_and_by_folder(call: Call, shipped: Path) -> None:
    code, out, err = call("models", "nodules")
    assert (code, out) == (0, "")
    for part in ("can: ground classify", "size: 64", '["nodule", "mass"]', "Trained on nothing.", NOT_A_MEDICAL_DEVICE):
        assert part in err
    assert err.count(NOT_A_MEDICAL_DEVICE) == 1
    assert f"{PARAMETERS:,} parameters" in err
    code, out, err = call("models", str(shipped / "nodules"), "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["parameters"] == PARAMETERS
    assert summary["config"]["findings"] == ["nodule", "mass"]
    assert set(summary["files"]) == {"config.json", "model.safetensors"}
    assert summary["card"].startswith(CARD)


def test_a_class_of_ones_own_is_described(call: Call) -> None:
    code, out, _ = call("models", "tests.models.savable:Anything", "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["kind"], summary["can"], summary["parameters"]) == ("anything", ["ground"], 0)
    assert summary["card"] == "Points everywhere, and holds what it is given."
    code, _, err = call("models", "tests.models.savable:Anything")
    assert code == 0
    assert NOT_A_MEDICAL_DEVICE in err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nodule", "did you mean 'nodules'"),
        ("./nowhere", "there is no model folder ./nowhere"),
        ("classifier", "needs weights"),
        ("tests.models.savable:Anythin", "did you mean 'Anything'"),
    ],
)
def test_a_wrong_name_exits_2_with_one_sentence(call: Call, name: str, sentence: str) -> None:
    code, out, err = call("models", name, "--json")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_damage_is_found_when_a_model_is_described_and_a_broken_one_is_listed_as_such(
    call: Call, shipped: Path
) -> None:
    weights = shipped / "nodules" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    code, out, err = call("models", "nodules")
    assert (code, out) == (2, "")
    assert "model.safetensors is damaged" in err
    (shipped / "nodules" / "config.json").write_text("[]")
    code, out, _ = call("models", "--json")
    assert code == 3
    assert "config.json must hold a JSON object" in json.loads(out)["problems"][0]
    code, _, err = call("models")
    assert code == 3
    assert "config.json must hold a JSON object" in err

"""``rightlung calibrate --task classify`` and ``rightlung classify``: from phantoms to what a score says."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from rightlung import open_source
from rightlung.cli.main import app
from rightlung.models.calibration_file import RANKING, calibrations_of
from rightlung.models.registry import SHIPPED


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("calibrated")
    shutil.copytree(SHIPPED / "chex", made / "model", ignore=shutil.ignore_patterns("calibration.json"))
    pixels = open_source("phantom?count=1&seed=8&size=128")[0].image
    Image.fromarray((255 * pixels).astype(np.uint8)).save(made / "chest.png")
    return made


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_scores_are_only_a_ranking_until_they_are_calibrated(folder: Path) -> None:
    model, image, out = folder / "model", folder / "chest.png", folder / "model" / "calibration.json"
    plain = json.loads(run("classify", image, "--model", model, "--json"))
    assert plain["scores"] == RANKING
    assert "probability" not in plain["findings"][0]
    refused = CliRunner().invoke(app, ["classify", str(image), "--model", str(model), "--calibration", "phantom"])
    assert "its scores are only a ranking" in str(refused.exception)

    studies = ["phantom?count=48&seed=1&size=96", "--test", "phantom?count=48&seed=2&size=96", "--task", "classify"]
    kept = ["--answers", folder / "answers", "--picture", folder / "curve.png"]
    found = json.loads(run("calibrate", model, *studies, *kept, "--finding", "nodule", "--out", out, "--json"))[
        "classify"
    ]
    assert {"nodule", "edema", "cardiomegaly"} <= found["findings"].keys() | found["left_out"].keys()
    with Image.open(folder / "curve.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    known = calibrations_of(str(model))["phantom"].classify
    assert known is not None
    assert known.findings.keys() == found["findings"].keys()

    read = json.loads(run("classify", image, "--model", model, "--calibration", "phantom", "--json"))
    assert read["scores"].endswith("elsewhere only a ranking.")
    for row in read["findings"]:
        fitted = known.findings.get(row["name"])
        assert (row["probability"] is None) == (fitted is None)
        if fitted is not None:
            assert row["present"] == (row["score"] >= fitted.threshold)
            assert row["probability"] == pytest.approx(fitted.curve.probabilities([row["score"]])[0], abs=1e-4)
    assert "choose it with --calibration" in json.loads(run("classify", image, "--model", model, "--json"))["scores"]

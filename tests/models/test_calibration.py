"""Calibration: the fit and the measures against scikit-learn, the file against its weights."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from typer.testing import CliRunner

from rightlung import open_source
from rightlung.asking.calibrating import _pairs
from rightlung.cli.main import app
from rightlung.core import InputError, Polarity
from rightlung.models.calibration import (
    PRESENCE,
    SIMILARITY,
    calibration_error,
    fit_platt,
    platt,
    reliability,
)
from rightlung.models.calibration_file import calibrations_of
from rightlung.models.registry import SHIPPED


def test_the_fit_recovers_the_probabilities_that_drew_the_truth() -> None:
    generator = np.random.default_rng(1)
    similarity = generator.uniform(-1, 1, 20_000)
    drawn = 1 / (1 + np.exp(-(0.5 + 3 * similarity)))
    slope, intercept = fit_platt(SIMILARITY, similarity, generator.random(20_000) < drawn)
    assert [slope, intercept] == pytest.approx([3, 0.5], abs=0.15)
    assert np.abs(platt(SIMILARITY, slope, intercept, similarity) - drawn).max() < 0.02
    assert platt(PRESENCE, 1, 0, [0.2, 0.9]).tolist() == pytest.approx([0.2, 0.9])  # log-odds and back


def test_reliability_and_its_error_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(2)
    given = generator.random(500)
    rows = np.stack([given, generator.random(500) < given**2], 1)
    true, mean = calibration_curve(rows[:, 1], given, n_bins=10)
    bins = np.array(reliability(rows))
    assert np.allclose(bins[:, 1:], np.stack([mean, true], 1), atol=1e-4)
    assert calibration_error(rows) == pytest.approx(bins[:, 0] @ np.abs(true - mean) / 500)


def test_half_of_the_phrases_are_true_and_the_others_name_what_is_absent() -> None:
    studies = list(open_source("phantom?count=12&seed=3&size=64"))
    pool = [(one.patient or "", phrase) for one in studies for phrase in one.phrases if phrase.boxes]
    told = [(study, phrase, true) for study in studies for phrase, true in _pairs(study, pool)]
    assert len(told) > 20
    assert sum(true for *_, true in told) == len(told) / 2
    for study, phrase, true in told:
        said = {study.findings.get(name) for name in phrase.findings}
        assert said == {Polarity.NEGATIVE} if not true else Polarity.NEGATIVE not in said


def test_the_command_writes_a_file_that_is_refused_next_to_other_weights(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED / "starter", folder)
    studies = ["phantom?count=6&seed=3&size=96", "--test", "phantom?count=6&seed=4&size=96"]
    studies += ["--task", "ground", "--name", "small", "--out", str(folder / "calibration.json")]
    done = CliRunner().invoke(app, ["calibrate", str(folder), *studies])
    assert done.exit_code == 0, done.output
    assert [*calibrations_of(str(folder))] == ["phantom", "small"]
    known = calibrations_of(str(folder))["small"].ground
    assert known is not None
    assert known.base_rate == 0.5
    assert known.probability(0.99) > known.probability(0.01)
    assert calibrations_of(f"{folder}?map=own") == {}
    content = json.loads((folder / "calibration.json").read_text()) | {"weights": "0" * 64}
    (folder / "calibration.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="field 'weights'"):
        calibrations_of(str(folder))

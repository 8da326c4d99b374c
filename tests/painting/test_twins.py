"""Twins of painted films: one finding changed, everything else equal to the pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rightlung.cli.main import app
from rightlung.core import InputError
from rightlung.predictions import open_predictions
from rightlung.probes.twins import TwinImage, changed_finding
from rightlung.studies.sources import open_source


def test_a_twin_without_the_only_finding_is_the_film_to_the_bit(address: str) -> None:
    for finding in ("mass", "cardiomegaly"):
        source = open_source(f"painted:{address}?seed=4&findings={finding}&untouched=0&control=0")
        for study in source:
            twin = study.twin("removed", finding)
            film = open_source(address).study(str(study.extra["painted"]["film"])).image
            assert np.array_equal(twin.image, film)
            assert not np.array_equal(study.image, film)
            assert not twin.located_findings
            assert twin.patient == study.patient
            assert twin.extra["twin"]["influence"] == pytest.approx((twin.image != study.image).mean())


def test_a_moved_finding_is_in_the_other_lung_and_a_worse_one_is_larger(address: str) -> None:
    moved = worse = 0
    for study in open_source(f"painted:{address}?count=12&seed=9&findings=mass&untouched=0&control=0"):
        assert study.twins is not None
        mask = study.located_findings[0].mask
        assert mask is not None
        if "mass" in study.twins.findings("moved"):
            twin = study.twin("moved", "mass").located_findings[0].mask
            middle = [float(one.pixels.nonzero()[1].mean()) / one.pixels.shape[1] for one in (mask, twin) if one]
            assert (middle[0] - 0.5) * (middle[1] - 0.5) < 0
            moved += 1
        if "mass" in study.twins.findings("worse"):
            twin = study.twin("worse", "mass").located_findings[0].mask
            assert twin is not None
            assert twin.pixels.sum() > mask.pixels.sum()
            worse += 1
    assert moved > 5
    assert worse > 2


def test_the_probe_of_twins_takes_painted_studies(address: str) -> None:
    study = open_source(f"painted:{address}?seed=4&findings=pleural%20effusion&untouched=0&control=0")[0]
    assert changed_finding(study, None, "removed") == "pleural effusion"
    shown = TwinImage(study, "removed", "pleural effusion")(study.image)
    assert not np.array_equal(shown, study.image)
    with pytest.raises(InputError, match="there is no twin with mass removed"):
        study.twin("removed", "mass")
    with pytest.raises(InputError, match="the cardiomegaly is not in one lung only"):
        open_source(f"painted:{address}?seed=4&findings=cardiomegaly&untouched=0&control=0")[0].twin(
            "moved", "cardiomegaly"
        )


def test_asking_about_twins_takes_painted_studies(address: str, tmp_path: Path) -> None:
    painted = f"painted:{address}?count=4&seed=4&findings=mass&untouched=0&control=0"
    options = [
        "--condition",
        "none",
        "--condition",
        "twin-removed",
        "--condition",
        "twin-moved",
        "--out",
        str(tmp_path / "answers"),
    ]
    done = CliRunner().invoke(app, ["predict", "tests.audit.gate_models:Blind", painted, *options])
    assert done.exit_code == 0, done.output
    asked = {row.condition for row in open_predictions(tmp_path / "answers")}
    assert asked == {"none", "twin-removed", "twin-moved"}

"""``rightlung regions``, and what commands say about images that are no upright frontal radiographs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from rightlung.core import Mask
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import default_config
from rightlung.phantom.study import make_studies
from tests.cli.conftest import Run, found
from tests.cli.test_ground import MODEL

STUDY = make_studies(default_config(), 77, [0], 160)[0]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    pixels = (STUDY.image * 255).round().astype(np.uint8)
    for name, shown in (("chest", pixels), ("turned", np.rot90(pixels)), ("mirrored", pixels[:, ::-1])):
        PIL.Image.fromarray(np.ascontiguousarray(shown)).save(tmp_path / f"{name}.png")
    return tmp_path / "chest.png"


def test_regions_are_printed_and_drawn(call: Run, image: Path, tmp_path: Path) -> None:
    done = call("regions", str(image), "--out", "regions.png", "--json")
    assert "this looks like an upright frontal chest radiograph" in done.stderr
    result = found(done)
    assert set(result["regions"]) <= set(IMAGENOME_REGIONS)
    assert len(result["regions"]) >= 27
    assert all(0 <= one["confidence"] <= 1 for one in result["regions"].values())
    heart = Mask.from_rle(result["structures"]["cardiac silhouette"]["rle"])
    assert heart.iou(STUDY.extra["anatomy_masks"]["cardiac silhouette"]) > 0.75
    with PIL.Image.open(tmp_path / "regions.png") as picture:
        assert picture.width > 1200
    told = call("regions", str(image)).stderr
    assert "cardiac silhouette           covers" in told
    assert "right lung                   box 0." in told


def test_a_turned_image_is_refused_by_every_command_unless_asked_for_anyway(
    call: Run, image: Path, tmp_path: Path
) -> None:
    turned = str(image.with_name("turned.png"))
    for command in (("regions", turned), ("report", turned), ("ground", turned, "nodule", "--model", MODEL)):
        refused = call(*command)
        assert refused.returncode == 2, command
        assert "this looks like a chest radiograph that is on its side; turn it upright first" in refused.stderr
        assert "--anyway" in refused.stderr
    (entry,) = json.loads(call("ground", turned, "nodule", "--model", MODEL, "--anyway", "--json").stdout)["groundings"]
    assert (entry["frontal"], "on its side" in entry["implausible"]) == ("rotated", True)
    assert call("regions", turned, "--anyway").returncode == 0


def test_a_mirrored_image_is_answered_with_a_warning(call: Run, image: Path) -> None:
    done = call("ground", str(image.with_name("mirrored.png")), "left nodule", "--model", MODEL)
    assert done.returncode == 0
    assert "the heart seems to be on the image's left" in done.stderr
    assert "warning: the image may be mirrored" in done.stderr

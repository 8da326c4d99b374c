from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tests.cli.conftest import Run, found


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """Three studies of noise, with boxes, in a folder."""
    folder = tmp_path / "sound"
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = []
    for n in range(3):
        PIL.Image.fromarray(rng.integers(0, 256, (40, 30), dtype=np.uint8)).save(folder / f"{n}.png")
        boxes = [{"label": "Mass", "box": [0.6, 0.2, 0.8, 0.4]}]
        rows.append({"id": f"s{n}", "file": f"{n}.png", "patient": f"p{n}", "split": "val", "boxes": boxes})
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_sound_source_exits_with_0(call: Run, sound: Path) -> None:
    result = call("data", "check", f"manifest:{sound}")
    assert (result.returncode, result.stdout) == (0, "")
    assert "3 studies looked at, 3 images decoded" in result.stderr
    assert "nothing found" in result.stderr


def test_findings_exit_with_3_and_are_named_with_file_row_and_field(call: Run, sound: Path) -> None:
    with (sound / "manifest.jsonl").open("a") as manifest:
        manifest.write('\n{"id": "s3", "file": "2.png", "patient": "p0", "split": "train", "age": "058Y"}\n')
    result = call("data", "check", f"manifest:{sound}?split=val")
    assert (result.returncode, result.stdout) == (3, "")
    assert "manifest.jsonl, line 4, field age: age must be a number; got '058Y'; it looks like DICOM's" in result.stderr
    assert "error patient-splits (1): a patient in two splits" in result.stderr


def test_json_alone_goes_to_standard_output_with_every_finding(call: Run, manifest: Path) -> None:
    result = call("data", "check", f"manifest:{manifest}", "--json")
    told = found(result, 3)
    assert result.stderr == ""
    assert {entry["check"] for entry in told["findings"]} == {"blank-image", "patient-splits"}
    assert told["severities"] == {"error": 3, "warning": 0, "hint": 0}
    assert set(told["findings"][0]) == {"check", "severity", "file", "row", "study", "field", "message"}


def test_options_are_obeyed(call: Run, manifest: Path) -> None:
    told = found(call("data", "check", f"manifest:{manifest}", "--json", "--no-images", "--limit", "1"), 3)
    assert (told["studies"], told["images"], told["checks"]) == (1, 0, {"patient-splits": 1})

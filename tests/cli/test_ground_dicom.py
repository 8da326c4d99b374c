"""``rightlung ground`` on DICOM files: what is refused, ``--force``, and that no identifier gets out."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, radiograph
from tests.studies.dicom_files import SECRET, dataset_of, dicom, saved, with_secrets

MODEL = "tests.asking.models:Painter"


@pytest.fixture
def pixels() -> Any:
    """Bright at the lower right, the patient's left."""
    return radiograph().astype("<u2") * 17


def ground(call: Run, *arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    result = call("ground", *arguments, "--model", MODEL, "--out", "found", "--json")
    assert result.returncode == code, result.stderr
    return (json.loads(result.stdout) if result.stdout else {}), result.stderr


def test_dicom_files_are_found_in_a_folder_with_and_without_an_ending(call: Run, tmp_path: Path, pixels: Any) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("one.dcm", "IM0001", "1.2.840.17"):
        (folder / name).write_bytes(dicom(pixels))
    (folder / "README").write_text("not an image")
    result, _ = ground(call, str(folder), "effusion on the left")
    assert len(result["groundings"]) == 3
    assert all(entry["side_of_peak"] == "left" and entry["side_agrees"] for entry in result["groundings"])


def test_a_lateral_view_is_refused_and_forced(call: Run, tmp_path: Path, pixels: Any) -> None:
    (tmp_path / "side.dcm").write_bytes(dicom(pixels, ViewPosition="LL"))
    _, said = ground(call, "side.dcm", "effusion", code=2)
    assert "side.dcm is not read: it is a lateral view, not a frontal one" in said
    assert "--force" in said
    result, _ = ground(call, "side.dcm", "effusion", "--force")
    assert len(result["groundings"]) == 1
    reason = "it is a lateral view, not a frontal one (according to its View Position)"
    assert result["notes"] == [f"side.dcm: read although {reason}"]
    _, said = ground(call, "side.dcm", "effusion", code=2)  # what was forced once does not pass for good
    assert "it is a lateral view" in said


def test_no_identifier_reaches_what_the_command_writes_or_says(call: Run, tmp_path: Path, pixels: Any) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's, about what is planted here
        (folder / "a.dcm").write_bytes(saved(with_secrets(dataset_of(pixels))))
        (folder / "b.dcm").write_bytes(saved(with_secrets(dataset_of(pixels, ViewPosition="LL"))))
        (folder / "c.dcm").write_bytes(saved(with_secrets(dataset_of(pixels)))[:-900])
        (folder / "d.dcm").write_bytes(saved(with_secrets(dataset_of(pixels, BodyPartExamined=SECRET))))
    result, said = ground(call, str(folder), "effusion", code=3)
    assert (len(result["groundings"]), len(result["problems"])) == (1, 3)
    assert SECRET not in json.dumps(result) + said
    for file in (tmp_path / "found").rglob("*"):
        assert SECRET not in file.name
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()

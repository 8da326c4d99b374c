from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run, found


def test_a_sound_source_exits_with_0(call: Run) -> None:
    result = call("data", "check", "phantom?count=3&seed=1&size=64")
    assert (result.returncode, result.stdout) == (0, "")
    assert "3 studies checked, 3 images decoded" in result.stderr
    assert "no issues found" in result.stderr


def test_findings_exit_with_3_and_are_named_with_file_row_and_field(call: Run, manifest: Path) -> None:
    with (manifest / "manifest.jsonl").open("a") as rows:
        rows.write('\n{"id": "c", "file": "b.png", "patient": "q", "split": "train", "age": "058Y"}\n')
    result = call("data", "check", f"manifest:{manifest}?split=val")
    assert (result.returncode, result.stdout) == (3, "")
    assert "manifest.jsonl, line 3, field age: age must be a number; got '058Y'; it looks like a DICOM" in result.stderr
    assert "error patient-splits (1): a patient in two splits" in result.stderr


def test_json_alone_goes_to_standard_output_with_every_finding(call: Run, manifest: Path) -> None:
    result = call("data", "check", f"manifest:{manifest}", "--json")
    told = found(result, 3)
    assert result.stderr == ""
    assert {entry["check"] for entry in told["findings"]} == {"duplicate-image", "patient-splits"}
    assert told["severities"] == {"error": 2, "warning": 0, "hint": 0}
    assert set(told["findings"][0]) == {"check", "severity", "file", "row", "study", "field", "message"}


def test_options_are_obeyed(call: Run, manifest: Path) -> None:
    told = found(call("data", "check", f"manifest:{manifest}", "--json", "--no-images", "--limit", "1"), 3)
    assert (told["studies"], told["images"], told["checks"]) == (1, 0, {"patient-splits": 1})

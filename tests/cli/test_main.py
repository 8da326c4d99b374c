from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from tests.cli.conftest import Run, found

EXAMPLE = Path(__file__).parents[2] / "examples" / "write_predictions.py"


@pytest.mark.parametrize("command", ["", "demo", "audit", "data", "data show", "predictions"])
def test_every_command_explains_itself(call: Run, command: str) -> None:
    result = call(*command.split(), "--help")
    assert result.returncode == 0
    expected = ["audit", "demo", "predictions", "data", "Exit codes: 0 done", "2 bad input", NOT_A_MEDICAL_DEVICE]
    for part in ["Usage:"] if command else expected:
        assert part in " ".join(result.stdout.split())


@pytest.mark.parametrize(("given", "then"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_threads_wait_without_spinning_unless_the_user_wants_it_otherwise(given: dict[str, str], then: str) -> None:
    code = "import os; from rightlung.cli.main import main\ntry: main()\nfinally: print(os.environ['OMP_WAIT_POLICY'])"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | given
    command = [sys.executable, "-c", code, "--version"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split()[-1] == then


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rightlung.cli import main; sys.argv = ['rightlung', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pyarrow', 'PIL', 'pandas', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_version(call: Run) -> None:
    assert call("--version").stdout.strip() == f"rightlung {__version__}"


def test_data_show_counts_what_is_there(call: Run, manifest: Path) -> None:
    summary = found(call("data", "show", f"manifest:{manifest}", "--json"))
    expected: dict[str, object] = {"studies": 2, "patients": 1, "phrases": 3, "phrases_with_target": 1, "reports": 1}
    expected |= {"splits": {"val": 1, "train": 1}, "findings": {"Effusion": 1}, "boxed": {"Effusion": 1}}
    assert {name: summary[name] for name in expected} == expected
    result = call("data", "show", f"manifest:{manifest}")
    assert result.stdout == ""
    assert "2 studies of 1 patients" in result.stderr


def test_the_sheet_draws_the_box_on_the_images_right(call: Run, manifest: Path, tmp_path: Path) -> None:
    result = call("data", "show", f"manifest:{manifest}?split=val", "--sheet", "out/sheet.png", "--count", "5")
    assert result.returncode == 0, result.stderr
    picture = np.asarray(PIL.Image.open(tmp_path / "out" / "sheet.png")).astype(int)[:240]  # above the legend
    green = (picture[:, :, 1] > 200) & (picture[:, :, 0] < 120)
    columns = np.flatnonzero(green.any(axis=0))
    assert columns.min() > picture.shape[1] / 2


def test_a_bad_row_and_an_undrawable_image_are_named_the_rest_goes_on_and_the_exit_says_so(
    call: Run, manifest: Path
) -> None:
    with (manifest / "manifest.jsonl").open("a") as file:
        file.write('\n{"id": "c"')
    (manifest / "b.png").write_bytes(b"not an image")
    summary = found(call("data", "show", f"manifest:{manifest}", "--sheet", "sheet.png", "--json"), 3)
    assert summary["studies"] == 2
    row, image = summary["problems"]
    assert "line 3" in row
    assert "b.png" in image


def test_predictions_written_by_a_stranger_are_checked_and_counted(call: Run, tmp_path: Path) -> None:
    written = tmp_path / "written.parquet"
    subprocess.run([sys.executable, str(EXAMPLE), str(written)], check=True)
    summary = found(call("predictions", str(written), "--json"))
    assert (summary["valid"], summary["studies"]) == (True, 2)
    assert summary["rows"] == sum(summary["conditions"].values())
    assert len(summary["conditions"]) > 1
    assert call("predictions", str(written)).stdout == ""


def test_bad_predictions_exit_2_with_row_and_column(call: Run, tmp_path: Path) -> None:
    rows = {"study": ["a"], "query": ["phrase:0"], "condition": ["none"], "phrase": ["x"]}
    table = pa.table({**rows, "map": [[0.5, float("nan")]], "map_rows": [1], "map_cols": [2]})
    pq.write_table(table, tmp_path / "bad.parquet")
    (problem,) = found(call("predictions", "bad.parquet", "--json"), 2)["problems"]
    assert "column map" in problem
    assert "row 0" in problem


PROGRAM = "import sys; sys.argv[0] = 'rightlung'; from rightlung.cli.main import main; main()"


def test_completion_can_be_installed_and_completes(tmp_path: Path) -> None:
    def run(*arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(tmp_path), **given}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    installed = run("--install-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert installed.returncode == 0, installed.stderr
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert str(script) in (tmp_path / ".bashrc").read_text()
    assert "_RIGHTLUNG_COMPLETE=complete_bash" in script.read_text()
    asked = run(_RIGHTLUNG_COMPLETE="complete_bash", COMP_WORDS="rightlung pre", COMP_CWORD="1")
    assert asked.stdout.split() == ["predict", "predictions"]


def test_a_closed_pipe_is_no_error(manifest: Path) -> None:
    for arguments in (["data", "show", f"manifest:{manifest}", "--json"], ["--help"]):
        command = shlex.join([sys.executable, "-m", "rightlung", *arguments])
        piped = ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"]
        result = subprocess.run(piped, capture_output=True, text=True, check=False)
        assert result.returncode == 0
        assert result.stderr == ""


def test_a_full_standard_output_exits_4_in_one_sentence(manifest: Path) -> None:
    command = [sys.executable, "-m", "rightlung", "data", "show", f"manifest:{manifest}", "--json"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 4
    assert result.stderr.strip() == "error: standard output cannot be written: No space left on device"


def test_json_is_the_same_in_every_locale_and_nan_is_null(manifest: Path) -> None:
    row = {"id": "漢", "file": "a.png", "findings": ["氣胸"], "split": "\x1b[2J"}
    with (manifest / "manifest.jsonl").open("a") as file:
        file.write("\n" + json.dumps(row))
    command = [sys.executable, "-m", "rightlung", "data", "show", f"manifest:{manifest}"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["findings"]["氣胸"] == 1
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stderr  # a terminal must not obey what a file says
    assert "\\x1b[2J" in result.stderr


def test_the_library_shows_its_main_names() -> None:
    import rightlung

    assert callable(rightlung.open_source)
    assert callable(rightlung.read_image)
    with pytest.raises(AttributeError, match="nothing"):
        _ = rightlung.nothing

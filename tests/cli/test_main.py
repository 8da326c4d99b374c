from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.output import print_json
from tests.cli.conftest import FLAT_MODEL, Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "write_predictions.py"


def test_help_names_every_command_the_exit_codes_and_that_this_is_no_medical_device(run: Run) -> None:
    result = run("--help")
    assert result.returncode == 0
    for expected in ("audit", "demo", "predictions", "data", "Exit codes: 0 done", "2 bad input", "3 done but"):
        assert expected in result.stdout
    assert NOT_A_MEDICAL_DEVICE in " ".join(result.stdout.split())


@pytest.mark.parametrize("command", [["demo"], ["audit"], ["data"], ["data", "show"], ["predictions"]])
def test_every_command_explains_itself(run: Run, command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.returncode == 0
    assert "Usage:" in result.stdout


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


def test_version(run: Run) -> None:
    assert run("--version").stdout.strip() == f"rightlung {__version__}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["dmeo"], "demo"),
        (["data", "shwo", "x"], "show"),
        (["demo", "--cuont", "3"], "--count"),
        (["data", "show", "manifst:/x"], "did you mean 'manifest'"),
        (["data", "show", "manifest:/x?spilt=val"], "did you mean 'split'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_and_exits_2(run: Run, arguments: list[str], expected: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_no_arguments_show_the_help_on_standard_error(run: Run) -> None:
    result = run()
    assert result.returncode == 2
    assert "Usage:" in result.stderr
    assert result.stdout == ""


def test_data_show_counts_what_is_there(run: Run, manifest: Path) -> None:
    result = run("data", "show", f"manifest:{manifest}", "--json")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["studies"] == 2
    assert summary["patients"] == 1
    assert summary["splits"] == {"val": 1, "train": 1}
    assert summary["findings"] == {"Effusion": 1}
    assert summary["boxed"] == {"Effusion": 1}
    assert summary["phrases"] == 3
    assert summary["phrases_with_target"] == 1
    assert summary["reports"] == 1


def test_without_json_everything_goes_to_standard_error(run: Run, manifest: Path) -> None:
    result = run("data", "show", f"manifest:{manifest}")
    assert result.stdout == ""
    assert "2 studies of 1 patients" in result.stderr


def test_the_sheet_draws_the_box_on_the_images_right(run: Run, manifest: Path, tmp_path: Path) -> None:
    result = run("data", "show", f"manifest:{manifest}?split=val", "--sheet", "out/sheet.png", "--count", "5")
    assert result.returncode == 0, result.stderr
    picture = np.asarray(PIL.Image.open(tmp_path / "out" / "sheet.png")).astype(int)
    green = (picture[:, :, 1] > 200) & (picture[:, :, 0] < 120)
    columns = np.flatnonzero(green.any(axis=0))
    assert columns.min() > picture.shape[1] / 2


def test_a_bad_row_is_named_the_rest_goes_on_and_the_exit_says_so(run: Run, manifest: Path) -> None:
    with (manifest / "manifest.jsonl").open("a") as file:
        file.write('\n{"id": "c"')
    result = run("data", "show", f"manifest:{manifest}", "--json")
    assert result.returncode == 3
    summary = json.loads(result.stdout)
    assert summary["studies"] == 2
    assert len(summary["problems"]) == 1
    assert "line 3" in summary["problems"][0]


def test_an_image_that_cannot_be_drawn_is_listed_and_the_exit_says_so(run: Run, manifest: Path) -> None:
    (manifest / "b.png").write_bytes(b"not an image")
    result = run("data", "show", f"manifest:{manifest}", "--sheet", "sheet.png", "--json")
    assert result.returncode == 3
    assert any("b.png" in problem for problem in json.loads(result.stdout)["problems"])


def test_an_output_that_cannot_be_written_exits_4(run: Run, manifest: Path) -> None:
    result = run("data", "show", f"manifest:{manifest}", "--sheet", "/dev/null/sheet.png")
    assert result.returncode == 4
    assert "/dev/null/sheet.png" in result.stderr
    assert "Traceback" not in result.stderr


def test_predictions_written_by_a_stranger_are_checked_and_counted(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "written.parquet"
    subprocess.run([sys.executable, str(EXAMPLE), str(written)], check=True)
    result = run("predictions", str(written), "--json")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["valid"]
    assert summary["studies"] == 2
    assert summary["rows"] == sum(summary["conditions"].values())
    assert len(summary["conditions"]) > 1
    assert run("predictions", str(written)).stdout == ""


def test_bad_predictions_exit_2_with_row_and_column(run: Run, tmp_path: Path) -> None:
    rows = {"study": ["a"], "query": ["phrase:0"], "condition": ["none"], "phrase": ["x"]}
    table = pa.table({**rows, "map": [[0.5, float("nan")]], "map_rows": [1], "map_cols": [2]})
    pq.write_table(table, tmp_path / "bad.parquet")
    result = run("predictions", "bad.parquet", "--json")
    assert result.returncode == 2
    problems = json.loads(result.stdout)["problems"]
    assert len(problems) == 1
    assert "column map" in problems[0]
    assert "row 0" in problems[0]
    assert run("predictions", "missing.parquet").returncode == 2


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


def test_what_is_not_a_number_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"low": float("nan"), "list": [float("inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"low": None, "list": [None, 1.5]}


def test_an_interrupted_demo_exits_130_without_a_traceback(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    command = [sys.executable, "-m", "rightlung", "demo", "--model", "flat:Flat", "--out", "cut", "--count", "400"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()  # it has begun
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said


def test_the_library_shows_its_main_names() -> None:
    import rightlung

    assert callable(rightlung.open_source)
    assert callable(rightlung.read_image)
    with pytest.raises(AttributeError, match="nothing"):
        _ = rightlung.nothing

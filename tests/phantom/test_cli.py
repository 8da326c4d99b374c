"""``rightlung phantom`` as a person or a script calls it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rightlung import open_source
from rightlung.cli.main import main

Call = Callable[..., tuple[int, str, str]]


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


def test_json_says_what_was_written_and_nothing_else_is_on_standard_output(call: Call, tmp_path: Path) -> None:
    arguments = ("--count", "3", "--seed", "5", "--size", "64", "--shortcut", "tube=0.5", "--shortcut", "mirrored=0.5")
    code, out, err = call("phantom", str(tmp_path / "out"), *arguments, "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert (summary["studies"], summary["written"], summary["size"]) == (3, 3, 64)
    assert summary["shortcuts"] == ["tube:pneumothorax=0.5", "mirrored=0.5"]
    assert len(open_source(summary["address"])) == 3
    code, out, err = call("phantom", str(tmp_path / "out"), *arguments)
    assert (code, out) == (0, "")
    assert "3 of them from an earlier run" in err
    assert "say nothing about real ones" in err


def test_a_sheet_of_streamed_studies_is_drawn(call: Call, tmp_path: Path) -> None:
    code, _, err = call("data", "show", "phantom?count=3&seed=1&size=64", "--sheet", str(tmp_path / "x.png"))
    assert code == 0, err
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    assert "3 studies of 2 patients" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--count", "-3", "--seed", "1"), "count must be at least 1"),
        (("--count", "3", "--seed", "-1"), "seed must be an integer from 0"),
        (("--count", "3", "--seed", "1", "--size", "7"), "size must be an integer from 64"),
        (("--count", "3", "--seed", "1", "--shortcut", "markr=1"), "did you mean 'marker'"),
        (
            ("--count", "3", "--seed", "1", "--shortcut", "marker=2"),
            "the strength must be a number from 0 to 1; got 2.0",
        ),
        (("--count", "3", "--seed", "1", "--config", "nowhere.toml"), "nowhere.toml: the configuration cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = call("phantom", str(tmp_path / "out"), *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_exit_4(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = call("phantom", str(tmp_path / "file" / "out"), "--count", "1", "--seed", "1", "--size", "64")
    assert (code, out) == (4, "")
    assert err.startswith("error: ")
    assert "cannot be written" in err
    assert len(err.strip().splitlines()) == 1

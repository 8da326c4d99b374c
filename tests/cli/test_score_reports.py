from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run, found

TRUE = "study,text,who\na,Left pleural effusion.,p\nb,Lungs are clear.,p\nc,Cardiomegaly.,q\n"
OPTIONS = ("--resamples", "100", "--protocol", "whole", "--out", "out")


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)


def test_score_reports_writes_page_numbers_and_rows(call: Run) -> None:
    Path("true.csv").write_text(TRUE)
    Path("said.csv").write_text("key,report\na,Left pleural effusion.\nb,Lungs are clear.\nc,Cardiomegaly.\n")
    columns = ("--study", "key", "--patient", "who")
    result = found(call("score-reports", "said.csv", "true.csv", *columns, *OPTIONS, "--json"))
    assert result["parts"]["whole"]["measures"]["rouge_l"]["estimate"] == 1.0
    assert result["parts"]["clinical"]["measures"]["sided_f1"]["patients"] == 2
    assert {one.name for one in Path("out").iterdir()} >= {"scores.html", "scores.json", "reports.csv"}
    told = call("score-reports", "said.csv", "true.csv", *columns, *OPTIONS)
    assert told.returncode == 0
    assert "With left and right exchanged" in told.stderr


def test_missing_studies_exit_with_3_and_bad_files_with_2(call: Run) -> None:
    Path("true.csv").write_text(TRUE)
    Path("said.csv").write_text("id,report\na,Left pleural effusion.\nb,Lungs are clear.\n")
    result = found(call("score-reports", "said.csv", "true.csv", *OPTIONS, "--json"), 3)
    assert result["problems"] == [
        "true.csv, line 4 (study 'c'), column text: said.csv has no report of this study; it is left out"
    ]
    Path("other.csv").write_text("id,report\nz,Clear.\n")
    for files, message in (
        (("said.csv", "none.csv"), "none.csv"),
        (("other.csv", "true.csv"), "have no study in common"),
        (("said.csv", "true.csv", "--text", "words"), "said.csv has no column 'words'"),
        (("said.csv", "true.csv", "--protocol", "hole"), "unknown protocol of words 'hole'"),
    ):
        failed = call("score-reports", *files, *OPTIONS)
        assert failed.returncode == 2, failed.stderr
        assert message in failed.stderr
        assert failed.stderr.count("error:") == 1

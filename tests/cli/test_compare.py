from __future__ import annotations

import json
from pathlib import Path

from rightlung.measuring import PROTOCOLS
from tests.cli.conftest import Run, found
from tests.results.compared import phrase_rows, write


def test_compare_prints_the_verdict_and_writes_the_page(call: Run, tmp_path: Path) -> None:
    for name, better in (("a", 0.2), ("b", 0.0)):
        write(tmp_path / name, phrase_rows(better, 1), model=f"model {name}")
    result = call("compare", "a", "b", "--out", "ab", "--resamples", "200", "--measure", "auroc")
    assert result.returncode == 0, result.stderr
    assert "- audit, AUROC: model a is better." in result.stderr
    assert "40 instances of 13 patients" in result.stderr
    assert "page: ab/compare.html" in result.stderr
    assert result.stdout == ""
    printed = found(call("compare", "a", "b", "--out", "ab", "--resamples", "200", "--json"))
    written = json.loads((tmp_path / "ab" / "compare.json").read_text())
    assert {**written, "page": "ab/compare.html"} == printed
    assert {path.name for path in (tmp_path / "ab").iterdir()} >= {"compare.html", "compare.md", "compare.json"}


def test_compare_says_each_pair_of_three_models(call: Run, tmp_path: Path) -> None:
    for name, better in (("a", 0.2), ("b", 0.1), ("c", 0.0)):
        write(tmp_path / name, phrase_rows(better, 1), model=name)
    result = call("compare", "a", "b", "c", "--resamples", "100", "--measure", "auroc")
    assert result.returncode == 0, result.stderr
    for first, second in (("a", "b"), ("a", "c"), ("b", "c")):
        assert f"- audit, AUROC, {first} − {second}: {first} is better." in result.stderr


def test_instances_that_were_left_out_are_counted_and_the_exit_code_says_so(call: Run, tmp_path: Path) -> None:
    write(tmp_path / "a", phrase_rows(0.2, 1))
    write(tmp_path / "b", phrase_rows(0.0, 2)[:30])
    result = call("compare", "a", "b", "--resamples", "100")
    assert result.returncode == 3
    assert "10 of 40 instances of a are left out: not all results have them" in result.stderr


def test_bad_results_end_with_one_sentence(call: Run, tmp_path: Path) -> None:
    write(tmp_path / "a", phrase_rows())
    for other in ("a", "gone"):
        result = call("compare", "a", other)
        assert result.returncode == 2
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    assert not (tmp_path / "comparison").exists()


def test_protocols_lists_all_and_says_what_is_not_known_of_one(call: Run) -> None:
    listed = found(call("protocols", "--json"))
    assert {one["name"] for one in listed} >= set(PROTOCOLS)
    result = call("protocols", "medklip-rsna")
    assert result.returncode == 0
    assert "not known:\n    - the list of test images" in result.stderr
    assert "attention > 0.008, strict" in result.stderr
    assert "hash: " in call("protocols", "whole").stderr
    assert "did you mean 'medklip-rsna'" in call("protocols", "medklip").stderr
    assert call("protocols", "--markdown").stdout.startswith("## audit\n")

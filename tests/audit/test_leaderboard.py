"""The leaderboard of made-up results: order, tables, links, and what it refuses."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rightlung.audit.leaderboard import leaderboard, read_result
from rightlung.cli.leaderboard import leaderboard as command
from rightlung.core import InputError
from rightlung.measuring import find_protocol
from tests.pages import Outline

PHANTOM, MANIFEST = "phantom?count=9&seed=1", "manifest:mine"


def estimate(value: float | None) -> dict[str, Any]:
    ends = (None, None) if value is None else (value - 0.1, value + 0.1)
    return {"estimate": value, "low": ends[0], "high": ends[1], "phrases": 40, "patients": 20}


def result(
    folder: Path, model: str, precision: float | None, pointing: float, source: str = PHANTOM, **protocol: Any
) -> Path:
    """Write the result of an audit, with a prior that has an average precision of 0.3."""
    folder.mkdir(parents=True)
    difference = None if precision is None else estimate(precision - 0.3)
    overall = {
        "average_precision": {"model": estimate(precision), "prior": estimate(0.3), "difference": difference},
        "pointing": {"model": estimate(pointing), "prior": estimate(0.5), "difference": estimate(pointing - 0.5)},
    }
    stated = replace(find_protocol("audit"), source=source, **protocol).as_json()
    text = json.dumps({"model": model, "source": source, "protocol": stated, "overall": overall})
    (folder / "audit.json").write_text(text)
    return folder


@pytest.fixture
def results(tmp_path: Path) -> list[Path]:
    return [
        result(tmp_path / "a udits/1", "starter", 0.6, 0.4),
        result(tmp_path / "a udits/2", "starter?map=grad-cam", 0.4, 0.9),
        result(tmp_path / "a udits/3", "<b>&mine", None, 0.7),
        result(tmp_path / "a udits/4", "starter", 0.2, 0.2, MANIFEST),
    ]


def rows_of(page: Path, title: str) -> list[tuple[str, str]]:
    """Return model and kind of map of a table's rows, read from the Markdown."""
    part = page.read_text().split(f"## {title.replace('&', '&amp;')}")[1].split("###")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]
    for line in lines:  # the model and each number lead to the audit
        target = re.fullmatch(r"\[.+\]\((.+)\)", line[0])
        assert target is not None
        assert (page.parent / unquote(target[1])).with_suffix(".json").exists()
        assert all(f"]({target[1]})" in cell for cell in line[2:] if cell != "–")
    return [(line[0].partition("](")[0].removeprefix("["), line[1]) for line in lines]


def test_rows_are_sorted_by_the_chosen_column_undefined_values_last(results: list[Path], tmp_path: Path) -> None:
    leaderboard(results, tmp_path / "board")
    names = rows_of(tmp_path / "board/leaderboard.md", PHANTOM)
    prior = ("location prior", "image-blind")
    own, cam, mine = ("starter", "own"), ("starter", "grad-cam"), ("&lt;b&gt;&amp;mine", "own")
    assert names == [own, cam, prior, mine]
    data = leaderboard(results, tmp_path / "board", "pointing")
    assert [one["pointing"]["estimate"] for one in data["results"]] == [0.9, 0.7, 0.4, 0.2]
    assert rows_of(tmp_path / "board/leaderboard.md", PHANTOM) == [cam, mine, prior, own]
    assert rows_of(tmp_path / "board/leaderboard.md", MANIFEST) == [prior, own]


def test_numbers_lead_to_their_audit_and_headings_to_a_page_sorted_by_them_without_a_script(
    results: list[Path], tmp_path: Path
) -> None:
    leaderboard(results, tmp_path / "board")
    text = (tmp_path / "board/leaderboard.html").read_text()
    outline = Outline()
    outline.feed(text)
    links = {link for link in outline.values("href") if not link.startswith("#")}
    for link in links:
        if link.startswith("by-"):
            assert (tmp_path / "board" / link).exists()
    assert {"by-pointing.html", "by-model.html", "by-above-prior.html", "leaderboard.html"} <= links
    assert "../a%20udits/2/audit.html" in links
    assert "<script" not in text
    assert "<b>&mine" not in text


def test_results_of_other_protocols_get_a_table_of_their_own_and_the_field_is_named(
    results: list[Path], tmp_path: Path
) -> None:
    other = result(tmp_path / "other", "starter", 0.9, 0.9, tolerance=15.0)
    found = leaderboard([*results, other], tmp_path / "board")
    assert len(found["warnings"]) == 1
    assert "differ in tolerance; do not compare them" in found["warnings"][0]
    text = (tmp_path / "board/leaderboard.md").read_text()
    for one in (results[0], other):
        assert f"seed=1, protocol {read_result(one).protocol['hash']}" in text


def test_what_changes_no_score_does_not_split_a_table_and_phrases_and_levels_do(
    results: list[Path], tmp_path: Path
) -> None:
    alike = result(tmp_path / "alike", "other", 0.5, 0.5, resamples=200, conditions=("none",), analysis=("gates",))
    found = leaderboard([*results, alike], tmp_path / "board")
    assert found["warnings"] == []
    assert ("other", "own") in rows_of(tmp_path / "board/leaderboard.md", PHANTOM)
    assert "which differ in resamples, conditions, analysis only" in (tmp_path / "board/leaderboard.md").read_text()
    unlike: dict[str, Any] = {"phrase_set": "0123456789", "level": 0.9}
    for name, value in unlike.items():
        other = result(tmp_path / name, "other", 0.5, 0.5, **{name: value})
        found = leaderboard([results[0], other], tmp_path / "b")
        assert len({one["table"] for one in found["results"]}) == 2
        assert f"differ in {name}; they are ranked apart; 'rightlung compare' comp" in found["warnings"][0]


def test_the_terminal_has_a_table_for_each_protocol_with_the_prior_at_its_place(
    results: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = result(tmp_path / "other", "starter", 0.9, 0.9, tolerance=15.0)
    command([*results, other], tmp_path / "board")
    text = capsys.readouterr().err
    tables = [part.split("\n\n")[1] for part in text.split(PHANTOM)[1:3]]
    rows = [[re.split(r" {2,}", line.strip()) for line in table.splitlines()] for table in tables]
    assert rows[0][0] == ["model", "map", "average precision", "− prior", "pointing"]
    assert [row[:2] for row in rows[0][2:]] == [
        ["starter", "own"], ["starter", "grad-cam"], ["location prior", "image-blind"], ["<b>&mine", "own"]
    ]  # fmt: skip
    assert rows[0][2][2:] == ["0.60 (0.50 to 0.70)", "+0.30 (+0.20 to +0.40)", "0.40 (0.30 to 0.50)"]
    assert [row[0] for row in rows[1][2:]] == ["starter", "location prior"]
    assert text.count("protocol ") >= 2
    command(results, tmp_path / "board", "auroc")
    assert "AUROC" in capsys.readouterr().err


def test_intervals_are_read_as_they_were_written(results: list[Path]) -> None:
    one = read_result(results[1] / "audit.json")
    assert (one.model, one.kind) == ("starter", "grad-cam")
    assert one.values["above_prior"].value == pytest.approx(0.1)
    assert one.values["pointing"].high == pytest.approx(1.0)
    assert math.isnan(read_result(results[2]).values["average_precision"].value)


def test_what_cannot_be_ranked_is_refused_with_a_sentence(results: list[Path], tmp_path: Path) -> None:
    twice = result(tmp_path / "twice", "starter", 0.5, 0.5)
    with pytest.raises(InputError, match=r"are both results of starter \(own map\) on phantom"):
        leaderboard([*results, twice], tmp_path / "board")
    with pytest.raises(InputError, match="there is no result of an audit"):
        leaderboard([tmp_path / "missing"], tmp_path / "board")
    with pytest.raises(InputError, match="unknown column 'pointig'; did you mean 'pointing'"):
        leaderboard(results, tmp_path / "board", "pointig")
    (tmp_path / "task.json").write_text('{"tasks": {}}')
    with pytest.raises(InputError, match="audit without --task"):
        leaderboard([tmp_path / "task.json"], tmp_path / "board")
    found = json.loads((results[0] / "audit.json").read_text())
    found["overall"]["pointing"]["model"] = "high"
    (results[0] / "audit.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"overall\.pointing\.model: expected an estimate"):
        leaderboard(results, tmp_path / "board")
    assert not (tmp_path / "board").exists()


def test_an_audit_whose_protocol_was_changed_is_refused(results: list[Path], tmp_path: Path) -> None:
    for field, value, match in (("banana", 1, "the field 'banana'"), ("tolerance", 0.1, "the protocol's hash is")):
        one = result(tmp_path / field, "mine", 0.5, 0.5)
        found = json.loads((one / "audit.json").read_text())
        found["protocol"][field] = value
        (one / "audit.json").write_text(json.dumps(found))
        with pytest.raises(InputError, match=match):
            leaderboard([*results, one], tmp_path / "board")


def test_the_warning_of_an_audit_is_on_top_of_the_leaderboard(results: list[Path], tmp_path: Path) -> None:
    found = json.loads((results[0] / "audit.json").read_text())
    (results[0] / "audit.json").write_text(json.dumps(found | {"warnings": ["Coordinates: left and right."]}))
    told = leaderboard(results, tmp_path / "board")["warnings"]
    assert told == [f"{results[0] / 'audit.json'}: Coordinates: left and right."]
    assert "Coordinates: left and right." in (tmp_path / "board/leaderboard.html").read_text()

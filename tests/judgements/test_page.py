"""The three files of an analysis: what stands in them, and that nothing from a table becomes markup."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rightlung.core import InputError
from rightlung.judgements import Analysis, analyse_table, blind, plan, read_measures, write_key, write_table
from rightlung.results.estimate import BootstrapSettings
from tests.judgements.made_up import fill_in, row, write_experiment, write_rows
from tests.pages import Outline

HOSTILE = '<script>alert("x")</script> | **left** effusion'
FAST = BootstrapSettings(resamples=200)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("page")
    measures = read_measures([write_experiment(folder / "out", 30)])
    key = blind(list(measures.names), 5)
    table = folder / "table.csv"
    write_table(plan(measures.instances.values(), key.codes, ["ann", "<b>bea</b>"], 5, 12, 6), table)
    fill_in(table, key.models, measures)
    with table.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    rows += [one | {"phrase": "", "prompt": HOSTILE} for one in rows[:8]]
    rows += [rows[0] | {"prompt": HOSTILE, "phrase": "7"}]
    write_rows(table, rows)
    write_key(key, folder / "key.csv")
    return analyse_table(table, folder / "found", key=folder / "key.csv", measures=[folder / "out"], settings=FAST)


def test_the_page_begins_with_what_was_found_and_obeys_nothing(analysed: Analysis) -> None:
    text = analysed.page.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert [heading for heading in outline.headings if heading.startswith("h2")] == [
        "h2 Findings", "h2 Ratings by model", "h2 Differences between models", "h2 Ratings and automatic measures",
        "h2 Annotators", "h2 Intuitiveness by finding", "h2 Custom prompts",
        "h2 Left out, and notes", "h2 Source and settings",
    ]  # fmt: skip
    assert outline.tags.index("figure") < outline.tags.index("table")
    assert outline.tags.count("details") == outline.tags.count("table") + 1  # all folded, and the settings
    assert "script" not in outline.tags
    for sentence in analysed.result["summary"]:
        assert sentence.replace("'", "&#39;") in text
    assert "&lt;b&gt;bea&lt;/b&gt;" in text


def test_markdown_and_json_hold_the_same_numbers(analysed: Analysis) -> None:
    text = (analysed.folder / "judgements.md").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;b&gt;bea" in text
    value = analysed.result["means"][0]["ratings"]["recall"]
    assert f"{value['estimate']:.2f} ({value['low']:.2f} to {value['high']:.2f})" in text
    found = json.loads((analysed.folder / "judgements.json").read_text())
    assert (found["table_version"], found["left_out"]) == (1, 1)
    assert "line 58, field phrase" in found["problems"][0]
    assert (found["counts"]["judgements"], found["counts"]["custom_prompts"]) == (56, 4)
    assert found["means"] == analysed.result["means"]
    assert found["settings"] == {"resamples": 200, "level": 0.95, "seed": 0, "flips": 10_000}


def test_a_table_alone_is_analysed_by_codes(tmp_path: Path) -> None:
    rows = [row(study=f"s{place}", recall=1 + place % 5) for place in range(6)]
    found = analyse_table(write_rows(tmp_path / "judged.csv", rows), tmp_path / "out", settings=FAST)
    assert found.result["summary"][0] == "1 annotator judged 1 model on 6 prompts from 6 studies: 6 judgements."
    assert found.result["summary"][1] == "No key was given, so models are named by their codes."
    assert found.result["problems"] == []


def test_nothing_judged_and_measures_without_a_key_are_refused(tmp_path: Path) -> None:
    empty = write_rows(tmp_path / "judged.csv", [row(recall="", precision="", intuitiveness=""), row(recall=9)])
    with pytest.raises(InputError, match=r"no row is judged \(1 rows still to be judged, 1 bad; the first: "):
        analyse_table(empty, tmp_path / "out")
    with pytest.raises(InputError, match=r"give the key \(--key\) as well"):
        analyse_table(empty, tmp_path / "out", measures=[tmp_path])

"""The three files of an analysis: what stands in them, and that nothing from a table becomes markup."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.judgements import (
    Analysis,
    analyse_table,
    blind,
    fragment,
    plan,
    read_measures,
    write_key,
    write_table,
)
from rightlung.core import InputError
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


def test_the_page_is_whole_and_needs_nothing_else(analysed: Analysis) -> None:
    text = analysed.page.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert "script" not in outline.tags
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    assert all(link.removeprefix("#") in ids for link in outline.values("href", "aria-labelledby"))
    assert outline.values("src") == []
    assert "http" not in text
    assert NOT_A_MEDICAL_DEVICE in text
    for expected in ("Ratings of each model", "Models compared", "Ratings and automatic measures", "Annotators",
                     "Intuitiveness by finding", "Prompts that annotators wrote", "What was left out"):  # fmt: skip
        assert expected in text
    for sentence in analysed.result["summary"]:
        assert sentence.replace("'", "&#x27;") in text
    assert "&lt;b&gt;bea&lt;/b&gt;" in text


def test_markdown_says_the_same_and_obeys_nothing(analysed: Analysis) -> None:
    text = (analysed.folder / "judgements.md").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "\\<b\\>bea" in text
    value = analysed.result["means"][0]["ratings"]["recall"]
    assert f"{value['estimate']:.2f} ({value['low']:.2f} to {value['high']:.2f})" in text
    columns = 0
    for line in text.splitlines():
        cells = line.replace("\\|", "").count("|")
        columns = cells if not columns or not cells else columns
        assert cells in (0, columns)  # every row of a table as wide as its header
        columns = cells


def test_json_holds_every_number_and_what_was_left_out(analysed: Analysis) -> None:
    found = json.loads((analysed.folder / "judgements.json").read_text())
    assert found["table_version"] == 1
    assert found["left_out"] == 1
    assert "line 58, field phrase" in found["problems"][0]
    assert found["counts"]["judgements"] == 56
    assert found["counts"]["custom_prompts"] == 4
    assert found["means"] == analysed.result["means"]
    assert found["settings"] == {"resamples": 200, "level": 0.95, "seed": 0}


def test_a_fragment_can_stand_in_another_page(analysed: Analysis) -> None:
    text = fragment(analysed.result, "h3")
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert "h2" not in outline.tags
    assert {"h3", "h4", "section"} <= set(outline.tags)
    assert outline.values("src") == []
    assert all(name.startswith(("judgements-", "caption-judgements-")) for name in outline.values("id"))


def test_a_table_alone_is_analysed_by_codes(tmp_path: Path) -> None:
    rows = [row(study=f"s{place}", recall=1 + place % 5) for place in range(6)]
    found = analyse_table(write_rows(tmp_path / "judged.csv", rows), tmp_path / "out", settings=FAST)
    assert found.result["summary"][0] == "1 annotator judged 1 model on 6 prompts about 6 studies: 6 judgements."
    assert any("codes" in sentence for sentence in found.result["summary"])
    assert "A7" in found.page.read_text()
    assert found.problems == []


def test_nothing_judged_and_measures_without_a_key_are_refused(tmp_path: Path) -> None:
    empty = write_rows(tmp_path / "judged.csv", [row(recall="", precision="", intuitiveness=""), row(recall=9)])
    with pytest.raises(InputError, match=r"no row is judged \(1 still to be judged, 1 with problems; the first: "):
        analyse_table(empty, tmp_path / "out")
    with pytest.raises(InputError, match="give the key as well"):
        analyse_table(empty, tmp_path / "out", measures=[tmp_path])

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from rightlung.core.files import plain
from rightlung.pages.content import ONLY_INTERVAL, ONLY_INTERVAL_NOTE, Cell, Column, Page, Section, Table, slugs
from rightlung.pages.html import render_html
from rightlung.pages.markdown import render_markdown
from rightlung.pages.numbers import estimate_cell, number, outcome, percent, span, verdict, why
from rightlung.results.estimate import Comparison, Estimate
from tests.pages.samples import MODEL, page


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (0.126, 2, False, "0.13"),
        (-0.126, 2, False, "−0.13"),
        (-0.004, 2, False, "0.00"),
        (-0.004, 2, True, "0.00"),
        (0.5, 1, True, "+0.5"),
        (1234.5, 0, False, "1,234"),
        (math.nan, 2, False, "–"),
        (None, 2, True, "–"),
    ],
)
def test_numbers_read_as_people_write_them(value: float | None, digits: int, signed: bool, text: str) -> None:
    assert number(value, digits, signed) == text


def test_estimates_and_differences_are_always_given_with_their_interval() -> None:
    assert span(Estimate(-0.123, -0.2, 0.05), 1, signed=True, scale=100) == "−12.3 (−20.0 to 5.0)"
    assert span(Estimate(0.5)) == "0.50 (no interval)"
    assert span(Estimate(math.nan)) == span(None) == percent(None) == "–"
    assert percent(Estimate(0.5)) == "50 %"
    assert verdict(Comparison(0.2, 0.1, 0.3, shown=True)) == "+0.20 (0.10 to 0.30)"
    assert verdict(Comparison(0.2, -0.1, 0.3, patients=40)) == "+0.20 (−0.10 to 0.30): no difference shown"
    corrected = Comparison(0.2, 0.1, 0.3, p=0.02, p_adjusted=0.06, patients=40)
    assert verdict(corrected) == (
        "+0.20 (0.10 to 0.30): no difference shown, although the interval excludes zero: with the other comparisons "
        "taken into account, p = 0.060"
    )
    assert why(Comparison(0.2, 0.1, 0.3, p=0.07)).endswith("excludes zero: the sign-flip test gives p = 0.070")
    few = Comparison(0.2, 0.1, 0.3, patients=3, smallest_p=0.25)
    assert verdict(few) == "+0.20 (0.10 to 0.30; only 3 patients): too few patients to tell"
    assert verdict(None) == verdict(Comparison(math.nan)) == "–"
    assert [outcome(one) for one in (corrected, few, None)] == [f"no difference shown {ONLY_INTERVAL}",
        "too few patients to tell", "–"]  # fmt: skip
    marked = Table("t", "T", "", [Column("outcome", "text")], [[Cell(outcome(corrected))]])
    assert marked.footnotes == [ONLY_INTERVAL_NOTE]
    assert Table("t", "T", "", [Column("outcome", "text")], [[Cell(outcome(few))]]).footnotes == []
    cell = estimate_cell(MODEL, 100, 1, signed=True, strong=True)
    assert (cell.text, cell.detail, cell.strong) == ("+50.0", "+25.0 to +75.0", True)
    assert cell.value == {"estimate": 0.5, "low": 0.25, "high": 0.75, "phrases": 120, "patients": 40}
    assert estimate_cell(Estimate(0.5)).detail == "no interval"


def test_an_interval_of_few_patients_or_without_width_says_how_many_patients_it_rests_on() -> None:
    assert percent(Estimate(1.0, 1.0, 1.0, 6, 3)) == "100 % (100 to 100 %; only 3 patients)"
    assert percent(Estimate(1.0, 1.0, 1.0, 39, 14)) == "100 % (100 to 100 %; 14 patients)"
    assert percent(Estimate(0.5, 0.4, 0.6, 39, 14)) == "50 % (40 to 60 %)"
    few = Estimate(0.5, 0.25, 0.75, 6, 3)
    assert span(few, brief=True) == "0.50 (0.25 to 0.75) †"
    columns = [Column("row", "text"), Column("value")]
    shown = Table("t", "T", "C", columns, [[Cell("a"), Cell(span(few, brief=True))]], ["note"])
    assert shown.footnotes == ["note", "† Fewer than 10 patients: the interval is too narrow to rely on."]
    assert replace(shown, rows=[[Cell("a"), estimate_cell(few)]]).footnotes == shown.footnotes
    assert replace(shown, rows=[[Cell("a"), estimate_cell(MODEL)]]).footnotes == ["note"]
    for written in (render_html, render_markdown):
        assert "† Fewer than 10 patients" in written(Page("P", "L", [Section("s", "S", parts=[shown])]))


def test_the_json_of_a_page_has_the_estimates_themselves() -> None:
    found = json.loads(json.dumps(plain(page().as_json()), allow_nan=False))
    assert found["tables"]["scores"]["header"] == ["plain", "AUROC", "paper", "loss"]
    assert found["tables"]["scores"]["rows"][0][1] == MODEL.as_json()
    assert found["tables"]["scores"]["rows"][1][1]["estimate"] is None
    first, *others = found["figures"]["scores"]
    assert first == {"panel": "AUROC", "series": "model", "row": "first", **MODEL.as_json()}
    assert len(others) == 2
    assert found["figures"]["pairs"][0]["estimate"] == 0.6
    assert found["facts"]["patients"] == "40"


def test_slugs_are_never_alike() -> None:
    assert slugs(["a b", "A-b", "a-b-2", "a b"]) == ["a-b", "a-b-2", "a-b-2-2", "a-b-3"]

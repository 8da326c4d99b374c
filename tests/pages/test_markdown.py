from __future__ import annotations

import html
import re

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.pages.content import Page, Section
from rightlung.pages.html import render_html
from rightlung.pages.markdown import escaped, render_markdown
from tests.pages import Outline
from tests.pages.samples import HOSTILE, page, table


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_text_from_outside_never_becomes_markup() -> None:
    text = render_markdown(page(HOSTILE))
    outside = re.sub(r"````sh\n.*?\n````", "", text, flags=re.DOTALL)  # code is shown as it is
    summaries = re.findall(r"<summary>(.*)</summary>", outside)
    assert summaries == [html.escape(HOSTILE)] * 2  # these lines are HTML
    outside = outside.replace(summaries[0], "")
    assert "<script" not in outside
    assert "](d)" not in outside.replace(r"\](d)", "")
    assert not re.search(r"(?<!\\)`", outside)
    assert set(re.findall(r"</?(\w+)", outside)) == {"details", "summary", "br"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- item", r"\- item"),
        ("1) item", r"1\) item"),
        ("---", r"\---"),
        ("+0.12 $x$", r"+0.12 \$x\$"),
        ("a\nb", "a b"),
    ],
)
def test_what_looks_like_a_list_or_a_rule_stays_a_paragraph(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_every_row_of_a_table_has_as_many_cells_as_its_header() -> None:
    text = render_markdown(Page("T", "L", [Section("s", "S", parts=[table(text=HOSTILE)])]))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [len(cells_of(row)) for row in rows] == [4, 4, 4, 4]
    assert cells_of(rows[1]) == ["---", "---:", "---:", "---"]
    assert cells_of(rows[2])[1:3] == ["**0.50** (0.25 to 0.75)", "60.1 (Table 1)"]
    assert cells_of(rows[2])[3].startswith("█▃▁<br>")
    assert cells_of(rows[3])[0] == f"b<br>• {escaped(HOSTILE)}<br>• x"


def test_folded_parts_stand_in_details_with_blank_lines_around_the_table() -> None:
    lines = render_markdown(page()).splitlines()
    opened = [place for place, line in enumerate(lines) if line == "<details>"]
    assert len(opened) == lines.count("</details>") == 2
    assert lines[opened[0] + 1 : opened[0] + 4] == ["<summary>plain</summary>", "", "plain"]
    end = lines.index("</details>")
    assert lines[end - 1] == ""
    assert any(line.startswith("| ") for line in lines[opened[0] : end])


def test_pictures_are_linked_where_they_are_named() -> None:
    text = render_markdown(page(), {"pairs": "my figures/pairs.png", "cases/1": "figures/cases-1.jpg"})
    assert "![plain](my%20figures/pairs.png)" in text
    assert "![plain: plain, map](figures/cases-1.jpg)" in text
    assert text.count("![") == 2  # the figure without a file is left out, its caption is not
    assert escaped(f"Caption {HOSTILE}") in text


def test_code_with_a_fence_stays_code_facts_stand_at_the_end_and_the_notice_twice() -> None:
    text = render_markdown(page())
    lines = text.splitlines()
    assert lines[lines.index("````sh") + 4] == "````"
    assert text.index("## Source and settings") > text.index("## Cases")
    assert "- patients: 40" in text
    assert text.count(NOT_A_MEDICAL_DEVICE) == 2


def test_a_part_that_is_called_like_its_section_has_no_heading_of_its_own() -> None:
    made = Page("T", "L", [Section("s", "Scores", parts=[table("a", text="Scores"), table("b", text="Others")])])
    headings = [line for line in render_markdown(made).splitlines() if line.startswith("#")]
    assert headings == ["# T", "## Scores", "### Others"]
    outline = Outline()
    outline.feed(render_html(made))
    assert outline.headings == ["h1 T", "h2 Scores", "h3 Others"]

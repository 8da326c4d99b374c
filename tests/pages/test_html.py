from __future__ import annotations

import re

import pytest

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.pages.content import MarkedSentence, Page, Section
from rightlung.pages.html import render_html
from rightlung.pages.markdown import render_markdown
from tests.pages import Outline
from tests.pages.samples import HOSTILE, page, table


@pytest.fixture(scope="module")
def text() -> str:
    return render_html(page(HOSTILE))


@pytest.fixture(scope="module")
def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_text_from_outside_never_becomes_markup_and_the_page_needs_nothing_but_itself(
    text: str, outline: Outline
) -> None:
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 15  # title, headings, cells, captions, alternative texts, labels of figures
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    sources = outline.values("src", "href", "srcset", "data", "action")
    assert len([source for source in sources if source.startswith("data:image/jpeg;base64,")]) == 2
    assert [source for source in sources if not source.startswith(("#", "data:"))] == []
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert not {"link", "script", "iframe", "object"} & set(outline.tags)


INJECTIONS = [
    "</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "<!--",
    "--><svg/onload=a>", "javascript:alert(1)", "{{ 7 * 7 }}{% raw %}", "</style><style>*{display:none}", "]]><b>",
    "&lt;b&gt;", "\x00<i>\u202e", "</pre></code><iframe>", "`<a href=x>`",
]  # fmt: skip


@pytest.mark.parametrize("injection", INJECTIONS)
def test_no_text_changes_the_elements_and_attributes_of_a_page(injection: str) -> None:
    hostile, harmless = Outline(), Outline()
    hostile.feed(render_html(page(injection)))
    harmless.feed(render_html(page("plain")))
    assert hostile.open == []
    assert hostile.tags == harmless.tags
    kinds = [[(tag, name) for tag, name, _ in one.attributes] for one in (hostile, harmless)]
    assert kinds[0] == kinds[1]
    assert "49" not in "".join(hostile.headings)  # templates in texts are not evaluated


def test_every_link_and_every_reference_resolves_and_no_id_is_used_twice(outline: Outline) -> None:
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    links = [target.removeprefix("#") for target in outline.values("href")]
    assert {"main", "found", "scores", "pairs", "cases", "facts"} <= set(links)
    assert set(links) | set(outline.values("aria-labelledby")) <= set(ids)


def test_sections_stand_in_order_without_empty_ones_and_folded_parts_are_closed(text: str, outline: Outline) -> None:
    titles = [heading[3:] for heading in outline.headings if heading.startswith("h2")]
    assert titles == [f"Found {HOSTILE}", "Scores", "Pairs", "Cases", "Source and settings"]
    assert re.findall(r'<details id="([^"]+)">', text) == ["folded", "pairs-2"]
    inside = "".join(re.findall(r"<details.*?</details>", text, re.DOTALL))
    assert (inside.count("<table>"), text.count("<table>")) == (1, 2)


def test_tables_can_be_scrolled_by_keyboard_and_have_scopes_numbers_help_and_curves(
    text: str, outline: Outline
) -> None:
    assert text.count('<div class="scroll" role="region" tabindex="0" aria-labelledby=') == 4
    assert (text.count('scope="col"'), text.count('scope="row"')) == (8, 4)
    assert (outline.tags.count("th"), outline.tags.count("caption")) == (12, 2)
    assert '<td class="number strong"><span class="value">0.50</span><span class="detail">0.25 to 0.75</span>' in text
    assert '<td class="paper"><span class="value">60.1</span><span class="detail">Table 1</span>' in text
    assert re.search(r'<th scope="col" class="number"><abbr title="&lt;script&gt;', text)
    assert '<polyline points="2.0,3.0 60.0,15.0 118.0,21.0"/>' in text


def test_it_says_at_the_top_and_at_the_end_that_this_is_no_medical_device(text: str) -> None:
    top, _, end = text.partition("<main")
    assert NOT_A_MEDICAL_DEVICE in top
    assert f"rightlung {__version__}. {NOT_A_MEDICAL_DEVICE}" in end[end.index("<footer>") :]
    assert 'class="warning"' in top
    assert "prefers-color-scheme: dark" in top
    assert "@media print" in top


def test_figures_are_inline_and_take_their_colours_from_the_page(text: str) -> None:
    drawn = re.findall(r"<svg (?!class).*?</svg>", text, re.DOTALL)
    assert len(drawn) == 2
    for one in drawn:
        assert "var(--ink)" in one
        assert "#1b1f24" not in one
    variables = set(re.findall(r"var\((--\w+)\)", "".join(drawn)))
    dark = text[text.index("prefers-color-scheme: dark") :]
    assert all(f"{variable}:" in dark for variable in variables)


def test_a_verdict_has_marks_that_can_be_read_aloud_and_a_folded_section_is_closed() -> None:
    said = [MarkedSentence("yes", f"It does {HOSTILE}.", "By 0.5."), MarkedSentence("not tested", "Nobody asked.")]
    made = Page("T", "L", [Section("verdict", "Verdict", verdict=said), Section("next", "Next", code="x", folded=True)])
    text = render_html(made)
    assert text.count('<section aria-labelledby="verdict" class="verdict">') == 1
    assert '<li class="yes"><span class="mark" role="img" aria-label="yes">✓</span>' in text
    assert '<li class="not-tested"><span class="mark" role="img" aria-label="not tested">–</span>' in text
    assert "<p><strong>Nobody asked.</strong></p>" in text
    assert "<script" not in text
    assert '<details><summary><h2 id="next">Next</h2></summary>' in text
    assert "\n- – **Nobody asked.**\n" in render_markdown(made)


def test_a_page_without_warning_and_facts_has_neither_and_names_are_unlike() -> None:
    text = render_html(Page("Title", "Lead", [Section("one", "One", ["words"])]))
    for part in ('class="warning"', 'id="facts"', 'href="#facts"'):
        assert part not in text
    with pytest.raises(ValueError, match="same name: scores"):
        Page("Title", "Lead", [Section("one", "One", parts=[table()]), Section("two", "Two", parts=[table()])])

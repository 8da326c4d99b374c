from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import Audit, Sureness, audit
from rightlung.audit.markup import element
from rightlung.core import Heatmap, Study
from tests.audit.cards import Cards, true_map, write_answers

HOSTILE = 'Opacity <script>alert("x")</script> in the left lower lobe & "more".'
VOID = {"meta", "img", "br"}


class Hostile(Cards):
    """Cards on which one phrase is markup."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        return replace(study, phrases=(replace(study.phrases[0], text=HOSTILE), *study.phrases[1:]))


class Outline(HTMLParser):
    """What a page is made of; fails where elements are not closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(f"{self.open[-1]} {data}")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder, source = tmp_path_factory.mktemp("page"), Hostile(16)
    write_answers(source, folder / "p", true_map)
    return audit(folder / "p", source, folder / "out", sureness=Sureness(resamples=200), cases=3)


@pytest.fixture(scope="module")
def outline(done: Audit) -> Outline:
    found = Outline()
    found.feed(done.page.read_text(encoding="utf-8"))
    assert found.open == []
    return found


def test_the_page_has_its_sections_under_headings_in_order(outline: Outline) -> None:
    second = [heading[3:] for heading in outline.headings if heading.startswith("h2")]
    assert second[:4] == [
        "What was found",
        "Beside the image-blind prior",
        "Left and right",
        "When the question is changed",
    ]
    assert {"By group", "Abstention", "Best and worst cases", "Protocol", "What to try next"} <= set(second)
    assert outline.headings[0] == "h1 Audit of known"
    assert outline.tags.count("h1") == outline.tags.count("main") == 1


def test_the_page_needs_no_network_and_no_script(done: Audit, outline: Outline) -> None:
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    for tag, name, value in outline.attributes:
        if name in ("src", "href"):
            assert value.startswith(("data:image/", "#")), (tag, name, value[:40])
        assert not name.startswith("on")
    text = done.page.read_text(encoding="utf-8")
    assert re.findall(r"https?:|url\(|@import", text) == []
    assert len(text) < 5_000_000


def test_what_came_from_a_file_is_shown_and_never_obeyed(done: Audit) -> None:
    text = done.page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "Opacity &lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; in the left lower lobe &amp;" in text
    assert element("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>'


def test_tables_have_captions_and_can_be_reached_by_keyboard(outline: Outline) -> None:
    assert outline.tags.count("caption") == outline.tags.count("table") > 10
    reachable = [value for tag, name, value in outline.attributes if tag == "div" and name == "tabindex"]
    assert reachable == ["0"] * outline.tags.count("table")
    identities = [value for _, name, value in outline.attributes if name == "id"]
    assert len(identities) == len(set(identities))
    labelled = [value for _, name, value in outline.attributes if name == "aria-labelledby"]
    targets = [value[1:] for _, name, value in outline.attributes if name == "href" and value.startswith("#")]
    assert set(labelled) | set(targets) <= set(identities)
    pictures = [value for tag, name, value in outline.attributes if tag == "img" and name == "alt"]
    assert len(pictures) == outline.tags.count("img") == 18  # three of the best and the worst, three pictures each
    assert all(pictures)


def test_the_page_carries_the_protocol_and_that_it_is_no_medical_device(done: Audit) -> None:
    text = done.page.read_text(encoding="utf-8")
    assert text.count(NOT_A_MEDICAL_DEVICE) == 2
    assert text.count(done.result["protocol"]["hash"]) >= 4
    assert "@media print" in text
    assert "prefers-color-scheme: dark" in text
    assert 'lang="en"' in text


def test_the_json_holds_what_the_page_shows_and_no_nan(done: Audit) -> None:
    written = json.loads((done.folder / "audit.json").read_text(), parse_constant=pytest.fail)
    assert written["summary"] == done.result["summary"]
    assert written["note"] == NOT_A_MEDICAL_DEVICE
    for sentence in written["summary"]:
        assert sentence.replace("'", "&#x27;") in done.page.read_text(encoding="utf-8")


def test_a_study_whose_image_cannot_be_read_leaves_a_case_without_pictures(tmp_path: Path) -> None:
    from rightlung.core import InputError

    class Broken(Cards):
        def _build(self, position: int) -> Study:
            def load() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
                raise InputError(f"card-{position}.png is damaged")

            return replace(super()._build(position), load=load)

    source = Broken(5)
    write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(4)), conditions=("none",))
    done = audit(tmp_path / "p", source, tmp_path / "out", sureness=Sureness(resamples=200), cases=1)
    text = done.page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "is damaged" in text

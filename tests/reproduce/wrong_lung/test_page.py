from __future__ import annotations

import base64
import html
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import InputError
from rightlung.reproduce.wrong_lung.estimates import Sureness
from rightlung.reproduce.wrong_lung.markdown import escaped
from rightlung.reproduce.wrong_lung.page import write_page
from rightlung.reproduce.wrong_lung.report import EXPECTED
from rightlung.reproduce.wrong_lung.results import read_results
from tests.reproduce.wrong_lung.folders import instance_rows, plain_model, write_instances

HOSTILE = 'mine <script>alert("x")</script> | *bold*'
VOID = {"meta", "img", "br"}
FEW = Sureness(resamples=60)


def png() -> str:
    content = io.BytesIO()
    PIL.Image.new("RGB", (4, 4), (9, 9, 9)).save(content, format="PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


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
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rows = tmp_path_factory.mktemp("whole"), instance_rows(48)
    write_instances(folder, rows, without={"swap-sides": 16})
    for order, (slug, name) in enumerate(EXPECTED.items()):
        plain_model(
            folder, rows, slug, 0.05 + 0.02 * order, name=name, order=order, comparable=slug != "uniter",
            group="reference" if slug == "prior" else "paper",
        )  # fmt: skip
    plain_model(folder, rows, "mine", 0.2, name=HOSTILE, group="ours", order=99)
    write_page(
        folder, [(png(), 'A map of "left" & <right>')], commands=["rightlung reproduce wrong-lung"], sureness=FEW
    )
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return (out / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def markdown(out: Path) -> str:
    return (out / "results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def numbers(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return found


def test_the_page_has_its_sections_in_order(outline: Outline) -> None:
    assert outline.headings[1:5] == [
        "What was found", "The claims", "How much of the story is its labels", "What the paper does not measure"
    ]  # fmt: skip
    assert outline.headings[-1] == "Example maps"


def test_the_top_says_what_it_rests_on(page: str, markdown: str) -> None:
    for text in (page, markdown):
        top = text[: text.index("What was found")] if text is markdown else text[: text.index("<main>")]
        for said in (
            "phantom?count=8",
            "abc1234567",
            NOT_A_MEDICAL_DEVICE,
            "no region boxes: 3",
            "reproduce wrong-lung",
        ):
            assert said in top
        assert "instances without swap-sides: 16" in top


def test_the_page_needs_nothing_from_elsewhere(page: str, outline: Outline) -> None:
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    sources = [value for _, name, value in outline.attributes if name in ("src", "href")]
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in sources)
    assert "url(" not in page


def test_every_scrolling_part_is_reached_by_keyboard_and_named(outline: Outline, page: str) -> None:
    regions = re.findall(r'<div class="scroll"[^>]*>', page)
    assert len(regions) > 20
    assert all('tabindex="0"' in region and "aria-label" in region for region in regions)
    ids = [value for _, name, value in outline.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    labelled = [value for _, name, value in outline.attributes if name == "aria-labelledby"]
    assert set(labelled) <= set(ids)


def test_a_name_cannot_bring_markup(page: str, markdown: str) -> None:
    assert "<script>" not in page
    assert "mine &lt;script&gt;" in page
    assert "<script>" not in markdown
    assert r"\| \*bold\*" in markdown


def test_markdown_tables_are_whole(markdown: str) -> None:
    lines = markdown.splitlines()
    heads = [place for place, line in enumerate(lines) if re.fullmatch(r"\| (---:?( \| )?)+ ?\|", line)]
    assert len(heads) > 30
    for place in heads:
        columns = len(re.findall(r"(?<!\\)\|", lines[place]))
        row = place - 1
        while row < len(lines) and lines[row].startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", lines[row])) == columns, lines[row]
            row += 1
        assert row > place + 1


def test_the_pictures_of_the_markdown_are_there(out: Path, markdown: str) -> None:
    pictures = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    assert len(set(pictures)) == len(pictures) > 20
    for picture in pictures:
        with PIL.Image.open(out / picture) as opened:
            assert opened.format == "PNG"
    assert "figures/example-1.png" in pictures


def test_the_numbers_file_holds_what_was_measured(out: Path, numbers: dict[str, Any]) -> None:
    results = read_results(out)
    line = next(row for row in numbers["tables"]["t3"]["rows"] if row[0] == EXPECTED["no-attn"])
    assert line[1]["estimate"] == pytest.approx(np.mean(results.score("no-attn", "auroc")))
    assert line[2] == {"paper": pytest.approx(0.57), "table": "3"}
    pair = next(
        found for found in numbers["figures"]["correlations-no-attn"]
        if (found["first"], found["second"]) == ("abstention", "abnormal")
    )  # fmt: skip
    by_hand = np.corrcoef(results.answer("no-attn", "abstention"), results.instances.flags["abnormal"])[0, 1]
    assert pair["estimate"] == pytest.approx(by_hand)
    assert pair["low"] < pair["estimate"] < pair["high"]
    assert len(numbers["models"]) == len(EXPECTED) + 1
    assert numbers["missing"] == []


def test_uniter_is_marked_in_every_table_and_never_bold(page: str, markdown: str) -> None:
    assert "UNITER *" in page
    lines = [line for line in page.split("<tr>") if line.startswith('<th scope="row">UNITER *')]
    assert len(lines) > 20
    assert all("best" not in line[: line.index("</tr>")] for line in lines)
    assert all("**" not in line for line in markdown.splitlines() if line.startswith(r"| UNITER \*"))
    assert "it is given the boxes of the regions" in page
    assert 'class="number best"' in page


def test_a_folder_with_little_in_it_gives_a_page_that_says_so(tmp_path: Path) -> None:
    rows = instance_rows(16)
    write_instances(tmp_path, rows)
    files = write_page(tmp_path, sureness=FEW)
    text = files[0].read_text(encoding="utf-8")
    assert [path.name for path in files] == ["page.html", "results.md", "results.json"]
    assert "Table 3:" not in text
    for name in EXPECTED.values():
        assert f"Not measured: {html.escape(name)}." in text
    plain_model(tmp_path, rows, "retrained", 0.1, name="Retrained")
    plain_model(tmp_path, rows, "half", 0.1).joinpath("about.json").unlink()
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert f"Not measured: {EXPECTED['retrained']}." not in text
    assert f"Not measured: {EXPECTED['sided']}." in text
    assert "measures/half: not finished, and left out." in text
    assert "Table 3:" in text


def test_a_model_that_was_asked_less_says_what_is_missing(tmp_path: Path) -> None:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = instance_rows(16)
    write_instances(tmp_path, rows)
    place = plain_model(tmp_path, rows, "retrained", 0.1)
    for name in ("answers", "scores"):
        table = pq.read_table(place / f"{name}.parquet")
        pq.write_table(table.filter(pc.equal(table["condition"], "none")), place / f"{name}.parquet")
    text = write_page(tmp_path, sureness=FEW)[0].read_text(encoding="utf-8")
    assert "retrained: no scores under swap-sides/regions, swap-sides/trimmed" in text
    assert "and 9 more." in text
    assert "not measured" in text


def test_the_same_folder_gives_the_same_page(out: Path, page: str) -> None:
    example = (png(), 'A map of "left" & <right>')
    files = write_page(out, [example], commands=["rightlung reproduce wrong-lung"], sureness=FEW)
    assert files[0].read_text(encoding="utf-8") == page


def test_an_example_that_is_no_png_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_instances(tmp_path, instance_rows(8))
    for picture in ("https://example.org/a.png", "data:image/png;base64,@@"):
        with pytest.raises(InputError, match="example 1: the picture must be a data URI"):
            write_page(tmp_path, [(picture, "a map")])
    assert not (tmp_path / "page.html").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"instances\.parquet: there is no such file"):
        write_page(tmp_path / "nowhere")


@pytest.mark.parametrize(("text", "shown"), [("a|b", r"a\|b"), ("<i>\nx", "&lt;i&gt; x"), ("_x_ [1]", r"\_x\_ \[1\]")])
def test_markdown_shows_text_as_it_stands(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_the_page_is_made_without_what_is_not_a_dependency() -> None:
    code = (
        "import sys\n"
        "for name in ('pydantic', 'pydicom', 'fastapi', 'matplotlib', 'faiss', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "import rightlung.reproduce.wrong_lung.page\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

from __future__ import annotations

import json
from pathlib import Path

import PIL.Image
import pytest

from rightlung.core import OutputError
from rightlung.core.files import write_all
from rightlung.pages.content import Figure, Page, Section
from rightlung.pages.write import write_page
from tests.pages.samples import page


def test_a_page_is_one_file_unless_more_is_asked_for(tmp_path: Path) -> None:
    assert write_page(page(), tmp_path / "new" / "out") == [tmp_path / "new" / "out" / "page.html"]
    assert [path.name for path in (tmp_path / "new" / "out").iterdir()] == ["page.html"]


def test_markdown_comes_with_its_pictures_and_every_link_leads_to_one(tmp_path: Path) -> None:
    files = write_page(page(), tmp_path, markdown="results.md", json_name="results.json", figures="pictures")
    names = {path.relative_to(tmp_path).as_posix() for path in files}
    pictures = {"pictures/scores.png", "pictures/pairs.png", "pictures/cases-1.jpg"}
    assert names == {"page.html", "results.md", "results.json"} | pictures
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == names
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert all(f"({name})" in text for name in pictures)
    with PIL.Image.open(tmp_path / "pictures" / "cases-1.jpg") as picture:
        assert picture.width > 2 * 64  # two pictures side by side


def test_the_json_file_holds_the_page_or_what_is_given(tmp_path: Path) -> None:
    write_page(page(), tmp_path, html=None, json_name="own.json")
    assert set(json.loads((tmp_path / "own.json").read_text())["tables"]) == {"scores", "folded"}
    write_page(page(), tmp_path, html=None, json_name="given.json", data={"a": float("nan"), "b": (1, 2)})
    assert json.loads((tmp_path / "given.json").read_text()) == {"a": None, "b": [1, 2]}


def test_a_figure_that_cannot_be_drawn_leaves_the_old_page(tmp_path: Path) -> None:
    write_page(page(), tmp_path, markdown="results.md")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def fail() -> None:
        raise RuntimeError("no pen")

    broken = Page("New", "Lead", [Section("one", "One", parts=[Figure("one", "One", "", fail)])])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no pen"):
        write_page(broken, tmp_path, markdown="results.md")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_where_one_file_cannot_be_replaced_all_others_stay_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old a")
    (tmp_path / "b").write_text("old b")
    (tmp_path / "notes").write_text("not a folder")
    contents = {tmp_path / "a": b"new a", tmp_path / "new": b"new", tmp_path / "b": b"new b"}
    with pytest.raises(OutputError, match=str(tmp_path)):
        write_all(tmp_path, {**contents, tmp_path / "notes" / "c": b"c"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "notes"]
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("old a", "old b")


def test_a_move_that_fails_half_way_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old a")
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if target == tmp_path / "b":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OutputError, match="No space left"):
        write_all(tmp_path, {tmp_path / "a": b"new a", tmp_path / "c": b"new c", tmp_path / "b": b"new b"})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old a"


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(OutputError, match="/dev/null/out"):
        write_page(Page("T", "L", []), "/dev/null/out")

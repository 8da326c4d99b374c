"""The pages as files: complete, small, and without anything that the Content-Security-Policy forbids."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

STATIC = Path(str(files("rightlung.app") / "static"))
FILES = sorted(path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html"))


def test_everything_that_is_referred_to_exists() -> None:
    page = (STATIC / "index.html").read_text()
    named = {STATIC / name for name in re.findall(r'"/static/([^"]+)"', page)}
    for module in STATIC.glob("js/*.js"):
        named |= {STATIC / "js" / name for name in re.findall(r'from "\./([^"]+)"', module.read_text())}
    assert {path for path in named if not path.is_file()} == set()
    assert {path for path in FILES if path not in named} == {STATIC / "index.html"}  # no file that nothing uses


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_inline_nothing_evaluated_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    assert path.stat().st_size <= 12_000
    assert (
        re.findall(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        == []
    )
    if path.suffix == ".html":
        assert re.findall(r"\sstyle=|\son\w+=|<style|<script>", text) == []

"""The page on the predictions file tells the truth, and its example needs nothing of ours."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rightlung.core import Box, Extent
from rightlung.predictions import REQUIRED_COLUMNS, SCHEMA, check_predictions, open_predictions

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "write_predictions.py"
PAGE = (ROOT / "docs" / "predictions.md").read_text()

WITHOUT_RIGHTLUNG = """
import runpy, sys
sys.modules["rightlung"] = None  # importing it now fails
example, *sys.argv[1:] = sys.argv[1:]
runpy.run_path(example, run_name="__main__")
"""


def test_the_example_writes_a_valid_file_where_rightlung_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    subprocess.run([sys.executable, "-c", WITHOUT_RIGHTLUNG, EXAMPLE, path], check=True, timeout=60)
    assert check_predictions(path) == []
    read = open_predictions(path)
    assert (read.source, read.model, read.conditions) == ("manifest:/data/mine", "my model", ("none", "swap-sides"))
    asked = {row.key: row for row in read}
    plain = asked["s1", "phrase:0", "none"]  # type: ignore[index]  # a Key is a tuple
    assert plain.grounding is not None
    assert plain.grounding.heatmap is not None
    assert plain.grounding.heatmap.values.argmax() == 9 * 14 + 10
    assert asked["s2", "phrase:0", "swap-sides"].asked.phrase == "opacity in the right apex"  # type: ignore[index]


def test_the_example_has_at_most_twenty_lines_of_code_and_imports_only_arrow_and_numpy() -> None:
    text = EXAMPLE.read_text()
    tree = ast.parse(text)
    code = [line for line in text.splitlines() if line.strip() and not line.startswith('"""')]
    assert len(code) <= 20
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported == {"sys", "numpy", "pyarrow"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_the_page_shows_the_example_as_it_is() -> None:
    assert f"```python\n{EXAMPLE.read_text()}```" in PAGE


def test_the_page_lists_every_column_in_order_and_the_required_ones() -> None:
    table = PAGE.split("## Columns")[1].split("\n\n")[1]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == SCHEMA.names
    required = PAGE.split("- **Required** are ")[1].split(" (which")[0]
    assert tuple(re.findall(r"`(\w+)`", required)) == REQUIRED_COLUMNS


def test_the_numbers_worked_out_on_the_page_are_right() -> None:
    size = (2500, 2000)
    cropped = Extent.crop(Box.from_pixels((100, 250, 1900, 2050), size))
    letterboxed = Extent.letterbox(size)
    both = Extent(0.1, 0.1, 0.9, 0.9).within(letterboxed)
    for extent in (cropped, letterboxed, both):
        shown = [list(map(float, group.split(","))) for group in re.findall(r"` = `\[([-\d., ]+)\]`", PAGE)]
        assert any(extent.as_tuple() == pytest.approx(tuple(numbers), abs=1e-12) for numbers in shown), extent

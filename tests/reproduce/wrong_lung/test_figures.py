from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from rightlung.core import OutputError
from rightlung.reproduce.wrong_lung.figures import INKS, Dots, bars, dots, heat_grid, save_png, sparkline, to_svg


def estimate(value: float, half: float = 0.05) -> dict[str, Any]:
    return {"estimate": value, "low": value - half, "high": value + half, "phrases": 9, "patients": 3}


LABELS = [("Retrained", "disc"), ("a prior", "diamond"), ("nothing", "disc")]
PANEL = Dots(("Swap <b>", "One Lung"), [estimate(-0.3), estimate(0.1), estimate(math.nan)])


def test_a_loss_lies_left_of_zero_and_marks_are_in_the_order_of_the_labels() -> None:
    drawing = dots("f", "Title", LABELS, [PANEL])
    zero = next(mark.at[0] for mark in drawing.marks if mark.kind == "line" and mark.ink == "soft")
    disc = next(mark for mark in drawing.marks if mark.kind == "disc")
    diamond = next(mark for mark in drawing.marks if mark.kind == "diamond")
    assert disc.at[0] < zero < diamond.at[0]
    assert disc.at[1] < diamond.at[1]
    assert (zero - disc.at[0]) == pytest.approx(3 * (diamond.at[0] - zero))
    assert [mark.text for mark in drawing.marks if mark.text == "not measured"] == ["not measured"]


def test_svg_is_escaped_and_described() -> None:
    written = to_svg(dots("f", "What <is> lost", LABELS, [PANEL]))
    assert "Swap &lt;b&gt;" in written
    assert 'role="img"' in written
    assert 'aria-label="What &lt;is&gt; lost.' in written


def test_a_png_shows_the_same_marks(tmp_path: Path) -> None:
    drawing = dots("f", "Title", LABELS, [PANEL])
    with PIL.Image.open(save_png(drawing, tmp_path / "figures" / "f.png")) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    disc = next(mark for mark in drawing.marks if mark.kind == "disc")
    x, y = (round(2 * value) for value in disc.at[:2])
    assert np.abs(pixels[y, x] - INKS["model"]).max() < 12
    assert pixels.shape == (2 * (drawing.height + 18), 2 * drawing.width, 3)


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="the picture cannot be written"):
        save_png(dots("f", "Title", LABELS, [PANEL]), tmp_path / "file" / "f.png")


def test_a_grid_holds_each_correlation_once_with_its_interval() -> None:
    found = {("a", "b"): estimate(-0.47), ("a", "c"): estimate(0.001), ("b", "c"): estimate(math.nan)}
    drawing = heat_grid("g", "Title", ["a", "b", "c"], found)
    texts = [mark.text for mark in drawing.marks if mark.kind == "text"]
    assert "−0.47" in texts
    assert "0.00" in texts
    assert "–" in texts
    assert drawing.numbers[0] == {"first": "a", "second": "b", **estimate(-0.47)}


def test_a_curve_becomes_a_line_or_blocks() -> None:
    points = [(0.0, 4.0), (10.0, 2.0), (20.0, 1.0)]
    assert bars(points) == "█▃▁"
    assert bars(points[:1]) == ""
    assert sparkline(points[:1]) is None
    drawn = sparkline(points, width=104, height=26)
    assert drawn is not None
    assert 'points="2.0,3.0 52.0,16.3 102.0,23.0"' in drawn

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


def test_references_do_not_stretch_the_scale_of_the_models() -> None:
    labels = [("a model", "disc"), ("oracle", "diamond"), ("mirrored", "diamond"), ("near", "diamond")]
    found = [estimate(-0.03, 0.01), estimate(-0.6), estimate(0.7), estimate(0.03, 0.04)]
    drawing = dots("f", "Title", labels, [Dots(("Swap", "One Lung"), found)], wide=100)
    assert {mark.text for mark in drawing.marks} >= {"−5", "0", "+5"}
    left, right = (mark for mark in drawing.marks if mark.kind == "arrow")
    zero = next(mark.at[0] for mark in drawing.marks if mark.kind == "line" and mark.ink == "soft")
    assert (left.at[0], right.at[0]) == (zero - 50, zero + 50)
    assert left.at[2] < 0 < right.at[2]
    assert [mark.at[0] for mark in drawing.marks if mark.kind in ("disc", "diamond")] == [zero - 30, zero + 30]
    assert "an arrow stands for what lies beyond" in drawing.described
    assert 'fill:var(--prior)"></polygon>' in to_svg(drawing)


def test_without_models_references_have_their_own_scale() -> None:
    drawing = dots("f", "Title", [("oracle", "diamond")], [Dots(("Swap", "One Lung"), [estimate(-0.6)])])
    assert not [mark for mark in drawing.marks if mark.kind == "arrow"]
    assert "arrow" not in drawing.described


def test_an_interval_inside_its_disc_is_seen_and_the_axis_is_named(tmp_path: Path) -> None:
    drawing = dots("f", "Title", [("a model", "disc")], [Dots(("Swap", "One Lung"), [estimate(-0.04, 0.0005)])])
    kinds = [mark.kind for mark in drawing.marks]
    disc = kinds.index("disc")
    ends = [
        mark for mark in drawing.marks[disc + 1 :] if mark.kind == "line" and mark.at[0] == mark.at[2]
    ]  # drawn after the disc
    assert len(ends) == 2
    x, y, radius = drawing.marks[disc].at
    assert all(abs(mark.at[0] - x) < radius for mark in ends)
    assert all(mark.at[1] < y - radius and mark.at[3] > y + radius for mark in ends)
    assert "change of AUROC, percentage points" in [mark.text for mark in drawing.marks]
    with PIL.Image.open(save_png(drawing, tmp_path / "f.png")) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert np.abs(pixels[round(2 * (y - radius - 2)), round(2 * ends[0].at[0])] - INKS["model"]).max() < 12


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
    (line,) = (mark for mark in drawing.marks if mark.kind == "line")
    told = next(mark for mark in drawing.marks if mark.text == "−0.47")
    assert line.at[0] < told.at[0] < line.at[2]
    assert line.at[1] == line.at[3] > told.at[1]


def test_a_curve_becomes_a_line_or_blocks() -> None:
    points = [(0.0, 4.0), (10.0, 2.0), (20.0, 1.0)]
    assert bars(points) == "█▃▁"
    assert bars(points[:1]) == ""
    assert sparkline(points[:1]) is None
    drawn = sparkline(points, width=104, height=26)
    assert drawn is not None
    assert 'points="2.0,3.0 52.0,16.3 102.0,23.0"' in drawn

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import PIL.Image
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.text import Text

from rightlung.pages import formats
from rightlung.pages.figures import (
    COLOURS,
    DistributionPanel,
    IntervalPanel,
    SeedsPanel,
    correlation_figure,
    panel_figure,
    share_figure,
)
from rightlung.results.estimate import Estimate

NAMES = ("a", "b", "c", "far *")


def marks(axes: Axes, marker: str) -> list[tuple[float, float]]:
    """Where a panel has marks of a kind, in the data's units."""
    lines = [line for line in axes.get_lines() if line.get_marker() == marker]
    points = [np.column_stack(line.get_data()) for line in lines]
    return [(round(float(x), 9), round(float(y), 9)) for x, y in np.concatenate([np.empty((0, 2)), *points])]


def whiskers(axes: Axes) -> list[tuple[float, float, float]]:
    lines = [segment.round(9) for one in axes.collections for segment in one.get_segments()]  # type: ignore[attr-defined]
    return [(float(ends[0, 0]), float(ends[1, 0]), float(ends[0, 1])) for ends in lines]


def make(panel: dict[str, Any], labels: tuple[str, ...] = NAMES, **more: Any) -> list[Axes]:
    return panel_figure("x", "X", "Caption", labels, [IntervalPanel(title="P", **panel)], **more).draw().axes


def test_marks_and_whiskers_stand_at_the_estimates_times_the_scale() -> None:
    found = [Estimate(0.5, 0.4, 0.7), Estimate(0.2, 0.1, 0.3), Estimate(0.9), Estimate(math.nan)]
    (axes,) = make({"series": {"model": found}, "scale": 100.0, "line": 0.5})
    assert marks(axes, "o") == [(50, 0), (20, 1), (90, 2)]
    assert whiskers(axes) == [(40, 70, 0), (10, 30, 1)]
    assert marks(axes, "|") == [(40, 0), (70, 0), (10, 1), (30, 1)]
    low, high = axes.get_xlim()
    assert low < 10 < 90 < high
    assert [text.get_text() for text in axes.texts if "measured" in text.get_text()] == ["not measured"]
    chance = [line for line in axes.get_lines() if to_hex(line.get_color()) == COLOURS["soft"]]
    assert [np.unique(line.get_xdata()).tolist() for line in chance] == [[50.0]]


def test_a_baseline_is_an_open_diamond_below_the_model_and_both_are_named() -> None:
    series = {"ours": [Estimate(0.5)] * 4, "theirs": [Estimate(0.4)] * 3 + [None]}
    (axes,) = make({"series": series})
    circles, diamonds = marks(axes, "o"), marks(axes, "D")
    assert [x for x, _ in circles] == [0.5] * 4
    assert [x for x, _ in diamonds] == [0.4] * 3
    assert all(above < row < below for row, ((_, above), (_, below)) in enumerate(zip(circles, diamonds, strict=False)))
    assert axes.figure is not None
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["ours", "theirs"]


def test_references_do_not_set_the_scale_and_an_arrow_stands_for_what_is_cut_off() -> None:
    found = [Estimate(0.1, 0.0, 0.2), Estimate(0.1), Estimate(0.1), Estimate(-5.0, -6.0, -4.0)]
    (axes,) = make({"series": {"model": found}, "line": 0.0}, references=["far *"])
    low, high = axes.get_xlim()
    assert -0.1 < low < 0 < 0.2 < high < 0.3
    assert marks(axes, "<") == [(round(low, 9), 3)]
    assert marks(axes, "D") == marks(axes, ">") == []
    (axes,) = make({"series": {"model": [Estimate(0.9, 0.7, 1.3)]}, "limits": (0.0, 1.0)}, ("a",))
    assert marks(axes, "o") == [(0.9, 0)]
    assert marks(axes, ">") == [(1.0, 0)]
    assert whiskers(axes) == [(0.7, 1.0, 0)]


def test_panels_share_a_scale_only_where_asked() -> None:
    panels = [IntervalPanel(title=str(top), series={"model": [Estimate(0.0), Estimate(top)]}) for top in (1.0, 5.0)]
    own, shared = (
        [axes.get_xlim() for axes in panel_figure("x", "X", "", ["a", "b"], panels, shared=asked).draw().axes]
        for asked in (False, True)
    )
    assert own[0] != own[1]
    assert shared[0] == shared[1] == own[1]


def test_a_panel_with_too_few_estimates_is_refused() -> None:
    with pytest.raises(ValueError, match="'P': one or two series with 4 estimates"):
        make({"series": {"model": [Estimate(0.5)]}})
    with pytest.raises(ValueError, match="values for 2 rows are needed, not 1"):
        panel_figure("x", "X", "", ["a", "b"], [SeedsPanel(title="P", seeds=[[0.1]])])


def test_every_seed_has_its_mark_on_its_row_and_panels_have_their_own_scale() -> None:
    panels = [
        SeedsPanel(title="AUROC", seeds=[[0.5, 0.6, math.nan], [0.7]], scale=100, line=0.5),
        SeedsPanel(title="entropy", seeds=[[8.0, 8.1], []]),
    ]
    figure = panel_figure("x", "X", "", ["ours", "theirs"], panels, references=["theirs"])
    first, second = figure.draw().axes
    assert marks(first, "o") == [(50, 0), (60, 0)]
    assert marks(first, "D") == [(70, 1)]
    assert marks(second, "o") == [(8.0, 0), (8.1, 0)]
    assert second.get_xlim()[0] > 7
    assert "not measured" in [text.get_text() for text in second.texts]


def test_a_distribution_has_all_its_values_and_its_quartiles_on_its_row() -> None:
    values = [[0.1, 0.2, 0.3, 0.4, 0.5, math.nan], []]
    figure = panel_figure("x", "X", "", ["some", "none"], [DistributionPanel(title="P", values=values, scale=10.0)])
    (axes,) = figure.draw().axes
    assert sorted(x for x, _ in marks(axes, ".")) == [1, 2, 3, 4, 5]
    assert all(abs(y) < 0.5 for _, y in marks(axes, "."))
    assert marks(axes, "|") == [(3, 0)]
    assert whiskers(axes) == [(1.2, 4.8, 0), (2, 4, 0)]  # the 5th to the 95th percentile, and the quartiles
    assert "not measured" in [text.get_text() for text in axes.texts]
    assert figure.numbers[0]["percentiles"] == pytest.approx({"5": 1.2, "25": 2, "50": 3, "75": 4, "95": 4.8})
    assert figure.numbers[0]["n"] == 5


def test_counts_are_shaded_by_their_share_of_the_row() -> None:
    figure = share_figure("x", "X", "", ["a", "b"], ["left", "right"], [[1, 3], [0, 0]])
    (axes,) = figure.draw().axes
    assert [patch.get_alpha() for patch in axes.patches] == [0.25, 0.75, 0, 0]
    texts = {text.get_text(): text.get_position() for text in axes.texts}
    assert (texts["25"], texts["75"]) == ((0.5, 0.5), (1.5, 0.5))
    assert figure.numbers == [{"row": "a", "left": 1, "right": 3}, {"row": "b", "left": 0, "right": 0}]


def test_correlations_are_coloured_by_sign_and_bold_where_the_interval_excludes_zero() -> None:
    found = {("a", "b"): Estimate(0.6, 0.4, 0.8), ("a", "c"): Estimate(-0.1, -0.3, 0.1), ("b", "c"): Estimate(math.nan)}
    (axes,) = correlation_figure("x", "X", "", ["a", "b", "c"], found).draw().axes
    texts = {text.get_text(): text for text in axes.texts}
    assert texts["0.60"].get_position() == (0.5, 1.5)
    assert texts["−0.10"].get_position() == (0.5, 2.5)
    assert texts["–"].get_position() == (1.5, 2.5)
    assert (texts["0.60"].get_fontweight(), texts["−0.10"].get_fontweight()) == ("bold", "normal")
    colours = [(to_hex(patch.get_facecolor()), patch.get_alpha()) for patch in axes.patches]
    assert colours == [(COLOURS["positive"], 0.6), (COLOURS["negative"], 0.1)]
    assert [texts[name].get_position()[1] for name in "abc"] == [0.5, 1.5, 2.5]


def test_the_svg_has_the_labels_as_text_and_unlike_ids() -> None:
    labels = ["no formula $\\frac", "cost $x$ & <b>", "a label that is much too long for the room there is *"]
    panel = IntervalPanel(title="Panel $1", subtitle="below", series={"model": [Estimate(0.1, 0.0, 0.2)] * 3})
    figure = panel_figure("x", "X", "Caption", labels, [panel], unit="percent")
    text = formats.svg(figure.draw(), "one")
    for label in ("no formula $\\frac", "cost $x$ &amp; &lt;b&gt;", "Panel $1", "below", "percent"):
        assert f">{label}</text>" in text
    assert "… *</text>" in text
    assert text.startswith("<svg ")
    assert text.rstrip().endswith("</svg>")
    assert "http" not in text
    assert 'id="one-' in text
    assert "two-" in formats.svg(figure.draw(), "two")


def test_no_text_lies_over_another_in_a_figure_with_many_panels() -> None:
    panels = [SeedsPanel(title=f"quantity {n}", subtitle="All", seeds=[[0.5]] * 3) for n in range(7)]
    drawing = panel_figure("x", "X", "", ["one", "two", "a model with a longer name"], panels, unit="percent").draw()
    drawing.draw_without_rendering()
    hidden = {
        id(tick.label1)
        for axes in drawing.axes
        for tick in axes.xaxis.get_major_ticks()
        if not axes.get_xlim()[0] <= tick.get_loc() <= axes.get_xlim()[1]
    }
    found = (text for text in drawing.findobj(Text) if text.get_visible() and id(text) not in hidden)
    texts = [text for text in found if text.get_window_extent().width > 1]
    assert {"quantity 0", "quantity 6", "one", "percent"} <= {text.get_text() for text in texts}
    boxes = [text.get_window_extent() for text in texts]
    for place, box in enumerate(boxes):
        for other, name in zip(boxes[place + 1 :], texts[place + 1 :], strict=True):
            assert not box.overlaps(other), (texts[place].get_text(), name.get_text())


def test_a_png_has_few_colours_and_room_for_the_notice() -> None:
    figure = correlation_figure("x", "X", "", ["a", "b"], {("a", "b"): Estimate(0.6, 0.4, 0.8)})
    with PIL.Image.open(io.BytesIO(formats.png(figure.draw()))) as picture:
        assert picture.mode == "P"
        pixels = np.asarray(picture.convert("L"))
    assert (pixels[0] > 250).all()  # white around
    foot = pixels[-30:]
    assert (foot < 160).sum() > 300  # the notice
    assert pixels.shape[1] > 500  # it is wider than the figure and not cut off

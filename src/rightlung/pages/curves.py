"""Figures of curves with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from rightlung.pages.content import Figure
from rightlung.pages.figures import COLOURS
from rightlung.results.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Curve = Sequence[tuple[float, Estimate]]
"""Places on the horizontal axis, with the estimates there."""


def curve_figure(
    name: str, title: str, caption: str, axes: tuple[str, str], curves: Mapping[str, Curve], *,
    diagonal: bool = False, marks: Mapping[str, float] | None = None,
) -> Figure:  # fmt: skip
    """Return curves between 0 and 1 with bands of their intervals, the model's first, baselines dashed.

    ``marks`` are places on the horizontal axis to name. With ``diagonal``, the curve of perfect calibration is drawn.
    """

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(6.4, 3.4), facecolor=COLOURS["paper"])
        place = drawing.add_axes((0.1, 0.15, 0.62, 0.8), facecolor="none")
        if diagonal:
            place.plot([0, 1], [0, 1], color=COLOURS["soft"], linewidth=1, linestyle=":")
        for order, (label, curve) in enumerate(curves.items()):
            x = [at for at, _ in curve]
            low, value, high = (
                np.array([(one.low, one.value, one.high) for _, one in curve], np.float64).reshape(-1, 3).T
            )
            colour = COLOURS["baseline" if order else "model"]
            place.plot(x, value, "--D" if order else "-o", color=colour, markersize=4, linewidth=1.8, label=label)
            place.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        for text, at in (marks or {}).items():
            place.axvline(at, color=COLOURS["soft"], linewidth=1)
            place.annotate(text, (at, 1), xycoords=("data", "axes fraction"), fontsize=8, color=COLOURS["soft"],
                xytext=(3, -9), textcoords="offset points")  # fmt: skip
        place.set(xlabel=axes[0], ylabel=axes[1], ylim=(0, 1.02))
        if diagonal:
            place.set_xlim(0, 1.05 * max(at for curve in curves.values() for at, _ in curve))
        place.xaxis.label.set_color(COLOURS["soft"])
        place.yaxis.label.set_color(COLOURS["soft"])
        place.spines[:].set_visible(False)
        place.grid(color=COLOURS["line"], linewidth=0.8)
        place.tick_params(length=0, labelsize=8, labelcolor=COLOURS["soft"])
        place.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8.5, labelcolor=COLOURS["ink"])
        return drawing

    numbers = [
        {"series": label, "x": at, **one.as_json()} for label, curve in curves.items() for at, one in curve
    ]  # fmt: skip
    return Figure(name, title, caption, cache(draw), numbers=numbers)

"""The appendix of an audit's page about strata, thresholds, pointing tolerance, readers and calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rightlung.audit.strata import AT, FIXED, MEASURES, Series, Strata
from rightlung.measuring import find_measure
from rightlung.pages.content import Figure, Section
from rightlung.pages.curves import curve_figure
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import span, verdict
from rightlung.results.estimate import Estimate

TITLES = {"model": "model", "prior": "image-blind prior"}
_CURVES = {
    "iou": ("IoU over the threshold", "Mean IoU of the pixels from a threshold on, of maps scaled to 0–1.",
            "threshold", "IoU"),
    "precision": ("Precision and recall of pixels", "Mean precision of the fewest top pixels with this recall.",
                  "recall", "precision"),
    "pointing": ("Pointing with a tolerance", "Share of peaks within a distance of the target.",
                 "distance, in fractions of the image's height", "share of peaks"),
}  # fmt: skip
_THRESHOLDS = (f"fixed at {FIXED:g}", "best on other patients", "best of each phrase", "as large as the target")


def strata_section(found: Strata) -> Section:
    """Return the appendix, folded."""
    return Section("strata", "Appendix: strata and thresholds", [*_said(found)], parts=[*_figures(found)], folded=True)


def _said(found: Strata) -> Iterator[str]:
    if found.sample:
        yield f"Curves and thresholds: {found.sample:,} answers. {100 * found.level:g} % intervals over patients."
    if found.gain is not None and found.gain.defined:
        yield (
            f"Threshold sensitivity: the best threshold, chosen on other patients, changes IoU by {verdict(found.gain)}"
            f" from that at {FIXED:g}; over all answers it is {found.best:g}."
        )
    if contours := found.contours:
        each = ", ".join(f"{TITLES[slug]} {span(one[0])}" for slug, one in contours.items())
        yield (
            "Contours: share of a target's connected parts at least half covered by as many top pixels as the target "
            f"has: {each}."
        )
    if not found.readers:
        yield "Human ceiling: the source has no boxes of several readers."
    if not found.calibration:
        yield "Calibration: the answers have no boxes with scores from 0 to 1, or too few."


def _figures(found: Strata) -> Iterator[Figure]:
    if found.names:
        panels = [
            IntervalPanel(title=find_measure(name).title, limits=(0, 1), series=_titled(found.groups[name]))
            for name in MEASURES
        ]
        caption = (
            "Thirds of the targets by area, and by extent (the box around all of the target); focal and diffuse "
            "findings as in the lexicon. In brackets: number of phrases."
        )
        yield panel_figure("strata", "By size, extent and spread of the target", caption, found.names, panels)
    for name, (title, caption, x, y) in _CURVES.items():
        if found.curves.get(name):
            curves = {
                TITLES[slug]: [*zip(AT[name], values, strict=True)] for slug, values in found.curves[name].items()
            }
            marks = {f"best {found.best:g}": found.best} if name == "iou" else None
            yield curve_figure(f"curve-{name}", title, caption, (x, y), curves, marks=marks)
    if found.thresholds:
        caption = "IoU by how the threshold is chosen. The best of each phrase is an upper bound that knows the target."
        panel = IntervalPanel(title="IoU", limits=(0, 1), series=_titled(found.thresholds))
        yield panel_figure("thresholds", "How much the threshold matters", caption, _THRESHOLDS, [panel])
    if found.readers:
        caption = (
            "Mean IoU between the boxes of each two radiologists; of as many top pixels as the target has, with the "
            "target. On the phrases for which at least two readers drew boxes."
        )
        labels = [TITLES.get(name, name) for name in found.readers]
        panel = IntervalPanel(title="IoU", limits=(0, 1), series={"IoU": [*found.readers.values()]})
        yield panel_figure("readers", "Human ceiling", caption, labels, [panel], references=labels[2:])
    if found.calibration:
        caption = (
            "Share of predicted boxes with an IoU of at least 0.5 with a target's box, in fifths by score; dotted: "
            "scores that are probabilities. The prior predicts no boxes."
        )
        axes = ("score of a box", "share of hits")
        yield curve_figure("calibration", "Calibration", caption, axes, {"model": found.calibration}, diagonal=True)


def _titled(series: Series) -> dict[str, Sequence[Estimate | None]]:
    return {TITLES[slug]: values for slug, values in series.items()}

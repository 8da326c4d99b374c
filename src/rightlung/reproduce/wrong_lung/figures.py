"""The figures, drawn once as plain marks and written twice: as SVG for the page, as PNG for the Markdown.

Figures 3, 5 and 14 are dots with whiskers about zero, Figures 6 and 18 to 24 a grid of correlations. The numbers of
each stand in a table or in ``results.json``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.markup import Markup, element
from rightlung.audit.summary import metric_name, number
from rightlung.core import OutputError
from rightlung.reproduce.wrong_lung.estimates import Estimate
from rightlung.reproduce.wrong_lung.published import SUBSETS
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Floats, Model
from rightlung.reproduce.wrong_lung.tables import (
    SUBSET_TITLES,
    Cell,
    Heading,
    Measured,
    Table,
    cell,
    signed_number,
    text_cell,
)

INKS = {
    "ink": (27, 31, 36),
    "soft": (89, 99, 110),
    "line": (209, 217, 224),
    "model": (11, 98, 196),
    "prior": (154, 75, 0),
}
"""Colours by what they are for; on the page they follow the reader's light or dark setting."""

LONGEST, PANEL, GAP, LINE, HEAD, FOOT = 42, 132, 14, 20, 46, 42
AXIS = "change of AUROC, percentage points"
UNDERLINED = "Underlined: the interval, of each correlation by itself, does not reach zero."
BOLD_CORRELATION = "Bold: the interval, of each correlation by itself, does not reach zero."
_REACHES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0)
_SCALE = 2
_PLAIN = str.maketrans({"−": "-", "–": "-", "…": "..", "“": '"', "”": '"', "’": "'"})
"""Signs that Pillow's own font does not have."""


@dataclass(frozen=True)
class Mark:
    """A line (x0, y0, x1, y1), a disc or diamond (x, y, radius), an arrow (tip x, y, length to the right), a box or a
    text (x, y)."""

    kind: str
    at: tuple[float, ...]
    ink: str | tuple[int, int, int] = "ink"
    text: str = ""
    anchor: str = "start"
    size: int = 11
    width: float = 1.0


@dataclass(frozen=True)
class Drawing:
    """Marks on a canvas, with the words that stand for it where it cannot be seen."""

    name: str
    title: str
    width: int
    height: int
    marks: tuple[Mark, ...]
    described: str
    folded: bool = False
    numbers: Any = None
    """The numbers drawn, for the JSON file, where no table holds them."""


def to_svg(drawing: Drawing) -> Markup:
    """Return a drawing as inline SVG."""
    return element(
        "svg",
        [_svg_mark(mark) for mark in drawing.marks],
        viewBox=f"0 0 {drawing.width} {drawing.height}",
        width=drawing.width,
        height=drawing.height,
        role="img",
        aria_label=f"{drawing.title}. {drawing.described}",
    )


def _svg_mark(mark: Mark) -> Markup:
    colour = f"var(--{mark.ink})" if isinstance(mark.ink, str) else "rgb({},{},{})".format(*mark.ink)
    at = [round(value, 1) for value in mark.at]
    if mark.kind == "line":
        style = f"stroke:{colour};stroke-width:{mark.width}"
        return element("line", x1=at[0], y1=at[1], x2=at[2], y2=at[3], style=style)
    if mark.kind == "disc":
        return element("circle", cx=at[0], cy=at[1], r=at[2], style=f"fill:{colour}")
    if mark.kind == "diamond":
        x, y, r = at
        points = f"{x},{y - r} {x + r},{y} {x},{y + r} {x - r},{y}"
        return element("polygon", points=points, style=f"fill:var(--paper);stroke:{colour};stroke-width:1.5")
    if mark.kind == "arrow":
        points = " ".join(f"{round(x, 1)},{round(y, 1)}" for x, y in _arrow(mark.at))
        return element("polygon", points=points, style=f"fill:{colour}")
    if mark.kind == "box":
        return element("rect", x=at[0], y=at[1], width=at[2] - at[0], height=at[3] - at[1], style=f"fill:{colour}")
    return element(
        "text", mark.text, x=at[0], y=at[1], text_anchor=mark.anchor, style=f"fill:{colour};font-size:{mark.size}px"
    )


def save_png(drawing: Drawing, path: Path) -> Path:
    """Save a drawing as PNG on white, with the line that this is not a medical device."""
    import PIL.Image
    import PIL.ImageDraw

    picture = PIL.Image.new("RGB", (drawing.width * _SCALE, (drawing.height + 18) * _SCALE), "white")
    pen = PIL.ImageDraw.Draw(picture)
    foot = Mark("text", (4, drawing.height + 12), "soft", NOT_A_MEDICAL_DEVICE, size=10)
    for mark in (*drawing.marks, foot):
        _png_mark(pen, mark)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.quantize(64).save(path, format="PNG")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from None
    return path


def _png_mark(pen: Any, mark: Mark) -> None:
    colour = INKS[mark.ink] if isinstance(mark.ink, str) else mark.ink
    at = [value * _SCALE for value in mark.at]
    if mark.kind == "line":
        pen.line(at, fill=colour, width=max(1, round(mark.width * _SCALE)))
    elif mark.kind == "disc":
        x, y, r = at
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif mark.kind == "diamond":
        x, y, r = at
        pen.polygon([(x, y - r), (x + r, y), (x, y + r), (x - r, y)], fill="white", outline=colour, width=3)
    elif mark.kind == "arrow":
        pen.polygon(_arrow(at), fill=colour)
    elif mark.kind == "box":
        pen.rectangle((at[0], at[1], at[2] - 1, at[3] - 1), fill=colour)
    else:
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
        text = mark.text.translate(_PLAIN)
        pen.text((at[0], at[1]), text, fill=colour, font=_font(mark.size * _SCALE), anchor=anchor)


def _arrow(at: Sequence[float]) -> list[tuple[float, float]]:
    x, y, length = at
    return [(x, y), (x - length, y - abs(length) / 2), (x - length, y + abs(length) / 2)]


@lru_cache(maxsize=16)
def _font(size: int) -> Any:
    import PIL.ImageFont

    return PIL.ImageFont.load_default(size)


def sparkline(points: Sequence[tuple[float, float]], width: int = 120, height: int = 24) -> Markup | None:
    """Draw a validation curve for a table's cell; ``None`` where there are fewer than two points."""
    if len(points) < 2:
        return None
    steps, losses = [step for step, _ in points], [loss for _, loss in points]
    low, high = min(losses), max(losses)
    placed = [
        (
            2 + (width - 4) * (step - steps[0]) / ((steps[-1] - steps[0]) or 1),
            height - 3 - (height - 6) * (loss - low) / ((high - low) or 1),
        )
        for step, loss in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    return element(
        "svg",
        element("polyline", points=line, style="fill:none;stroke:var(--model);stroke-width:1.5"),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        aria_hidden="true",
        focusable="false",
    )


_BARS = "▁▂▃▄▅▆▇█"


def bars(points: Sequence[tuple[float, float]], most: int = 16) -> str:
    """Return a curve as a row of block characters, for Markdown.

    >>> bars([(0, 4.0), (1, 2.0), (2, 1.0)])
    '█▃▁'
    """
    losses = [loss for _, loss in points]
    if len(losses) < 2:
        return ""
    step = max(1, math.ceil(len(losses) / most))
    shown = losses[::step]
    low, high = min(shown), max(shown)
    return "".join(_BARS[round((len(_BARS) - 1) * (loss - low) / ((high - low) or 1))] for loss in shown)


@dataclass(frozen=True)
class Dots:
    """One panel of whiskers: a heading of two lines, and for each label its estimate."""

    heading: tuple[str, str]
    estimates: Sequence[Estimate]


def dots(
    name: str,
    title: str,
    labels: Sequence[tuple[str, str]],
    panels: Sequence[Dots],
    *,
    folded: bool = False,
    wide: int = PANEL,
) -> Drawing:
    """Draw panels side by side about zero, on one scale in percentage points; a label comes with its kind of mark.

    The scale is that of the discs, if there are any: what stands beside the models for reference is cut off, and an
    arrow says so.
    """
    kinds = {kind for _, kind in labels}
    ends = [
        abs(end)
        for panel in panels
        for found, (_, kind) in zip(panel.estimates, labels, strict=True)
        if kind == "disc" or "disc" not in kinds
        for end in (found["estimate"], found["low"], found["high"])
        if not math.isnan(end)
    ]
    reach = next(step for step in _REACHES if step >= max(ends, default=0.0))
    height = HEAD + LINE * len(labels) + FOOT
    beside, marks = label_marks([label for label, _ in labels])
    for column, panel in enumerate(panels):
        left = beside + column * (wide + GAP)

        def across(value: float, left: float = left) -> float:
            return left + wide * (min(max(value, -reach), reach) + reach) / (2 * reach)

        marks += [
            Mark("text", (left + wide / 2, 13), text=panel.heading[0], anchor="middle"),
            Mark("text", (left + wide / 2, 28), "soft", panel.heading[1], "middle", 10),
        ]
        for tick, anchor in ((-reach, "start"), (0.0, "middle"), (reach, "end")):
            marks.append(
                Mark("line", (across(tick), HEAD - 6, across(tick), height - FOOT), "line" if tick else "soft")
            )
            said = number(100 * tick, 0, signed=bool(tick))
            marks.append(Mark("text", (across(tick), height - FOOT + 14), "soft", said, anchor, 10))
        for place, found in enumerate(panel.estimates):
            marks += _whisker(found, across, HEAD + LINE * (place + 0.5), labels[place][1], reach)
    middle = beside + (len(panels) * (wide + GAP) - GAP) / 2
    marks.append(Mark("text", (middle, height - 8), "soft", AXIS, "middle", 10))
    described = f"{AXIS[0].upper()}{AXIS[1:]}, with intervals; left of zero is a loss."
    if any(mark.kind == "arrow" for mark in marks):
        described += " The scale is that of the comparable models: an arrow stands for what lies beyond it."
    described += " The numbers are in the table below."
    return Drawing(name, title, beside + len(panels) * (wide + GAP), height, tuple(marks), described, folded)


def label_marks(labels: Sequence[str]) -> tuple[int, list[Mark]]:
    """Return how much room the labels of rows take at the left, and the labels."""
    beside = min(LONGEST, max((len(label) for label in labels), default=0)) * 6 + 24
    places = (HEAD + LINE * (place + 0.5) + 4 for place in range(len(labels)))
    return beside, [
        Mark("text", (beside - 8, y), text=_short(label), anchor="end") for label, y in zip(labels, places, strict=True)
    ]


def _short(label: str) -> str:
    if len(label) <= LONGEST:
        return label
    star = " *" if label.endswith(" *") else ""
    return f"{label[: LONGEST - 1 - len(star)]}…{star}"


def _whisker(found: Estimate, across: Callable[[float], float], y: float, kind: str, reach: float) -> Iterator[Mark]:
    """Draw an estimate, over it the ends of its interval, which may lie inside the mark."""
    value, low, high = found["estimate"], found["low"], found["high"]
    if math.isnan(value):
        yield Mark("text", (across(0.0), y + 4), "soft", "not measured", "middle", 9)
        return
    ink = "prior" if kind == "diamond" else "model"
    known = not math.isnan(low)
    if known:
        yield Mark("line", (across(low), y, across(high), y), ink, width=2)
    if abs(value) > reach:
        yield Mark("arrow", (across(value), y, math.copysign(9.0, value)), ink)
    else:
        yield Mark(kind, (across(value), y, 3.0 if kind == "disc" else 4.0), ink)
    for end in (low, high) if known else ():
        if abs(end) <= reach:
            yield Mark("line", (across(end), y - 6, across(end), y + 6), ink, width=1.5)


def change_figures(measured: Measured, target: str) -> Iterator[Drawing]:
    """Draw Figures 3, 5 and 14 for one kind of target."""
    results, estimator = measured.results, measured.estimator
    against = "region boxes" if target == "regions" else "exact masks"
    models = results.rows
    if not models:
        return
    cache: dict[tuple[str, str, str], Estimate] = {}
    wanted = [(m.slug, p, s) for m in models for p in PERTURBATIONS for s in SUBSETS]
    columns = [results.within(results.change(slug, p, "auroc", target), where) for slug, p, where in wanted]
    for (slug, p, where), found in zip(wanted, estimator.means(columns), strict=True):
        cache[slug, p.name, where] = found
    if (retrained := results.model("retrained")) is not None:
        labels = [(f"{p.title}, {SUBSET_TITLES[p.subset]}", "disc") for p in PERTURBATIONS]
        panel = Dots(
            (retrained.label, "each on its subset"), [cache[retrained.slug, p.name, p.subset] for p in PERTURBATIONS]
        )
        title = f"Figure 3: what each perturbation does to Retrained ({against})"
        yield dots(f"figure-3-{target}", title, labels, [panel], wide=420)
    labels = [(model.label, mark_of(model)) for model in models]
    for subset in (None, *SUBSETS):
        panels = []
        for p in PERTURBATIONS:
            where = subset or p.subset
            panels.append(Dots(_heading(p.title, SUBSET_TITLES[where]), [cache[m.slug, p.name, where] for m in models]))
        title = (
            f"Figure 5: what each perturbation does to each variant, on its subset ({against})"
            if subset is None
            else f"Figure 14: the same on {SUBSET_TITLES[subset]} ({against})"
        )
        name = f"figure-5-{target}" if subset is None else f"figure-14-{target}-{subset}"
        yield dots(name, title, labels, panels, folded=subset is not None)


def mark_of(model: Model) -> str:
    """Return the mark of a model: a diamond where it is a reference or not comparable."""
    return "diamond" if model.group == "reference" or not model.comparable else "disc"


def _heading(title: str, subset: str) -> tuple[str, str]:
    short = {
        "Synth w/ Swapped Conditions": "Swapped Conditions",
        "another patient's image (ours)": "another image (ours)",
    }
    return short.get(title, title), subset


def instance_values(measured: Measured, model: Model) -> dict[str, Floats]:
    """Return the per-instance values that are correlated with each other (section 4.2.5, B.10)."""
    results, slug = measured.results, model.slug
    values = {
        **{
            metric_name(name): results.score(slug, name)
            for name in ("auroc", "average_precision", "iou@5", "iou@10", "iou@30", "precision@10", "pointing")
        },
        **{
            f"{metric_name(name)}, exact": results.score(slug, name, "exact")
            for name in ("auroc", "average_precision", "pointing")
        },
        "entropy": results.answer(slug, "entropy"),
        "abstention": results.answer(slug, "abstention"),
        "similarity, local": results.answer(slug, "similarity_local"),
        "similarity, global": results.answer(slug, "similarity_global"),
        "KL to a random sentence": results.answer(slug, "kl_random"),
        "abnormal": results.instances.flags["abnormal"].astype(np.float64),
    }
    return {name: column for name, column in values.items() if not np.isnan(column).all()}


def correlation_figures(measured: Measured) -> Iterator[Drawing | Table]:
    """Draw Figure 6 and Figures 18 to 24: the correlations of all per-instance values, of each variant's first seed.

    Figure 6, of +No Attn, has a table with the intervals below it; without that model the first has.
    """
    rows = measured.results.rows
    first = next((model for model in rows if model.variant == "no-attn"), rows[0] if rows else None)
    for model in rows:
        values = instance_values(measured, measured.results.seeds(model.variant)[0])
        found = measured.estimator.correlations(values)
        opened = model.variant == "no-attn"
        title = f"{'Figure 6' if opened else 'Figures 18 to 24'}: correlations between instances' values, {model.label}"
        yield heat_grid(f"correlations-{model.slug}", title, list(values), found, folded=not opened)
        if model is first:
            yield correlation_table(f"correlations-table-{model.slug}", f"{title}, with intervals", list(values), found)


def correlation_table(name: str, title: str, names: Sequence[str], found: Mapping[tuple[str, str], Estimate]) -> Table:
    """Make the table of a triangle of correlations, each with its interval; bold where that does not reach zero."""
    rows = []
    for row, label in enumerate(names[1:], start=1):
        cells = [
            cell(found[other, label], scale=1.0, digits=2, best=_excludes_zero(found[other, label]))
            for other in names[:row]
        ]
        rows.append((text_cell(label), *cells, *(Cell("") for _ in names[row:-1])))
    header = (Heading("value", "text"), *(Heading(label) for label in names[:-1]))
    caption = f"Pearson correlations over instances. {BOLD_CORRELATION}"
    return Table(name, title, caption, header, tuple(rows))


def _excludes_zero(found: Estimate) -> bool:
    """Return whether an interval lies wholly on one side of zero."""
    return bool(found["low"] > 0 or found["high"] < 0)


def heat_grid(
    name: str, title: str, names: Sequence[str], found: Mapping[tuple[str, str], Estimate], folded: bool = False
) -> Drawing:
    """Draw a triangle of correlations, blue above zero and orange below, with the numbers inside.

    A number is underlined where its interval does not reach zero.
    """
    side, left, top = 38, 190, 26
    marks: list[Mark] = []
    for row, label in enumerate(names):
        y = top + row * side * 0.7
        marks.append(Mark("text", (left - 8, y + 17), text=f"{label}  {row + 1}", anchor="end"))
        if row < len(names) - 1:
            marks.append(Mark("text", (left + (row + 0.5) * side, top - 8), "soft", str(row + 1), "middle", 10))
        for column in range(row):
            estimate = found[names[column], names[row]]["estimate"]
            x = left + column * side
            at = (x, y, x + side - 1, y + side * 0.7 - 1)
            if math.isnan(estimate):
                marks.append(Mark("text", (x + side / 2, y + 17), "soft", "–", "middle", 10))
                continue
            colour = _heat(estimate)
            ink = (255, 255, 255) if abs(estimate) > 0.55 else INKS["ink"]
            marks += [
                Mark("box", at, colour),
                Mark("text", (x + side / 2 - 0.5, y + 17), ink, signed_number(estimate, 2), "middle", 10),
            ]
            if _excludes_zero(found[names[column], names[row]]):
                marks.append(Mark("line", (x + 8, y + 21, x + side - 9, y + 21), ink, width=1.5))
    numbers = [{"first": a, "second": b, **estimate} for (a, b), estimate in found.items()]
    described = f"Pearson correlations over instances. {UNDERLINED} All intervals are in results.json."
    height = round(top + len(names) * side * 0.7 + 6)
    return Drawing(name, title, left + len(names) * side, height, tuple(marks), described, folded, numbers)


def _heat(value: float) -> tuple[int, int, int]:
    share = min(1.0, abs(value))
    end = INKS["model"] if value > 0 else INKS["prior"]
    red, green, blue = (round(245 + (part - 245) * share) for part in end)
    return red, green, blue

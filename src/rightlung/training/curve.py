"""The curve of a run, drawn from its log: losses over steps, with those of the validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import OutputError
from rightlung.training.watching import Row, read_log

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 900, 340, 70, 34, 20, 40
_COLOURS = ((31, 92, 153), (204, 85, 34), (46, 125, 70), (128, 70, 150), (120, 120, 120), (170, 130, 20))
_OTHER = ("step", "rate", "gradient norm", "images per second")
_SHARES = ("validation auroc", "validation pointing")

Line = list[tuple[float, float]]


def draw_curve(log: Path, path: Path) -> Path | None:
    """Draw the losses of a log as PNG and, where they were measured, how well the model points; None if it is empty."""
    import PIL.Image
    import PIL.ImageDraw

    rows = read_log(log) if log.exists() else []
    names = list(dict.fromkeys(name for row in rows for name in row))
    losses = {name: _line(rows, name) for name in names if name not in (*_OTHER, *_SHARES)}
    shares = {name: _line(rows, name) for name in names if name in _SHARES}
    panels = [panel for panel in (("loss", losses), ("share", shares)) if any(panel[1].values())]
    if not panels:
        return None
    picture = PIL.Image.new("RGB", (WIDTH, HEIGHT * len(panels) + 20), "white")
    pen = PIL.ImageDraw.Draw(picture)
    for number, (title, lines) in enumerate(panels):
        _panel(pen, title, {name: line for name, line in lines.items() if line}, number * HEIGHT)
    pen.text((LEFT, picture.height - 16), NOT_A_MEDICAL_DEVICE, fill="black")
    try:
        picture.save(path, format="PNG")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from None
    return path


def _line(rows: Sequence[Row], name: str) -> Line:
    return [(row["step"], row[name]) for row in rows if name in row and math.isfinite(row[name])]


def _panel(pen, title: str, lines: dict[str, Line], top: int) -> None:  # type: ignore[no-untyped-def]
    """Draw one set of axes with its lines and their names."""
    values = [value for line in lines.values() for _, value in line]
    most = max(step for line in lines.values() for step, _ in line)
    low, high = (0.0, 1.0) if title == "share" else (min(values), max(values))
    high = high if high > low else low + 1.0
    x0, x1, y0, y1 = LEFT, WIDTH - RIGHT, top + TOP, top + HEIGHT - BOTTOM

    def place(step: float, value: float) -> tuple[float, float]:
        return x0 + (x1 - x0) * step / max(most, 1.0), y1 - (y1 - y0) * (value - low) / (high - low)

    for tick in range(5):
        value, step = low + (high - low) * tick / 4, most * tick / 4
        _, y = place(0, value)
        x, _ = place(step, low)
        pen.line((x0, y, x1, y), fill=(225, 225, 225))
        pen.text((8, y - 6), f"{value:.3g}", fill="black")
        pen.text((x - 10, y1 + 6), f"{step:,.0f}", fill="black")
    pen.rectangle((x0, y0, x1, y1), outline=(120, 120, 120))
    across = x0
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [place(*point) for point in line]
        if len(points) > 1:
            pen.line(points, fill=colour, width=2 if "validation" in name or name == "loss" else 1)
        for x, y in points if "validation" in name or len(points) == 1 else ():
            pen.ellipse((x - 3, y - 3, x + 3, y + 3), outline=colour, fill="white")
        pen.rectangle((across, top + 14, across + 10, top + 24), fill=colour)
        pen.text((across + 14, top + 12), name, fill="black")
        across += 26 + 7 * len(name)

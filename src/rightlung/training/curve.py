"""The curve of a run, drawn from its log: losses over steps, with those of the validation."""

from __future__ import annotations

import math
from itertools import cycle
from pathlib import Path

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import OutputError
from rightlung.training.watching import read_log

_COLOURS = ("#1f5c99", "#cc5522", "#2e7d46", "#804696", "#787878", "#aa8214")
_OTHER = ("step", "rate", "gradient norm", "images per second")
_SHARES = ("validation auroc", "validation pointing")


def draw_curve(log: Path, path: Path) -> Path | None:
    """Draw the losses of a log as PNG and, where they were measured, how well the model points; None if it is empty."""
    from matplotlib.figure import Figure

    rows = read_log(log) if log.exists() else []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in _OTHER):
        if line := [(row["step"], row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]:
            panels.setdefault("share" if name in _SHARES else "loss", {})[name] = line
    if not panels:
        return None
    figure = Figure(figsize=(9, 3.5 * len(panels)), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True):
        for colour, (name, line) in zip(cycle(_COLOURS), lines.items(), strict=False):
            marker = "o" if "validation" in name or len(line) == 1 else None
            axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markerfacecolor="white", label=name)
        axes.set(xlabel="step", ylabel=title, xlim=(0, None), **({"ylim": (0, 1)} if title == "share" else {}))
        axes.grid(color="#e1e1e1")
        axes.legend(fontsize="small")
    figure.supxlabel(NOT_A_MEDICAL_DEVICE, fontsize="small")
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from None
    return path

"""The log of a run (CSV), its curve, TensorBoard where it is installed, and the progress bar."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from time import monotonic
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import InputError, OutputError
from rightlung.core.files import not_written, write_whole
from rightlung.core.progress import ProgressBars

Row = dict[str, float]

_COLOURS = ("#1f5c99", "#cc5522", "#2e7d46", "#804696", "#787878", "#aa8214")
_OTHER = ("step", "learning rate", "gradient norm", "images per second")
_SHARES, _SHARES_TITLE = ("validation auroc", "validation pointing"), "AUROC, pointing accuracy"


class Log:
    """``log.csv``: one row every ``log_every`` steps. Columns appear in the order they were first logged."""

    def __init__(self, path: Path, last_step: int) -> None:
        """Continue a log; rows after ``last_step`` are dropped, since those steps are trained again."""
        self.path = path
        self.rows = [row for row in read_log(path) if row["step"] <= last_step] if path.exists() else []
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        self._rewrite()

    def add(self, row: Mapping[str, float]) -> None:
        """Append a row; a new column rewrites the file."""
        self.rows.append(dict(row))
        if new := [name for name in row if name not in self.columns]:
            self.columns.extend(new)
            self._rewrite()
            return
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(self._lines([row]))
        except OSError as error:
            raise not_written(self.path, error) from None

    def _rewrite(self) -> None:
        if self.columns:
            write_whole(self.path, ",".join(self.columns) + "\n" + self._lines(self.rows), durable=True)
        else:
            self.path.unlink(missing_ok=True)

    def _lines(self, rows: Sequence[Mapping[str, float]]) -> str:
        return "".join(",".join(_figure(row.get(name)) for name in self.columns) + "\n" for row in rows)


def read_log(path: Path) -> list[Row]:
    """Read a log, one mapping per row without empty cells. An incomplete last line is skipped."""
    rows: list[Row] = []
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the log cannot be read ({error})") from None
    lines = list(csv.reader(content[: content.rfind("\n") + 1].splitlines()))
    for line in lines[1:]:
        try:
            row = {name: float(value) for name, value in zip(lines[0], line, strict=True) if value}
        except ValueError:
            continue
        if "step" in row:
            rows.append(row)
    return rows


def out_of_patience(rows: Sequence[Row], patience: int | None) -> bool:
    """Whether none of the last ``patience`` validation losses is below the lowest one before them.

    Losses are compared as rounded in the log, so that a resumed run decides like one that was never interrupted.
    """
    losses = [float(_figure(row["validation loss"])) for row in rows if "validation loss" in row]
    if patience is None or len(losses) <= patience:
        return False
    return min(losses[-patience:]) >= min(losses[:-patience])


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def draw_curve(log: Path, path: Path) -> Path | None:
    """Plot the losses of a log and, if measured, AUROC and pointing accuracy as PNG.

    None if the log is empty or matplotlib is not installed, as on many machines for training.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    rows = read_log(log) if log.exists() else []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in _OTHER):
        if line := [(row["step"], row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]:
            panels.setdefault(_SHARES_TITLE if name in _SHARES else "loss", {})[name] = line
    if not panels:
        return None
    figure = Figure(figsize=(9, 3.5 * len(panels)), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True):
        for colour, (name, line) in zip(cycle(_COLOURS), lines.items(), strict=False):
            marker = "o" if "validation" in name or len(line) == 1 else None
            axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markerfacecolor="white", label=name)
        axes.set(xlabel="step", ylabel=title, xlim=(0, None), **({"ylim": (0, 1)} if title == _SHARES_TITLE else {}))
        axes.grid(color="#e1e1e1")
        axes.legend(fontsize="small")
    figure.supxlabel(NOT_A_MEDICAL_DEVICE, fontsize="small")
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise OutputError(f"{path}: the picture cannot be written ({error.strerror or error})") from None
    return path


class TensorBoard:
    """TensorBoard, if it is installed; otherwise does nothing."""

    def __init__(self, folder: Path, last_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.writer: Any = None
        else:
            self.writer = SummaryWriter(str(folder), purge_step=last_step + 1)

    def add(self, row: Mapping[str, float]) -> None:
        """Write the values of a row."""
        if self.writer is not None:
            for name, value in row.items():
                if name != "step":
                    self.writer.add_scalar(name, value, int(row["step"]))

    def close(self) -> None:
        """Close the writer."""
        if self.writer is not None:
            self.writer.close()


class TrainingProgress:
    """Progress with throughput and time left. ``prefix`` names the run where there are several."""

    def __init__(self, shown: bool = True, say: Callable[[str], None] | None = None, prefix: str = "") -> None:
        self.bars = ProgressBars(say, shown)
        self.prefix = prefix

    def tell(self, text: str) -> None:
        """Print a message before the first step."""
        self.bars.say(self.prefix + text)

    @contextmanager
    def loading_bar(self, what: str, count: int) -> Iterator[Callable[[int], None]]:
        """Show progress of work before the first step; yields a function to call with the number of new items."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self.bars(self.prefix + what, done, count)

        if not self.bars.on_terminal and count > 1000:
            self.tell(f"{what}: {count:,} studies")
        with self.bars:
            yield advance

    def begin(self, step: int, steps: int, images_per_step: int) -> ProgressBars:
        """Start the step counter and return its progress bar, a context manager."""
        self.steps, self.images_per_step = steps, images_per_step
        self.first, self.started = step, monotonic()
        return self.bars

    def images_per_second(self, step: int) -> float:
        """Return the throughput of all processes since this run started."""
        return (step - self.first) * self.images_per_step / max(monotonic() - self.started, 1e-9)

    def show(self, step: int, loss: float) -> None:
        """Show the step, the loss and the time left."""
        speed = self.images_per_second(step)
        left = str(timedelta(seconds=round((self.steps - step) * self.images_per_step / speed))) if speed > 0 else "?"
        figures = f"loss {loss:.4g}  {speed:,.0f} images/s  {left} left"
        self.bars(f"{self.prefix}training", step, self.steps, figures)

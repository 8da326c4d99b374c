"""What a run shows while it goes: a table of figures (CSV), TensorBoard where it is installed, and a progress bar."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rightlung.core import InputError, OutputError
from rightlung.core.files import write_whole

Row = dict[str, float]
PAUSE = 20.0
"""Seconds between lines where there is no terminal for a progress bar."""


class Log:
    """``log.csv``: a row for every so many steps. Columns are those of the first row that has them, in their order."""

    def __init__(self, path: Path, last_step: int) -> None:
        """Go on with a log, of which rows after ``last_step`` are dropped: they will come again."""
        self.path = path
        self.rows = [row for row in read_log(path) if row["step"] <= last_step] if path.exists() else []
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        self._rewrite()

    def add(self, row: Mapping[str, float]) -> None:
        """Append a row; a column that is new makes the table be written anew."""
        self.rows.append(dict(row))
        if any(name not in self.columns for name in row):
            self.columns.extend(name for name in row if name not in self.columns)
            self._rewrite()
            return
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(self._line(row))
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror or error}") from None

    def _rewrite(self) -> None:
        if self.columns:
            header = ",".join(self.columns) + "\n"
            write_whole(self.path, header + "".join(self._line(row) for row in self.rows), durable=True)
        elif self.path.exists():
            self.path.unlink()

    def _line(self, row: Mapping[str, float]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow([_figure(row.get(name)) for name in self.columns])
        return text.getvalue()


def read_log(path: Path) -> list[Row]:
    """Read a log: rows of the figures that are there. A last line that was cut off is left out."""
    rows: list[Row] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            content = file.read()
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
    """Whether the last ``patience`` validations were none lower than the lowest before them.

    Losses are compared as the log has them, so that a run that goes on decides as one that was never interrupted.
    """
    losses = [float(_figure(row["validation loss"])) for row in rows if "validation loss" in row]
    if patience is None or len(losses) <= patience:
        return False
    return min(losses[-patience:]) >= min(losses[:-patience])


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


class Board:
    """TensorBoard, where it is installed; else nothing."""

    def __init__(self, folder: Path, last_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.writer: Any = None
        else:
            self.writer = SummaryWriter(str(folder), purge_step=last_step + 1)

    def add(self, row: Mapping[str, float]) -> None:
        """Write the figures of a row."""
        if self.writer is not None:
            for name, value in row.items():
                if name != "step":
                    self.writer.add_scalar(name, value, int(row["step"]))

    def close(self) -> None:
        """Finish."""
        if self.writer is not None:
            self.writer.close()


class Progress:
    """A progress bar with throughput and time left; without a terminal, a line now and then. Standard error only.

    ``prefix`` says which of several runs it is. Such a run does not tell its last step: what comes next is told.
    """

    def __init__(self, shown: bool = True, say: Callable[[str], None] | None = None, prefix: str = "") -> None:
        from rich.console import Console

        self.shown, self.prefix = shown, prefix
        self.console = Console(stderr=True)
        self.bar: Any = None
        self.task: Any = None
        self._say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self._spoken = monotonic()

    def tell(self, text: str) -> None:
        """Say something that somebody should know before the first step."""
        if self.shown:
            self._say(self.prefix + text)

    @contextmanager
    def filling(self, what: str, count: int) -> Iterator[Callable[[int], None]]:
        """Show how something is gathered before the first step."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        described = TextColumn("{task.description}", markup=False)
        columns = (described, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        visible = self.shown and self.console.is_terminal
        if self.shown and not visible and count > 1000:
            self._say(f"{self.prefix}{what}: {count:,} studies")
        with Bar(*columns, console=self.console, transient=True, disable=not visible) as bar:
            task = bar.add_task(self.prefix + what, total=count)
            yield lambda done: bar.update(task, advance=done)

    def begin(self, step: int, steps: int, images_a_step: int) -> Self:
        """Begin to count steps."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self.steps, self.images_a_step = steps, images_a_step
        self.first, self.started = step, monotonic()
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        visible = self.shown and self.console.is_terminal
        self.bar = Bar(*columns, console=self.console, transient=True, disable=not visible)
        self.task = self.bar.add_task(f"{self.prefix}training", total=steps, completed=step, figures="")
        self.visible = visible
        return self

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def images_per_second(self, step: int) -> float:
        """Return the throughput of all processes since the beginning."""
        return (step - self.first) * self.images_a_step / max(monotonic() - self.started, 1e-9)

    def show(self, step: int, loss: float) -> None:
        """Show how far the run is."""
        rate = self.images_per_second(step)
        left = (self.steps - step) * self.images_a_step / rate if rate > 0 else math.inf
        figures = f"loss {loss:.4g}  {rate:,.0f} images/s  {_duration(left)} left"
        self.bar.update(self.task, completed=step, figures=figures)
        now, last = monotonic(), step == self.steps and not self.prefix
        if self.shown and not self.visible and (now - self._spoken > PAUSE or last):
            self._spoken = now
            self._say(f"{self.prefix}step {step:,} of {self.steps:,}: {figures}")


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"

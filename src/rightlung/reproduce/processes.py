"""Run several tasks in parallel processes; an interruption leaves none of them running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rightlung.core.errors import OutputError
from rightlung.core.progress import Progress, no_progress

REFUSED, NOT_WRITTEN, INTERRUPTED = 2, 4, 130
"""Exit codes of a process whose last line ("error: …") says what is wrong with its input or output."""

_PAUSE = 0.2
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Task:
    """One process: its name, its command, and the tasks that must finish first.

    Of some, a file of ``files`` is enough. What waits for a failed task that ``prepares`` fails for the same reason.
    A task that has several processes itself takes as many ``places``.
    """

    name: str
    title: str
    command: Sequence[str]
    after: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    prepares: bool = False
    places: int = 1

    def waits_for(self, names: Container[str]) -> str | None:
        """Return the first of the tasks with these names that this one needs and that has not written its file."""
        found = (name for name in self.after if name in names)
        return next((name for name in found if name not in self.files or not self.files[name].is_file()), None)


def in_processes(
    tasks: Sequence[Task],
    at_once: int,
    logs: Path,
    *,
    threads: int = 1,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """Run tasks, ``at_once`` at a time, and return the reasons of failed tasks by name; the others continue.

    Output goes to ``logs``. Each process uses ``threads`` threads unless the environment sets OMP_NUM_THREADS. Ctrl-C
    and SIGTERM are passed on to every process, then all are waited for.
    """
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    waiting, running, failed = list(tasks), dict[str, tuple[Task, subprocess.Popen[bytes]]](), dict[str, str]()
    prepare = {task.name for task in tasks if task.prepares}
    logs.mkdir(parents=True, exist_ok=True)
    with _terminated():
        try:
            while waiting or running:
                for name, (task, process) in list(running.items()):
                    if (code := process.poll()) is not None:
                        del running[name]
                        if code:
                            failed[name] = _reason(task, code, logs)
                            say(f"{task.title}: {failed[name]}")
                        else:
                            say(f"{task.title}: done")
                free = at_once - sum(min(task.places, at_once) for task, _ in running.values())
                for task in _ready(waiting, running, failed):
                    if (lost := task.waits_for(failed)) is not None:
                        failed[task.name] = failed[lost] if lost in prepare else f"it starts from {lost}, which failed"
                        say(f"{task.title}: {failed[task.name]}")
                    elif (own := min(task.places, at_once)) <= free:
                        free -= own
                        running[task.name] = task, _started(task, logs, environment)
                        say(f"{task.title}: started, log in {_log(task, logs)}")
                    else:
                        free = 0  # kept for this one, which comes first
                        continue
                    waiting.remove(task)
                if running:
                    at_work = ", ".join(_state(task, logs) for task, _ in running.values())
                    progress(f"running: {at_work}; done", len(tasks) - len(waiting) - len(running), len(tasks))
                    time.sleep(_PAUSE)
        except BaseException:
            _end([process for _, process in running.values()])
            raise
    return failed


def _ready(waiting: Sequence[Task], running: Mapping[str, object], failed: Mapping[str, str]) -> list[Task]:
    """Return the tasks that do not wait for another, or for nothing that is still possible."""
    unfinished = {task.name for task in waiting} | set(running)
    return [task for task in waiting if not task.waits_for(unfinished) or task.waits_for(failed)]


def _started(task: Task, logs: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with _log(task, logs).open("wb") as file:
        # A new session, so that the terminal's Ctrl-C reaches the process once, through us.
        return subprocess.Popen(
            task.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip


def _log(task: Task, logs: Path) -> Path:
    return logs / f"{task.name}.txt"


def _last_line(task: Task, logs: Path) -> str:
    with contextlib.suppress(OSError):
        lines = _log(task, logs).read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


def _state(task: Task, logs: Path) -> str:
    """Return the name of a task with the start of its last log line."""
    state = _last_line(task, logs).removeprefix(f"{task.title}: ").partition(":")[0][:_LONGEST]
    return f"{task.name} ({state})" if state else task.name


def _reason(task: Task, code: int, logs: Path) -> str:
    last = _last_line(task, logs)
    if code == NOT_WRITTEN:
        raise OutputError(last.removeprefix("error: "))
    if code == REFUSED:
        return last.removeprefix("error: ")
    ended = "was interrupted" if code in (INTERRUPTED, -signal.SIGINT) else f"ended with exit code {code}"
    return f"the process {ended} (see {_log(task, logs)}){f': {last}' if last else ''}"


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt processes and wait for them; each further Ctrl-C interrupts them again."""
    while alive := [process for process in processes if process.poll() is None]:
        for process in alive:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            for process in alive:
                process.wait()


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C inside this context."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt this process as Ctrl-C does."""
    raise KeyboardInterrupt

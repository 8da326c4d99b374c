"""Several processes at once: their order, failures and threads, and that an interruption leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rightlung.core import OutputError
from rightlung.reproduce.processes import Task, in_processes

ROOT = Path(__file__).parents[2]


def python(name: str, code: str, *after: str, prepares: bool = False) -> Task:
    return Task(name, f"[1/1] {name}", [sys.executable, "-c", code], after, prepares=prepares)


def note(path: Path, word: str) -> str:
    return f"open({str(path)!r}, 'a').write({word!r})"


def test_one_that_starts_from_another_waits_for_it_and_takes_no_place_meanwhile(tmp_path: Path) -> None:
    order = tmp_path / "order"
    tasks = [
        python("later", note(order, "l"), "first"),
        python("first", f"import time; time.sleep(0.6); {note(order, 'f')}"),
        python("beside", note(order, "b")),
    ]
    said: list[str] = []
    assert in_processes(tasks, 2, tmp_path / "logs", say=said.append) == {}
    assert order.read_text() == "bfl"
    assert said[-1] == "[1/1] later: done"


def test_a_file_is_enough_to_wait_for_even_if_its_writer_fails_later(tmp_path: Path) -> None:
    order, file = tmp_path / "order", tmp_path / "file"
    slow = f"import time; {note(order, 'f')}; {note(file, 'x')}; time.sleep(1.5); {note(order, 's')}; 1 / 0"
    later = Task("later", "later", [sys.executable, "-c", note(order, "l")], ("first",), {"first": file})
    command = [sys.executable, "-c", note(order, "n")]
    never = Task("never", "never", command, ("first",), {"first": tmp_path / "other"})
    failed = in_processes([python("first", slow), later, never], 2, tmp_path / "logs")
    assert order.read_text() == "fls"
    assert sorted(failed) == ["first", "never"]


def test_each_waits_for_all_that_it_needs_only_and_fails_for_the_reason_of_what_prepares_it(tmp_path: Path) -> None:
    order = tmp_path / "order"
    tasks = [
        python("empty", "import sys; print('error: no studies'); sys.exit(2)", prepares=True),
        python("quick", note(order, "q"), prepares=True),
        python("slow", f"import time; time.sleep(1); {note(order, 's')}", prepares=True),
        python("of-both", note(order, "b"), "quick", "slow"),
        python("of-quick", note(order, "1"), "quick"),
        python("of-empty", note(order, "x"), "slow", "empty"),
        python("from-it", note(order, "x"), "of-empty"),
    ]
    failed = in_processes(tasks, 4, tmp_path / "logs")
    assert order.read_text() == "q1sb"
    assert failed.pop("empty") == "no studies"
    assert failed == {"of-empty": "no studies", "from-it": "it starts from of-empty, which failed"}


def test_a_task_with_processes_of_its_own_takes_their_places_and_is_not_overtaken(tmp_path: Path) -> None:
    order = tmp_path / "order"
    wide = replace(python("wide", f"{note(order, 'w')}; import time; time.sleep(0.8); {note(order, 'W')}"), places=3)
    before = python("before", f"import time; time.sleep(0.8); {note(order, 'b')}")
    assert in_processes([before, wide, python("after", note(order, "a"))], 3, tmp_path / "logs") == {}
    assert order.read_text() == "bwWa"


def test_the_others_go_on_where_one_fails_and_its_reason_is_told(tmp_path: Path) -> None:
    tasks = [
        python("refused", "import sys; print('error: no such field'); sys.exit(2)"),
        python("broken", "1 / 0"),
        python("of-it", note(tmp_path / "never", "x"), "refused"),
        python("good", note(tmp_path / "done", "x")),
    ]
    failed = in_processes(tasks, 1, tmp_path / "logs")
    assert failed["refused"] == "no such field"
    assert failed["of-it"] == "it starts from refused, which failed"
    assert "exit code 1" in failed["broken"]
    assert "broken.txt" in failed["broken"]
    assert "ZeroDivisionError" in failed["broken"]
    assert list(failed) == ["refused", "of-it", "broken"]
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "never").exists()


def test_a_full_disk_ends_all_of_them(tmp_path: Path) -> None:
    tasks = [
        python("full", "import sys, time; time.sleep(0.5); print('error: no space left'); sys.exit(4)"),
        python("long", f"import time; time.sleep(60); {note(tmp_path / 'never', 'x')}"),
    ]
    with pytest.raises(OutputError, match="no space left"):
        in_processes(tasks, 2, tmp_path / "logs")
    assert not (tmp_path / "never").exists()  # ended, not waited for


@pytest.mark.parametrize(("set_to", "expected"), [(None, "3"), ("7", "7")])
def test_each_gets_its_share_of_threads_unless_the_user_has_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_to: str | None, expected: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if set_to is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", set_to)
    code = f"import os; open({str(tmp_path / 'threads')!r}, 'w').write(os.environ['OMP_NUM_THREADS'])"
    assert in_processes([python("one", code)], 2, tmp_path / "logs", threads=3) == {}
    assert (tmp_path / "threads").read_text() == expected


def test_what_they_are_at_is_told_by_the_last_that_each_said(tmp_path: Path) -> None:
    told: list[tuple[str, float, float]] = []
    code = "import time; print('[1/1] one: step 3 of 9: loss 0.1', flush=True); time.sleep(1)"
    in_processes([python("one", code)], 2, tmp_path / "logs", progress=lambda *what: told.append(what))
    assert ("running: one (step 3 of 9); done", 0, 1) in told


CHILD = """
import signal, sys, time
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
open(sys.argv[1] + ".ready", "w").close()
while not asked:
    time.sleep(0.02)
time.sleep(0.4)
open(sys.argv[1], "w").write(str(len(asked)))
"""
DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in its background ignore it
from rightlung.reproduce.processes import Task, in_processes
home = Path(sys.argv[1])
tasks = [Task(name, name, [sys.executable, str(home / "child.py"), str(home / name)]) for name in ("a", "b", "c")]
try:
    in_processes(tasks, 2, home / "logs")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(("whom", "kind"), [("parent", "SIGINT"), ("group", "SIGINT"), ("parent", "SIGTERM")])
def test_ctrl_c_reaches_every_process_once_and_leaves_none(tmp_path: Path, whom: str, kind: str) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        while not all((tmp_path / f"{name}.ready").exists() for name in "ab"):
            time.sleep(0.02)
            assert process.poll() is None
        number = getattr(signal, kind)
        (os.killpg if whom == "group" else os.kill)(process.pid, number)
        try:
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
    assert [(tmp_path / name).read_text() for name in "ab"] == ["1", "1"]  # the driver has waited for both
    assert not (tmp_path / "c.ready").exists()

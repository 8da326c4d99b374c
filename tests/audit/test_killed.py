"""An audit that is killed, or whose disk is full, while it writes its three files."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import rightlung
from rightlung.audit import audit
from rightlung.core import OutputError
from rightlung.core.files import folder_lock
from tests.audit.cards import QUICK, Cards, diagonal_map, write_answers

FILES = ("audit.html", "audit.json", "audit.md", "checklist.md", "instances.parquet")

# A forked child dies before or after one call of those that the files are written with. Arrow starts its threads in
# children only, so that forking is safe.
KILLS = """
import os, shutil, signal, sys
from pathlib import Path
import pyarrow.parquet
from rightlung.audit import audit
from tests.audit.cards import QUICK, Cards

root = Path(sys.argv[1])

def run(name, out):
    audit(root / name, Cards(2), out, settings=QUICK, cases=0)

def in_child(task):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            task()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]

def die_at(home, method, call, half):
    real, calls = getattr(home, method), [0]
    def counted(*arguments, **options):
        calls[0] += 1
        if calls[0] != call:
            return real(*arguments, **options)
        if half:
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(home, method, counted)

# instances.parquet is renamed once in the hidden folder; then the files are moved.
steps = [(Path, "write_bytes", 1, True), (Path, "hardlink_to", 2, False)]
steps += [(Path, "replace", call, False) for call in (1, 2, 3, 4)]
for number, step in enumerate(steps):
    out = root / f"after-{number}"
    shutil.copytree(root / "out", out)
    def task():
        die_at(*step)
        run("new", out)
    status = in_child(task)
    assert os.WIFSIGNALED(status), (step, status)
"""


def models_of(folder: Path) -> set[str]:
    """Return the model that each file of an audit names; every file must be complete."""
    html = (folder / "audit.html").read_text(encoding="utf-8")
    assert html.rstrip().endswith("</html>")
    named = json.loads((folder / "audit.json").read_text(encoding="utf-8"))["model"]
    table = pq.read_table(folder / "instances.parquet")
    assert len(table) == 8
    model = table.schema.metadata[b"rightlung.model"].decode()
    return {"new" if "Audit of new" in html else "old", named, model}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with answers of two models, and an audit of the old one."""
    for name in ("old", "new"):
        write_answers(Cards(2), tmp_path / name, diagonal_map, ("none",), model=name)
    audit(tmp_path / "old", Cards(2), tmp_path / "out", settings=QUICK, cases=0)
    assert models_of(tmp_path / "out") == {"old"}
    return tmp_path


def test_a_kill_while_writing_leaves_complete_files_and_the_next_lock_leaves_the_old_or_the_new_ones(
    earlier: Path,
) -> None:
    root = Path(str(rightlung.__file__)).parents[2]
    path = os.pathsep.join([str(root / "src"), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(earlier)], env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folders = sorted(earlier.glob("after-*"))
    # The last three die while moving the files, which no system call does at once; the next lock completes that.
    assert [models_of(folder) for folder in folders] == [{"old"}] * 4 + [{"old", "new"}] * 2
    for folder in folders:
        folder_lock(folder, "busy").release()
        assert sorted(file.name for file in folder.iterdir()) == sorted([".lock", *FILES])
    assert [models_of(folder) for folder in folders] == [{"old"}] * 3 + [{"new"}] * 3


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_at(home: Any, method: str, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = getattr(home, method)
    calls = [0]

    def counted(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise FULL
        return real(*arguments, **options)

    monkeypatch.setattr(home, method, counted)


@pytest.mark.parametrize(
    ("home", "method", "call"),
    [(Path, "write_bytes", 1), (Path, "write_bytes", 2), (pq, "write_table", 1)]
    + [(Path, "replace", call) for call in (1, 2, 3, 4)],
)
def test_a_full_disk_replaces_all_three_files_or_none(
    earlier: Path, monkeypatch: pytest.MonkeyPatch, home: Any, method: str, call: int
) -> None:
    before = {name: (earlier / "out" / name).read_bytes() for name in FILES}
    with monkeypatch.context() as patch:
        full_at(home, method, call, patch)
        with pytest.raises(OutputError, match="cannot be written: No space left on device"):
            audit(earlier / "new", Cards(2), earlier / "out", settings=QUICK, cases=0)
    assert {name: (earlier / "out" / name).read_bytes() for name in FILES} == before
    assert sorted(file.name for file in (earlier / "out").iterdir()) == sorted([".lock", *FILES])
    if (method, call) == ("replace", 4):  # with room again, all three are replaced; and backups need no hard links
        monkeypatch.setattr(Path, "hardlink_to", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
        audit(earlier / "new", Cards(2), earlier / "out", settings=QUICK, cases=0)
        assert models_of(earlier / "out") == {"new"}

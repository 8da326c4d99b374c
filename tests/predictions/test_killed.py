"""A writer killed at any moment: what is complete stays readable, and a rerun ends where one run would have."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.predictions import Prediction, PredictionWriter, check_predictions, open_predictions

from .conftest import Run

ROWS = 90

# Forks before Arrow has started a thread, so that one start of the interpreter serves for all kills. After each kill
# the folder is copied as it was found; the test reads the copies.
COMMON = """
import os, random, shutil, signal, sys, time
from pathlib import Path
import numpy as np
import pyarrow as pa
from rightlung.core import Grounding, Heatmap, Query
from rightlung.predictions import Prediction, PredictionWriter

def prediction(number):
    values = np.random.default_rng(number).random((7, 7), dtype=np.float32)
    return Prediction(f"s{number}", "phrase:0", "none", Query("effusion"), Grounding(Heatmap(values)))

def write(folder, rows, started=None):
    with PredictionWriter(folder, source="phantom", model="m", rows_per_part=3) as writer:
        if started is not None:
            os.write(started, b"!")
        for number in range(rows):
            if prediction(number).key not in writer.done:
                writer.write(prediction(number))

def in_child(task):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            task()
            code = 0
        finally:
            os._exit(code)
    return child

out, rows = Path(sys.argv[1]), int(sys.argv[2])
pa.array([prediction(0).study])  # what Arrow loads on first use is loaded before the clocks run
begin = time.monotonic()
assert os.waitpid(in_child(lambda: write(out / "unbroken", rows)), 0)[1] == 0
unbroken_seconds = time.monotonic() - begin
"""

RANDOM_KILLS = """
chance = random.Random(11)
for number in range(14):
    ready, started = os.pipe()
    child = in_child(lambda: write(out / "p", rows, started))
    os.read(ready, 1)
    time.sleep(chance.uniform(0, unbroken_seconds / 4))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    shutil.copytree(out / "p", out / f"after-{number:02d}")
"""

# Dies just before or after the n-th call of one of the calls a part is written by, or with half of it written.
KILLS_AT_EACH_STEP = """
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_in(name, when, part, calls_per_part):
    home = Path if name == "write_bytes" else os
    real, calls = getattr(home, name), [0]
    def call(*arguments, **options):
        calls[0] += 1
        if calls[0] == (part - 1) * calls_per_part + 1:
            if when == "half":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            if when == "after":
                real(*arguments, **options)
            die()
        return real(*arguments, **options)
    setattr(home, name, call)

# A part syncs twice: its file, then its folder.
calls = {"write_bytes": 1, "fsync": 2, "replace": 1}
steps = [(name, when) for name in calls for when in ("before", "after")]
for number, (name, when) in enumerate([*steps, ("write_bytes", "half")]):
    def task():
        die_in(name, when, 2, calls[name])
        write(out / "p", rows)
    status = os.waitpid(in_child(task), 0)[1]
    assert os.WIFSIGNALED(status), (name, when, status)
    shutil.copytree(out / "p", out / f"after-{number:02d}")
"""

FINISH = """
assert os.waitpid(in_child(lambda: write(out / "p", rows)), 0)[1] == 0
"""


@pytest.mark.parametrize("kills", [RANDOM_KILLS, KILLS_AT_EACH_STEP], ids=["at random", "at each step"])
def test_what_is_complete_stays_readable_and_a_rerun_continues(tmp_path: Path, run_python: Run, kills: str) -> None:
    done = run_python(COMMON + kills + FINISH, tmp_path, ROWS)
    assert done.returncode == 0, done.stderr
    unbroken = list(open_predictions(tmp_path / "unbroken"))
    assert len(unbroken) == ROWS

    grown = []
    for copy in sorted(tmp_path.glob("after-*")):
        if any(copy.glob("*.parquet")):
            read = list(open_predictions(copy))
            assert read == unbroken[: len(read)]
            grown.append(len(read))
    # The kills must have hit the run under way, else this shows nothing; and no kill may have cost an earlier part.
    assert grown == sorted(grown)
    assert any(count < ROWS for count in grown), grown

    assert check_predictions(tmp_path / "p") == []
    assert list(open_predictions(tmp_path / "p")) == unbroken
    assert [file.name for file in (tmp_path / "p").iterdir() if file.suffix == ".writing"] == []


def test_a_reader_beside_a_writer_sees_complete_parts_only(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path / "p", source="phantom", model="m", rows_per_part=2) as writer:
        for number in range(3):
            writer.write(Prediction(f"s{number}", "image", similarity_global=0.5))
        assert [row.study for row in open_predictions(tmp_path / "p")] == ["s0", "s1"]

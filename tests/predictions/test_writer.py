"""Writing goes on where it stopped, one writer at a time, and says in a sentence what is in its way."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rightlung.core import InputError, OutputError
from rightlung.predictions import Prediction, PredictionWriter, open_predictions

from .conftest import Run


def prediction(number: int) -> Prediction:
    return Prediction(f"s{number}", "image", similarity_global=number / 7)


def full(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def writer_at(folder: Path, **changed: Any) -> PredictionWriter:
    return PredictionWriter(folder, **{"source": "phantom?count=9", "model": "starter", "rows_per_part": 2, **changed})


def studies(folder: Path) -> list[str]:
    return [row.study for row in open_predictions(folder)]


def parts(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.parquet"))


def test_a_rerun_goes_on_and_doubles_nothing(tmp_path: Path) -> None:
    with writer_at(tmp_path / "p") as writer:
        for number in range(3):
            writer.write(prediction(number))
    with writer_at(tmp_path / "p") as writer:
        assert len(writer.done) == 3
        assert prediction(2).key in writer.done
        assert prediction(3).key not in writer.done
        for number in range(5):
            writer.write(prediction(number))
        assert prediction(4).key in writer
    assert studies(tmp_path / "p") == ["s0", "s1", "s2", "s3", "s4"]


def test_the_same_key_twice_is_refused_and_an_exception_loses_nothing_that_was_computed(tmp_path: Path) -> None:
    def interrupted_run() -> None:
        with writer_at(tmp_path / "p", rows_per_part=100) as writer:
            writer.write(prediction(1))
            with pytest.raises(InputError, match=r"study 's1', query 'image', condition 'none' was already written"):
                writer.write(prediction(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert studies(tmp_path / "p") == ["s1"]


def test_a_part_is_due_after_rows_or_after_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("rightlung.predictions.writer.time.monotonic", lambda: clock[0])
    with writer_at(tmp_path / "p", rows_per_part=3, seconds_per_part=60) as writer:
        for number in range(3):
            writer.write(prediction(number))
        assert parts(tmp_path / "p") == ["part-00000.parquet"]
        writer.write(prediction(3))
        assert parts(tmp_path / "p") == ["part-00000.parquet"]
        clock[0] += 60
        writer.write(prediction(4))
        assert parts(tmp_path / "p") == ["part-00000.parquet", "part-00001.parquet"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "other"}, "of model 'starter', not 'other'"),
        ({"source": "phantom?count=8"}, r"of source 'phantom\?count=9', not 'phantom\?count=8'"),
        ({"run": {"seed": object()}}, "run must be serialisable as JSON"),
    ],
)
def test_another_model_or_source_is_not_mixed_in(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with writer_at(tmp_path / "p") as writer:
        writer.write(prediction(1))
    with pytest.raises(InputError, match=message):
        writer_at(tmp_path / "p", **changed)
    with writer_at(tmp_path / "p") as writer:  # the refusal let go of the folder
        assert len(writer.done) == 1


@pytest.mark.parametrize(
    ("file", "content", "folder", "message"),
    [
        ("notes.txt", "mine", "", r"holds 'notes\.txt', which is not a predictions part"),
        ("part-00000.parquet", "PAR1 half a", "", r"part-00000\.parquet: cannot be read as Parquet"),
        ("file", "", "file", "file: expected a folder; this is a file"),
        ("file", "", "file/p", "p: cannot be written: Not a directory"),
    ],
)
def test_what_stands_in_the_way_is_named(tmp_path: Path, file: str, content: str, folder: str, message: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError if file.startswith("part") else OutputError, match=message):
        writer_at(tmp_path / folder)
    assert (tmp_path / file).read_text() == content


def test_every_part_says_what_it_is(tmp_path: Path) -> None:
    with writer_at(tmp_path / "p", run={"seed": 7}) as writer:
        writer.write(prediction(1))
    metadata = pq.read_metadata(tmp_path / "p" / "part-00000.parquet").metadata
    assert metadata[b"rightlung.predictions"] == b"1"
    read = open_predictions(tmp_path / "p")
    assert (read.schema_version, read.runs) == (1, ({"seed": 7},))
    assert (read.source, read.model) == ("phantom?count=9", "starter")


def test_a_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    with writer_at(tmp_path / "p"), pytest.raises(OutputError, match="another run is writing here"):
        writer_at(tmp_path / "p")
    with writer_at(tmp_path / "p"):
        pass


def test_a_forked_worker_does_not_keep_the_folder(tmp_path: Path, run_python: Run) -> None:
    script = """
import os, signal, sys, time
from rightlung.predictions import PredictionWriter
sleeper = os.fork()
if sleeper == 0:
    writer = PredictionWriter(sys.argv[1], source="s", model="m")
    told, tell = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.closerange(0, 3)  # else the test would wait for these to close
        os.write(tell, b"!")
        time.sleep(30)
        os._exit(0)
    open(sys.argv[2], "w").write(str(worker))
    os.read(told, 1)  # the worker is through the fork
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(sleeper, 0)
PredictionWriter(sys.argv[1], source="s", model="m").close()
print("free")
"""
    done = run_python(script, tmp_path / "p", tmp_path / "worker")
    os.kill(int((tmp_path / "worker").read_text()), 9)
    assert done.stdout == "free\n", done.stderr


def test_what_a_killed_run_left_unfinished_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".part-00000.parquet.writing").write_bytes(b"PAR1 half a")
    with writer_at(tmp_path) as writer:
        writer.write(prediction(1))
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "part-00000.parquet"]


def test_an_interrupt_right_after_the_renaming_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        replace(path, target)
        raise KeyboardInterrupt

    with writer_at(tmp_path / "p") as writer:
        writer.write(prediction(1))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.write(prediction(2))
        writer.write(prediction(3))
    assert studies(tmp_path / "p") == ["s1", "s2", "s3"]


@pytest.mark.parametrize(("module", "step"), [(os, "open"), (Path, "write_bytes"), (os, "fsync")])
def test_after_a_full_disk_the_rows_are_written_by_a_later_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, step: str
) -> None:
    with writer_at(tmp_path / "p") as writer:
        writer.write(prediction(1))
        with monkeypatch.context() as patch:
            patch.setattr(module, step, full)
            with pytest.raises(OutputError, match=r"part-00000\.parquet: cannot be written: No space left on device"):
                writer.write(prediction(2))
        assert [file.name for file in (tmp_path / "p").iterdir()] == [".lock"]
        writer.flush()
        assert studies(tmp_path / "p") == ["s1", "s2"]


UNWRITABLE = """
import fcntl, os, sys  # all of it before the rights to read it may go
from rightlung.core import OutputError
from rightlung.predictions import PredictionWriter
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)  # to root, nothing is unwritable
for folder in sys.argv[1:]:
    try:
        PredictionWriter(folder, source="s", model="m")
    except OutputError as error:
        print(error)
"""


def test_an_unwritable_folder_is_a_sentence_before_any_work(run_python: Run) -> None:
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        folders = [Path(root) / "p", Path(root) / "p" / "new"]
        folders[0].mkdir(mode=0o555)
        done = run_python(UNWRITABLE, *folders)
        assert done.stdout.splitlines() == [f"{one}: cannot be written: Permission denied" for one in folders], done


def test_a_failing_last_part_does_not_hide_what_ended_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_run() -> None:
        with writer_at(tmp_path / "p") as writer:
            writer.write(prediction(1))
            monkeypatch.setattr(os, "fsync", full)
            raise RuntimeError("the model broke")

    with pytest.raises(RuntimeError, match="the model broke") as caught:
        broken_run()
    assert "No space left on device" in caught.value.__notes__[0]

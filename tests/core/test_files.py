from __future__ import annotations

import os
from pathlib import Path

import pytest

from rightlung.core import InputError, OutputError
from rightlung.core.files import folder_lock, read_json, write_json, write_whole


def test_texts_bytes_and_what_functions_write_take_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_whole(path, "größer\n")
    assert path.read_bytes() == "größer\n".encode()
    write_whole(path, b"\x00\r\n")
    assert path.read_bytes() == b"\x00\r\n"
    write_whole(path, lambda beside: beside.write_text("third"))
    assert path.read_text() == "third"
    assert [one.name for one in path.parent.iterdir()] == ["file.txt"]


def test_a_write_that_fails_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("before")

    def half(beside: Path) -> None:
        beside.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"file\.txt: cannot be written: No space left on device"):
        write_whole(path, half)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["file.txt"]
    with pytest.raises(OutputError, match="cannot be written"):
        write_whole(path / "below" / "a file", "x")


def test_json_comes_back_with_numbers_that_are_none_as_null(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"auroc": float("nan"), "interval": (0.5, float("inf")), "phrase": "größer \ud800"}, durable=True)
    assert read_json(path) == {"auroc": None, "interval": [0.5, None], "phrase": "größer \ud800"}
    path.write_text("[1]")
    with pytest.raises(InputError, match=r"a\.json: must hold a JSON object; got list"):
        read_json(path)
    path.write_text("{")
    with pytest.raises(InputError, match=r"a\.json: cannot be read as JSON"):
        read_json(path)
    with pytest.raises(InputError, match=r"b\.json: there is no such file"):
        read_json(tmp_path / "b.json")


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with folder_lock(folder, "busy"):
        with pytest.raises(OutputError, match="busy"):
            folder_lock(folder, "busy")
        with pytest.raises(InputError, match="taken"):
            folder_lock(folder, InputError("taken"))
    lock = folder_lock(folder, "busy")
    lock.release()
    assert not lock.held
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file: expected a folder; this is a file"):
        folder_lock(tmp_path / "file", "busy")


def test_a_lock_removes_the_empty_folders_that_it_created_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    folder_lock(folder, "busy").release()
    assert list(tmp_path.iterdir()) == []
    with folder_lock(folder, "busy"):
        (folder / "part").write_text("kept")
    assert (folder / "part").read_text() == "kept"
    with folder_lock(tmp_path, "busy"):
        (folder / "part").unlink()
    assert tmp_path.exists()


def test_a_forked_process_does_not_keep_the_folder(tmp_path: Path) -> None:
    lock = folder_lock(tmp_path, "busy")
    child = os.fork()
    if not child:
        os._exit(int(lock.held))
    assert os.waitpid(child, 0)[1] == 0
    assert lock.held
    lock.release()

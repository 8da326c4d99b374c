from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.core import OutputError
from rightlung.core.writing import write_whole


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

    with pytest.raises(OutputError, match=r"file\.txt: cannot be written \(No space left on device\)"):
        write_whole(path, half)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["file.txt"]
    with pytest.raises(OutputError, match="cannot be written"):
        write_whole(path / "below" / "a file", "x")

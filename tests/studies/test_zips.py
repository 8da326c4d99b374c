"""Files inside zip archives, read in place."""

import pickle
import zipfile
from pathlib import Path

import pytest

from rightlung.core import InputError
from rightlung.studies.storage import RandomAccessFile
from rightlung.studies.zips import Member, members, read_member


def read(path: Path, member: Member, max_bytes: int = 2**30) -> bytes:
    archive = pickle.loads(pickle.dumps(RandomAccessFile(str(path))))
    return read_member(archive, member, "a", max_bytes)


def write(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_every_member_comes_out_as_the_standard_library_gives_it(tmp_path: Path, method: int) -> None:
    files = {"a.txt": b"one" * 1000, "folder/b.txt": "zwölf".encode(), "c/d/e.bin": bytes(range(256)) * 40}
    path = write(tmp_path / "x.zip", {**files, "__MACOSX/._a.txt": b"litter"}, method)
    with zipfile.ZipFile(path) as archive:
        assert {name: read(path, member) for name, member in members(path)} == {
            name: archive.read(name) for name in files
        }


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.txt", "a/../../b"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"x.zip is refused: file"):
        list(members(write(tmp_path / "x.zip", {name: b"x"})))


def test_what_is_no_archive_or_not_there_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"not a zip")
    with pytest.raises(InputError, match=r"x.zip cannot be read: File is not a zip file"):
        list(members(tmp_path / "x.zip"))
    with pytest.raises(InputError, match=r"y.zip does not exist"):
        list(members(tmp_path / "y.zip"))


def test_a_member_that_unpacks_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.zip", {"a": bytes(10_000_000)})
    ((_, member),) = members(path)
    with pytest.raises(InputError, match="more than the limit of 1,000"):
        read(path, member, max_bytes=1000)
    with pytest.raises(InputError, match="does not have the 100 bytes"):
        read(path, member._replace(size=100), max_bytes=1000)


def test_damage_and_other_compressions_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.zip", {"a": b"some text, " * 50})
    ((_, member),) = members(path)
    with pytest.raises(InputError, match="damaged or was replaced"):
        read(path, member._replace(offset=member.offset + 1))
    data = bytearray(path.read_bytes())
    data[36:44] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(InputError, match="a is damaged"):
        read(path, member)
    path = write(tmp_path / "y.zip", {"a": b"some text, " * 50}, zipfile.ZIP_LZMA)
    ((_, member),) = members(path)
    with pytest.raises(InputError, match="unsupported compression method 14"):
        read(path, member)

import io
import multiprocessing
import pickle
import tarfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from rightlung.core import InputError, Study
from rightlung.studies import Source, open_source
from tests.studies.conftest import A, B, WriteData


def refusal(path: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        open_source(f"manifest:{path}")
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (member("../evil.png"), "'../evil.png' leads out of the manifest's folder with '..'"),
        (member("images/../../evil.png"), "with '..'"),
        (member("..", tarfile.DIRTYPE), "'..' leads out"),
        (member("/etc/passwd"), "'/etc/passwd' is an absolute path"),
        (member("/", tarfile.DIRTYPE), "name must be a string with at least one character; got ''"),
        (member("soft.png", tarfile.SYMTYPE, "/etc/passwd"), "member 'soft.png' is a link"),
        (member("hard.png", tarfile.LNKTYPE, "images/a.png"), "member 'hard.png' is a link"),
        (member("null", tarfile.CHRTYPE), "member 'null' is a device or pipe"),
        (member("disk", tarfile.BLKTYPE), "member 'disk' is a device or pipe"),
        (member("pipe", tarfile.FIFOTYPE), "member 'pipe' is a device or pipe"),
        (member("odd", b"Q"), "member 'odd' is neither a file nor a folder"),
        (member("images/a.png"), "member 'images/a.png' is in the archive twice"),
        (member("./images//a.png"), "is in the archive twice"),
    ],
)
def test_a_hostile_member_refuses_the_archive(write_tar: WriteData, hostile: tarfile.TarInfo, reason: str) -> None:
    message = refusal(write_tar([A], members=[hostile]))
    assert "is refused" in message
    assert reason in message


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_format_with_folders_and_long_names_are_read(
    tmp_path: Path, files: dict[str, bytes], tar_format: int
) -> None:
    long_name = "/".join(["d" * 60] * (2 if tar_format == tarfile.USTAR_FORMAT else 5)) + "/a.png"
    path = tmp_path / "x.tar"
    row = f'{{"id": "a", "file": "{long_name}"}}\n'.encode()
    with tarfile.open(path, "w", format=tar_format) as archive:
        archive.addfile(member(".", tarfile.DIRTYPE))
        archive.addfile(member("./images", tarfile.DIRTYPE))
        for name, content in {"./manifest.jsonl": row, long_name: files["images/a.png"]}.items():
            info = member(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert open_source(f"manifest:{path}")[0].image.shape == (6, 4)


def test_files_lie_relative_to_a_nested_manifest(write_tar: WriteData) -> None:
    source = open_source(f"manifest:{write_tar([A, {'id': 'x'}], prefix='mine/')}")
    assert source[0].image.shape == (6, 4)
    assert source.problems[0].file == "mine/manifest.jsonl"


def test_a_manifest_is_needed_and_only_one(write_tar: WriteData, tmp_path: Path) -> None:
    path = write_tar([A], {"other/manifest.jsonl": b"{}"}, prefix="mine/")
    assert "has several manifests" in refusal(path)
    with tarfile.open(tmp_path / "none.tar", "w") as archive:
        archive.addfile(member("a.png"))
    assert refusal(tmp_path / "none.tar").endswith("none.tar has no manifest.jsonl")


@pytest.mark.parametrize(("mode", "kind"), [("w:gz", "gzip"), ("w:bz2", "bzip2"), ("w:xz", "xz")])
def test_a_compressed_archive_is_refused(write_tar: WriteData, mode: str, kind: str) -> None:
    assert f"is compressed ({kind}); decompress it to a plain tar first" in refusal(write_tar([A], mode=mode))


@pytest.mark.parametrize("content", [b"", b"hello", b"hello" * 1000])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    assert "not a tar archive, or truncated" in refusal(path)


def test_every_truncation_of_an_archive_is_refused(write_tar: WriteData) -> None:
    path = Path(write_tar([A]))
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        end = max(info.offset_data + -(-info.size // 512) * 512 for info in archive)
    for length in [*range(0, end, 100), *range(0, end, 512), end, end + 100]:
        path.write_bytes(whole[:length])
        assert "truncated" in refusal(path)
    path.write_bytes(whole[: end + 512])
    assert len(open_source(f"manifest:{path}")) == 1


def test_a_damaged_header_in_the_middle_is_noticed(write_tar: WriteData) -> None:
    path = Path(write_tar([A]))
    with tarfile.open(path) as archive:
        middle = archive.getmember("masks/left.png").offset
    data = bytearray(path.read_bytes())
    data[middle + 5] ^= 1
    path.write_bytes(data)
    assert f"is damaged: it ends at byte {middle:,}, after 2 files" in refusal(path)


def test_a_size_that_leads_backwards_is_refused_and_not_followed_for_ever(write_tar: WriteData, tmp_path: Path) -> None:
    whole = Path(write_tar([A])).read_bytes()
    backwards = member("loop.png")
    backwards.size = -1024
    path = tmp_path / "loop.tar"
    path.write_bytes(member("first").tobuf() + backwards.tobuf(tarfile.GNU_FORMAT) + whole)
    assert "is damaged at member 'loop.png'" in refusal(path)


def _image_sum(study: Study) -> float:
    return float(study.image.sum())


def _sum_at(source: Source, position: int) -> float:
    return _image_sum(source[position])


def test_a_source_is_shared_by_threads_and_processes(write_data: WriteData) -> None:
    source = open_source(f"manifest:{write_data([A, B])}")
    expected = [_image_sum(study) for study in source]
    assert expected[0] != expected[1]
    positions = [0, 1] * 20
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(_sum_at, [source] * 40, positions)) == expected * 20
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert list(processes.map(_sum_at, [source] * 4, positions[:4])) == expected * 2


def test_a_pickled_study_is_small_and_still_loads(write_tar: WriteData) -> None:
    rows = [{**A, "id": str(number)} for number in range(2000)]
    data = pickle.dumps(open_source(f"manifest:{write_tar(rows)}")[0])
    assert len(data) < 2000
    assert pickle.loads(data).image.shape == (6, 4)


def test_a_file_replaced_since_opening_is_noticed(write_data: WriteData) -> None:
    data = pickle.dumps(open_source(f"manifest:{write_data([A, B])}"))
    write_data([B, {**A, "patient": "p"}])
    with pytest.raises(InputError, match="has changed since it was opened"):
        pickle.loads(data)[0]

"""Indexed sources: built once, mapped afterwards, cheap to send to a worker."""

import multiprocessing
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rightlung.core import InputError, Study
from rightlung.studies import index as index_module
from rightlung.studies.index import BuildLog, IndexedSource
from rightlung.studies.sources import parse_address
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import FileImage, find_file, find_optional, walk_files


class Small(IndexedSource):
    """A table of ids, splits and views."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "kind")
    index_options: ClassVar[tuple[str, ...]] = ("kind",)
    columns: ClassVar[Mapping[str, Any]] = {"view": "string"}
    built: ClassVar[int] = 0

    def _inputs(self) -> Sequence[Path]:
        return [find_file(self.root, "table.csv")]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        type(self).built += 1
        table = CsvTable(self._inputs()[0], ("id", "split", "view"), problems=log.problems, root=self.root)

        def parse(row: TableRow) -> dict[str, Any] | None:
            if row.text("view") == "LATERAL":
                log.left_out("lateral view")
                return None
            place = {"file": row.file, "line": row.line}
            return {"id": row.required("id"), "split": row.text("split"), "view": row.text("view"), **place}

        yield from table.read(parse)

    def _build_study(self, record: dict[str, Any]) -> Study:
        if record["view"] == "bad":
            raise self.problem(record, "view", "is bad")
        name = record["id"]
        return Study(name, FileImage(name, str(self.root), f"{name}.png"), split=record["split"])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RIGHTLUNG_CACHE", str(folder))
    monkeypatch.setattr(Small, "built", 0)
    return folder


def write(root: Path, rows: Sequence[str]) -> Path:
    root.mkdir(exist_ok=True)
    (root / "table.csv").write_text("id,split,view\n" + "\n".join(rows) + "\n")
    return root


@pytest.fixture
def root(tmp_path: Path, cache: Path) -> Path:
    splits = ("train", "validate", "test")
    rows = [f"s{n},{splits[n % 3]},{'LATERAL' if n % 10 == 9 else 'PA'}" for n in range(100)]
    return write(tmp_path / "data", rows)


def open_small(root: Path, query: str = "") -> Small:
    return Small(parse_address(f"small:{root}{query}"))


EXPECTED = [f"s{n}" for n in range(100) if n % 10 != 9]


def test_an_index_is_built_once_and_gives_the_same_the_second_time(root: Path, cache: Path) -> None:
    first, second = open_small(root), open_small(root)
    assert Small.built == 1
    for source in (first, second):
        assert list(source.ids) == EXPECTED
        assert [study.id for study in source] == EXPECTED
        assert source.left_out == {"lateral view": 10}
    assert len(list((cache / "indexes").iterdir())) == 1


def test_it_is_built_anew_when_the_table_the_options_or_the_version_change(root: Path, monkeypatch: Any) -> None:
    open_small(root)
    open_small(root, "?kind=other")
    assert Small.built == 2
    monkeypatch.setattr(Small, "version", 2)
    open_small(root)
    assert Small.built == 3
    with (root / "table.csv").open("a") as table:
        table.write("added,train,PA\n")
    assert "added" in open_small(root).ids
    assert Small.built == 4


def test_split_and_limit_select_without_another_index(root: Path) -> None:
    assert list(open_small(root, "?split=test").ids) == [name for name in EXPECTED if int(name[1:]) % 3 == 2]
    assert list(open_small(root, "?limit=7").ids) == EXPECTED[:7]
    some = open_small(root, "?split=val&limit=3")
    assert [study.id for study in some] == ["s1", "s4", "s7"]
    assert some.study("s4").split == "validate"
    with pytest.raises(InputError, match="no study 's2'"):
        some.study("s2")  # in the index, and not in the split
    assert Small.built == 1
    with pytest.raises(InputError, match=r"unknown split 'tset'; did you mean 'test'\?"):
        open_small(root, "?split=tset")


def test_ids_are_a_sequence_that_slices_finds_and_counts(root: Path) -> None:
    ids = open_small(root).ids
    assert (ids[0], ids[-1], ids[3:6], len(ids)) == (EXPECTED[0], EXPECTED[-1], EXPECTED[3:6], 90)
    assert "s8" in ids
    assert "s9" not in ids
    assert ids == EXPECTED
    with pytest.raises(IndexError):
        ids[90]


def test_every_id_is_found_at_its_place(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BATCH_ROWS", 100)  # so that there are several batches
    source = open_small(write(tmp_path / "many", [f"s{n},,PA" for n in range(950)]))
    assert [source.study(f"s{n}").id for n in range(950)] == [f"s{n}" for n in range(950)]


def test_problems_are_remembered_with_the_index(tmp_path: Path, cache: Path) -> None:
    root = write(tmp_path / "data", ["a,train,PA", "b,train", "a,test,PA", "c,train,bad"])
    for _ in range(2):
        source = open_small(root)
        assert [study.id for study in source] == ["a"]
        assert [str(problem) for problem in source.problems] == [
            "table.csv, line 3: the row has 2 cells, but the header has 3",
            "table.csv, line 4, field id: 'a' is a duplicate",
            "table.csv, line 5, field view: is bad",
        ]
    assert Small.built == 1


def test_a_source_without_any_study_says_why(tmp_path: Path, cache: Path) -> None:
    root = write(tmp_path / "data", ["a,train,LATERAL", "b,train"])
    with pytest.raises(
        InputError, match=r"no usable study; 1 skipped \(lateral view\); 1 rows have problems, the first"
    ):
        open_small(root)


def test_what_travels_to_a_worker_is_small_and_works_there(root: Path) -> None:
    source = open_small(root, "?split=train")
    data = pickle.dumps(source)
    assert len(data) < 4000
    assert b"s33" not in data
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_ids_of, (data,)) == list(source.ids)


def _ids_of(data: bytes) -> list[str]:
    return [study.id for study in pickle.loads(data)]


def test_a_worker_whose_index_was_deleted_says_so(root: Path, cache: Path) -> None:
    data = pickle.dumps(open_small(root))
    shutil.rmtree(cache)
    with pytest.raises(InputError, match=r"index .* cannot be read"):
        pickle.loads(data)


def test_a_damaged_index_is_made_anew(root: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_small(root)
    entry = next((cache / "indexes").iterdir())
    file = entry / "studies.arrow"
    file.write_bytes(bytes(file.stat().st_size))
    assert list(open_small(root).ids) == EXPECTED
    assert "damaged" in capsys.readouterr().err
    file.write_bytes(b"")
    assert list(open_small(root).ids) == EXPECTED
    assert Small.built == 3


def test_a_cache_that_cannot_be_written_means_memory_and_a_note(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RIGHTLUNG_CACHE", str(tmp_path / "file"))
    source = open_small(root, "?split=test")
    assert "stays in memory" in capsys.readouterr().err
    expected = [name for name in EXPECTED if int(name[1:]) % 3 == 2]
    assert list(pickle.loads(pickle.dumps(source)).ids) == list(source.ids) == expected
    assert source.study("s5").split == "test"


def test_a_cache_named_relative_to_here_is_found_from_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGHTLUNG_CACHE", "here")
    data = pickle.dumps(open_small(root))
    assert (tmp_path / "here" / "indexes").is_dir()
    monkeypatch.chdir("/")
    assert list(pickle.loads(data).ids) == EXPECTED


def test_a_build_that_breaks_off_leaves_nothing_behind(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(self: Small, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        yield {"id": "a"}
        raise OSError(5, "Input/output error", str(root / "table.csv"))

    monkeypatch.setattr(Small, "_records", breaking)
    with pytest.raises(InputError, match=r"table.csv cannot be read: Input/output error"):
        open_small(root)
    assert not (cache / "indexes").exists()


def test_whoever_finishes_first_is_used_by_both(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Small._records
    others: list[Any] = []

    def overtaken(self: Small, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        if not others:
            others.append(None)
            others.append(open_small(root))  # another process, in effect, while this one is building
        yield from records(self, log)

    monkeypatch.setattr(Small, "_records", overtaken)
    assert list(open_small(root).ids) == list(others[1].ids) == EXPECTED
    assert len(list((cache / "indexes").iterdir())) == 1


def test_old_indexes_of_the_same_data_are_forgotten(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(6):
        monkeypatch.setattr(Small, "version", version)
        open_small(root)
    assert len(list((cache / "indexes").iterdir())) == 3


def test_a_long_build_is_shown_on_standard_error_only(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rightlung.studies.index.PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr("rightlung.core.progress.PAUSE", -1.0)
    monkeypatch.setattr("rightlung.studies.index._STEPS_BETWEEN_LOOKS", 50)
    open_small(root)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "50 so far" in shown.err


@pytest.fixture
def walked(tmp_path: Path) -> Path:
    """A tree with one file in each of two folders."""
    for name in ("a", "b"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / f"{name}.json").write_text("{}")
    return tmp_path / "tree"


def test_a_link_in_a_circle_ends_and_is_named(walked: Path) -> None:
    (walked / "b" / "again").symlink_to(walked)
    problems: list[Any] = []
    assert [path.name for path in walk_files(walked, (".json",), problems)] == ["a.json", "b.json"]
    (problem,) = problems
    assert str(walked / "b" / "again") in str(problem)
    assert "circular" in str(problem)


def test_a_folder_that_vanishes_while_walking_is_named(walked: Path) -> None:
    problems: list[Any] = []
    walk = walk_files(walked, (".json",), problems)
    assert next(walk).parent.name == "a"
    shutil.rmtree(walked / "b")
    assert list(walk) == []
    assert str(problems[0]).startswith(f"{walked / 'b'}: cannot be read: No such file")


def test_a_missing_file_and_a_vanished_folder_are_different_sentences(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    image = FileImage("s1", str(tmp_path / "images"), "s1.png")
    with pytest.raises(InputError, match=r"study 's1': image .*s1.png does not exist"):
        image()
    (tmp_path / "images").rmdir()
    with pytest.raises(InputError, match=r"folder .*images no longer exists; is its disk mounted\?"):
        image()


def test_files_are_found_plain_or_compressed_and_the_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.csv.gz").write_bytes(b"")
    assert find_file(tmp_path, "a.csv", "b.csv").name == "b.csv.gz"
    assert find_optional(tmp_path, "a.csv") is None
    with pytest.raises(InputError, match=r"has no a.csv or c.csv"):
        find_file(tmp_path, "a.csv", "c.csv")

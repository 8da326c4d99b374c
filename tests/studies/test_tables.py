"""Tables as they come: marks, line ends, quotes, bad rows."""

import csv
import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.core import Box, InputError
from rightlung.core.errors import EmptyBoxError
from rightlung.core.problem import ProblemError
from rightlung.studies.tables import MAX_LISTED, CsvTable, TableRow, pixel_box
from tests.studies.conftest import peak_memory_below


def table(path: Path, data: bytes | str, *required: str, **options: Any) -> CsvTable:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return CsvTable(path, required, problems=[], root=path.parent, **options)


def cells(rows: CsvTable) -> list[dict[str, str]]:
    return [{name: row.text(name) for name in rows.columns if row.text(name)} for row in rows]


ROWS = [{"id": "a", "view": "PA"}, {"id": "b", "view": "AP"}]


@pytest.mark.parametrize(
    "data",
    [
        b"id,view\na,PA\nb,AP\n",
        b"\xef\xbb\xbfid,view\na,PA\nb,AP\n",
        b"id,view\r\na,PA\r\nb,AP\r\n",
        b"id,view\na,PA\nb,AP",
        b" id , view \n\na,PA\n\n b , AP ,\n",
        b'"id","view"\n"a","PA"\n"b",AP\n',
    ],
    ids=["plain", "byte-order mark", "CRLF", "no last line end", "blanks and a trailing comma", "quotes"],
)
def test_the_same_rows_come_out_however_the_table_was_saved(tmp_path: Path, data: bytes) -> None:
    rows = table(tmp_path / "t.csv", data, "id", "view")
    assert (cells(rows), rows.problems) == (ROWS, [])


def test_compressed_tables_are_told_by_their_content(tmp_path: Path) -> None:
    plain = b"id,view\na,PA\nb,AP\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("t.csv", plain)
    assert cells(table(tmp_path / "t.csv", gzip.compress(plain))) == ROWS
    assert cells(table(tmp_path / "t.csv.zip", archive.getvalue())) == ROWS


def test_a_missing_column_is_named_with_the_nearest_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t.csv has no column 'ViewPosition'; did you mean 'View Position'\? It has:"):
        table(tmp_path / "t.csv", "dicom_id,View Position\na,PA\n", "dicom_id", "ViewPosition")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b,a\n1,2,3\n", "has column 'a' twice"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"a,b\r1,2\r", "CR line ends"),
        (b"a\0b\n", "NUL"),
        (b'a,"b\n1,2\n', "unclosed quote"),
    ],
)
def test_a_table_that_cannot_be_read_at_all_is_refused_by_name(tmp_path: Path, data: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        cells(table(tmp_path / "t.csv", data))
    assert "t.csv" in str(caught.value)


def test_a_stray_quote_costs_its_own_row_only(tmp_path: Path) -> None:
    lines = ["id,text,view"] + [f"{n},some text,PA" for n in range(2000)]
    lines[500] = '499,"the rest of the table is swallowed,PA'
    lines[1200] = '1199,a tube 5" from the carina,PA'  # inches inside a cell harm nobody
    lines[1500] = '1499,"quoted" and more,PA'
    rows = table(tmp_path / "t.csv", "\n".join(lines), "id")
    read = cells(rows)
    assert [int(row["id"]) for row in read] == [n for n in range(2000) if n not in (499, 1499)]
    assert read[1198]["text"] == 'a tube 5" from the carina'
    assert [(problem.line, problem.message) for problem in rows.problems] == [
        (501, "the row has an unclosed quote"),
        (1501, "the row has a quote that closes in the middle of a cell"),
    ]


def test_two_stray_quotes_in_one_column_do_not_swallow_the_rows_between(tmp_path: Path) -> None:
    lines = ["id,text,view"] + [f"{n},some text,PA" for n in range(50)]
    lines[11] = '10,"begins,PA'
    lines[21] = '20,ends",PA'
    rows = table(tmp_path / "t.csv", "\n".join(lines))
    assert [int(row["id"]) for row in cells(rows)] == [n for n in range(50) if n != 10]
    assert [problem.line for problem in rows.problems] == [12]


def test_a_report_in_quotes_may_run_over_several_lines(tmp_path: Path) -> None:
    data = 'id,text,view\na,"FINDINGS:\nClear, no effusion.\n\nThe ""heart"" is normal.",PA\nb,short,AP\n'
    rows = table(tmp_path / "t.csv", data)
    read = list(rows)
    assert read[0].text("text") == 'FINDINGS:\nClear, no effusion.\n\nThe "heart" is normal.'
    assert ([row.line for row in read], rows.problems) == ([2, 6], [])


CELLS = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e\ufeff"), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=20))
def test_what_the_standard_library_writes_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]]
) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows([("a", "b", "c"), *rows])
    written = table(tmp_path_factory.mktemp("table") / "t.csv", buffer.getvalue())
    read = [tuple(row.text(name) for name in "abc") for row in written]
    assert (read, written.problems) == ([tuple(cell.strip() for cell in row) for row in rows], [])


def test_one_bad_row_among_many_is_skipped_counted_and_named(tmp_path: Path) -> None:
    lines = ["id,count,view"] + [f"{n},{n},PA" for n in range(30_000)]
    lines[12_345] = "12344,1,2,3,PA"
    lines[20_000] = "19999,many,PA"
    rows = table(tmp_path / "t.csv", "\n".join(lines) + "\n", "id")
    values = list(rows.read(lambda row: row.whole("count")))
    assert len(values) == 29_998
    assert rows.rows_bad == 2
    assert [str(problem) for problem in rows.problems] == [
        "t.csv, line 12346: the row has 5 cells, but the header has 3",
        "t.csv, line 20001, field count: must be a number; got 'many'",
    ]


def test_bad_rows_beyond_a_limit_are_counted_and_not_kept(tmp_path: Path) -> None:
    rows = table(tmp_path / "t.csv", "a,b\n" + "1\n" * (MAX_LISTED + 500) + "1,2\n")
    assert cells(rows) == [{"a": "1", "b": "2"}]
    assert len(rows.problems) == MAX_LISTED + 1
    assert str(rows.problems[-1]) == "t.csv: 500 more rows have problems, not listed"


def test_a_row_that_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    rows = table(tmp_path / "t.csv", b"id,view\na,P\xe4\nb,AP\n")
    assert [row["id"] for row in cells(rows)] == ["b"]
    assert str(rows.problems[0]) == "t.csv, line 2: the row is not UTF-8 (byte 4 of the line)"


def test_compressed_data_that_breaks_off_is_refused_after_what_was_read(tmp_path: Path) -> None:
    whole = gzip.compress(b"id\n" + b"".join(os.urandom(8).hex().encode() + b"\n" for _ in range(20_000)))
    rows = table(tmp_path / "t.csv.gz", whole[: len(whole) // 2], "id")
    with pytest.raises(InputError, match=r"t.csv.gz cannot be read after line [\d,]+: Compressed file ended"):
        list(rows)


def row(tmp_path: Path, header: str, line: str) -> TableRow:
    return next(iter(table(tmp_path / "t.csv", f"{header}\n{line}\n")))


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda one: one.identifier("name"), r"t.csv, line 2, field name: must be letters, digits"),
        (lambda one: one.whole("share"), r"field share: must be an integer; got '0.5'"),
        (lambda one: one.number("count", low=5), r"field count: must be at least 5; got '3.0'"),
        (lambda one: one.choice("view", ("AP", "PA")), r"field view: unknown value 'LAT'"),
        (lambda one: one.number("view"), r"field view: must be a number; got 'LAT'"),
        (lambda one: one.required_number("empty"), r"field empty: must be a number, but is empty"),
    ],
)
def test_cells_are_checked_when_they_are_asked_for(
    tmp_path: Path, ask: Callable[[TableRow], object], sentence: str
) -> None:
    one = row(tmp_path, "name,count,share,view,empty", "../etc,3.0,0.5,LAT,NaN")
    assert (one.whole("count"), one.number("share"), one.number("empty"), one.text("nowhere")) == (3, 0.5, None, "")
    with pytest.raises(ProblemError, match=sentence):
        ask(one)


def test_large_identifiers_stay_exact(tmp_path: Path) -> None:
    assert row(tmp_path, "id,b", "9007199254740993,1").whole("id") == 9007199254740993


def test_boxes_in_pixels_become_fractions_and_rounding_at_the_edge_is_forgiven() -> None:
    assert pixel_box((10, 40, 50, 80), (400, 100)) == Box(0.1, 0.1, 0.5, 0.2)
    assert pixel_box((-1, 0, 101, 400), (400, 100)) == Box(0, 0, 1, 1)
    with pytest.raises(InputError, match=r"box \(10, 40, 150, 80\) leaves the image"):
        pixel_box((10, 40, 150, 80), (400, 100))
    with pytest.raises(EmptyBoxError, match="has no area"):
        pixel_box((50, 40, 10, 80), (400, 100))


def test_a_table_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_bytes(b"id,text,view\n" + b"12345678,some text that is not short at all,PA\n" * 100_000)
    rows = CsvTable(path, ("id",), problems=[])
    with peak_memory_below(path.stat().st_size / 2):  # 4.6 MB; the buffer is 1 MB
        assert sum(1 for _ in rows) == 100_000


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(st.sampled_from('a1",\n\r\t \0é'), max_size=80).map(str.encode))
def test_nothing_that_a_file_can_hold_raises_anything_but_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    try:
        rows = table(tmp_path_factory.mktemp("table") / "t.csv", b"a,b,c\n" + data)
        read = cells(rows)
    except InputError:
        return
    lines = [line for line in data.split(b"\n") if line.strip()]
    assert len(read) + len(rows.problems) <= len(lines)
    assert bool(read or rows.problems) == bool(lines) or not data.decode("utf-8", "replace").strip()

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.core import InputError
from rightlung.judgements import BlindingKey, Judgements, read_judgements, read_measures
from tests.judgements.made_up import row, text_of, write_experiment, write_rows

KEY = BlindingKey({"A7": "GLoRIA", "K2": "no-attn"})


def read(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> Judgements:
    return read_judgements(write_rows(tmp_path / "judged.csv", rows), **options)


def test_a_row_becomes_a_judgement(tmp_path: Path) -> None:
    found = read(tmp_path, row(comment="spills, over", judged_at="2024-05-17T09:30:00", order=4)).judgements[0]
    assert (found.annotator, found.study, found.phrase, found.model) == ("ann", "s0", "phrase:0", "A7")
    assert (found.recall, found.precision, found.intuitiveness, found.order) == (3, 2, 4, 4)
    assert found.comment == "spills, over"
    assert not found.custom
    assert read(tmp_path, row(phrase="3", recall="3.0")).judgements[0].phrase == "phrase:3"
    assert read(tmp_path, row(phrase="")).judgements[0].custom


def test_csv_and_parquet_say_the_same(tmp_path: Path) -> None:
    rows = [row(), row(model="K2", recall=None, precision=None, intuitiveness=None), row(study="s1", phrase="")]
    csv = read(tmp_path, *[{name: "" if value is None else value for name, value in one.items()} for one in rows])
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "judged.parquet")
    parquet = read_judgements(tmp_path / "judged.parquet")
    assert parquet.judgements == csv.judgements
    assert parquet.open == csv.open == 1  # a row without ratings is still to be judged, and no problem
    assert parquet.problems == csv.problems == ()
    # What pandas makes of whole numbers with gaps, and rows counted from zero.
    rows = [row(recall=3.0, order=float("nan")), row(study="s1", recall=9.0, order=1.0)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "judged.parquet")
    found = read_judgements(tmp_path / "judged.parquet")
    assert found.judgements[0].recall == 3
    assert str(found.problems[0]).startswith("judged.parquet, row 1, field recall: ")


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"recall": 0}, "recall", "expected a whole number from 1 to 5; got '0'"),
        ({"precision": 6}, "precision", "expected a whole number from 1 to 5; got '6'"),
        ({"intuitiveness": "2.5"}, "intuitiveness", "expected a whole number from 1 to 5; got '2.5'"),
        ({"intuitiveness": "good"}, "intuitiveness", "expected a whole number from 1 to 5"),
        ({"recall": "²"}, "recall", "expected a whole number from 1 to 5"),
        (
            {"precision": ""},
            "precision",
            "is empty although recall, intuitiveness is given; fill in all three ratings or none",
        ),
        ({"annotator": " "}, "annotator", "is empty"),
        ({"study": ""}, "study", "is empty"),
        ({"prompt": ""}, "prompt", "is empty"),
        ({"model": ""}, "model", "is empty"),
        ({"phrase": "-1"}, "phrase", "expected an index"),
        ({"phrase": "phrase:01"}, "phrase", "expected an index"),
        ({"phrase": "01"}, "phrase", "expected an index"),
        ({"order": "first"}, "order", "expected a whole number"),
        ({"judged_at": "yesterday"}, "judged_at", "expected a date and time"),
    ],
)
def test_a_bad_row_is_named_by_file_row_and_field_and_the_rest_is_read(
    tmp_path: Path, changes: dict[str, Any], field: str, said: str
) -> None:
    extra: dict[str, Any] = {"order": 0, "judged_at": ""}
    found = read(tmp_path, row(**extra), row(**({"study": "s9"} | extra | changes)), row(study="s2", **extra))
    assert [one.study for one in found.judgements] == ["s0", "s2"]
    (problem,) = found.problems
    assert (problem.file, problem.place, problem.field) == ("judged.csv", "line 3", field)
    assert str(problem).startswith(f"judged.csv, line 3, field {field}: ")
    assert said in problem.message


def test_rows_cut_short_judged_twice_or_of_an_unknown_code_are_listed_and_the_rest_is_read(tmp_path: Path) -> None:
    rows = [row(), row(phrase="0", recall=5), row(annotator="bea"), row(model="K2"), row(model="Z9")]
    path = write_rows(tmp_path / "judged.csv", rows)
    path.write_text(path.read_text() + "1,ann,s2\n")
    found = read_judgements(path, key=KEY)
    assert [one.recall for one in found.judgements] == [3, 3, 3]
    said = list(map(str, found.problems))
    assert said[0].startswith("judged.csv, line 3: 'ann' has judged 'A7' on this prompt already, on line 2")
    assert "line 6" in said[1]
    assert "the key has no code 'Z9'; it has A7, K2" in said[1]
    assert "line 7" in said[2]
    assert "3 cells" in said[2]
    custom = read(tmp_path, row(phrase="", prompt="Left effusion?"), row(phrase="", prompt="left  EFFUSION?"))
    assert (len(custom), len(custom.problems)) == (1, 1)


@pytest.mark.parametrize("name", ["GLoRIA", "gloria", "NO ATTN", "No-Attn"])
def test_a_table_with_a_models_name_is_refused_as_not_blinded(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        InputError, match=r"judged\.csv, line 3, field model: expected a code.*so the table is not blinded"
    ):
        read(tmp_path, row(), row(study="s1", model=name), key=KEY)
    with pytest.raises(InputError, match="line 2, field model"):
        read(tmp_path, row(model=name))
    with pytest.raises(InputError, match="got the model name 'R50'"):
        read(tmp_path, row(model="R50"), names=["r-50"])


def test_a_table_of_another_version_or_of_other_columns_is_refused(tmp_path: Path) -> None:
    assert len(read(tmp_path, without("version"))) == 1
    (tmp_path / "not.parquet").write_text("no")
    for rows, said in (
        ([row(), row(study="s1", version=2)], r"rows have different versions: 1 \(line 2\), 2 \(line 3\)"),
        ([row(version=2)], "line 2, field version: expected 1; got 2"),
        ([without("recall")], "recall"),
        ([row(coment="x")], "did you mean 'comment'"),
    ):
        with pytest.raises(InputError, match=said):
            read(tmp_path, *rows)
    for name, said in (("missing.csv", "missing"), ("not.parquet", "cannot be read as Parquet")):
        with pytest.raises(InputError, match=said):
            read_judgements(tmp_path / name)


def without(column: str) -> dict[str, Any]:
    return {name: value for name, value in row().items() if name != column}


def test_studies_phrases_and_words_must_be_those_of_the_instances(tmp_path: Path) -> None:
    instances = read_measures([write_experiment(tmp_path / "out", 6)]).instances
    bad = [row(study="s99"), row(phrase="7"), row(phrase="1")]
    good = [row(), row(prompt=text_of(0).upper(), annotator="bea"), row(phrase="", prompt="My own words")]
    found = read(tmp_path, *bad, *good, instances=instances)
    places = [(one.place, one.field) for one in found.problems]
    assert places == [("line 2", "study"), ("line 3", "phrase"), ("line 4", "prompt")]
    assert text_of(1) in found.problems[2].message
    assert len(found) == 3

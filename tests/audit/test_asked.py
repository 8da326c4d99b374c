"""The phrases of a predictions file are compared with those of the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.audit import Audit, audit
from rightlung.core import InputError
from rightlung.predictions import Prediction, PredictionWriter, open_predictions
from tests.audit.cards import QUICK, Cards, diagonal_map, write_answers

Row = dict[str, Any]


def edited(tmp_path: Path, edit: Callable[[Row], Row | None]) -> Audit:
    """Audit answers whose key and phrase were changed row by row; ``edit`` may drop a row."""
    written = write_answers(Cards(5), tmp_path / "p", diagonal_map)
    table = pq.read_table(written)
    rows = [row for row in map(edit, table.to_pylist()) if row is not None]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), tmp_path / "edited.parquet")
    return audit(tmp_path / "edited.parquet", Cards(5), tmp_path / "out", settings=QUICK, cases=0)


@pytest.mark.parametrize("text", [None, "as it is", "other letters"])
def test_phrases_of_the_source_raise_no_warning_however_they_are_written(tmp_path: Path, text: str | None) -> None:
    def edit(row: Row) -> Row:
        if text == "as it is":
            return row
        if text is None:
            return row | {"phrase": None if row["condition"] != "swap-sides" else row["phrase"]}
        return row | {"phrase": "  ".join(row["phrase"].upper().rstrip(".").split())}

    assert edited(tmp_path, edit).result["warnings"] == []


def test_one_phrase_for_all_rows_is_counted_on_the_page_and_in_the_json(tmp_path: Path) -> None:
    done = edited(tmp_path, lambda row: row | {"phrase": "left pneumothorax"})
    (warning,) = done.result["warnings"]
    assert warning.startswith(
        "45 of 45 rows ask something other than the phrase of the source (first: study 'card-0', "
    )
    assert "asked 'left pneumothorax', the source has 'Opacity in the" in warning
    assert done.result["summary"][0] == f"Warning: {warning}"
    assert "45 of 45 rows ask something other" in done.page.read_text(encoding="utf-8")


def test_a_few_other_phrases_are_counted_under_every_condition_whose_words_are_known(tmp_path: Path) -> None:
    def edit(row: Row) -> Row:
        wrong = row["study"] == "card-3" and row["query"] == "phrase:0"
        return row | {"phrase": "No pneumothorax." if wrong else row["phrase"]}

    (warning,) = edited(tmp_path, edit).result["warnings"]
    assert warning.startswith("3 of 45 rows ask something other")


@pytest.mark.parametrize(("shift", "said"), [(1, "before"), (-1, "after")])
def test_queries_that_are_off_by_one_are_recognised(tmp_path: Path, shift: int, said: str) -> None:
    def edit(row: Row) -> Row | None:
        index = int(row["query"][-1]) + shift
        return row | {"query": f"phrase:{index}"} if index >= 0 else None

    done = edited(tmp_path, edit)
    (warning,) = done.result["warnings"]
    assert warning.startswith("The queries are off by one: ")
    assert f"rows ask the phrase {said} the one that they name" in warning
    assert "correct the column 'query'" in warning
    missing = [problem for problem in done.problems if "has 4 phrases and no phrase:4" in problem]
    assert len(missing) == (5 if shift == 1 else 0)


def test_a_file_without_a_single_answer_gives_an_error_and_no_page(tmp_path: Path) -> None:
    written = write_answers(Cards(2), tmp_path / "p", diagonal_map, conditions=("none",))
    with PredictionWriter(tmp_path / "failed", source="cards", model="m") as writer:
        for row in open_predictions(written):
            writer.write(Prediction.failed(*row.key, row.asked, "CUDA error: out of order"))
    with pytest.raises(InputError, match="none of the 8 rows has an answer; first error: CUDA error: out of order"):
        audit(tmp_path / "failed", Cards(2), tmp_path / "out", settings=QUICK)
    assert not (tmp_path / "out").exists()

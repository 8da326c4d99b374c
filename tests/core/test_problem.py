"""What is wrong in a file, in one sentence."""

from __future__ import annotations

import pickle

import pytest

from rightlung.core import Problem, ProblemError


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (Problem("m.jsonl", "no."), "m.jsonl: no."),
        (Problem("m.jsonl", "no.", 3, "boxes[0].box"), "m.jsonl, line 3, field boxes[0].box: no."),
        (Problem("m.jsonl", "no.", field="file"), "m.jsonl, field file: no."),
        (Problem("p.parquet", "no.", row=0, key="study 'a'"), "p.parquet, row 0 (study 'a'): no."),
        (Problem("p.parquet", "no.", column="map"), "p.parquet, column map: no."),
        (Problem("judged.parquet", "no.", field="recall", row=5), "judged.parquet, row 5, field recall: no."),
    ],
)
def test_a_problem_says_where_it_is(problem: Problem, says: str) -> None:
    assert str(problem) == says


def test_an_error_keeps_its_problem_from_process_to_process() -> None:
    error = pickle.loads(pickle.dumps(ProblemError(Problem("m.jsonl", "no.", 3))))
    assert isinstance(error, ProblemError)
    assert error.problem == Problem("m.jsonl", "no.", 3)

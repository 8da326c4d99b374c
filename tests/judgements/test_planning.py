from __future__ import annotations

import csv
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from rightlung.core import InputError
from rightlung.judgements import JudgedInstance, plan, read_judgements, write_table
from rightlung.judgements.planning import Planned

CODES = ["A7", "C3", "K2", "T5"]
PEOPLE = ["ann", "bea", "cem"]
INSTANCES = [
    JudgedInstance(f"s{number}", f"phrase:{place}", f'Words, "number" {number}.', f"p{number % 30}")
    for number in range(60)
    for place in range(2)
]


def of(planned: list[Planned], annotator: str) -> list[Planned]:
    return [row for row in planned if row.annotator == annotator]


def test_the_overlap_is_as_stated_and_the_rest_goes_to_one_person_each() -> None:
    planned = plan(INSTANCES, CODES, PEOPLE, 1, 16, 6)
    prompts = [{row.instance.key for row in of(planned, name)} for name in PEOPLE]
    assert [len(found) for found in prompts] == [16] * 3
    assert len(set.intersection(*prompts)) == 6
    times = Counter(key for found in prompts for key in found)
    assert Counter(times.values()) == {3: 6, 1: 30}


@pytest.mark.parametrize("prompts", [12, 13, 15, 30])
def test_every_prompt_is_judged_for_every_model_with_each_model_equally_often_at_each_place(prompts: int) -> None:
    for name in PEOPLE:
        rows = of(plan(INSTANCES, CODES, PEOPLE, 2, prompts, 4), name)
        assert [row.order for row in rows] == list(range(4 * prompts))
        for begin in range(0, 4 * prompts, 4):
            block = rows[begin : begin + 4]
            assert len({row.instance.key for row in block}) == 1
            assert sorted(row.model for row in block) == CODES
        places = Counter((row.order % 4, row.model) for row in rows)
        assert max(places.values()) - min(places.values()) <= (prompts % 4 > 0)
        assert len(places) == 16
        follows = {(first.model, second.model) for first, second in pairwise(rows) if second.order % 4}
        assert len(follows) == 12 or prompts < 30  # all ordered pairs of four models


def test_the_same_seed_gives_the_same_plan_whatever_the_order_of_the_input() -> None:
    planned = plan(INSTANCES, CODES, PEOPLE, 1, 16, 6)
    assert plan(INSTANCES[::-1], CODES[::-1], PEOPLE[::-1], 1, 16, 6) == planned
    assert plan(INSTANCES, CODES, PEOPLE, 2, 16, 6) != planned
    same = plan(INSTANCES, CODES, PEOPLE, 1, 12, 12)
    assert len({tuple(row.instance.key for row in of(same, name)) for name in PEOPLE}) == 3  # each their own order
    assert len({tuple(row.model for row in of(same, name)) for name in PEOPLE}) == 3


def test_as_many_patients_as_possible_are_asked_about() -> None:
    planned = plan(INSTANCES, CODES[:1], ["ann"], 1, 30, 0)
    assert len({row.instance.patient for row in planned}) == 30
    more = plan(INSTANCES, CODES[:1], ["ann"], 1, 45, 0)
    assert Counter(Counter(row.instance.patient for row in more).values()) == {1: 15, 2: 15}


@pytest.mark.parametrize(
    ("codes", "people", "count", "overlap", "said"),
    [
        (CODES, PEOPLE, 60, 10, "need 160 prompts, but there are 120"),
        (CODES, PEOPLE, 5, 6, "the overlap must be from 0 to the 5 prompts"),
        (CODES, [], 5, 0, "at least one annotator"),
        (CODES, ["ann", "ann"], 5, 0, "'ann' is given twice"),
        (CODES, [" "], 5, 0, "blank"),
        ([], PEOPLE, 5, 0, "at least one code"),
        (["no-attn"], PEOPLE, 5, 0, "not a model name"),
        (CODES, PEOPLE, 0, 0, "at least 1 prompt"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    codes: list[str], people: list[str], count: int, overlap: int, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        plan(INSTANCES, codes, people, 0, count, overlap)


def test_a_planned_table_is_read_back_as_all_open_and_never_written_over(tmp_path: Path) -> None:
    planned = plan(INSTANCES, CODES, PEOPLE, 1, 4, 2)
    write_table(planned, tmp_path / "table.csv")
    found = read_judgements(tmp_path / "table.csv", instances={one.key: one for one in INSTANCES})
    assert (len(found), found.open, found.problems) == (0, 48, ())
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["annotator"], int(row["order"]), row["model"]) for row in rows] == [
        (row.annotator, row.order, row.model) for row in planned
    ]
    with pytest.raises(InputError, match="exists already and is not overwritten"):
        write_table(planned, tmp_path / "table.csv")

"""The figures that "That's the Wrong Lung!" prints, and what is refused in such a file."""

from __future__ import annotations

import copy
from importlib.resources import files
from typing import Any

import pytest
import yaml

from rightlung.core import InputError
from rightlung.reproduce.published import Subject, parse, published_in
from rightlung.reproduce.wrong_lung.variants import SUBSETS

BOOK = published_in("rightlung.reproduce.wrong_lung")


@pytest.fixture
def content() -> dict[str, Any]:
    text = files("rightlung.reproduce.wrong_lung").joinpath("published.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.mark.parametrize(
    ("model", "measure", "subset", "target", "synthetic", "printed", "table"),
    [
        ("gloria", "auroc", "all", "regions", False, "69.07", "1"),
        ("gloria", "iou@30", "all", "regions", False, "20.10", "1"),
        ("gloria", "average_precision", "mdrb", "regions", False, "36.96", "2"),
        ("rand-sents", "average_precision", "all", "regions", False, "30.55", "3"),
        ("word-masking", "selection_local", "abnormal", "regions", False, "80.3", "4"),
        ("thirty-shot", "average_precision", "all", "trimmed", False, "35.27", "6"),
        ("thirty-shot", "auroc", "abnormal", "regions", True, "73.14", "7"),
        ("abnormal", "kl_random", "one-lung", "regions", False, "0.10", "8"),
        ("rand-sents", "selection_global", "mdrb", "regions", False, "48.4", "9"),
        ("thirty-shot", "entropy", "one-lung", "regions", False, "5.748", "10"),
        ("abnormal", "precision@5", "one-lung", "regions", True, "25.90", "11"),
        ("no-attn", "iou@10", "one-lung", "regions", False, "7.43", "12"),
    ],
)
def test_figures_are_those_of_the_paper(
    model: str, measure: str, subset: str, target: str, synthetic: bool, printed: str, table: str
) -> None:
    found = BOOK.find(Subject(model, measure, subset, target, synthetic))
    assert found is not None
    assert (found.printed, found.table) == (printed, table)
    scale = 1 if measure in ("kl_random", "entropy") else 100
    assert found.value == pytest.approx(float(printed) / scale)


def test_every_table_has_all_its_figures(content: dict[str, Any]) -> None:
    figures = {number: sum(len(row) - 3 for row in table["rows"]) for number, table in content["tables"].items()}
    subsets, models = len(SUBSETS), 9
    assert figures == {
        "1": 5, "2": 15, "3": 8 * 2, "4": models * 2 * 2, "6": 7 * 2, "7": models * 2 * subsets * 2,
        "8": models * subsets, "9": models * 2 * 2, "10": models * subsets, "11": models * 2 * subsets * 3,
        "12": models * 2 * subsets * 3,
    }  # fmt: skip


@pytest.mark.parametrize(("asked", "cited"), [(None, "3"), ("7", "7"), ("3", "3"), ("11", "3")])
def test_a_figure_printed_twice_can_be_cited_from_either_table(asked: str | None, cited: str) -> None:
    found = BOOK.find(Subject("no-attn", "auroc"), asked)
    assert found is not None
    assert (found.printed, found.table, found.tables) == ("57.00", cited, ("3", "7"))


def test_what_the_paper_does_not_give_is_nothing() -> None:
    assert BOOK.find(Subject("uniter", "selection_local")) is None
    assert BOOK.find(Subject("sided", "auroc")) is None


def test_the_figures_of_the_running_text() -> None:
    values = [quote.value for quote in BOOK.quotes]
    assert values == [3.1, 1.8, 1.7, -0.30, -0.47]


def test_a_figure_that_differs_between_tables_is_refused(content: dict[str, Any]) -> None:
    content["tables"]["3"]["rows"][1][3] = 55.85
    with pytest.raises(InputError, match=r"auroc is 55\.84, but 55\.85 in table 3"):
        parse(content)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, "glorai", "model is 'glorai'"),
        (2, "lung", "subset is 'lung'"),
        (3, 690.7, "auroc is 690.7"),
        (4, None, "None"),
    ],
)
def test_a_slip_in_a_row_is_named(content: dict[str, Any], place: int, value: Any, said: str) -> None:
    changed = copy.deepcopy(content)
    changed["tables"]["1"]["rows"][0][place] = value
    with pytest.raises(InputError, match="table 1, row 1") as raised:
        parse(changed)
    assert said in str(raised.value)


def test_a_slip_in_a_table_is_named(content: dict[str, Any]) -> None:
    content["tables"]["8"]["unit"] = "inches"
    with pytest.raises(InputError, match="table 8: unit is 'inches', neither percent nor nats"):
        parse(content)
    del content["tables"]["8"]["rows"]
    with pytest.raises(InputError, match="table 8: rows is missing"):
        parse(content)


def test_a_short_row_is_refused(content: dict[str, Any]) -> None:
    content["tables"]["2"]["rows"][1].pop()
    with pytest.raises(InputError, match="table 2, row 2: 7 entries, and 8 are needed"):
        parse(content)

"""The figures that "That's the Wrong Lung!" prints, and what is refused in such a file."""

from __future__ import annotations

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
    return dict(yaml.safe_load(text))


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


def test_what_the_paper_does_not_give_is_nothing_and_the_running_text_has_figures_too() -> None:
    assert BOOK.find(Subject("uniter", "selection_local")) is None
    assert BOOK.find(Subject("sided", "auroc")) is None
    assert list(BOOK.quotes.values()) == [3.1, 1.8, 1.7, -0.30, -0.47]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("1", "rows", 0, 0), "glorai", "table 1, row 1.*model: expected one of .*; got 'glorai'"),
        (("1", "rows", 0, 2), "lung", "table 1, row 1.*subset: expected one of .*; got 'lung'"),
        (("1", "rows", 0, 3), 690.7, "table 1, row 1.*auroc: expected a number from 0 to 100; got 690.7"),
        (("1", "rows", 0, 4), None, "table 1, row 1.*None"),
        (("2", "rows", 1), [1] * 7, "table 2, row 2: expected 8 entries; got 7"),
        (("3", "rows", 1, 3), 55.85, r"auroc is 55\.84 here but 55\.85 in table 3"),
        (("8", "unit"), "inches", "table 8: unit: expected percent, nats or fraction; got 'inches'"),
        (
            ("8",),
            dict.fromkeys(("title", "section", "target", "unit", "digits", "columns")),
            "table 8: the field rows is missing",
        ),
    ],
)
def test_a_slip_is_named_with_its_place(content: dict[str, Any], path: tuple[Any, ...], value: Any, said: str) -> None:
    place = content["tables"]
    for step in path[:-1]:
        place = place[step]
    if path[-1] == "rows":
        del place["rows"]
    else:
        place[path[-1]] = value
    with pytest.raises(InputError, match=said):
        parse(content)

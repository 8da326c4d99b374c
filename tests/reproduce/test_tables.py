"""Tables of models by quantities: means with intervals, the paper's figures, differences, seeds, what is bold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rightlung.pages.content import Figure, Table
from rightlung.reproduce.measurements import how_it_ended
from rightlung.reproduce.tables import BOLD, NOT_COMPARABLE, Quantity, TableMaker, model_row
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.statistics import bootstrap
from tests.reproduce.made_up import DRAWN, FACTS, NUMBER, ONE_LUNG, PUBLISHED, Levels, measured

SCORES = {"retrained": 0.25 + DRAWN / 4, "thirty-shot": 0.5 + DRAWN / 8, "uniter": 0.75 + DRAWN / 8, "prior": DRAWN}
SETTINGS = BootstrapSettings(resamples=200)


def maker(models: dict[str, Levels]) -> TableMaker:
    found = measured(models)
    return TableMaker(found, found.estimator(SETTINGS), PUBLISHED)


def models() -> dict[str, Levels]:
    found: dict[str, Levels] = {slug: {"auroc": values} for slug, values in SCORES.items()}
    found["prior"] |= {"about": {"group": "reference", "seed": None}}  # type: ignore[operator]
    return found


def made(make: TableMaker, **options: Any) -> Table:
    rows = [model_row(model) for model in make.measured.rows]
    quantities = [
        Quantity("AUROC", make.values("auroc", "regions"), make.printed("auroc", table="7"), ranked=True),
        Quantity("One Lung", make.values("auroc", "regions", "one-lung")),
    ]
    return make.table("t", "Title", "Caption", rows, quantities, **options)


def column(table: Table, title: str) -> dict[str, Any]:
    place = [one.title for one in table.columns].index(title)
    return {row[0].text: row[place] for row in table.rows}


def test_a_number_is_the_mean_with_the_bootstraps_interval_over_patients() -> None:
    cell = column(made(maker(models())), "One Lung")["+thirty-shot"]
    patients = np.array(FACTS["patient"])
    expected = bootstrap(SCORES["thirty-shot"][ONE_LUNG], clusters=patients[ONE_LUNG], resamples=200)
    mean = float(np.mean(SCORES["thirty-shot"][ONE_LUNG]))
    assert cell.text == f"{100 * mean:.1f}"
    assert cell.detail == f"{100 * expected.low:.1f} to {100 * expected.high:.1f}"
    assert cell.value["estimate"] == pytest.approx(mean)
    assert (cell.value["phrases"], cell.value["patients"]) == (64, 20)


def test_the_papers_figure_stands_beside_ours_under_its_own_heading_with_its_table() -> None:
    table = made(maker(models()))
    assert [one.title for one in table.columns] == ["model", "AUROC", PUBLISHED.column, "One Lung"]
    found = column(table, PUBLISHED.column)
    assert {name: cell.text for name, cell in found.items()} == {
        "+retrained": "55.84", "+thirty-shot": "63.90", "+uniter *": "84.92", "+prior": "–"
    }  # fmt: skip
    assert found["+retrained"].detail == "Table 7"
    assert found["+retrained"].value == {"paper": pytest.approx(0.5584), "table": "7"}


def test_the_best_is_bold_and_neither_a_reference_nor_what_is_not_comparable() -> None:
    table = made(maker(models()))
    assert [name for name, cell in column(table, "AUROC").items() if cell.strong] == ["+thirty-shot"]
    assert not any(cell.strong for cell in column(table, "One Lung").values())  # which ranks nothing
    assert table.notes == [BOLD, NOT_COMPARABLE]
    alone = made(maker({"retrained": {}}))
    assert NOT_COMPARABLE not in alone.notes


def test_a_difference_from_another_model_is_paired_and_its_own_row_has_none() -> None:
    table = made(maker(models()), minus=(("prior", "minus the prior's"), ("nobody", "minus nobody's")))
    assert "minus nobody's" not in [one.title for one in table.columns]
    found = column(table, "minus the prior's")
    assert found["+retrained"].value["estimate"] == pytest.approx(np.mean(SCORES["retrained"] - SCORES["prior"]))
    assert found["+prior"].text == "–"


def test_a_variant_stands_in_a_table_once_with_the_mean_over_its_seeds() -> None:
    seeds = {"sided": DRAWN, "sided-seed2": DRAWN / 2, "sided-seed3": DRAWN / 4}
    make = maker({slug: {"auroc": values} for slug, values in seeds.items()} | {"retrained": {"auroc": 0.5}})
    mean = sum(np.mean(values) for values in seeds.values()) / 3
    cells = column(made(make), "AUROC")
    assert list(cells) == ["+sided", "+retrained"]
    assert cells["+sided"].value["estimate"] == pytest.approx(mean)
    figure, table = make.seeds([Quantity("AUROC", make.values("auroc", "regions"))])
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
    ((variant, count, cell),) = table.rows  # what was trained once is not among them
    assert (variant.text, count.text) == ("+sided", "3")
    assert cell.value["mean"] == pytest.approx(mean)
    assert cell.value["standard_deviation"] == pytest.approx(np.std([np.mean(one) for one in seeds.values()], ddof=1))
    assert cell.value["seeds"]["sided-seed1"] == pytest.approx(np.mean(DRAWN))
    assert cell.detail.endswith("; " + ", ".join(f"{100 * np.mean(one):.1f}" for one in seeds.values()))
    alone = maker(models())
    assert alone.seeds([Quantity("AUROC", alone.values("auroc", "regions"))]) == []


def test_a_quantity_that_nothing_defines_is_a_dash_and_never_best() -> None:
    make = maker({"retrained": {"auroc": np.where(NUMBER < 0, 1.0, np.nan)}, "sided": {"auroc": 0.1 + DRAWN / 9}})
    cells = column(made(make), "AUROC")
    assert (cells["+retrained"].text, cells["+retrained"].strong, cells["+sided"].strong) == ("–", False, True)


@pytest.mark.parametrize(
    ("losses", "stopped", "said"),
    [
        ([5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1], False, "stopped before a plateau"),
        ([5, 4, 3, 2.5, 2.4, 2.4, 2.4, 2.39, 2.4], False, "flat at the end"),
        ([5, 4, 3], False, "unknown"),
        ([5, 4, 3], True, "flat at the end, stopped early"),
        ([2, 1, 3, 4], False, "past the minimum"),
        ([4, 1, 1.5, 1.5], True, "past the minimum, stopped early"),
        ([4, float("nan"), None, 3], False, "unknown"),
    ],
)
def test_how_a_run_ended_is_told_by_its_validation_losses(losses: list[Any], stopped: bool, said: str) -> None:
    curve = [[step, loss, None] for step, loss in enumerate(losses)]
    assert how_it_ended({"curve": curve, "stopped_early": stopped}) == said

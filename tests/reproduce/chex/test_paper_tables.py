"""What the tables of ChEX compute, against hand calculations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.reproduce.chex.measuring import TASKS
from rightlung.reproduce.chex.page import relative_values
from rightlung.reproduce.chex.paper_tables import TABLES, TYPES, ChexTables, TableRow, only_label
from rightlung.reproduce.chex.variants import VARIANTS
from rightlung.reproduce.published import published_in
from rightlung.results.aggregates import estimate_mean
from rightlung.results.estimate import Estimate

PUBLISHED = published_in("rightlung.reproduce.chex")


def texts(called: Sequence[Sequence[str] | None], true: Sequence[Sequence[str] | None]) -> pa.Table:
    count = len(called)
    labels = {"labels_called": called, "labels_true": true}
    keys = {"study": [str(n) for n in range(count)], "patient": [str(n) for n in range(count)]}
    plain = {"condition": ["none"] * count}
    return pa.table(plain | keys | {name: pa.array(rows, pa.list_(pa.string())) for name, rows in labels.items()})


def test_the_f1_of_a_finding_counts_this_finding_only() -> None:
    table = texts(
        [["Edema", "Fracture"], ["Edema"], [], ["Edema", "Pneumonia"], None],
        [["Edema"], ["Pneumonia"], ["Edema"], ["Edema", "Pneumonia"], None],
    )
    found = {name: estimate_mean([only_label(table, name)], "micro_f1_14").value for name in ("Edema", "Pneumonia")}
    assert found["Edema"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))  # two right, one too many, one missed
    assert found["Pneumonia"] == pytest.approx(2 * 1 / (2 * 1 + 0 + 1))


def known(values: Mapping[tuple[str, str, str], float]) -> ChexTables:
    """Tables that know some estimates and no file."""
    estimates: dict[tuple[str, ...], Estimate | None] = {
        (variant, "", task, measure): Estimate(one) for (variant, task, measure), one in values.items()
    }
    found: Any = SimpleNamespace(measured=SimpleNamespace(rows=(), seeds=lambda _: ()), published=PUBLISHED)
    return ChexTables(found, _known=estimates)


def test_the_best_of_several_models_is_chosen_for_each_measure() -> None:
    make = known({("mil-adpd", "od", "map"): 0.3, ("loc-adpd", "od", "map"): 0.2, ("loc-adpd", "od", "map@50"): 0.1})
    name, best = make.best(TYPES["weakly supervised"], "od", "map")
    assert (name, best and best.value) == ("mil-adpd", 0.3)
    assert make.best(TYPES["weakly supervised"], "od", "map@50")[0] == "loc-adpd"
    assert make.best(TableRow(("detr",)), "od", "map") == ("", None)


def test_baselines_are_shares_of_chex_where_both_are_measured() -> None:
    make = known({
        ("chex", "od", "map"): 0.4, ("detr", "od", "map"): 0.1, ("loc-adpd", "od", "map"): 0.6,
        ("detr", "sg", "box_miou"): 0.5,  # ChEX has none
    })  # fmt: skip
    relative = relative_values(make)
    assert dict(relative["supervised detection"]) == pytest.approx({"OD, mAP": 0.25})
    assert dict(relative["weakly supervised"]) == pytest.approx({"OD, mAP": 1.5})
    assert relative["generative"] == [("OD, mAP", None)]


def test_rows_name_variants_and_models_of_the_paper_and_columns_tasks() -> None:
    variants = {variant.slug for variant in VARIANTS}
    for table in TABLES.values():
        assert {name for row in table.rows for name in row.variants} <= variants, table.number
        assert {row.paper for row in table.rows} - {""} <= PUBLISHED.models.keys(), table.number
        assert {task for task, _ in table.columns} <= TASKS.keys()
        for task, measures in table.columns:
            computed = {name for name in measures if not name.startswith("f1 ")}
            assert computed <= {*TASKS[task].protocol.measures}, table.number
    assert list(TABLES) == [str(number) for number in range(2, 15)]
    assert len(TABLES["14"].columns[0][1]) == len(OBSERVATIONS) == 14


@pytest.mark.parametrize("number", [number for number in TABLES if number != "14"])
def test_every_figure_of_the_paper_for_a_row_of_ours_has_a_column(number: str) -> None:
    """Except for precision and recall (Table 6), figures in Table 2 that other tables repeat, and F1 over five."""
    table = TABLES[number]
    ours = {(measure, subset) for task, measures in table.columns for measure in measures
            for subset in table.papers.get(task, TASKS[task].papers)}  # fmt: skip
    models = {row.paper for row in table.rows}
    printed = {(one.measure, one.subset) for one, value in PUBLISHED.values.items()
               if number in value.tables and one.model in models}  # fmt: skip
    left_out = {"micro_precision_14", "micro_recall_14"}
    left_out |= {"micro_f1_5", "macro_f1_5", "macro_f1_14"} if number in ("2", "3") else set()
    assert {pair for pair in printed - ours if pair[0] not in left_out} == set()

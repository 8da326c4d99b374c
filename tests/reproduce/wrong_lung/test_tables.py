from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rightlung.reproduce.wrong_lung.estimates import Estimator, Sureness
from rightlung.reproduce.wrong_lung.own_tables import models_table, own_tables, training_table
from rightlung.reproduce.wrong_lung.paper_tables import change_tables, paper_tables
from rightlung.reproduce.wrong_lung.published import PAPER_COLUMN
from rightlung.reproduce.wrong_lung.reading import read_results
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS
from rightlung.reproduce.wrong_lung.seeds import Quantity, draw_panel, quantities, seeds_figure, seeds_table
from rightlung.reproduce.wrong_lung.tables import NOT_COMPARABLE, Measured, Table
from rightlung.scoring.statistics import bootstrap
from tests.reproduce.wrong_lung.folders import (
    Row,
    answer_rows,
    instance_rows,
    plain_model,
    score_rows,
    write_instances,
    write_model,
)

CURVE = [[0, 4.0, None], [100, 2.0, 0.3], [200, float("nan"), 0.4], [300, 1.0, 0.5]]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return instance_rows(60)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> Measured:
    folder = tmp_path_factory.mktemp("tables")
    write_instances(folder, rows)
    training = {
        "steps": 2000, "stopped_early": False, "plateau": False, "images": 64_000, "seconds": 12.4, "device": "cpu",
        "curve": CURVE,
    }  # fmt: skip
    plain_model(folder, rows, "retrained", 0.08, name="Retrained", order=1, training=training)
    plain_model(folder, rows, "retrained-seed2", 0.10, 2, variant="retrained", name="Retrained", seed=2, order=2)
    plain_model(folder, rows, "thirty-shot", 0.2, name="+30-shot", order=3)
    plain_model(folder, rows, "uniter", 0.4, name="UNITER", comparable=False, order=4, training=training)
    plain_model(folder, rows, "prior", 0.3, name="prior", group="reference", order=9)
    results = read_results(folder)
    return Measured(results, Estimator(results.instances.clusters, Sureness(resamples=300)))


@pytest.fixture(scope="module")
def tables(measured: Measured) -> dict[str, Table]:
    seeds = seeds_table(measured)
    assert seeds is not None
    made = [*paper_tables(measured), *own_tables(measured), seeds]
    made += [table for target in ("regions", "exact") for table in change_tables(measured, target)]
    assert len({table.name for table in made}) == len(made)
    return {table.name: table for table in made}


def test_every_row_has_a_cell_for_every_heading(tables: dict[str, Table]) -> None:
    for table in tables.values():
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_all_tables_of_the_paper_are_there(tables: dict[str, Table]) -> None:
    wanted = {"t1", "t2", "t3", "t4", "t6", "t7-auroc", "t7-average_precision", "t8", "t9", "t10"}
    wanted |= {f"{name}-{share}" for name in ("t11", "t12") for share in (5, 10, 30)}
    assert wanted <= set(tables)


def test_a_number_is_the_mean_with_the_bootstraps_interval(measured: Measured, tables: dict[str, Table]) -> None:
    results = measured.results
    values = results.within(results.score("thirty-shot", "auroc", "exact"), "one-lung")
    expected = bootstrap(values, clusters=results.instances.clusters, resamples=300)
    line = next(row for row in tables["t7-exact-auroc"].rows if row[0].text == "+30-shot, real")
    heading = [heading.text for heading in tables["t7-exact-auroc"].header].index("One Lung")
    cell = line[heading]
    assert cell.text == f"{100 * float(np.nanmean(values)):.1f}"
    assert cell.detail == f"{100 * expected.low:.1f} to {100 * expected.high:.1f}"


def test_the_papers_figure_stands_beside_ours_under_its_own_heading(tables: dict[str, Table]) -> None:
    table = tables["t4"]
    at = [heading.text for heading in table.header].index("Abnormal, global") + 1
    assert table.header[at].text == PAPER_COLUMN == "paper (MIMIC-CXR/ImaGenome: other data)"
    assert {row[0].text: row[at].text for row in table.rows} == {
        "Retrained": "86.4", "+30-shot": "83.6", "UNITER *": "70.7", "prior": "–"
    }  # fmt: skip


def test_synthetic_rows_stand_beside_the_papers_synthetic_figures(tables: dict[str, Table]) -> None:
    line = next(row for row in tables["t7-auroc"].rows if row[0].text == "+30-shot, synthetic")
    assert [cell.text for cell in line if cell.kind == "paper"] == ["68.38", "73.14", "67.92", "66.26"]


@pytest.mark.parametrize(("name", "cited"), [("t3", "3"), ("t7-auroc", "7"), ("t11-10", "11"), ("t12-10", "12")])
def test_a_figure_is_cited_from_the_table_it_stands_in(tables: dict[str, Table], name: str, cited: str) -> None:
    cells = [cell for row in tables[name].rows for cell in row if cell.kind == "paper" and cell.value is not None]
    assert cells
    assert {cell.detail for cell in cells} == {f"Table {cited}"}
    assert {cell.value["table"] for cell in cells} == {cited}


def test_table_1_is_set_beside_gloria(tables: dict[str, Table]) -> None:
    (line,) = tables["t1"].rows
    assert [cell.text for cell in line if cell.kind == "paper"] == ["69.07", "51.68", "3.79", "6.69", "20.10"]


def test_what_is_not_comparable_is_marked_and_never_best(tables: dict[str, Table]) -> None:
    best: set[str] = set()
    for table in tables.values():
        labels = [row[0].text for row in table.rows if "UNITER" in row[0].text]
        assert all(label.startswith("UNITER *") for label in labels)
        if labels:
            assert NOT_COMPARABLE in table.notes
        best |= {row[0].text for row in table.rows for cell in row if cell.best}
    assert best
    assert all("30-shot" in label or "Retrained" in label for label in best)
    scores = {row[0].text: float(row[1].text) for row in tables["t3"].rows}
    assert scores["UNITER *"] == max(scores.values())  # it is highest, and yet not bold


def test_a_variant_stands_in_a_table_once_with_the_mean_over_its_seeds(tables: dict[str, Table]) -> None:
    assert [row[0].text for row in tables["t3"].rows] == ["Retrained", "+30-shot", "UNITER *", "prior"]
    ((variant, seeds, entropy, auroc, *_),) = tables["seeds"].rows
    low, high = (f"{value:.3f}" for value in entropy.value["seeds"].values())
    assert entropy.detail.endswith(f"; {low}, {high}")
    assert (variant.text, seeds.text) == ("Retrained", "2")
    each = auroc.value["seeds"]
    assert auroc.value["mean"] == pytest.approx(sum(each.values()) / 2)
    assert tables["t3"].rows[0][1].text == f"{100 * auroc.value['mean']:.1f}"
    assert auroc.value["spread"] == pytest.approx(abs(each["retrained-seed1"] - each["retrained-seed2"]) / 2**0.5)


def test_a_panel_has_every_seed_where_its_scale_says() -> None:
    quantity = Quantity(("pointing", "One Lung"), lambda slug: np.zeros(1))
    marks = draw_panel(100.0, 200.0, quantity, [[0.1, 0.38], [0.2, np.nan], [np.nan]], ["disc", "diamond", "disc"])
    ticks = {
        float(mark.text): line.at[0] for line, mark in itertools.pairwise(marks) if line.kind == "line" and mark.text
    }
    assert sorted(ticks) == [10, 20, 30, 40]
    placed = [(mark.kind, mark.at[:2]) for mark in marks if mark.kind in ("disc", "diamond")]
    (_, (one, first)), (_, (other, same)), (kind, (alone, second)) = placed
    assert (one, alone, kind) == (ticks[10], ticks[20], "diamond")
    assert other == pytest.approx(ticks[30] + 0.8 * (ticks[40] - ticks[30]))
    assert first == same < second


@pytest.mark.parametrize(
    ("values", "scale", "said"),
    [
        ([5.851, 5.859], 1.0, ["5.85", "5.86"]),
        ([0.0, 7.4], 1.0, ["0", "2", "4", "6", "8"]),
        ([0.481, 0.522], 100.0, ["48", "49", "50", "51", "52", "53"]),
        ([-0.43, 0.01], 100.0, ["−60", "−40", "−20", "0", "20"]),
    ],
)
def test_a_scale_has_the_digits_that_its_steps_need(values: list[float], scale: float, said: list[str]) -> None:
    marks = draw_panel(0.0, 100.0, Quantity(("a", "b"), lambda slug: np.zeros(1), scale=scale), [values], ["disc"])
    assert [mark.text for mark in marks if mark.kind == "text"][2:] == said


def test_the_figure_of_seeds_has_all_of_them(measured: Measured) -> None:
    drawing = seeds_figure(measured)
    assert drawing is not None
    discs = [mark for mark in drawing.marks if mark.kind == "disc"]
    diamonds = [mark for mark in drawing.marks if mark.kind == "diamond"]
    panels = len(quantities(measured.results))
    assert (len(discs), len(diamonds)) == (3 * panels, 2 * panels)  # two seeds and +30-shot; UNITER and the prior


def test_one_seed_each_makes_neither_table_nor_figure_of_seeds(measured: Measured) -> None:
    results = measured.results
    first = {model.variant: model for model in reversed(results.models)}
    once = Measured(replace(results, models=tuple(first.values())), measured.estimator)
    assert (seeds_table(once), seeds_figure(once)) == (None, None)


def test_changes_say_how_many_phrases_were_changed(tables: dict[str, Table], rows: list[Row]) -> None:
    inside = [row for row in rows if row["one_lung"]]
    changed = sum(row["asked_swap_sides"] is not None for row in inside)
    assert f"Swap Left Right {changed} of {len(inside)}" in tables["changes-regions"].caption
    headings = [heading.text for heading in tables["changes-regions"].header]
    line = tables["changes-regions"].rows[0]
    ours, papers = (
        line[headings.index(f"Swap Left Right, One Lung{end}")].value["estimate"] for end in ("", ": as in the paper")
    )
    assert papers == pytest.approx(ours * changed / len(inside))


def test_shuffled_and_random_boxes_say_how_many_are_changed_too(tmp_path: Path) -> None:
    found = instance_rows(40)
    for row in found[::2]:
        row["regions_shuffled_differs"] = False
    write_instances(tmp_path, found)
    plain_model(tmp_path, found, "retrained", 0.1)
    results = read_results(tmp_path)
    made = {one.name: one for one in change_tables(Measured(results, Estimator(results.instances.clusters)), "regions")}
    table = made["changes-regions"]
    inside = [row for row in found if row["mdrb"]]
    changed = sum(row["regions_shuffled_differs"] for row in inside)
    assert 0 < changed < len(inside)
    abnormal = sum(row["abnormal"] for row in found)
    assert f"Shuffle in Report {changed} of {len(inside)}; " in table.caption
    assert f"Random BBoxes {abnormal} of {abnormal}; " in table.caption
    headings = [heading.text for heading in table.header]
    ours, papers = (
        table.rows[0][headings.index(f"Shuffle in Report, MDRB{end}")].value for end in ("", ": as in the paper")
    )
    assert (ours["phrases"], papers["phrases"]) == (changed, len(inside))
    assert papers["estimate"] == pytest.approx(ours["estimate"] * changed / len(inside))


def test_the_difference_to_the_prior_is_paired(measured: Measured, tables: dict[str, Table]) -> None:
    results = measured.results
    ours, prior = (
        results.within(results.score(slug, "pointing", "exact"), "one-lung") for slug in ("thirty-shot", "prior")
    )
    line = next(row for row in tables["one-lung-exact"].rows if row[0].text == "+30-shot")
    assert line[2].value["estimate"] == pytest.approx(np.nanmean(ours - prior))
    itself = next(row for row in tables["one-lung-exact"].rows if row[0].text == "prior")
    assert itself[2].text == "–"


def test_the_untold_side_is_that_of_phrases_without_a_side_word(measured: Measured, tables: dict[str, Table]) -> None:
    wanted = [not row["names_side"] and row["exact_side"] in ("left", "right") for row in instance_rows(60)]
    line = next(row for row in tables["side-untold"].rows if row[0].text == "Retrained")
    assert line[1].value["phrases"] == sum(wanted)


def test_how_training_ended_is_said(measured: Measured) -> None:
    table = training_table(measured.results)
    assert table is not None
    line, other = table.rows
    assert [cell.text for cell in line[:7]] == [
        "Retrained", "1", "2,000", "64,000", "12", "cpu", "stopped before a plateau"
    ]  # fmt: skip
    assert other[0].text == "UNITER *"
    assert NOT_COMPARABLE in table.notes
    assert "along a cosine nearly every curve ends flat" in table.caption
    assert line[7].value == [(0.0, 4.0), (100.0, 2.0), (300.0, 1.0)]


def test_every_variant_is_described_once_with_its_seeds(measured: Measured) -> None:
    table = models_table(measured.results)
    assert table is not None
    assert [(row[0].text, row[3].text) for row in table.rows] == [
        ("Retrained", "1, 2"), ("+30-shot", "1"), ("UNITER *", "1"), ("prior", "1")
    ]  # fmt: skip
    assert NOT_COMPARABLE in table.notes


def test_each_perturbation_has_the_subset_of_the_paper() -> None:
    assert {one.name: one.subset for one in PERTURBATIONS[:5]} == {
        "swap-sides": "one-lung", "shuffle": "mdrb", "random-sentence": "abnormal", "random-boxes": "abnormal",
        "synthetic-swapped": "abnormal",
    }  # fmt: skip


def test_a_finding_of_few_patients_is_not_shown(tmp_path: Path) -> None:
    found = instance_rows(60)
    found[0]["findings"] = ["nodule"]
    write_instances(tmp_path, found)
    plain_model(tmp_path, found, "retrained", 0.1)
    results = read_results(tmp_path)
    made = {table.name: table for table in own_tables(Measured(results, Estimator(results.instances.clusters)))}
    labels = [row[0].text for row in made["findings-pointing"].rows]
    assert [label.split(" (")[0] for label in labels] == ["consolidation", "pleural effusion"]
    assert "1 rarer findings are not shown." in made["findings-pointing"].notes


def test_attention_on_nothing_rises_where_the_words_are_made_wrong(tmp_path: Path) -> None:
    found = instance_rows(60)
    write_instances(tmp_path, found)
    share = {"none": 0.25, "swap-sides": 0.75, "synthetic": 0.5, "synthetic-swapped": 0.625}

    def answers(condition: str, instance: int) -> dict[str, float]:
        return {"abstention": share.get(condition, 0.25) + (0.125 if found[instance]["abnormal"] else 0.0)}

    def never(condition: str, instance: int) -> dict[str, float]:
        return {"abstention": 0.0}

    scores = score_rows(found, lambda *_: 0.5)
    write_model(tmp_path, "no-attn", scores, answer_rows(found, answers))
    write_model(tmp_path, "retrained", scores, answer_rows(found, never))
    results = read_results(tmp_path)
    made = {table.name: table for table in own_tables(Measured(results, Estimator(results.instances.clusters)))}
    table = made["no-attn-scores"]
    line = dict(zip([heading.text for heading in table.header], table.rows[0], strict=True))
    assert [row[0].text for row in table.rows] == ["+no-attn"]  # the other never attends to nothing
    assert (line["Abnormal"].text, line["not Abnormal"].text) == ("37.5", "25.0")
    assert line["Swap Left Right, One Lung"].text == "+50.0"
    assert line["Random Sentences, Abnormal"].text == "+0.0"
    assert line["Synth w/ Swapped Conditions, Abnormal"].text == "+12.5"  # from the synthetic sentence
    assert not any("BBoxes" in name or "Shuffle" in name for name in line)  # targets are no part of what is asked


def test_attention_on_nothing_is_told_of_every_seed(tmp_path: Path) -> None:
    found = instance_rows(60)
    write_instances(tmp_path, found)
    scores = score_rows(found, lambda *_: 0.5)
    for seed, share in ((1, 0.25), (2, 0.75)):
        slug = "no-attn" if seed == 1 else "no-attn-seed2"
        answers = answer_rows(found, lambda *_, share=share: {"abstention": share})
        write_model(tmp_path, slug, scores, answers, variant="no-attn", name="No Attn", seed=seed, order=seed)
    results = read_results(tmp_path)
    made = {table.name: table for table in own_tables(Measured(results, Estimator(results.instances.clusters)))}
    rows = [(row[0].text, row[1].text) for row in made["no-attn-scores"].rows]
    assert rows == [("No Attn", "50.0"), ("No Attn, seed 1", "25.0"), ("No Attn, seed 2", "75.0")]


@pytest.mark.parametrize(
    ("losses", "plateau", "stopped", "said"),
    [
        ([4.0, 3.0, 2.0, 1.0], False, False, "stopped before a plateau"),
        ([4.0, 2.0, 1.0, 1.01], True, False, "flat at its end"),
        ([2.0, 1.0, 3.0, 4.0], True, False, "past its best"),
        ([4.0, 1.0, 1.5, 1.5], True, True, "past its best, stopped early"),
        ([4.0], None, False, "not known"),
    ],
)
def test_a_run_that_got_worse_again_is_not_called_flat(
    tmp_path: Path, losses: list[float], plateau: bool | None, stopped: bool, said: str
) -> None:
    rows = instance_rows(8)
    write_instances(tmp_path, rows)
    training = {
        "steps": 4,
        "plateau": plateau,
        "stopped_early": stopped,
        "curve": [[n, x] for n, x in enumerate(losses)],
    }
    plain_model(tmp_path, rows, "abnormal", 0.1, training=training)
    table = training_table(read_results(tmp_path))
    assert table is not None
    line = dict(zip([heading.text for heading in table.header], table.rows[0], strict=True))
    assert line["how it ended"].text == said

"""Tables of several models as arrays over phrases: values, subsets, changes, seeds, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from rightlung.core.errors import InputError
from rightlung.results.estimate import Comparison, Estimate
from rightlung.results.measured import Measured, Perturbation
from tests.results.tables import row, table

NAN = math.nan
SWAP = Perturbation("swap", "Swap", "one-lung", condition="swap-sides")
SHUFFLE = Perturbation("shuffle", "Shuffle", "all", target="shuffled")


def rows(shift: float = 0.0) -> list[dict[str, Any]]:
    """Three phrases in no order: b has no exact target, c is not changed by swapping sides."""
    return [
        row("c", target="regions", auroc=0.3 + shift, similarity_global=0.1, one_lung=False, patient=None),
        row("c", target="exact", auroc=0.9 + shift, peak_on_side=0.5, target_side="both", patient=None),
        row(
            "a", target="regions", auroc=0.1 + shift, similarity_global=0.5, one_lung=True, exact_shuffled_differs=True
        ),
        row("a", target="exact", auroc=0.7 + shift, peak_on_side=1.0, target_side="left", findings=["nodule"]),
        row("a", target="exact-shuffled", auroc=0.2 + shift),
        row("c", target="exact-shuffled", auroc=0.9 + shift),
        row("b", target="regions", auroc=0.2 + shift, similarity_global=0.2, one_lung=True),
        row("a", "swap-sides", target="regions", auroc=0.0 + shift, similarity_global=0.5),
        row("a", "swap-sides", target="exact", auroc=0.6 + shift, peak_on_side=0.0),
        row("b", "swap-sides", target="regions", auroc=0.4 + shift, similarity_global=0.3, reason="no answer: no"),
    ]


def same(found: NDArray[np.float64], expected: list[float]) -> bool:
    return bool(np.allclose(found, expected, equal_nan=True))


@pytest.fixture
def measured() -> Measured:
    seeds = {slug: {"variant": "v", "seed": seed} for slug, seed in (("one", 1), ("two", 2))}
    said: dict[str, dict[str, Any]] = {**seeds, "w": {"comparable": False}}
    tables = {"one": table(rows()), "two": table(rows(0.02)), "w": table(rows(0.05))}
    return Measured.of(tables, said)


def test_a_value_is_an_array_over_the_sorted_phrases(measured: Measured) -> None:
    assert measured.keys == (("a", "phrase:0"), ("b", "phrase:0"), ("c", "phrase:0"))
    assert same(measured.value("one", "auroc", "regions"), [0.1, 0.2, 0.3])
    assert same(measured.value("one", "auroc", "exact"), [0.7, NAN, 0.9])
    assert same(measured.value("one", "auroc", "exact", "swap-sides"), [0.6, NAN, NAN])
    assert same(measured.value("one", "similarity_global"), [0.5, 0.2, 0.1])
    for nothing in (measured.value("nobody", "auroc", "exact"), measured.value("one", "unheard of")):
        assert same(nothing, [NAN] * 3)
    with pytest.raises(InputError, match="auroc needs a target: regions, exact"):
        measured.value("one", "auroc")
    with pytest.raises(InputError, match="column 'phrase': expected numbers"):
        Measured.of({"x": table([row("a", phrase="words")])}).value("x", "phrase")


def test_a_variant_is_the_mean_over_its_seeds_and_each_seed_by_itself(measured: Measured) -> None:
    assert [model.slug for model in measured.rows] == ["v", "w"]
    assert same(measured.value("v", "auroc", "regions"), [0.11, 0.21, 0.31])
    assert [model.slug for model in measured.seeds("v")] == ["one", "two"]
    assert measured.model("w") is measured.rows[1]
    assert measured.rows[1].label == "w *"
    said: dict[str, dict[str, Any]] = {"v": {"seed": 1}, "v-seed2": {"variant": "v", "seed": 2}}
    for slugs, names in ((["v", "v-seed2"], ["v-seed1", "v-seed2"]), (["v"], ["v"])):
        found = Measured.of({slug: table(rows()) for slug in slugs}, said)
        assert [model.slug for model in found.models] == names  # by its seed where there are more


def test_facts_patients_and_subsets_are_those_of_the_phrases(measured: Measured) -> None:
    assert measured.fact("findings", "exact").tolist() == [["nodule"], None, []]
    assert measured.fact("target_side", "exact").tolist() == ["left", None, "both"]
    assert measured.subset("one-lung").tolist() == [True, True, False]
    assert same(measured.within(np.array([1.0, 2.0, 3.0]), "one-lung"), [1, 2, NAN])
    assert measured.has("exact").tolist() == [True, False, True]
    assert measured.patients.tolist() == ["patient of a", "patient of b", "study c"]
    assert measured.resampled == "patients and studies"
    assert measured.conditions == ("none", "swap-sides")
    assert measured.targets == ("regions", "exact", "exact-shuffled")
    assert measured.models[0].errors == 1
    with pytest.raises(InputError, match="unknown column 'one_lang'; did you mean 'one_lung'"):
        measured.subset("one-lang")
    with pytest.raises(InputError, match="is not boolean"):
        measured.subset("phrase")


def test_changes_are_counted_where_there_is_one_or_everywhere(measured: Measured) -> None:
    assert measured.changed("swap-sides").tolist() == [True, True, False]
    assert measured.changed(SWAP, "exact").tolist() == [True, False, False]
    assert measured.changed(SHUFFLE, "exact").tolist() == [True, False, False]  # the column says so
    assert same(measured.change("one", SWAP, "auroc", "regions"), [-0.1, 0.2, NAN])
    assert same(measured.change("one", SWAP, "auroc", "regions", "all"), [-0.1, 0.2, 0.0])
    assert same(measured.change("one", SHUFFLE, "auroc", "exact"), [-0.5, NAN, NAN])
    assert same(measured.change("v", SHUFFLE, "auroc", "exact", "all"), [-0.5, NAN, 0.0])
    elsewhere = Perturbation("x", "x", "all", condition="exchange-image")
    assert same(measured.change("one", elsewhere, "auroc", "regions", "all"), [NAN] * 3)


def test_the_side_of_the_peak_and_the_choice_of_a_sentence(measured: Measured) -> None:
    assert same(measured.value("one", "peak_on_side"), [1.0, NAN, 0.5])
    assert same(measured.value("one", "peak_on_side", None, "swap-sides"), [0.0, NAN, NAN])
    assert same(measured.selection("one", "global", "swap-sides"), [0.5, 0.0, NAN])


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ([*rows(), rows()[3]], "two, row 10: a phrase:0 occurs twice with condition none, target exact"),
        ([*rows(), row("d")], "two, row 10: d phrase:0 is not among the phrases"),
        (rows()[:6] + rows()[7:], "two: no row for b phrase:0 under condition none"),
        ([*rows()[:7], row(None)], "two, row 7, column 'study': the value is missing"),  # type: ignore[arg-type]
        (
            [*rows()[1:], rows()[0] | {"auroc": math.inf}],
            "two, row 9, column 'auroc': expected a finite number; got inf",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_file_and_row(changed: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        Measured.of({"one": table(rows()), "two": table(changed)}).value("two", "auroc", "regions")
    assert str(caught.value) == sentence


def test_without_completeness_the_phrases_are_those_of_the_first_table() -> None:
    tables = {"model": table(rows()[:6]), "prior": table([*rows()[2:], row("d", target="regions")])}
    measured = Measured.of(tables, complete=False)
    assert [study for study, _ in measured.keys] == ["a", "c"]
    assert same(measured.value("prior", "auroc", "regions"), [0.1, NAN])


def test_tables_of_different_protocols_or_without_a_column_are_refused() -> None:
    with pytest.raises(InputError, match="different protocols: one under aaaa, two under bbbb"):
        Measured.of({"one": table(rows(), "aaaa"), "two": table(rows(), "bbbb")})
    Measured.of({"one": table(rows(), "aaaa"), "two": table(rows(), "aaaa")})
    with pytest.raises(InputError, match="one: column 'target' is missing"):
        Measured.of({"one": table(rows()).drop(["target"])})


def write_model(folder: Path, name: str, made: pa.Table, **about: Any) -> None:
    said = {"slug": name, "variant": name, "name": name, "group": "ours", "comparable": True, "order": 1, **about}
    (folder / "measures" / name).mkdir(parents=True)
    pq.write_table(made, folder / "measures" / name / "instances.parquet")
    (folder / "measures" / name / "about.json").write_text(json.dumps(said))


def test_an_experiment_folder_is_read_in_the_order_of_its_models(tmp_path: Path) -> None:
    write_model(tmp_path, "first", table(rows()), order=2, training={"epochs": 3}, weights="abc")
    write_model(tmp_path, "second", table(rows(0.1)), ablation=True)
    (tmp_path / "measures" / "begun").mkdir()
    measured = Measured.read(tmp_path)
    assert [model.slug for model in measured.models] == ["second", "first"]
    assert measured.unfinished == ("begun",)
    assert (measured.models[0].ablation, measured.models[1].training) == (True, {"epochs": 3})
    assert measured.models[1].about["weights"] == "abc"
    assert same(measured.value("second", "auroc", "regions"), [0.2, 0.3, 0.4])
    assert measured.fact("patient").tolist() == ["patient of a", "patient of b", None]


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ({"order": "1"}, "order: expected int; got '1'"),
        ({"group": "theirs"}, "group: expected one of paper, ours, reference; got 'theirs'"),
        ({"slug": "first"}, "two folders have the same slug in about.json, 'first'"),
    ],
)
def test_a_wrong_about_file_is_refused(tmp_path: Path, about: dict[str, Any], sentence: str) -> None:
    write_model(tmp_path, "first", table(rows()))
    write_model(tmp_path, "second", table(rows()), **about)
    with pytest.raises(InputError, match=sentence):
        Measured.read(tmp_path)


def test_a_file_that_is_missing_or_not_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.parquet: the file does not exist"):
        Measured.of({"one": tmp_path / "nowhere.parquet"})
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        Measured.of({"one": tmp_path / "text.parquet"})


def test_the_instances_of_all_models_are_one_data_frame() -> None:
    frame = Measured.of({"one": table(rows()), "two": table(rows(0.05))}).to_pandas()
    assert list(frame.columns)[:2] == ["model", "study"]
    assert len(frame) == 2 * len(rows())
    plain = frame[(frame.study == "a") & (frame.condition == "none") & (frame.target == "exact")]
    assert dict(zip(plain.model, plain.auroc, strict=True)) == pytest.approx({"one": 0.7, "two": 0.75})
    assert Measured.of({}).to_pandas().empty


def test_estimates_join_to_one_data_frame() -> None:
    estimates = [Estimate(0.5, 0.4, 0.6, 10, 5), Comparison(0.1, 0.05, 0.2, 10, 8, p=0.01, shown=True)]
    frame = pd.concat([one.to_pandas() for one in estimates], ignore_index=True)
    assert frame.value.tolist() == [0.5, 0.1]
    assert (frame.patients[0], frame.p[1], frame.verdict[1]) == (5, 0.01, "difference shown")


def test_a_model_that_grounds_no_phrase_has_no_values_and_does_not_count_as_incomplete(measured: Measured) -> None:
    found = Measured.of({"a": table([]), "one": table(rows())})
    assert found.keys == measured.keys
    assert same(found.value("a", "auroc", "exact"), [NAN] * 3)
    assert not found.asked("a").any()
    assert same(found.value("one", "auroc", "regions"), [0.1, 0.2, 0.3])
    assert found.patients.tolist() == measured.patients.tolist()

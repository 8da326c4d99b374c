from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.core import InputError
from rightlung.reproduce.wrong_lung.instances import Instances
from rightlung.reproduce.wrong_lung.reading import read_results
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Floats
from tests.reproduce.wrong_lung.folders import (
    Row,
    answer_rows,
    instance_rows,
    plain_model,
    score_rows,
    write_instances,
    write_model,
)

SWAP = PERTURBATIONS[0]


def flat(condition: str, target: str, measure: str, instance: int) -> float:
    return 0.5


def nothing(condition: str, instance: int) -> dict[str, Any]:
    return {}


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    found = instance_rows(8)
    write_instances(tmp_path, found)
    return found


def write(folder: Path, rows: list[Row], change: Callable[[list[Row], list[Row]], None]) -> None:
    scores, answers = score_rows(rows, flat), answer_rows(rows, nothing)
    change(scores, answers)
    write_model(folder, "mine", scores, answers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda scores, answers: scores.pop(0),
            "scores.parquet: no row for instance 0 under condition none, target regions",
        ),
        (lambda scores, answers: answers.pop(0), "answers.parquet: no row for instance 0 under condition none"),
        (lambda scores, answers: scores.append(dict(scores[3])), "stands twice under none"),
        (lambda scores, answers: answers.append(dict(answers[1])), "instance 0 stands twice under random-sentence"),
        (lambda scores, answers: scores[5].update(instance=99), "row 5: instance 99 is unknown; there are 8"),
        (
            lambda scores, answers: answers[2].update(condition="upside-down"),
            "row 2: condition 'upside-down' is unknown",
        ),
        (lambda scores, answers: scores[2].update(target="box"), "row 2: target 'box' is unknown"),
        (lambda scores, answers: scores[4].update(auroc=float("inf")), "row 4: auroc is inf"),
        (lambda scores, answers: answers[0].update(peak_side="top"), "row 0: peak_side is 'top'"),
        (
            lambda scores, answers: answers.__delitem__(slice(None)),
            "no row has the condition 'none', the question as it stands",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(
    tmp_path: Path, rows: list[Row], change: Callable[[list[Row], list[Row]], None], said: str
) -> None:
    write(tmp_path, rows, change)
    with pytest.raises(InputError) as raised:
        read_results(tmp_path)
    assert said in str(raised.value)
    assert str(tmp_path / "measures" / "mine") in str(raised.value)


def test_an_answer_that_failed_needs_no_score(tmp_path: Path, rows: list[Row]) -> None:
    def fail(scores: list[Row], answers: list[Row]) -> None:
        answers[0]["error"] = "out of memory"
        scores[:] = [row for row in scores if (row["instance"], row["condition"]) != (0, "none")]

    write(tmp_path, rows, fail)
    model = read_results(tmp_path).models[0]
    assert model.errors == 1
    assert np.isnan(model.scores["none", "regions"]["auroc"]).tolist() == [True] + 7 * [False]


def test_a_target_that_was_not_moved_is_no_error(tmp_path: Path, rows: list[Row]) -> None:
    def drop(scores: list[Row], answers: list[Row]) -> None:
        scores[:] = [row for row in scores if (row["instance"], row["target"]) != (1, "regions-shuffled")]

    write(tmp_path, rows, drop)
    assert np.isnan(read_results(tmp_path).score("mine", "auroc", "regions-shuffled")).sum() == 1


def test_measures_of_other_instances_are_refused(tmp_path: Path, rows: list[Row]) -> None:
    write_model(tmp_path, "mine", score_rows(rows, flat), answer_rows(rows, nothing), protocol="other")
    with pytest.raises(InputError, match="measured under protocol other, and the instances are those of abc1234567"):
        read_results(tmp_path)


def test_unfinished_measures_are_left_out_and_named(tmp_path: Path, rows: list[Row]) -> None:
    plain_model(tmp_path, rows, "mine", 0.1)
    plain_model(tmp_path, rows, "half", 0.1).joinpath("about.json").unlink()
    results = read_results(tmp_path)
    assert [model.slug for model in results.models] == ["mine"]
    assert results.unfinished == ("half",)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("comparable", "yes", "comparable is 'yes'"),
        ("group", "theirs", "group is 'theirs'"),
        ("order", None, "order is None"),
    ],
)
def test_what_is_said_of_a_model_is_checked(tmp_path: Path, rows: list[Row], field: str, value: Any, said: str) -> None:
    place = plain_model(tmp_path, rows, "mine", 0.1) / "about.json"
    about = json.loads(place.read_text(encoding="utf-8"))
    place.write_text(json.dumps({**about, field: value}), encoding="utf-8")
    with pytest.raises(InputError, match=r"about\.json") as raised:
        read_results(tmp_path)
    assert said in str(raised.value)


def test_an_instance_out_of_its_place_is_refused(tmp_path: Path) -> None:
    found = instance_rows(4)
    found[2]["instance"] = 7
    write_instances(tmp_path, found)
    with pytest.raises(InputError, match=r"instances\.parquet, row 2: instance is 7, and must be 2"):
        read_results(tmp_path)


def test_without_a_patient_the_study_is_the_cluster(tmp_path: Path) -> None:
    found = instance_rows(6)
    for row in found[:4]:
        row["patient"] = None
    write_instances(tmp_path, found)
    clusters = read_results(tmp_path).instances.clusters
    assert clusters[0] == clusters[1]
    assert clusters[2] == clusters[3]
    assert len({int(clusters[0]), int(clusters[2]), int(clusters[4])}) == 3


def test_selection_counts_a_tie_half(tmp_path: Path, rows: list[Row]) -> None:
    own = [0.9, 0.2, 0.5, 0.5, 0.8, 0.1, 0.3, 0.6]
    other = [0.1, 0.4, 0.5, 0.5, 0.7, 0.2, None, 0.5]

    def answer(condition: str, instance: int) -> dict[str, Any]:
        near = other[instance] if condition == "random-sentence" else own[instance]
        return {"similarity_global": near, "similarity_local": None}

    write_model(tmp_path, "mine", score_rows(rows, flat), answer_rows(rows, answer))
    results = read_results(tmp_path)
    chosen = results.selection("mine", "global")
    assert chosen[:6].tolist() == [1.0, 0.0, 0.5, 0.5, 1.0, 0.0]
    assert np.isnan(chosen[6])
    assert np.nanmean(chosen) == pytest.approx((1 + 0 + 0.5 + 0.5 + 1 + 0 + 1) / 7)
    assert np.isnan(results.selection("mine", "local")).all()


def test_the_change_counts_changed_phrases_or_all_of_them_as_the_paper_does(tmp_path: Path, rows: list[Row]) -> None:
    def level(condition: str, target: str, measure: str, instance: int) -> float:
        return 0.8 - 0.1 * instance / 8 - (0.4 if condition == "swap-sides" else 0.0)

    write_model(tmp_path, "mine", score_rows(rows, level), answer_rows(rows, nothing))
    results = read_results(tmp_path)
    told = [row["asked_swap_sides"] is not None for row in rows]
    assert told == [False, True, True, False, True, True, False, True]
    changed = results.change("mine", SWAP, "auroc")
    assert np.isnan(changed).tolist() == [not each for each in told]
    assert np.nanmean(changed) == pytest.approx(-0.4, abs=1e-6)
    assert results.change("mine", SWAP, "auroc", how="as in the paper").mean() == pytest.approx(-0.4 * 5 / 8, abs=1e-6)


def test_swapped_conditions_are_counted_from_the_synthetic_sentence(tmp_path: Path, rows: list[Row]) -> None:
    levels = {"none": 0.9, "synthetic": 0.7, "synthetic-swapped": 0.6}
    write_model(
        tmp_path, "mine", score_rows(rows, lambda condition, *_: levels.get(condition, 0.5)), answer_rows(rows, nothing)
    )
    swapped = next(one for one in PERTURBATIONS if one.name == "synthetic-swapped")
    assert np.nanmean(read_results(tmp_path).change("mine", swapped, "auroc")) == pytest.approx(-0.1, abs=1e-6)


def test_a_moved_target_is_counted_from_its_own_kind(tmp_path: Path, rows: list[Row]) -> None:
    levels = {"regions": 0.6, "regions-random": 0.5, "exact": 0.9, "exact-random": 0.4}
    write_model(
        tmp_path, "mine", score_rows(rows, lambda c, target, *_: levels.get(target, 0.5)), answer_rows(rows, nothing)
    )
    results = read_results(tmp_path)
    boxes = next(one for one in PERTURBATIONS if one.name == "random-boxes")
    assert np.nanmean(results.change("mine", boxes, "auroc")) == pytest.approx(-0.1, abs=1e-6)
    assert np.nanmean(results.change("mine", boxes, "auroc", "exact")) == pytest.approx(-0.5, abs=1e-6)


def test_the_peaks_side_is_held_against_the_exact_targets(tmp_path: Path, rows: list[Row]) -> None:
    write_model(tmp_path, "mine", score_rows(rows, flat), answer_rows(rows, nothing))  # every peak lies on the left
    found = read_results(tmp_path).peak_on_side("mine")
    assert [row["exact_side"] for row in rows[:4]] == ["left", "right", "left", "none"]
    assert found[:3].tolist() == [1.0, 0.0, 1.0]
    assert np.isnan(found[3])


def test_a_map_without_sides_gets_what_chance_gets(tmp_path: Path, rows: list[Row]) -> None:
    write_model(tmp_path, "flat", score_rows(rows, flat), answer_rows(rows, lambda *_: {"peak_side": "middle"}))
    found = read_results(tmp_path).peak_on_side("flat")
    assert found[~np.isnan(found)].tolist() == [0.5] * sum(row["exact_side"] in ("left", "right") for row in rows)


def test_a_shuffled_target_that_is_the_same_mask_or_missing_changes_nothing(tmp_path: Path) -> None:
    found = instance_rows(8)
    states: list[bool | None] = [True, True, True, False, False, None, None, True]
    for row, state in zip(found, states, strict=True):
        row["regions_shuffled_differs"] = state
    write_instances(tmp_path, found)
    scores = [
        row
        for row in score_rows(found, lambda c, target, *_: 0.5 if target == "regions-shuffled" else 0.9)
        if row["target"] != "regions-shuffled" or states[row["instance"]] is not None
    ]
    for row in scores:
        if row["target"] == "regions-shuffled" and states[row["instance"]] is False:
            row["auroc"] = 0.9
    write_model(tmp_path, "mine", scores, answer_rows(found, nothing))
    results = read_results(tmp_path)
    shuffle = next(one for one in PERTURBATIONS if one.name == "shuffle")
    assert results.changed(shuffle).tolist() == [state is True for state in states]
    changed = results.change("mine", shuffle, "auroc")
    assert np.isnan(changed).tolist() == [state is not True for state in states]
    assert np.nanmean(changed) == pytest.approx(-0.4, abs=1e-6)
    papers = results.change("mine", shuffle, "auroc", how="as in the paper")
    assert not np.isnan(papers).any()
    assert papers.mean() == pytest.approx(-0.4 * 4 / 8, abs=1e-6)


def test_where_it_is_not_said_every_shuffled_target_counts(tmp_path: Path, rows: list[Row]) -> None:
    path = tmp_path / "instances.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["regions_shuffled_differs"]), path)
    write_model(tmp_path, "mine", score_rows(rows, flat), answer_rows(rows, nothing))
    results = read_results(tmp_path)
    shuffle = next(one for one in PERTURBATIONS if one.name == "shuffle")
    assert results.changed(shuffle).all()
    assert results.changed(shuffle, "exact").tolist() == [row["has_exact"] for row in rows]


def test_the_prepared_set_says_which_shuffled_targets_are_other_masks(prepared: Instances) -> None:
    columns = pq.read_table(prepared.folder / "instances.parquet").to_pydict()
    for kind in ("regions", "exact"):
        wanted: list[bool | None] = []
        for instance in prepared:
            own, moved = (instance.targets.get(name) for name in (kind, f"{kind}-shuffled"))
            if moved is None:
                wanted.append(None)
            else:
                assert own is not None
                wanted.append(bool((prepared.mask(own) != prepared.mask(moved)).any()))
        assert columns[f"{kind}_shuffled_differs"] == wanted
        assert True in wanted
    assert False in columns["regions_shuffled_differs"]


def test_a_variant_of_several_seeds_is_their_mean_instance_by_instance(tmp_path: Path, rows: list[Row]) -> None:
    for number, (slug, variant, order) in enumerate(
        (("b-seed2", "b", 4), ("b", "b", 3), ("a", "a", 1), ("c-seed2", "c", 5))
    ):
        seed = 2 if slug.endswith("seed2") else 1
        plain_model(tmp_path, rows, slug, 0.05 + 0.1 * number, number, variant=variant, order=order, seed=seed)
    results = read_results(tmp_path)
    assert [model.slug for model in results.rows] == ["a", "b", "c-seed2"]
    assert [model.slug for model in results.seeds("b")] == ["b-seed1", "b-seed2"]
    swap = PERTURBATIONS[0]
    kinds: list[Callable[[str], Floats]] = [
        lambda slug: results.score(slug, "auroc", "exact"),
        lambda slug: results.answer(slug, "entropy"),
        lambda slug: results.selection(slug, "global"),
        lambda slug: results.change(slug, swap, "auroc", "exact", "as in the paper"),
        results.peak_on_side,
    ]
    for values in kinds:
        first, second = values("b-seed1"), values("b-seed2")
        assert (np.nan_to_num(first) != np.nan_to_num(second)).any()
        np.testing.assert_allclose(values("b"), (first + second) / 2)  # NaN where they are
        np.testing.assert_array_equal(values("a"), values(results.seeds("a")[0].slug))
    np.testing.assert_array_equal(results.score("b", "auroc", "never"), results.nothing())
    chosen = results.selection("b", "global")
    assert (
        {0.5, 1.0} <= set(chosen[~np.isnan(chosen)].tolist()) <= {0.0, 0.5, 1.0}
    )  # the mean of choices, not the choice by means


def test_a_mean_over_seeds_is_defined_where_all_seeds_are(tmp_path: Path, rows: list[Row]) -> None:
    def level(value: float, missing: bool) -> Callable[[str, str, str, int], float]:
        return lambda condition, target, measure, instance: math.nan if missing and instance == 0 else value

    for seed, (value, missing) in enumerate(((0.5, False), (0.75, True)), start=1):
        conditions = ("none", "swap-sides") if seed == 1 else ("none",)
        scores = score_rows(rows, level(value, missing), conditions)
        answers = answer_rows(rows, lambda condition, instance: {})
        write_model(tmp_path, f"b-seed{seed}", scores, answers, variant="b", seed=seed)
    results = read_results(tmp_path)
    found = results.score("b", "auroc")
    assert np.isnan(found[0])
    assert found[1:].tolist() == [0.625] * (len(rows) - 1)
    change = results.change("b", PERTURBATIONS[0], "auroc", how="as in the paper")
    assert np.isnan(change).all()  # one of its seeds was never asked

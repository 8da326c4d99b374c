"""Comparisons of results, against scikit-learn, statsmodels, paired differences of arrays, and all swaps by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from statsmodels.stats.multitest import multipletests

from rightlung.core import InputError
from rightlung.measuring import Protocol
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.paired import ComparedPart, compare_tables
from rightlung.results.tables import BY_INSTANCE, read_results
from rightlung.scoring.statistics import paired_difference
from tests.measuring.test_protocols import changed
from tests.results.compared import AUDIT, CLASSES, DETECTION, box_row, class_rows, phrase_rows, write

QUICK = BootstrapSettings(resamples=200, flips=2000)


def compared(paths: list[Path], main: tuple[str, ...] = (), condition: str = "none") -> ComparedPart:
    tables, _ = read_results(paths)
    (part,) = compare_tables(next(iter(tables.values())), main, QUICK, condition)
    return part


def test_a_mean_is_the_paired_difference_over_patients(tmp_path: Path) -> None:
    rows = phrase_rows(0.1, 1), phrase_rows(0.0, 2)
    part = compared([write(tmp_path / name, some, model=name) for name, some in zip("ab", rows, strict=True)])
    (found,) = part.of("auroc")
    one, two = ([row["auroc"] for row in some] for some in rows)
    patients = [row["patient"] for row in rows[0]]
    expected = paired_difference(one, two, clusters=patients, resamples=200, flips=2000)
    assert (found.first, found.second) == ("a", "b")
    assert found.values[0].value == pytest.approx(np.mean(one))
    difference = found.difference
    assert (difference.value, difference.low, difference.high, difference.p) == pytest.approx(
        (expected.estimate, expected.low, expected.high, expected.p)
    )
    assert difference.verdict == "difference shown"
    assert (part.instances, part.patients) == (40, 13)


def test_equal_models_show_no_difference_and_few_patients_cannot(tmp_path: Path) -> None:
    rows = phrase_rows(0.0, 1)
    same = compared([write(tmp_path / name, rows, model=name) for name in "ab"])
    assert {pair.difference.verdict for pairs in same.pairs.values() for pair in pairs} == {"no difference shown"}
    few = [
        write(tmp_path / name, [row for row in phrase_rows(better, 1) if row["patient"] < "p04"], model=name)
        for name, better in (("c", 0.4), ("d", 0.0))
    ]
    assert compared(few).of("auroc")[0].difference.verdict == "too few patients to tell"


def test_auroc_is_that_of_all_scores_and_tested_by_swapping_patients(tmp_path: Path) -> None:
    rows = class_rows(1.5, 1, patients=6), class_rows(0.2, 2, patients=6)
    part = compared([write(tmp_path / name, some, CLASSES) for name, some in zip("ab", rows, strict=True)])
    (pair,) = part.of("finding_auroc")
    labels, patients = (np.array([row[name] for row in rows[0]]) for name in ("finding_label", "patient"))
    findings = np.array([row["target"] for row in rows[0]])
    scores = [np.array([row["finding_score"] for row in some]) for some in rows]

    def macro(values: Any) -> float:
        return float(np.mean([roc_auc_score(labels[findings == f], values[findings == f]) for f in ("edema", "mass")]))

    assert [one.value for one in pair.values] == pytest.approx([macro(one) for one in scores])
    assert pair.difference.value == pytest.approx(macro(scores[0]) - macro(scores[1]))
    ranks = [np.zeros(len(labels)), np.zeros(len(labels))]
    for rank, score in zip(ranks, scores, strict=True):
        for finding in ("edema", "mass"):
            rank[findings == finding] = rankdata(score[findings == finding])
    differences = []
    for swapped in itertools.product((False, True), repeat=6):
        where = np.isin(patients, [f"p{n}" for n in range(6) if swapped[n]])
        differences.append(macro(np.where(where, *ranks[::-1])) - macro(np.where(where, *ranks)))
    assert pair.difference.p == pytest.approx(np.mean(np.abs(differences) >= abs(differences[0]) - 1e-12))


def test_the_unit_of_a_models_scores_does_not_matter(tmp_path: Path) -> None:
    rows = class_rows(1.0, 1), class_rows(0.2, 2)
    logits = [row | {"finding_score": 100 * row["finding_score"] - 50} for row in rows[1]]
    paths = [write(tmp_path / name, some, CLASSES) for name, some in zip("abc", (*rows, logits), strict=True)]
    one, other = (compared([paths[0], path]).of("finding_auroc")[0].difference for path in paths[1:])
    assert (one.value, one.low, one.p) == pytest.approx((other.value, other.low, other.p))


def test_findings_are_corrected_by_holm_and_those_of_few_patients_are_not_tested(tmp_path: Path) -> None:
    rows = [phrase_rows(better, seed) for better, seed in ((0.03, 1), (0.0, 2))]
    for some in rows:
        for row in some[:4]:
            row["findings"] = ["rare"]
    part = compared([write(tmp_path / name, some) for name, some in zip("ab", rows, strict=True)], ("auroc",))
    found = {pair.group: pair.difference for pair in part.pairs["auroc"] if pair.group != "all"}
    assert set(found) == {"effusion", "nodule", "rare"}
    assert found["rare"].p_adjusted is None
    assert found["rare"].verdict == "too few patients to tell"
    tested = [found["effusion"], found["nodule"]]
    expected = multipletests([one.p for one in tested], method="holm")[1]
    assert [one.p_adjusted for one in tested] == pytest.approx(expected.tolist())
    inside = [n for n, row in enumerate(rows[0]) if "effusion" in row["findings"]]
    assert found["effusion"].value == pytest.approx(
        np.mean([rows[0][n]["auroc"] - rows[1][n]["auroc"] for n in inside])
    )
    assert not part.groups("pointing")  # not among the main measures


def test_three_models_give_three_pairs_which_are_one_family(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, phrase_rows(better, n), model=name)
             for n, (name, better) in enumerate((("a", 0.06), ("b", 0.02), ("c", 0.0)))]  # fmt: skip
    found = compared(paths).of("auroc")
    assert [(pair.first, pair.second) for pair in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    expected = multipletests([pair.difference.p for pair in found], method="holm")[1]
    assert [pair.difference.p_adjusted for pair in found] == pytest.approx(expected.tolist())


def test_a_false_box_counts_though_the_other_model_has_no_row_for_it(tmp_path: Path) -> None:
    hits = [box_row(f"s{n}", [0.5], [127], 1.0) for n in range(6)]
    quiet = [box_row(f"s{n}", [], [], 0.0, condition="blind-constant") for n in range(8)]
    false = [box_row("s7", [0.9], [0], 0.0)]
    unasked = [box_row("s9", [0.9], [0], 0.0)]
    paths = [
        write(tmp_path / "a", [*hits, *quiet], DETECTION, part="detection"),
        write(tmp_path / "b", [*hits, *false, *unasked, *quiet], DETECTION, part="detection"),
    ]
    part = compared(paths)
    (pair,) = part.of("map")
    # b's false box of s7 has the highest score: the precision at every recall is 6 of 7
    assert [one.value for one in pair.values] == pytest.approx([1.0, 6 / 7])
    assert part.dropped == {"a": 0, "b": 1}  # a was not asked about s9
    assert part.instances == 7


def test_results_with_several_targets_are_compared_by_each_of_their_own(tmp_path: Path) -> None:
    protocol = replace(AUDIT, rules=("regions", "exact", "exact-random"), pixels=224)
    paths = []
    for name, better in (("a", 0.1), ("b", 0.0)):
        rows = phrase_rows(better, 1)
        by_target = {"regions": 0.0, "exact": better, "exact-random": 9.0}
        every = [row | {"target": t, "auroc": row["auroc"] + more} for t, more in by_target.items() for row in rows]
        paths.append(write(tmp_path / name, every, protocol))
    tables, _ = read_results(paths)
    parts = compare_tables(tables[""], (), QUICK)
    assert [one.title for one in parts] == ["audit, target regions", "audit, target exact"]
    assert [one.of("auroc")[0].difference.value for one in parts] == pytest.approx([0.1, 0.2])


# Bad input


@pytest.mark.parametrize("name", [field.name for field in fields(Protocol)])
def test_unlike_protocols_are_refused_by_the_field_with_both_values(name: str, tmp_path: Path) -> None:
    value: Any = changed(getattr(AUDIT, name))
    value = ("auroc",) if name == "measures" else value
    other = replace(AUDIT, **dict[str, Any]({name: value}))
    paths = [write(tmp_path / "a", phrase_rows(0.1, 1)), write(tmp_path / "b", phrase_rows(0.0, 2), other)]
    if name in (*BY_INSTANCE, "source", "prior_source"):
        assert compared(paths).instances == 40
        return
    with pytest.raises(InputError, match=f"^unlike protocols: they differ in {name}: .*/a/.* has .*, .*/b/.* has") as e:
        compared(paths)
    assert "\n" not in str(e.value)
    if name in ("decimals", "version", "one_sided"):
        assert f"a/instances.parquet has {getattr(AUDIT, name)!r}," in str(e.value)
        assert f"b/instances.parquet has {value!r};" in str(e.value)


def test_instances_that_one_lacks_are_dropped_and_counted_and_it_is_refused_if_all_are(tmp_path: Path) -> None:
    rows = phrase_rows(0.1, 1), phrase_rows(0.0, 2)[:30]
    other = replace(AUDIT, phrase_set="0987654321")
    part = compared([write(tmp_path / "a", rows[0]), write(tmp_path / "b", rows[1], other)])
    assert part.dropped == {"a": 10, "b": 0}
    assert "10 of 40 instances of a are left out: not all results have them" in part.notes
    assert part.of("auroc")[0].values[0].value == pytest.approx(np.mean([row["auroc"] for row in rows[0][:30]]))
    elsewhere = [row | {"study": f"t{row['study']}"} for row in rows[1]]
    stranger = write(tmp_path / "c", elsewhere, replace(other, source="strangers"))
    with pytest.raises(InputError, match=r"no instance in common: .*source cards\) begins .*source strangers\) begins"):
        compared([tmp_path / "a", stranger])


def test_studies_of_the_same_name_with_another_truth_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", phrase_rows(0.1, 1))
    for name, value in (("patient", "somebody"), ("phrase", "Another."), ("target_area", 0.9)):
        rows = phrase_rows(0.0, 2)
        rows[3][name] = value
        with pytest.raises(InputError, match=f"{name} of s03 phrase:0, target own, is .* different truths"):
            compared([tmp_path / "a", write(tmp_path / name, rows)])


def test_a_score_that_is_nan_is_left_out_of_all_models_and_said(tmp_path: Path) -> None:
    rows = phrase_rows(0.1, 1), phrase_rows(0.0, 2)
    for row in rows[1][:5]:
        row["auroc"] = math.nan
    part = compared([write(tmp_path / name, some) for name, some in zip("ab", rows, strict=True)])
    (pair,) = part.of("auroc")
    assert (pair.difference.n, pair.values[0].n) == (35, 35)
    assert "instances without a value (NaN) in one result are left out of all: 5 in b of 40 (AUROC)" in part.notes
    assert part.of("pointing")[0].difference.n == 40
    for row in rows[1]:
        row["auroc"] = math.nan
    part = compared([tmp_path / "a", write(tmp_path / "c", rows[1])])
    assert "AUROC is not compared: no instance has a value in all results" in part.notes
    rows[1][2]["auroc"] = math.inf
    with pytest.raises(InputError, match=r"instances.parquet, row 2, column 'auroc': expected a finite number"):
        compared([tmp_path / "a", write(tmp_path / "d", rows[1])])


def test_two_models_of_one_name_are_told_apart_and_one_result_twice_is_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, phrase_rows(0, n), model="starter") for n, name in enumerate("ab")]
    tables, notes = read_results(paths)
    assert [one.model for one in tables[""]] == ["starter (a)", "starter (b)"]
    assert notes == ["2 results name their model 'starter'; they are told apart by folder or file"]
    with pytest.raises(InputError, match="a is given twice"):
        read_results([paths[0], tmp_path / "." / "a"])
    with pytest.raises(InputError, match="at least two results"):
        read_results(paths[:1])


def test_results_that_cannot_be_read_are_refused_in_one_sentence(tmp_path: Path) -> None:
    good = write(tmp_path / "good", phrase_rows())
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"no table")
    write(tmp_path / "task", class_rows(1, 1), CLASSES, part="classification")
    write(tmp_path / "twice", [*phrase_rows(), phrase_rows()[0]])
    write(tmp_path / "words", [row | {"auroc": "high"} for row in phrase_rows()])
    write(tmp_path / "nobody", [phrase_rows()[0], phrase_rows()[1] | {"patient": None}])
    pq.write_table(pq.read_table(good / "instances.parquet").replace_schema_metadata(), tmp_path / "bare.parquet")
    for path, message in (
        (tmp_path / "gone", "gone: there is no such file or folder"),
        (tmp_path / "empty", "empty: holds no table of instances .* give a folder that 'rightlung audit'"),
        (tmp_path / "broken.parquet", "broken.parquet: cannot be read as Parquet"),
        (tmp_path / "task", "no table in common: .*good has instances.parquet; .*task has instances-classification"),
        (tmp_path / "words", "instances.parquet, column 'auroc': expected values of type double; got string"),
        (tmp_path / "nobody", "instances.parquet, row 1, column 'patient': the value is missing"),
        (tmp_path / "bare.parquet", "bare.parquet: names no protocol"),
        (tmp_path / "twice", "s00 phrase:0 occurs twice with target own, condition none"),
    ):
        with pytest.raises(InputError, match=message):
            compared([good, path])
    with pytest.raises(InputError, match="has no answers under the condition 'swap-sides'; it has: 'none'"):
        compared([good, write(tmp_path / "other", phrase_rows())], condition="swap-sides")

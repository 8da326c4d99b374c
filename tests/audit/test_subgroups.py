"""Subgroups of made-up scores: known means and differences, Holm's correction, and groups that are too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rightlung.audit.subgroups import LEAD, subgroup_sentence, subgroup_tables, subgroups
from rightlung.core import Study
from rightlung.measuring.targets import person_of
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.measured import Measured

FEW = BootstrapSettings(resamples=300, flips=2000)


def table(scores: Any, sexes: list[str | None], views: list[str] | None = None) -> pa.Table:
    """Return instances of one phrase for each patient."""
    count = len(scores)
    columns = {
        "study": [f"s{n:03}" for n in range(count)], "query": ["phrase:0"] * count, "condition": ["none"] * count,
        "target": ["own"] * count, "patient": [f"p{n:03}" for n in range(count)], "target_kind": ["mask"] * count,
        "reason": [""] * count, "sex": pa.array(sexes, pa.string()),
        "average_precision": np.asarray(scores, float), "pointing": np.asarray(scores, float).round(),
    }  # fmt: skip
    return pa.table(columns | ({} if views is None else {"view": views}))


def found(scores: Any, prior: Any, sexes: list[str | None], views: list[str] | None = None) -> list[Any]:
    tables = {"model": table(scores, sexes, views), "prior": table(prior, sexes, views)}
    return subgroups(Measured.of(tables, complete=False), FEW)


def test_a_group_for_which_the_model_is_worse_is_found_and_the_other_is_not_tested_twice() -> None:
    chance = np.random.default_rng(0)
    sexes: list[str | None] = ["F", "M"] * 30
    worse = np.array([0.3 if sex == "F" else 0.7 for sex in sexes]) + chance.normal(0, 0.05, 60)
    women, men = found(worse, np.full(60, 0.2), sexes)
    assert women.values[LEAD].value == pytest.approx(worse[::2].mean() - 0.2)
    assert women.differences[LEAD].value == pytest.approx(worse[::2].mean() - worse[1::2].mean())
    assert women.differences[LEAD].shown
    assert men.differences == {}
    assert subgroup_sentence([women, men]).startswith("Subgroups by sex: lead over the prior differs from all others'")
    assert [one.name for one in subgroup_tables([women, men])] == [
        "subgroups-lead", "subgroups-average_precision", "subgroups-pointing",
    ]  # fmt: skip


def test_the_p_value_is_that_of_a_t_test_of_two_groups_within_rounding_and_holm_counts_all_tests() -> None:
    from scipy.stats import ttest_ind

    scores = np.random.default_rng(3).random(80) + np.tile([0.0, 0.12], 40)
    views = ["AP"] * 20 + ["PA"] * 60
    women, _, frontal, _ = found(scores, np.zeros(80), ["F", "M"] * 40, views)
    expected = [ttest_ind(scores[::2], scores[1::2]).pvalue, ttest_ind(scores[:20], scores[20:]).pvalue]
    tested = [one.differences["average_precision"] for one in (women, frontal)]
    assert [one.p for one in tested] == pytest.approx(expected, abs=0.06)
    ordered = sorted(one.p for one in tested)
    assert min(one.p_adjusted for one in tested) == pytest.approx(2 * ordered[0])
    assert max(one.p_adjusted for one in tested) == pytest.approx(max(2 * ordered[0], ordered[1]))


def test_small_groups_are_not_tested_and_unknown_values_are_no_group() -> None:
    sexes: list[str | None] = ["F"] * 3 + ["M"] * 40 + [None] * 10
    women, men = found(np.linspace(0, 1, 53), np.zeros(53), sexes)
    assert (women.few, women.patients, men.patients) == (True, 3, 40)
    assert not women.differences[LEAD].shown
    assert subgroup_sentence([women, men]) == "Subgroups by sex: too few patients to compare lead over the prior."
    assert found(np.linspace(0, 1, 9), np.zeros(9), ["F"] * 9) == []
    assert subgroup_sentence([]) == ""


@pytest.mark.parametrize("small", [6, 9, 10])
@pytest.mark.parametrize("first", [True, False])
def test_a_difference_is_a_warning_from_ten_patients_on_which_it_names(small: int, first: bool) -> None:
    sides = ["AP"] * small + ["PA"] * (40 - small) if first else ["AP"] * (40 - small) + ["PA"] * small
    scores = np.array([0.2 if side == "AP" else 0.8 for side in sides]) + np.arange(40) / 1000
    some = found(scores, np.zeros(40), [None] * 40, sides)
    assert (some[0].few, some[0].differences[LEAD].shown) == (small < 10, small == 10)
    sentence = subgroup_sentence(some)
    if small < 10:
        assert sentence == "Subgroups by view: too few patients to compare lead over the prior."
    else:
        difference = scores[: some[0].patients].mean() - scores[some[0].patients :].mean()
        assert f"view AP (−{-difference:.2f} (" in sentence
        assert sentence.endswith(f"; {some[0].patients} patients).")


def test_a_group_that_is_too_small_is_named_beside_one_that_is_compared() -> None:
    bands = found(
        np.tile([0.3, 0.7], 20) + np.arange(40) / 1000, np.zeros(40), ["F", "M"] * 20, ["AP"] * 6 + ["PA"] * 34
    )
    assert subgroup_sentence(bands).endswith("20 patients). Too few patients to compare: view AP, 6.")


@pytest.mark.parametrize(
    ("age", "band"), [(0.0, "below 18"), (17.9, "below 18"), (18, "18 to 39"), (79, "60 to 79"), (104, "80 and above")]
)
def test_ages_fall_into_bands(age: float, band: str) -> None:
    study = Study("a", lambda: np.zeros((4, 4), np.float32), age=age, view="PA")
    assert person_of(study) == {"age_band": band, "view": "PA"}

"""Numbers by hand, by scipy, by a loop; and a planted relation that must be found while chance is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import krippendorff
import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from rightlung.core import InputError
from rightlung.judgements import (
    RATINGS,
    BlindingKey,
    JudgedInstance,
    Judgement,
    Measures,
    analyse,
    blind,
    plan,
    read_judgements,
    read_measures,
    write_table,
)  # fmt: skip
from rightlung.judgements.analysis import ALL
from rightlung.judgements.summary import summary
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator
from tests.judgements.made_up import SLUGS, fill_in, write_experiment

FAST = BootstrapSettings(resamples=300)
NAN = math.nan
Simulated = tuple[list[Judgement], BlindingKey, Measures]


def judged(
    study: str, model: str, ratings: Sequence[int], annotator: str = "ann", phrase: str = "phrase:0", prompt: str = "x"
) -> Judgement:
    recall, precision, intuitiveness = ratings
    return Judgement(annotator, study, phrase, prompt, model, recall, precision, intuitiveness)


# Three studies, two models, by hand.
HAND = [
    judged("a", "A7", (5, 4, 5)),
    judged("b", "A7", (3, 4, 4)),
    judged("c", "A7", (1, 1, 3)),
    judged("a", "K2", (1, 2, 3)),
    judged("b", "K2", (3, 2, 4)),
    judged("d", "K2", (5, 5, 5)),
]


def test_means_and_paired_differences_are_those_by_hand() -> None:
    result = analyse(HAND, settings=FAST)
    assert [row["model"] for row in result["means"]] == ["A7", "K2"]
    for row in result["means"]:
        estimates = {name: row["ratings"][name]["estimate"] for name in RATINGS}
        assert estimates == pytest.approx({"recall": 3, "precision": 3, "intuitiveness": 4})
    found = {row["rating"]: row for row in result["differences"]}
    assert {name: row["estimate"] for name, row in found.items()} == {"recall": 2, "precision": 2, "intuitiveness": 1}
    assert all(row["n"] == 2 and not row["shown"] for row in found.values())  # two studies never show anything
    assert result["clusters"] == "studies"
    assert result["agreement"] == {"units": 0, "annotators": 1, "ratings": {}}  # one annotator agrees with nobody
    assert analyse(HAND[::-1], settings=FAST) == result
    assert result["counts"] == {
        "judgements": 6, "annotators": 1, "models": 2, "prompts": 4, "custom_prompts": 0, "studies": 4, "clusters": 4,
    }  # fmt: skip
    named = analyse(HAND, key=BlindingKey({"A7": "zebra", "K2": "gloria"}), settings=FAST)
    assert [row["model"] for row in named["means"]] == ["gloria", "zebra"]
    assert [row["estimate"] for row in named["differences"]] == [-2, -2, -1]
    assert (result["blinded"], named["blinded"]) == (True, False)


def test_patients_are_resampled_where_they_are_known() -> None:
    """Copies of a patient's judgement under other studies carry no information, and must not narrow the interval."""
    ratings = [1, 2, 2, 3, 3, 4, 5, 5]
    once = [judged(f"s{place}", "A7", (1, 1, value)) for place, value in enumerate(ratings)]
    copies = [judged(f"{one.study}-{copy}", "A7", (1, 1, one.intuitiveness)) for one in once for copy in range(6)]
    instances = {
        (one.study, "phrase:0"): JudgedInstance(one.study, "phrase:0", "x", one.study.partition("-")[0])
        for one in copies
    }
    sure = BootstrapSettings(resamples=2000)
    plain, clustered, naive = (
        analyse(rows, instances=known, settings=sure)["means"][0]["ratings"]["intuitiveness"]
        for rows, known in ((once, None), (copies, instances), (copies, None))
    )
    assert clustered["clusters"] == 8
    assert (clustered["low"], clustered["high"]) == pytest.approx((plain["low"], plain["high"]), abs=1e-9)
    assert naive["high"] - naive["low"] < 0.6 * (clustered["high"] - clustered["low"])


def test_alphas_are_the_krippendorff_packages_and_shares_those_of_a_loop_over_pairs() -> None:
    generator = np.random.default_rng(5)
    people, models = ("ann", "bea", "cem"), ("A7", "K2")
    rows = [
        judged(f"s{study}", model, [*generator.integers(1, 6, 2).tolist(), 3], annotator=name)
        for study in range(12)
        for model in models
        for name in people
        if generator.random() < 0.7
    ]
    agreement = analyse(rows, settings=FAST)["agreement"]
    units = list(itertools.product([f"s{study}" for study in range(12)], models))
    for rating in ("recall", "precision"):
        of = {(one.study, one.model, one.annotator): getattr(one, rating) for one in rows}
        table = [[of.get((*unit, name), NAN) for unit in units] for name in people]
        columns = [[row[unit] for row in table if not math.isnan(row[unit])] for unit in range(len(units))]
        gaps = [abs(a - b) for column in columns for a, b in itertools.combinations(column, 2)]
        found = agreement["ratings"][rating]
        for level in ("ordinal", "interval"):
            expected = krippendorff.alpha(reliability_data=table, level_of_measurement=level)
            assert found[level]["estimate"] == pytest.approx(expected)
        assert found["exact"]["estimate"] == pytest.approx(gaps.count(0) / len(gaps))
        assert found["within_one"]["estimate"] == pytest.approx(sum(gap <= 1 for gap in gaps) / len(gaps))
        assert found["exact"]["n"] == len(gaps)
    assert agreement["units"] == sum(len(column) > 1 for column in columns)
    assert "without variation" in agreement["ratings"]["intuitiveness"]["ordinal"]["reason"]


def test_findings_come_from_the_instances_and_else_from_the_words() -> None:
    rows = [
        judged("a", "A7", (1, 1, 5), prompt="whatever"),
        judged("b", "A7", (1, 1, 2), prompt="Left pleural effusion, no pneumothorax."),
        judged("c", "A7", (1, 1, 1), phrase="", prompt="Is there a left pleural effusion?"),
    ]
    instances = {("a", "phrase:0"): JudgedInstance("a", "phrase:0", "whatever", None, ("atelectasis",))}
    found = {group["finding"]: group for group in analyse(rows, instances=instances, settings=FAST)["findings"]}
    assert found["atelectasis"]["all"]["estimate"] == 5
    assert found["pleural effusion"]["all"]["estimate"] == 1.5
    assert found["pleural effusion"]["models"]["A7"]["n"] == 2
    assert "pneumothorax" not in found
    assert all(group["few"] for group in found.values())


def test_custom_prompts_stand_beside_those_from_reports_and_not_among_them() -> None:
    custom = [judged(one.study, "A7", (5, 5, 1), phrase="", prompt="mine") for one in HAND[:3]]
    result = analyse([*HAND, *custom], settings=FAST)
    (row,) = result["prompts"]
    assert row["model"] == "A7"
    assert row["custom"]["intuitiveness"]["estimate"] == 1
    assert row["report"]["intuitiveness"]["estimate"] == 4
    assert row["difference"]["intuitiveness"]["estimate"] == pytest.approx(-3)
    assert row["difference"]["recall"]["estimate"] == pytest.approx(2)
    assert result["means"] == analyse(HAND, settings=FAST)["means"]
    alone = analyse(custom, settings=FAST)
    assert alone["means"] == []
    assert alone["prompts"][0]["report"] is None


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """Two people judge 60 prompts each, 20 of them both; what they say follows IoU@10 % on the regions."""
    folder = tmp_path_factory.mktemp("judged")
    measures = read_measures([write_experiment(folder / "out", 110, seed=2)])
    key = blind(list(measures.names), 5)
    write_table(plan(measures.instances.values(), key.codes, ["ann", "bea"], 5, 60, 20), folder / "table.csv")
    fill_in(folder / "table.csv", key.models, measures)
    found = read_judgements(folder / "table.csv", key=key, instances=measures.instances, names=list(measures.names))
    assert not found.problems
    return list(found.judgements), key, measures


@pytest.fixture(scope="module")
def result(simulated: Simulated) -> dict[str, Any]:
    judgements, key, measures = simulated
    return analyse(judgements, key=key, measures=measures, settings=BootstrapSettings(resamples=2000))


def test_a_planted_relation_is_found_and_chance_is_not_shown(result: dict[str, Any]) -> None:
    assert [found["model"] for found in result["correlations"]] == [*sorted(SLUGS), ALL]
    for found in result["correlations"]:
        rows = {(row["rating"], row["measure"]): row for row in found["values"]}
        for kind in ("pearson", "spearman"):
            shown = {place for place, row in rows.items() if row[kind]["shown"]}
            assert shown == {("intuitiveness", "iou@10 (regions)"), ("precision", "iou@10 (regions)")}
        planted = rows["intuitiveness", "iou@10 (regions)"]["pearson"]
        assert planted["low"] > 0.7
        assert planted["clusters"] <= 37


def test_correlations_are_scipys_of_the_mean_ratings(simulated: Simulated, result: dict[str, Any]) -> None:
    judgements, key, measures = simulated
    found = next(one for one in result["correlations"] if one["model"] == "plain")
    for row in found["values"]:
        ratings: dict[tuple[str, str], list[int]] = {}
        for one in judgements:
            if key.models[one.model] == "plain":
                ratings.setdefault(one.question, []).append(getattr(one, row["rating"]))
        x = np.array([np.mean(values) for values in ratings.values()])
        y = measures.values("plain", list(ratings))[1][row["measure"]]
        both = ~np.isnan(y)
        assert row["pairs"] == both.sum()
        assert row["pearson"]["estimate"] == pytest.approx(scipy.stats.pearsonr(x[both], y[both])[0])
        assert row["spearman"]["estimate"] == pytest.approx(scipy.stats.spearmanr(x[both], y[both])[0])
    assert found["pairs"] == 100  # 20 that both judged, 40 of each
    assert {row["measure"] for row in found["values"]} >= {"entropy", "abstention", "auroc (exact)", "kl_random"}
    assert not any("similarity_local" in row["measure"] or "random)" in row["measure"] for row in found["values"])


def test_the_p_value_of_a_correlation_counts_all_flips_of_whole_patients() -> None:
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(2, 18))
    estimator = Estimator([place // 2 for place in range(18)], BootstrapSettings(resamples=600))
    ranks = scipy.stats.rankdata(x), scipy.stats.rankdata(y)
    for found, (first, second) in (
        (estimator.correlation(x, y), (x, y)), (estimator.correlation(x, y, "spearman"), ranks),
    ):  # fmt: skip
        products = (first - first.mean()) * (second - second.mean())
        sums = products.reshape(9, 2).sum(axis=1)
        flipped = [abs(np.dot(signs, sums)) for signs in itertools.product((-1, 1), repeat=9)]
        assert found.p == pytest.approx(sum(value >= abs(sums.sum()) - 1e-9 for value in flipped) / 512)


def test_measures_without_a_key_or_of_other_models_are_refused(simulated: Simulated) -> None:
    judgements, key, measures = simulated
    other = BlindingKey({code: f"other {code}" for code in key.models})
    for rows, given, measured, said in (
        (judgements, None, measures, r"give the key \(--key\) as well"),
        (judgements, other, measures, "none of the judged prompts has measures; measures exist for plain, no-attn"),
        (judgements, BlindingKey({"Z9": "x"}), None, "the key has no code"),
        ([], None, None, "nothing to analyse"),
    ):
        with pytest.raises(InputError, match=said):
            analyse(rows, key=given, measures=measured, settings=FAST)


def test_a_model_that_is_a_step_better_is_shown_to_be_and_noise_is_not_after_holm() -> None:
    generator = np.random.default_rng(8)
    rows = []
    for study in range(30):
        level = int(generator.integers(2, 4))
        for model, shift in (("A7", 0), ("K2", 0), ("T5", 1)):
            ratings = np.clip(level + shift + generator.integers(-1, 2, 3), 1, 5).tolist()
            rows.append(judged(f"s{study}", model, ratings))
    found = analyse(rows, settings=BootstrapSettings(resamples=2000))["differences"]
    assert {(row["first"], row["second"]) for row in found if row["shown"]} == {("A7", "T5"), ("K2", "T5")}
    assert [row["p_adjusted"] for row in found] == pytest.approx(
        multipletests([row["p"] for row in found], method="holm")[1]
    )
    for row in found:
        of = {(one.model, one.study): getattr(one, row["rating"]) for one in rows}
        gaps = [of[row["first"], f"s{study}"] - of[row["second"], f"s{study}"] for study in range(30)]
        assert row["estimate"] == pytest.approx(np.mean(gaps))


def test_models_with_equal_means_are_named_together() -> None:
    rows = [
        Judgement("ann", study, "phrase:0", "Left basal opacity.", code, 3, 3, 4)
        for study in "abc"
        for code in ("A7", "B2")
    ]
    found = summary(analyse(rows, settings=BootstrapSettings(resamples=100)))
    assert any(line.startswith("Most intuitive on average, together with B2: A7 (") for line in found)

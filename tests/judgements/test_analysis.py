"""Numbers by hand, by scipy, by a loop; and a planted relation that must be found while chance is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

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
)
from rightlung.judgements.analysis import ALL
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
    by_model = {row["model"]: {name: row["ratings"][name]["estimate"] for name in RATINGS} for row in result["means"]}
    assert by_model["A7"] == pytest.approx({"recall": 3, "precision": 3, "intuitiveness": 4})
    assert by_model["K2"] == pytest.approx({"recall": 3, "precision": 3, "intuitiveness": 4})
    found = {row["rating"]: row for row in result["differences"]}
    assert {name: row["estimate"] for name, row in found.items()} == {"recall": 2, "precision": 2, "intuitiveness": 1}
    assert all(row["n"] == 2 and not row["shown"] for row in found.values())  # two studies never show anything
    assert result["clusters"] == "studies"
    assert result["counts"] == {
        "judgements": 6, "annotators": 1, "models": 2, "prompts": 4, "custom_prompts": 0, "studies": 4, "clusters": 4,
    }  # fmt: skip


def test_with_the_key_models_have_their_names() -> None:
    result = analyse(HAND, key=BlindingKey({"A7": "zebra", "K2": "gloria"}), settings=FAST)
    assert [row["model"] for row in result["means"]] == ["gloria", "zebra"]
    assert {(row["first"], row["second"]) for row in result["differences"]} == {("gloria", "zebra")}
    assert [row["estimate"] for row in result["differences"]] == [-2, -2, -1]
    assert not result["blinded"]
    assert analyse(HAND, settings=FAST)["blinded"]


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


def test_the_order_of_rows_means_nothing() -> None:
    assert analyse(HAND[::-1], settings=FAST) == analyse(HAND, settings=FAST)


# --- agreement --------------------------------------------------------------------------------------------------------

# "Computing Krippendorff's Alpha-Reliability", 2011, section C: four observers, twelve units, missing ratings.
WORKED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
    [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
]


def worked() -> list[Judgement]:
    return [
        judged(f"u{unit}", "A7", (1, 1, int(value)), annotator=f"rater {rater}")
        for rater, row in enumerate(WORKED)
        for unit, value in enumerate(row)
        if not math.isnan(value)
    ]


def slow_alpha(units: Sequence[Sequence[int]], ordinal: bool) -> float:
    """Alpha by the definition: every pair of ratings, one at a time."""
    units = [unit for unit in units if len(unit) > 1]
    ratings = [value for unit in units for value in unit]

    def apart(first: int, second: int) -> float:
        low, high = sorted((first, second))
        if not ordinal:
            return float(high - low) ** 2
        between = sum(low <= value <= high for value in ratings)
        return (between - (ratings.count(low) + ratings.count(high)) / 2) ** 2

    observed = sum(apart(*pair) / (len(unit) - 1) for unit in units for pair in itertools.permutations(unit, 2))
    expected = sum(apart(*pair) for pair in itertools.permutations(ratings, 2)) / (len(ratings) - 1)
    return 1 - observed / expected


def test_krippendorffs_own_example_gives_his_alphas() -> None:
    agreement = analyse(worked(), settings=FAST)["agreement"]
    found = agreement["ratings"]["intuitiveness"]
    assert found["ordinal"]["estimate"] == pytest.approx(0.815, abs=0.0005)
    assert found["interval"]["estimate"] == pytest.approx(0.849, abs=0.0005)
    assert found["ordinal"]["low"] < 0.815 < found["ordinal"]["high"]
    assert agreement["units"] == 11  # the twelfth has one rating
    assert agreement["annotators"] == 4
    assert "without variation" in agreement["ratings"]["recall"]["ordinal"]["reason"]


def test_alpha_and_shares_are_those_of_a_loop_over_pairs() -> None:
    generator = np.random.default_rng(5)
    rows = [
        judged(f"s{study}", model, generator.integers(1, 6, 3).tolist(), annotator=name)
        for study in range(12)
        for model in ("A7", "K2")
        for name in ("ann", "bea", "cem")
        if generator.random() < 0.7
    ]
    found = analyse(rows, settings=FAST)["agreement"]["ratings"]
    for rating in RATINGS:
        units: dict[tuple[str, str], list[int]] = {}
        for one in rows:
            units.setdefault((one.study, one.model), []).append(one.rating(rating))
        gaps = [abs(a - b) for unit in units.values() for a, b in itertools.combinations(unit, 2)]
        assert found[rating]["ordinal"]["estimate"] == pytest.approx(slow_alpha(list(units.values()), True))
        assert found[rating]["interval"]["estimate"] == pytest.approx(slow_alpha(list(units.values()), False))
        assert found[rating]["exact"]["estimate"] == pytest.approx(sum(gap == 0 for gap in gaps) / len(gaps))
        assert found[rating]["within_one"]["estimate"] == pytest.approx(sum(gap <= 1 for gap in gaps) / len(gaps))
        assert found[rating]["exact"]["n"] == len(gaps)


def test_one_annotator_agrees_with_nobody() -> None:
    assert analyse(HAND, settings=FAST)["agreement"] == {"units": 0, "annotators": 1, "ratings": {}}


# --- findings and prompts ---------------------------------------------------------------------------------------------


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


# --- automatic measures -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """Two people judge 60 prompts each, 20 of them both; what they say follows IoU@10 % on the regions."""
    folder = tmp_path_factory.mktemp("judged")
    measures = read_measures([write_experiment(folder / "out", 110, seed=1)])
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
                ratings.setdefault(one.question, []).append(one.rating(row["rating"]))
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
        (estimator.correlation(x, y), (x, y)),
        (estimator.correlation(x, y, "spearman"), ranks),
    ):
        products = (first - first.mean()) * (second - second.mean())
        sums = products.reshape(9, 2).sum(axis=1)
        flipped = [abs(np.dot(signs, sums)) for signs in itertools.product((-1, 1), repeat=9)]
        assert found.p == pytest.approx(sum(value >= abs(sums.sum()) - 1e-9 for value in flipped) / 512)


def test_chance_is_shown_about_as_rarely_as_the_level_says_also_when_patients_repeat() -> None:
    """Patients of four instances that share both values: 160 rows, and the information of 40."""
    generator = np.random.default_rng(11)
    estimator = Estimator([place // 4 for place in range(160)], BootstrapSettings(resamples=400, flips=400))
    shown = naive = 0
    for _ in range(120):
        x, y = np.repeat(generator.normal(size=(2, 40)), 4, axis=1)
        shown += estimator.correlation(x, y).shown
        naive += scipy.stats.pearsonr(x, y)[1] < 0.05
    assert shown <= 14  # 6 expected; 15 or more of 120 have a probability of 0.001
    assert naive > 30


def test_measures_without_a_key_or_of_other_models_are_refused(simulated: Simulated) -> None:
    judgements, key, measures = simulated
    with pytest.raises(InputError, match="give the key as well"):
        analyse(judgements, measures=measures, settings=FAST)
    other = BlindingKey({code: f"other {code}" for code in key.models})
    with pytest.raises(InputError, match=r"none of the judged prompts has measures; there are those of plain, no-attn"):
        analyse(judgements, key=other, measures=measures, settings=FAST)
    with pytest.raises(InputError, match="does not have the code"):
        analyse(judgements, key=BlindingKey({"Z9": "x"}), settings=FAST)
    with pytest.raises(InputError, match="nothing to analyse"):
        analyse([])


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
        of = {(one.model, one.study): one.rating(row["rating"]) for one in rows}
        gaps = [of[row["first"], f"s{study}"] - of[row["second"], f"s{study}"] for study in range(30)]
        assert row["estimate"] == pytest.approx(np.mean(gaps))

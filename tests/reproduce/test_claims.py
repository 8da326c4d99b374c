"""How verdicts are made of intervals, of parts, of seeds and of tests; what is claimed is in the papers' folders."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rightlung.reproduce.claims import Claim, Evidence, JudgedClaim, Ruling, all_of, most_of, verdict_on
from rightlung.results.estimate import Comparison, Estimate
from tests.reproduce.made_up import Levels, judge

YES, NO, NEITHER, UNKNOWN = "holds", "does not hold", "no difference shown", "cannot be judged"
CLAIM = Claim("better", "section 1", "It is better.", lambda view, target: Ruling("holds"))


def interval(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high)


def part(verdict: Any, p: float | None = None) -> Evidence:
    return Evidence("part", Comparison(0.1, 0.0, 0.2, p_adjusted=p), verdict)


def one_judged(means: Any, *seeds: Any) -> JudgedClaim:
    return JudgedClaim(CLAIM, {"regions": Ruling(means)}, {"regions": seeds})


def test_an_interval_decides_only_where_all_of_it_lies_on_one_side() -> None:
    assert verdict_on(interval(0.1, 0.3), above=0.0) == YES
    assert verdict_on(interval(-0.3, -0.1), above=0.0) == NO
    assert verdict_on(interval(-0.1, 0.3), above=0.0) == NEITHER
    assert verdict_on(interval(-0.5, -0.3), below=-0.4) == NEITHER
    assert verdict_on(interval(-0.6, -0.5), below=-0.4) == YES
    assert verdict_on(Estimate(0.2, 0.1, 0.3, 20, 5), above=0.0) == "too few patients to tell"  # p is at least 0.0625
    assert verdict_on(Estimate(0.2, 0.1, 0.3, 20, 6), above=0.0) == YES
    assert verdict_on(Estimate(0.3), above=0.0) == UNKNOWN  # a number without an interval
    assert verdict_on(Estimate(math.nan), above=0.0) == UNKNOWN


def test_a_change_is_small_within_two_points_and_not_if_the_interval_is_too_wide_to_say() -> None:
    assert verdict_on(interval(-0.01, 0.015), within=0.02) == YES
    assert verdict_on(interval(0.01, 0.03), within=0.02) == UNKNOWN
    assert verdict_on(interval(0.03, 0.05), within=0.02) == verdict_on(interval(-0.05, -0.03), within=0.02) == NO
    assert verdict_on(interval(0.03, 0.05), within=0.5) == YES


def test_a_claim_of_parts_is_as_weak_as_its_weakest() -> None:
    assert all_of([]).verdict == UNKNOWN
    assert all_of([part(YES), part(YES)]).verdict == YES
    assert all_of([part(YES), part(NEITHER)]).verdict == NEITHER
    assert all_of([part(NEITHER), part(UNKNOWN)]).verdict == UNKNOWN
    assert all_of([part(UNKNOWN), part(NO)]).verdict == NO


def test_usually_is_more_than_half() -> None:
    def of(*given: Any) -> str:
        return most_of([part(one) for one in given]).verdict

    assert of(YES, YES, NO) == YES
    assert of(YES, NO) == NEITHER
    assert of(NO, NO, NEITHER) == NO
    assert of(UNKNOWN, UNKNOWN, YES) == UNKNOWN
    assert of(YES, NEITHER, NEITHER) == NEITHER
    assert of() == UNKNOWN


@pytest.mark.parametrize(
    ("found", "unit", "said"),
    [
        (interval(-0.2, -0.05), "points", "part: −12.5 points (−20.0 to −5.0)"),
        (interval(0.5, 0.75), "percent", "part: 62.5 % (50.0 to 75.0)"),
        (interval(1.25, 2.25), "nats", "part: +1.750 nats (+1.250 to +2.250)"),
        (Estimate(0.5), "correlation", "part: 0.50 (no interval)"),
        (Estimate(math.nan), "points", "part: not measured"),
    ],
)
def test_evidence_is_said_in_its_unit(found: Estimate, unit: str, said: str) -> None:
    assert Evidence("part", found, "holds", unit).text == said


def test_of_many_comparisons_those_that_decide_are_told_first_and_the_rest_is_counted() -> None:
    parts = [part(YES) for _ in range(13)]
    parts[12] = Evidence("the one", interval(-0.2, -0.05), "does not hold")
    ruling = all_of(parts, "And more.")
    assert ruling.lines[0].startswith("the one: −12.5 points")
    assert ruling.lines[-1] == "and 3 more comparisons, in results.json"
    assert ruling.sentence.endswith("in results.json. And more.")
    assert all_of(parts[:3]).lines == [one.text for one in parts[:3]]


def test_a_verdict_survives_holm_where_what_decides_it_does() -> None:
    both = (part(NO, 0.01), part(NO, 0.3), part(YES, 0.9))
    assert Ruling("does not hold", both).after_holm is True  # one part that fails is enough
    assert Ruling("holds", (part(YES, 0.01), part(YES, 0.3))).after_holm is False  # all must hold
    assert Ruling("holds", (part(YES, 0.01), part(YES, 0.04))).after_holm is True
    assert Ruling("no difference shown", both).after_holm is None
    assert Ruling("holds", (part(YES),)).after_holm is None  # nothing was tested


@pytest.mark.parametrize(
    ("means", "seeds", "verdict"),
    [
        (NEITHER, (NO, NO), NO),
        (NO, (YES, YES), YES),
        (YES, (NEITHER, NEITHER), YES),
        (YES, (YES, NEITHER), YES),
        (NEITHER, (YES, UNKNOWN, NO), "seed-dependent"),
        (UNKNOWN, (), UNKNOWN),
    ],
)
def test_what_all_seeds_agree_on_counts_before_their_means(means: str, seeds: tuple[str, ...], verdict: str) -> None:
    one = one_judged(means, *seeds)
    assert one.verdict("regions") == verdict
    assert one.with_each_seed("regions") == (set(seeds) == {verdict})
    assert ("mean over seeds" in " ".join(one.robustness("regions"))) == (means != verdict)


def seed(number: int, level: float) -> Levels:
    return {"level": level, "about": {"seed": number}}


def test_means_over_seeds_are_judged_and_each_seed_too() -> None:
    models = {"no-attn": seed(1, 0.65), "no-attn-seed2": seed(2, 0.5), "no-attn-seed3": seed(3, 0.75)}
    models |= {"retrained": {"level": 0.6}}
    assert one_judged(UNKNOWN, UNKNOWN, UNKNOWN).robustness("regions") == []
    one = judge("no-attn-better", models)["no-attn-better"]
    assert one.rulings["regions"].verdict == YES
    assert one.rulings["regions"].evidence[0].found.value == pytest.approx((0.65 + 0.5 + 0.75) / 3 - 0.6, abs=0.01)
    assert one.each_seed["regions"] == (YES, NO, YES)
    assert (one.verdict("regions"), one.after_holm("regions")) == ("seed-dependent", None)
    assert one.robustness("regions") == ["By seed: holds, does not hold, holds; mean over seeds: holds."]
    written = one.as_json()["judgements"]["regions"]
    assert (written["verdict"], written["verdict_of_means"]) == ("seed-dependent", YES)
    one = judge("no-attn-better", models | {"no-attn-seed2": seed(2, 0.7)})["no-attn-better"]
    assert one.verdict("regions") == YES
    assert one.robustness("regions") == [
        "Still significant after Holm's correction.",
        "Same verdict for each of the 3 seeds.",
    ]


def test_only_seeds_are_counted_that_all_variants_of_a_claim_have() -> None:
    models: dict[str, Levels] = {
        "no-attn": seed(1, 0.65), "no-attn-seed3": seed(3, 0.5), "retrained": seed(1, 0.6),
        "retrained-seed2": seed(2, 0.6), "retrained-seed3": seed(3, 0.45), "rand-sents": {"level": 0.4},
    }  # fmt: skip
    found = judge(("no-attn-better", "rand-sents-worst", "judged-no-attn"), models)
    assert found["no-attn-better"].each_seed["regions"] == (YES, YES)  # by number, and seed 2 is not of both
    assert len(found["rand-sents-worst"].each_seed["regions"]) == 3  # what has one seed stands beside each
    assert found["judged-no-attn"].each_seed["regions"] == ()  # which looks at no model
    del models["retrained-seed3"]
    assert judge("no-attn-better", models)["no-attn-better"].each_seed["regions"] == ()  # one in common is none

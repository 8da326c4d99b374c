"""The judging of claims, on tables whose differences are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from rightlung.reproduce.claims import FAILS, HOLDS, NOT_SHOWN, SEED_DEPENDENT, TOO_FEW
from rightlung.reproduce.eclip.claims import CLAIMS, POINTING, SHORTCUT
from rightlung.reproduce.eclip.files import RELIANCE, EclipFiles, KeptGeometry
from rightlung.reproduce.eclip.measuring import BY_CHANCE, PLANTED
from rightlung.reproduce.eclip.variants import VARIANTS
from rightlung.reproduce.pair_claims import PairClaim, judge
from rightlung.results.aggregates import estimate_mean
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.geometry import geometry

Floats = NDArray[np.float64]
CLAIM = PairClaim("here", "It helps.", "first", "second", POINTING)


class MadeUp(EclipFiles):
    """Tables of pointing: one for each seed of a variant."""

    def __init__(self, values: dict[str, list[Floats]]) -> None:
        super().__init__(SimpleNamespace(), BootstrapSettings(resamples=200), "percentile")  # type: ignore[arg-type]
        self.values: dict[str, list[Floats]]
        object.__setattr__(self, "values", values)

    def tables(self, variant: str, task: str) -> list[pa.Table]:
        people = [f"p{n}" for n in range(60)]
        return [
            pa.table({"condition": ["none"] * 60, "patient": people, "pointing": column})
            for column in self.values[variant]
        ]


def made_up(gains: tuple[float, ...], noise: float = 0.05) -> MadeUp:
    """Return a variant that is better than the other one by a gain for each seed."""
    chance = np.random.default_rng(0)
    host = [chance.random(60) for _ in gains]
    better = [one + gain + noise * chance.standard_normal(60) for one, gain in zip(host, gains, strict=True)]
    return MadeUp({"first": better, "second": host})


@pytest.mark.parametrize(
    ("better", "gains", "verdict"),
    [
        ("higher", (0.3, 0.3, 0.3), HOLDS),
        ("higher", (-0.3, -0.3, -0.3), FAILS),
        ("higher", (0.0, 0.0, 0.0), NOT_SHOWN),
        ("higher", (0.9, -0.1, 0.4), SEED_DEPENDENT),
        ("lower", (-0.3, -0.3, -0.3), HOLDS),
        ("lower", (0.3, 0.3, 0.3), FAILS),
        ("much higher", (0.3, 0.3, 0.3), HOLDS),
        ("much higher", (0.025, 0.02, 0.025), FAILS),  # above zero, but less than 5 points
        ("much higher", (0.0, 0.0, 0.0), FAILS),
        ("no worse", (0.02, 0.02, 0.02), HOLDS),
        ("no worse", (-0.06, -0.06, -0.06), FAILS),
        ("no worse", (-0.01, -0.01, -0.01), NOT_SHOWN),
    ],
)
def test_a_claim_is_judged_by_its_own_criterion(better: Any, gains: tuple[float, ...], verdict: str) -> None:
    claim = PairClaim("here", "It helps.", "first", "second", POINTING, better=better)
    files = made_up(gains, noise=0.02)
    (judged,) = judge(files, [claim])
    first, second = ([one.mean() for one in files.values[name]] for name in ("first", "second"))
    assert judged.found.value == pytest.approx(np.mean(first) - np.mean(second))
    assert judged.seeds == pytest.approx(np.subtract(first, second))
    assert judged.verdict == verdict


def test_not_shown_is_not_the_same_as_no_worse() -> None:
    """With a wide interval, nothing is shown: neither a difference nor that there is none."""
    files = made_up((0.0, 0.0, 0.0), noise=0.6)
    same, no_worse = judge(files, [CLAIM, PairClaim("", "", "first", "second", POINTING, better="no worse")])
    assert same.verdict == NOT_SHOWN
    assert no_worse.verdict == NOT_SHOWN
    assert no_worse.found.low < -0.01


@pytest.mark.parametrize(("gains", "verdict"), [((0.5,), "one seed only"), ((0.5, 0.5), "2 seeds only")])
def test_fewer_than_three_seeds_give_no_verdict(gains: tuple[float, ...], verdict: str) -> None:
    (judged,) = judge(made_up(gains), [CLAIM])
    assert judged.verdict == verdict
    assert judged.found.p_adjusted is None


def test_claims_with_enough_seeds_are_judged_together() -> None:
    """With Holm's correction, an effect that one test would show may not be shown among many; one seed is no test."""
    files = made_up((0.12, 0.1, 0.11), noise=0.6)
    files.values.update(third=files.values["first"][:1])
    (alone,) = judge(files, [CLAIM])
    among = judge(files, [*[CLAIM] * 40, *[PairClaim("", "", "third", "second", POINTING)] * 10])
    assert among[0].found.p_adjusted == pytest.approx(min(1.0, 40 * alone.found.p))
    assert among[-1].verdict == "one seed only"


def test_runs_that_are_resampled_once_give_the_paired_interval() -> None:
    files = made_up((0.1, 0.2, 0.0), noise=0.3)
    first, second = files.tables("first", "instances"), files.tables("second", "instances")
    settings = BootstrapSettings(resamples=200)
    for other, minus in (("", []), ("second", second)):
        expected = estimate_mean(first, "pointing", minus=minus, settings=settings, method="percentile")
        found = files.difference("first", other, *POINTING) if other else files.estimate("first", *POINTING)
        assert found is not None
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
        assert (found.n, found.patients) == (expected.n, expected.patients)


class Shortcuts(EclipFiles):
    """Scores of pneumonia by two models, where a word goes with it and where it stands by chance."""

    def tables(self, variant: str, task: str) -> list[pa.Table]:
        chance = np.random.default_rng(5)
        sick = np.arange(200) % 2 == 0
        word = sick ^ (chance.random(200) < (0.05 if task == PLANTED else 0.5))
        reads = {"reader": 3.0, "half": 0.5, "sober": 0.0}[variant]
        found = []
        for _ in range(3):
            scores = sick + reads * word + chance.standard_normal(200)
            columns = {"finding_score": scores, "finding_label": sick.astype(float)}
            rest = {
                "condition": ["none"] * 200,
                "patient": [f"p{n}" for n in range(200)],
                "target": ["pneumonia"] * 200,
            }
            found.append(pa.table(rest | columns))
        return found


def test_a_model_that_reads_a_planted_word_gains_by_it_and_a_sober_one_does_not() -> None:
    files = Shortcuts(SimpleNamespace(), BootstrapSettings(resamples=200), "percentile")  # type: ignore[arg-type]
    reader, sober = (files.estimate(name, *SHORTCUT) for name in ("reader", "sober"))
    assert reader is not None
    assert sober is not None
    assert reader.value > 0.15
    assert abs(sober.value) < 0.05
    less = files.difference("sober", "reader", *SHORTCUT)
    assert less is not None
    assert less.value == pytest.approx(sober.value - reader.value, abs=1e-9)
    (judged,) = judge(files, [PairClaim("", "", "sober", "reader", SHORTCUT, better="lower")])
    assert judged.verdict == HOLDS
    seeds = [a - b for a, b in zip(files.seeds("sober", *SHORTCUT), files.seeds("reader", *SHORTCUT), strict=True)]
    assert judged.seeds == pytest.approx(seeds)
    by_hand = [files.seeds(name, *SHORTCUT) for name in ("sober", "reader")]
    assert np.mean(by_hand[0]) - np.mean(by_hand[1]) == pytest.approx(less.value, abs=1e-9)
    assert {PLANTED, BY_CHANCE} & {RELIANCE} == set()


def test_geometry_of_draws_is_that_of_the_drawn_pairs() -> None:
    chance = np.random.default_rng(3)
    images, texts = (chance.standard_normal((12, 5)) + shift for shift in (0.0, 1.0))
    kept = KeptGeometry([f"p{n}" for n in range(12)], images, texts)
    expected = geometry(images, texts)
    twice = np.array([[1.0] * 12, [1.0] * 6 + [0.0] * 6])
    half = geometry(images[:6], texts[:6])
    for name, (levels, _) in kept.levels.items():
        assert levels(twice) == pytest.approx([getattr(expected, name), getattr(half, name)])


def test_claims_compare_variants_that_exist_and_are_each_made_once() -> None:
    known = {variant.slug for variant in VARIANTS}
    assert {name for claim in CLAIMS for name in (claim.first, claim.second)} <= known
    assert len({(one.first, one.second, one.place, one.better) for one in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize(("patients", "verdict"), [(5, TOO_FEW), (6, HOLDS)])
def test_five_patients_are_too_few_for_a_verdict(patients: int, verdict: str) -> None:
    class Few(MadeUp):
        def tables(self, variant: str, task: str) -> list[pa.Table]:
            return [table.slice(0, patients) for table in super().tables(variant, task)]

    (judged,) = judge(Few(made_up((0.5, 0.5, 0.5)).values), [CLAIM])
    assert judged.found.patients == patients
    assert judged.verdict == verdict

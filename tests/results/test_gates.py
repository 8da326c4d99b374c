"""The verdicts of gates on columns whose effect is known."""

from __future__ import annotations

import numpy as np
import pytest

from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator
from rightlung.results.gates import ALL, GateColumns, GateResult, judge

PATIENTS = 40


def columns(
    name: str = "nodule",
    removed: float = 0.0,
    elsewhere: float = 0.0,
    moved: float = 0.0,
    noise: float = 0.01,
    patients: int = PATIENTS,
    **changes: float,
) -> GateColumns:
    """Return answers with a response of 0.6 that falls by ``removed`` and ``elsewhere``; all changes are ``moved``."""
    chance = np.random.default_rng(0)

    def around(value: float) -> np.ndarray:
        drawn = value + noise * chance.standard_normal(PATIENTS)
        return np.where(np.arange(PATIENTS) < patients, drawn, np.nan)

    response = {"none": around(0.6)}
    response |= {"occlude-target": around(0.6 - removed), "occlude-elsewhere": around(0.6 - elsewhere)}
    image = ("occlude-target", "occlude-elsewhere", "noise-image")
    change = {gate: abs(around(moved)) for gate in image}
    return GateColumns(
        name, response, change | {gate.replace("_", "-"): abs(around(by)) for gate, by in changes.items()}
    )


def judged(*groups: GateColumns) -> list[GateResult]:
    return judge(groups, Estimator(np.arange(PATIENTS), BootstrapSettings(resamples=500, flips=999)))


@pytest.mark.parametrize(
    ("made", "use"),
    [
        (columns(removed=0.4, elsewhere=0.05, moved=0.5), "uses the image selectively"),
        (columns(removed=0.4, elsewhere=0.35, moved=0.5), "uses it unstably"),
        (columns(removed=0.0, elsewhere=0.0, moved=0.5), "uses it unstably"),
        (columns(removed=0.1, elsewhere=0.0, moved=0.5), "uses it unstably"),  # a sixth of the response
        (columns(moved=0.0), "ignores it"),
        (columns(removed=0.4, moved=0.5, patients=4), "too few patients to tell"),
    ],
)
def test_the_verdict_is_that_of_the_planted_effects(made: GateColumns, use: str) -> None:
    assert judged(made)[0].use == use


def test_the_effect_and_the_contrast_are_paired_differences() -> None:
    made = columns(removed=0.4, elsewhere=0.1, moved=0.5)
    found = judged(made)[0]
    before, after, elsewhere = (made.response[name] for name in ("none", "occlude-target", "occlude-elsewhere"))
    assert found.removal == "occlude-target"
    assert found.effects["occlude-target"].value == pytest.approx(np.mean(after - before))
    assert found.contrasts["occlude-target"].value == pytest.approx(np.mean((before - after) / 2 - before + elsewhere))
    assert found.contrasts["occlude-target"].patients == PATIENTS


def test_the_exact_twin_decides_where_there_is_one() -> None:
    made = columns(removed=0.0, elsewhere=0.0, moved=0.5)
    twin = made.response["none"] - 0.4
    found = judged(GateColumns("nodule", {**made.response, "twin-removed": twin}, made.change))[0]
    assert (found.removal, found.use) == ("twin-removed", "uses the image selectively")


def test_a_response_that_stays_is_unstable_without_the_finding_but_not_told_by_covering_it() -> None:
    made = columns(removed=0.02, moved=0.5)
    quiet = {**made.change, "occlude-elsewhere": 0 * made.change["noise-image"]}
    covered = GateColumns("nodule", made.response, quiet)
    assert judged(covered)[0].use == "unclear from covering"
    wide = columns(removed=0.2, moved=0.5, noise=0.6)
    assert judged(GateColumns("nodule", wide.response, quiet))[0].use == "too few patients to tell"
    twin = {**made.response, "twin-removed": made.response["occlude-target"]}
    assert judged(GateColumns("nodule", twin, quiet))[0].use == "uses it unstably"


def test_words_and_side_have_their_own_answers() -> None:
    found = judged(columns(moved=0.5, nonsense_prompt=0.3, swap_sides=0.0))[0]
    assert (found.words, found.side) == ("yes", "no")
    assert judged(columns(moved=0.5))[0].words == "not asked"
    assert judged(columns(moved=0.5, nonsense_prompt=0.05, noise=0.04))[0].words == "too few patients to tell"


def test_tests_of_several_findings_are_corrected_but_not_that_of_all() -> None:
    results = judged(*(columns(name, removed=0.4, moved=0.5) for name in (ALL, "nodule", "mass")))
    summary, *findings = (one.effects["occlude-target"] for one in results)
    assert summary.p_adjusted is None
    assert [one.p_adjusted for one in findings] == pytest.approx([2 * one.p for one in findings])


@pytest.mark.parametrize(("level", "enough"), [(0.95, 6), (0.9, 5), (0.99, 8)])
def test_verdicts_need_so_many_patients_that_a_sign_flip_test_can_be_significant(level: float, enough: int) -> None:
    settings = BootstrapSettings(200, level=level)

    def of(patients: int, moved: float) -> GateResult:
        group = columns(moved=moved, removed=0.5, patients=patients, nonsense_prompt=moved, swap_sides=moved)
        return judge([group], Estimator(np.arange(PATIENTS), settings))[0]

    for moved, answer in ((0.0, "no"), (0.5, "yes")):
        few, found = of(enough - 1, moved), of(enough, moved)
        assert (few.use, few.words, few.side) == ("too few patients to tell",) * 3
        assert few.reason == f"fewer than {enough} patients"
        assert (found.words, found.side) == (answer, answer)
        assert found.use == ("uses the image selectively" if moved else "ignores it")

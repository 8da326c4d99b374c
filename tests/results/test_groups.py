"""A model next to its prior, against single calls of scoring.statistics on the rows that belong to each number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rightlung.core.errors import InputError
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.groups import Breakdown, break_down
from rightlung.results.measured import Measured
from rightlung.scoring import recognition
from rightlung.scoring.statistics import bootstrap, holm, paired_difference
from tests.results.tables import random_rows, row, table

OPTIONS: dict[str, Any] = {"resamples": 200, "seed": 1}
SETTINGS = BootstrapSettings(flips=200, **OPTIONS)
MODEL = random_rows(np.random.default_rng(0), better=0.4)
PRIOR = random_rows(np.random.default_rng(1))


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured.of({"model": table(MODEL), "prior": table(PRIOR)})


@pytest.fixture(scope="module")
def found(measured: Measured) -> Breakdown:
    return break_down(measured, SETTINGS)


def column(rows: list[dict[str, Any]], name: str, condition: str = "none") -> dict[str, float]:
    return {one["study"]: one[name] for one in rows if one["condition"] == condition}


def mean_of(values: dict[str, float], wanted: list[str]) -> Estimate:
    patients = {one["study"]: one["patient"] for one in MODEL}
    chosen = [study for study in wanted if study in values]
    return Estimate.of(bootstrap([values[s] for s in chosen], clusters=[patients[s] for s in chosen], **OPTIONS))


def studies(**wanted: Any) -> list[str]:
    plain = [one for one in MODEL if one["condition"] == "none"]
    return [one["study"] for one in plain if all(one.get(name) == value for name, value in wanted.items())]


def close(one: Estimate | None, other: Estimate) -> bool:
    assert one is not None
    parts = [(getattr(one, name), getattr(other, name)) for name in ("value", "low", "high", "n", "patients")]
    return all(a == pytest.approx(b, nan_ok=True) for a, b in parts)


def test_the_model_is_compared_with_the_prior_where_both_are_defined(found: Breakdown) -> None:
    model, prior, difference = found.overall["average_precision"]
    wanted = studies(target_kind="mask")
    own, other = column(MODEL, "average_precision"), column(PRIOR, "average_precision")
    assert close(model, mean_of(own, wanted))
    assert close(prior, mean_of(other, wanted))
    patients = {one["study"]: one["patient"] for one in MODEL}
    alone = paired_difference(
        [own[s] for s in wanted], [other[s] for s in wanted], clusters=[patients[s] for s in wanted], **OPTIONS
    )
    assert difference is not None
    assert (difference.value, difference.p, difference.shown) == pytest.approx((alone.estimate, alone.p, alone.shown))


def test_without_a_prior_there_is_nothing_to_compare_with() -> None:
    alone = break_down(Measured.of({"model": table(MODEL)}), SETTINGS)
    assert alone.overall["auroc"].as_json() | {"model": None} == {"model": None, "prior": None, "difference": None}
    assert alone.groups["finding"][0].metrics["auroc"].difference is None


def test_groups_are_those_of_the_phrases_and_adjusted_together(found: Breakdown) -> None:
    assert [group.name for group in found.groups["finding"]] == ["nodule", "effusion"]
    assert [group.name for group in found.groups["region"]] == ["left lung", "not a region"]  # the same twice is one
    assert [group.name for group in found.groups["size"]] == ["small", "large"]
    assert [group.name for group in found.groups["polarity"]] == ["positive", "uncertain", "negative"]
    small = found.groups["size"][0]
    assert small.phrases == len(studies(target_size="small"))
    assert close(small.abstention, mean_of(column(MODEL, "abstention"), studies(target_size="small")))
    differences = [group.metrics["pointing"].difference for group in found.groups["size"]]
    p = [one.p for one in differences if one is not None]
    assert [one.p_adjusted for one in differences if one is not None] == holm(p).tolist()


def test_groups_of_few_patients_are_no_tests() -> None:
    rare = [one | {"findings": ["rare"]} if one["study"] in ("s00", "s01") else one for one in MODEL]
    found = break_down(Measured.of({"model": table(rare), "prior": table(PRIOR)}), SETTINGS)
    group = next(group for group in found.groups["finding"] if group.name == "rare")
    difference = group.metrics["auroc"].difference
    assert (group.few, group.patients) == (True, 2)
    assert difference is not None
    assert (difference.p_adjusted, difference.shown) == (None, False)


def test_sides_are_told_by_words_or_by_the_image(found: Breakdown) -> None:
    sides, peaks = found.sides, column(MODEL, "peak_on_side")
    assert sides.named is not None
    assert close(sides.named.model, mean_of(peaks, studies(target_side="left", side_named="left")))
    assert sides.from_image is not None
    assert close(sides.from_image.model, mean_of(peaks, studies(target_side="left", side_told="image")))
    assert sides.left_out["words"] == len(studies(target_side="left", side_told="words"))
    without = break_down(Measured.of({"model": table(MODEL).drop(["side_told"])}), SETTINGS).sides
    assert without.named is not None
    assert (without.from_image, without.left_out) == (None, {"device": 0, "words": 0})


def test_a_condition_is_compared_with_the_same_questions_as_they_stand(found: Breakdown) -> None:
    swapped = found.conditions["swap-sides"]
    after, before = (column(MODEL, "similarity_global", one) for one in ("swap-sides", "none"))
    assert swapped.questions == len(after)
    change, values = swapped.change["similarity_global"], swapped.values["similarity_global"]
    assert close(values.before, mean_of(before, list(after)))
    assert close(values.after, mean_of(after, list(after)))
    assert change.value == pytest.approx(values.after.value - values.before.value)
    assert close(swapped.moved["moved_mass"], mean_of(column(MODEL, "moved_mass", "swap-sides"), list(after)))
    peaks = {study: 1 - value for study, value in column(MODEL, "peak_on_side", "swap-sides").items()}
    assert close(swapped.follows_words, mean_of(peaks, studies(target_side="left", side_named="left")))
    left = swapped.beside_prior["pointing"].prior
    scored = [study for study in after if study in studies(target_kind="mask")]
    assert close(left, mean_of(column(PRIOR, "pointing", "swap-sides"), scored))
    listed = table(MODEL).append_column("finding_score", [[float(place) for place in range(len(MODEL))]])
    other = break_down(Measured.of({"model": listed}), SETTINGS).conditions["swap-sides"]  # any number of an answer
    assert other.change["finding_score"].value == pytest.approx(1.0)  # the next row


def test_abstention_tells_negated_phrases_from_asserted_ones(found: Breakdown) -> None:
    abstention = column(MODEL, "abstention")
    negated, asserted = studies(polarity="negative"), studies(polarity="positive") + studies(polarity="uncertain")
    assert close(found.abstention.negated, mean_of(abstention, negated))
    assert close(found.abstention.asserted, mean_of(abstention, asserted))
    assert found.abstention.auroc is not None
    labels = [1.0] * len(negated) + [0.0] * len(asserted)
    expected = recognition.auroc([abstention[s] for s in negated + asserted], labels)
    assert found.abstention.auroc.value == pytest.approx(expected)
    assert (found.abstention.given, found.abstention.ever) == (True, True)
    never = [one | {"abstention": 0.0, "abstention_given": False} for one in MODEL]
    silent = break_down(Measured.of({"model": table(never)}), SETTINGS).abstention
    assert (silent.given, silent.ever, silent.auroc) == (False, False, None)


def test_the_json_has_every_part_under_its_key(found: Breakdown) -> None:
    said = found.as_json()
    assert list(said) == ["overall", "sides", "groups", "conditions", "abstention"]
    assert list(said["overall"]["auroc"]) == ["model", "prior", "difference"]
    assert list(said["groups"]["finding"][0]) == ["name", "phrases", "patients", "few", "abstention", "metrics"]
    assert list(said["conditions"]["swap-sides"]) == [
        "questions", "change", "beside_prior", "values", "moved", "follows_words",
    ]  # fmt: skip
    assert list(said["conditions"]["swap-sides"]["values"]["auroc"]) == ["before", "after"]
    assert list(said["sides"]) == ["named", "from_image", "left_out"]
    assert list(said["abstention"]) == ["negated", "asserted", "given", "ever", "auroc"]


def test_phrases_without_any_target_leave_only_abstention() -> None:
    found = break_down(Measured.of({"model": table([row("a", target_kind=None, abstention=0.5)])}), SETTINGS)
    assert found.overall == {}
    assert found.sides.as_json() == {"named": None, "from_image": None, "left_out": {"device": 0, "words": 0}}
    with pytest.raises(InputError, match="nothing to aggregate"):
        break_down(Measured.of({"model": table([])}), SETTINGS)


def estimates_in(found: Any) -> list[tuple[float, int]]:
    """Return value and number of instances of every estimate in what `as_json` gives."""
    if isinstance(found, dict) and "estimate" in found:
        return [(found["estimate"], found["phrases"])]
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return [one for part in parts for one in estimates_in(part)]


def test_every_number_is_a_row_of_the_data_frame(found: Breakdown) -> None:
    frame = found.to_pandas()
    expected = estimates_in(found.as_json())
    assert len(frame) == len(expected) > 50
    rows = frame[["value", "n"]].astype(float).fillna(-1).to_numpy().tolist()
    assert sorted(rows) == sorted([-1.0 if value is None or np.isnan(value) else value, n] for value, n in expected)
    keys = ["part", "group", "measure", "quantity"]
    assert not frame.duplicated(keys).any()
    row = frame.set_index(keys).loc[("overall", "", "auroc", "difference")]
    difference = found.overall["auroc"].difference
    assert difference is not None
    assert (row.value, row.low, row.p, row.verdict) == (
        difference.value, difference.low, difference.p, difference.verdict
    )  # fmt: skip
    assert set(frame.part) >= {"overall", "sides", "finding", "polarity", "condition", "abstention"}

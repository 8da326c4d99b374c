from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, matthews_corrcoef, roc_auc_score

from rightlung.core import InputError
from rightlung.measuring import MEASURES, find_measure, find_protocol, gather_targets, register_measure
from rightlung.scoring.localisation import METRICS
from rightlung.scoring.statistics import bootstrap_by_counts
from tests.measuring.made_up import Spots, every_phrase

RNG = np.random.default_rng(4)
COUNT = 60
FINDINGS = {
    "target": np.array(["edema", "mass"] * (COUNT // 2)),
    "finding_score": RNG.random(COUNT).round(1),  # with ties
    "finding_label": RNG.integers(0, 2, COUNT).astype(float),
}


def test_a_mean_leaves_out_what_is_not_defined() -> None:
    columns = {"auroc": np.array([0.25, np.nan, 0.75, 1.0])}
    measure = find_measure("auroc")
    assert measure.value(columns) == pytest.approx(2 / 3)
    counts = np.array([[2.0, 5.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]])
    assert measure.of_counts(columns, counts)[0] == 0.25
    assert np.isnan(measure.of_counts(columns, counts)[1])


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("finding_auroc", roc_auc_score),
        ("finding_average_precision", average_precision_score),
        ("finding_mcc", lambda labels, scores: matthews_corrcoef(labels, scores >= 0.5)),
    ],
)
def test_finding_measures_are_scikit_learns_averaged_over_findings_and_counts_are_repetitions(
    name: str, reference: Callable[..., float]
) -> None:
    by_finding = []
    for finding in ("edema", "mass"):
        rows = FINDINGS["target"] == finding
        one = {column: values[rows] for column, values in FINDINGS.items()}
        expected = reference(one["finding_label"], one["finding_score"])
        assert find_measure(name).value(one) == pytest.approx(expected)
        by_finding.append(expected)
    assert find_measure(name).value(FINDINGS) == pytest.approx(np.mean(by_finding))
    counts = RNG.integers(0, 3, (3, COUNT))
    for row, value in zip(counts, find_measure(name).of_counts(FINDINGS, counts.astype(float)), strict=True):
        repeated = {column: np.repeat(values, row) for column, values in FINDINGS.items()}
        assert value == pytest.approx(find_measure(name).value(repeated))
    if name != "finding_average_precision":
        assert np.isnan(find_measure(name).value({**FINDINGS, "finding_label": np.ones(COUNT)}))  # one class alone
    assert np.isnan(find_measure(name).value({column: values[:0] for column, values in FINDINGS.items()}))


def test_abstention_tells_negated_from_asserted_phrases_as_scikit_learn_says() -> None:
    polarity = RNG.choice(["positive", "uncertain", "negative", "none"], COUNT)
    abstention = RNG.random(COUNT).round(1)
    abstention[0] = np.nan
    columns = {"abstention": abstention, "polarity": polarity}
    rows = (polarity != "none") & ~np.isnan(abstention)
    expected = roc_auc_score(polarity[rows] == "negative", abstention[rows])
    measure = find_measure("abstention_auroc")
    assert measure.value(columns) == pytest.approx(expected)
    interval = bootstrap_by_counts(lambda counts: measure.of_counts(columns, counts), COUNT, resamples=300)
    assert interval.low < expected < interval.high


def test_every_measure_says_what_it_is() -> None:
    measures = MEASURES
    assert set(METRICS) <= set(measures)
    for measure in measures.values():
        assert measure.title
        assert measure.meaning.endswith(".")
        assert measure.range[0] < measure.range[1]
        assert measure.better in ("higher", "lower", None)
    assert (measures["iou@5"].title, measures["moved_mass"].title) == ("IoU@5 %", "map change")
    with pytest.raises(InputError, match="did you mean 'auroc'"):
        find_measure("auroq")
    with pytest.raises(InputError, match="already registered"):
        register_measure(measures["auroc"])


def test_a_protocol_is_hashed_by_what_numbers_depend_on() -> None:
    source = Spots()
    targets = gather_targets(source, every_phrase(source), seed=2)
    protocol = find_protocol("audit").applied_to(targets)
    assert (protocol.phrase_set, protocol.seed, protocol.source) == (targets.phrase_set, 2, "spots")
    assert protocol.target_kinds == ("exact mask", "finding boxes")
    targets.source = "elsewhere"
    assert find_protocol("audit").applied_to(targets).hash == protocol.hash
    assert find_protocol("audit").applied_to(targets, resamples=100).hash != protocol.hash
    assert find_protocol("wrong-lung").hash != find_protocol("audit").hash
    assert protocol.as_json()["hash"] == protocol.hash
    with pytest.raises(InputError, match="did you mean 'wrong-lung'"):
        find_protocol("wrong_lung")

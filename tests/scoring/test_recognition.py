"""Recognition scores against scikit-learn on the pairs that are known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from rightlung.core.errors import InputError
from rightlung.scoring import recognition
from rightlung.scoring.recognition import Metric
from rightlung.scoring.statistics.resampling import draw_counts

Array = np.ndarray[Any, np.dtype[np.float64]]


def made_up(seed: int, images: int = 120, labels: int = 5, steps: int = 7, unknown: float = 0.3) -> tuple[Array, Array]:
    """Scores on a coarse grid (many ties) and labels with unknowns, both classes in each label."""
    generator = np.random.default_rng(seed)
    truth = (generator.random((images, labels)) < np.linspace(0.2, 0.6, labels)).astype(np.float64)
    scores = np.round((generator.random((images, labels)) + 0.5 * truth) * steps) / steps / 1.5
    truth[generator.random(truth.shape) < unknown] = np.nan
    truth[0], truth[1] = 1.0, 0.0
    return scores, truth


def by_hand(scores: Array, truth: Array, threshold: float = 0.5) -> list[tuple[Array, Array, Array]]:
    """Mask each label, then leave everything else to scikit-learn."""
    known = [~np.isnan(truth[:, k]) for k in range(truth.shape[1])]
    return [
        (truth[mask, k], scores[mask, k], (scores[mask, k] >= threshold).astype(float)) for k, mask in enumerate(known)
    ]


def sklearn_metric(metric: str, truth: Array, scores: Array, called: Array) -> float:
    functions = {"auroc": metrics.roc_auc_score, "average_precision": metrics.average_precision_score}
    if metric in functions:
        return float(functions[metric](truth, scores))
    return float((metrics.f1_score if metric == "f1" else metrics.accuracy_score)(truth, called))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("metric", recognition.METRICS)
def test_each_label_and_each_average_equals_scikit_learn_with_ties_and_unknowns(seed: int, metric: Metric) -> None:
    scores, truth = made_up(seed)
    result = recognition.score(scores, truth)
    columns = by_hand(scores, truth)
    expected = np.array([sklearn_metric(metric, *column) for column in columns])
    np.testing.assert_allclose(getattr(result, metric), expected, atol=1e-12)

    pooled = [np.concatenate([column[part] for column in columns]) for part in range(3)]
    support = np.array([column[0].sum() for column in columns])
    average = result.averages[metric]
    assert average.micro == pytest.approx(sklearn_metric(metric, *pooled), abs=1e-12)
    assert average.macro == pytest.approx(expected.mean(), abs=1e-12)
    assert average.weighted == pytest.approx(np.average(expected, weights=support), abs=1e-12)
    assert average.labels == 5
    assert average.reason is None


def test_averages_without_unknowns_are_those_scikit_learn_names_the_same() -> None:
    scores, truth = made_up(11, unknown=0.0)
    result = recognition.score(scores, truth)
    called = scores >= 0.5
    for name in ("micro", "macro", "weighted"):
        mine = {metric: getattr(result.averages[metric], name) for metric in recognition.METRICS}
        assert mine["auroc"] == pytest.approx(metrics.roc_auc_score(truth, scores, average=name), abs=1e-12)
        precision = metrics.average_precision_score(truth, scores, average=name)
        assert mine["average_precision"] == pytest.approx(precision, abs=1e-12)
        assert mine["f1"] == pytest.approx(metrics.f1_score(truth, called, average=name), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, np.nan])), min_size=1, max_size=25))
def test_auroc_is_the_share_of_pairs_in_order_with_ties_half(rows: list[tuple[int, float]]) -> None:
    scores, labels = np.array(rows, dtype=np.float64).T
    pairs = [
        1.0 if high > low else 0.5 if high == low else 0.0
        for high in scores[labels == 1]
        for low in scores[labels == 0]
    ]
    result = recognition.auroc(scores, labels)
    precision = recognition.average_precision(scores, labels)
    if not pairs:
        assert np.isnan([result, precision]).all()
        return
    assert result == pytest.approx(np.mean(pairs), abs=1e-12)
    known = ~np.isnan(labels)
    assert precision == pytest.approx(metrics.average_precision_score(labels[known], scores[known]), abs=1e-12)


def test_a_label_of_one_class_has_no_auroc_and_says_why() -> None:
    nan = np.nan
    labels = np.array([[0, 1, nan, 1], [0, 1, nan, 0], [nan, 1, nan, 0]])
    scores = np.array([[0.9, 0.9, 0.1, 0.8], [0.1, 0.2, 0.2, 0.1], [0.5, 0.5, 0.5, 0.3]])
    result = recognition.score(scores, labels, names=["mass", "edema", "nodule", "effusion"])
    np.testing.assert_array_equal(result.auroc, [nan, nan, nan, 1.0])
    np.testing.assert_array_equal(result.average_precision, [nan, nan, nan, 1.0])
    np.testing.assert_allclose(result.f1, [nan, 0.8, nan, 1.0])
    np.testing.assert_allclose(result.accuracy, [0.5, 2 / 3, nan, 1.0])
    assert result.reasons["mass"]["auroc"] == "all 2 known labels are negative"
    assert result.reasons["edema"] == dict.fromkeys(("auroc", "average_precision"), "all 3 known labels are positive")
    assert set(result.reasons["nodule"]) == set(recognition.METRICS)
    assert result.reasons["nodule"]["accuracy"] == "no label is known"
    assert "effusion" not in result.reasons
    assert result.averages["auroc"].labels == 1
    assert result.averages["auroc"].macro == 1.0
    assert result.averages["auroc"].reason == "without mass, edema, nodule, where it is undefined"
    assert result.averages["f1"].macro == pytest.approx(0.9)
    assert result.positives.tolist() == [0, 3, 0, 1]
    assert result.negatives.tolist() == [2, 0, 0, 2]
    assert result.unknown.tolist() == [1, 0, 3, 0]


def test_nothing_known_gives_no_number_at_all() -> None:
    result = recognition.score(np.zeros((3, 2)), np.full((3, 2), np.nan))
    for average in result.averages.values():
        assert np.isnan([average.micro, average.macro, average.weighted]).all()
        assert average.labels == 0
        assert average.reason == "it is undefined for every label; pooled, no label is known"
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False))["labels"]["label 0"]["auroc"] is None


def test_a_score_at_the_threshold_is_a_positive_call_and_thresholds_can_differ_by_label() -> None:
    scores, labels = np.array([[0.5, 0.5], [0.4, 0.4]]), np.array([[1, 1], [0, 0]])
    assert recognition.score(scores, labels).f1.tolist() == [1.0, 1.0]
    mixed = recognition.score(scores, labels, threshold=[0.5, 0.4])
    assert mixed.f1.tolist() == [1.0, pytest.approx(2 / 3)]
    assert mixed.thresholds.tolist() == [0.5, 0.4]


def test_a_named_group_averages_over_its_labels_only() -> None:
    scores, truth = made_up(3)
    names = ["a", "b", "c", "d", "e"]
    whole = recognition.score(scores, truth, names=names, groups={"pair": ["d", "b"]})
    part = recognition.score(scores[:, [1, 3]], truth[:, [1, 3]], names=["b", "d"])
    assert whole.groups["pair"] == part.averages
    assert whole.groups["pair"] != whole.averages
    assert whole.named("d") == part.named("d")


def test_one_label_can_be_given_flat() -> None:
    scores, truth = made_up(4, labels=1)
    assert recognition.score(scores[:, 0], truth[:, 0]).auroc[0] == recognition.score(scores, truth).auroc[0]
    assert recognition.auroc(scores[:, 0], truth[:, 0]) == recognition.score(scores, truth).auroc[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scores": [[0.1, np.nan]]}, "the score of image 0, label 'mass' is nan"),
        ({"scores": [[np.inf, 0.2]]}, "the score of image 0, label 'edema' is inf"),
        ({"labels": [[0, -1]]}, "the label of image 0, label 'mass' is -1; it must be 1, 0, or NaN"),
        ({"labels": [[0, 1, 1]]}, "labels (1, 3)"),
        ({"names": ["edema"]}, "1 names were given for 2 labels"),
        ({"names": ["edema", "edema"]}, "'edema' is given more than once"),
        ({"threshold": [0.1, 0.2, 0.3]}, "threshold must be one number or 2"),
        ({"threshold": np.nan}, "threshold is NaN"),
        ({"groups": {"five": ["Edema"]}}, "did you mean 'edema'"),
        ({"groups": {"five": []}}, "the group 'five' must list at least one"),
        ({"scores": [["high", "low"]]}, "scores must be numbers"),
    ],
)
def test_wrong_input_is_refused_by_name(change: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {"scores": [[0.1, 0.2]], "labels": [[0, 1]], "names": ["edema", "mass"]} | change
    with pytest.raises(InputError) as caught:
        recognition.score(arguments.pop("scores"), arguments.pop("labels"), **arguments)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("metric", recognition.METRICS)
@pytest.mark.parametrize("clustered", [False, True])
def test_an_interval_equals_the_bootstrap_of_scikit_learns_metric_on_the_same_resamples(
    metric: Metric, clustered: bool
) -> None:
    scores, truth = made_up(7, images=40, labels=1)
    clusters = np.arange(40) // 3 if clustered else None
    result = recognition.interval(
        scores[:, 0], truth[:, 0], metric, clusters=clusters, resamples=150, method="percentile", seed=5
    )
    known = ~np.isnan(truth[:, 0])
    labels, values = truth[known, 0], scores[known, 0]
    of_row = np.arange(len(labels)) if clusters is None else np.unique(clusters[known], return_inverse=True)[1]
    sampled = []
    for counts in draw_counts(int(of_row.max()) + 1, resamples=150, seed=5).astype(int):
        rows = np.repeat(np.arange(len(labels)), counts[of_row])
        sampled.append(sklearn_metric(metric, labels[rows], values[rows], (values[rows] >= 0.5).astype(float)))
    assert result.estimate == pytest.approx(
        sklearn_metric(metric, labels, values, (values >= 0.5).astype(float)), abs=1e-12
    )
    np.testing.assert_allclose([result.low, result.high], np.quantile(sampled, [0.025, 0.975]), atol=1e-12)
    assert (result.n, result.undefined) == (int(known.sum()), int((~known).sum()))


def test_an_interval_of_a_metric_that_does_not_exist_says_why() -> None:
    result = recognition.interval([0.1, 0.2, 0.3], [1, 1, np.nan])
    assert np.isnan([result.estimate, result.low, result.high]).all()
    assert result.reason == "all 2 known labels are positive"
    with pytest.raises(InputError, match="unknown metric 'auc'"):
        recognition.interval([0.1, 0.2], [0, 1], "auc")  # type: ignore[arg-type]

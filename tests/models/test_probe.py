"""Linear probes: against scikit-learn, and the paper's schedule against a hand calculation."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from rightlung.core import InputError
from rightlung.models.probe import HEADS, LinearProbe, ProbeSettings, first_patients, fit_probe, warm_cosine

CHANCE = np.random.default_rng(0)
FEATURES = CHANCE.normal(size=(600, 6)) * [1, 5, 0.1, 1, 1, 0] + 3  # the last one is constant
LABELS = (CHANCE.random((600, 2)) < 1 / (1 + np.exp(-(FEATURES[:, :2] - 3) * [2.0, 0.5]))).astype(float)
PATIENTS = [f"p{n // 2}" for n in range(600)]


def probabilities(weights: object) -> np.ndarray:
    class Given:
        def encode_image(self, images: list[np.ndarray]) -> np.ndarray:
            return np.array([image[0] for image in images])

    probe = LinearProbe(Given(), weights)  # type: ignore[arg-type]
    return probe.classify([row[None] for row in FEATURES], ["edema", "mass"])  # type: ignore[arg-type]


def test_the_logistic_regression_is_scikit_learns_on_standardised_features() -> None:
    labels = LABELS.copy()
    labels[::7, 0] = np.nan
    found = fit_probe(FEATURES, labels, PATIENTS, ["edema", "mass"])
    known = ~np.isnan(labels[:, 0])
    std = FEATURES[known].std(axis=0)
    scaled = (FEATURES - FEATURES[known].mean(axis=0)) / np.where(std > 0, std, 1)
    expected = LogisticRegression(C=found.chosen["edema"], max_iter=1000).fit(scaled[known], labels[known, 0])
    assert probabilities(found)[:, 0] == pytest.approx(expected.predict_proba(scaled)[:, 1], abs=1e-3)
    # C is the one with the lowest loss on the held-out patients.
    held_out = first_patients(PATIENTS, 0.1, 0, "validation")
    losses = {}
    for strength in (1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2):
        model = LogisticRegression(C=strength, max_iter=1000).fit(
            scaled[known & ~held_out], labels[known & ~held_out, 0]
        )
        held = known & held_out
        right = model.predict_proba(scaled[held])[np.arange(held.sum()), labels[held, 0].astype(int)]
        losses[strength] = -np.log(right).mean()
    assert found.chosen["edema"] == pytest.approx(min(losses, key=losses.__getitem__))


def test_five_epochs_at_the_papers_rate_barely_move_and_a_higher_rate_learns() -> None:
    paper, taught = (
        fit_probe(FEATURES, LABELS, PATIENTS, ["edema", "mass"], ProbeSettings("five-epochs", learning_rate=rate))
        for rate in (None, 0.05)
    )
    start = fit_probe(FEATURES, LABELS, PATIENTS, ["edema", "mass"], ProbeSettings("five-epochs", learning_rate=1e-12))
    # AdamW moves a weight by at most about the rate in each of the 45 steps.
    assert 0 < np.abs(paper.weight - start.weight).max() < 45 * 1e-5 * 1.5
    assert roc_auc_score(LABELS[:, 0], probabilities(taught)[:, 0]) > 0.85
    assert 1 <= taught.chosen["epoch"] <= 5
    again = fit_probe(FEATURES, LABELS, PATIENTS, ["edema", "mass"], ProbeSettings("five-epochs"))
    assert (again.weight == paper.weight).all()


def test_the_learning_rate_warms_up_for_a_tenth_of_the_steps_and_ends_at_zero() -> None:
    assert [warm_cosine(step, 100) for step in (0, 4, 9, 10, 55)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.5])
    assert warm_cosine(100, 100) == pytest.approx(0.0)


def test_label_shares_are_nested_sets_of_whole_patients() -> None:
    few, more = (first_patients(PATIENTS, share, 0, "label share") for share in (0.01, 0.1))
    assert (few.sum(), more.sum()) == (6, 60)  # 3 and 30 of 300 patients with two images each
    assert (more | ~few).all()
    assert (few[::2] == few[1::2]).all()
    assert fit_probe(FEATURES, LABELS, PATIENTS, ["edema", "mass"], ProbeSettings(share=0.1)).patients == 30


def test_what_cannot_be_learned_is_named() -> None:
    labels = LABELS.copy()
    labels[:, 1] = 0
    found = fit_probe(FEATURES, labels, PATIENTS, ["edema", "mass"])
    assert (found.findings, found.left_out) == (("edema",), ("mass",))
    assert np.isnan(probabilities(found)[:, 1]).all()
    with pytest.raises(InputError, match="no finding is present in some and absent in other images of the 300"):
        fit_probe(FEATURES, labels[:, 1:], PATIENTS, ["mass"])
    with pytest.raises(InputError, match=r"share must be in"):
        ProbeSettings(share=0.0)
    with pytest.raises(InputError, match="protocol of a probe"):
        ProbeSettings("ten-epochs")  # type: ignore[arg-type]


def test_scikit_learn_is_needed_for_the_logistic_regression_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(InputError, match=r"pip install 'rightlung\[retrieval\]'"):
        fit_probe(FEATURES, LABELS, PATIENTS, ["edema", "mass"])
    fit_probe(FEATURES, LABELS, PATIENTS, ["edema", "mass"], ProbeSettings("five-epochs"))


def test_the_papers_heads_have_one_eight_and_five_outputs() -> None:
    assert {name: len(findings) for name, findings in HEADS.items()} == {"pneumonia": 1, "cxr-8": 8, "openi-5": 5}

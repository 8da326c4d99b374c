"""Recognition against grounding, next to scikit-learn and SciPy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from rightlung.results.estimate import BootstrapSettings
from rightlung.results.recognition import Answers, RecognitionAndGrounding

FEW = BootstrapSettings(resamples=100)
FINDINGS = ("a", "b", "c", "d")


def answers(seed: int, skill: float) -> Answers:
    """Return 60 images with random labels, and phrases about the findings that are there."""
    chance = np.random.default_rng(seed)
    labels = np.random.default_rng(0).random((60, 4)) < 0.4
    scores = np.clip(0.5 + skill * (labels - 0.5) * np.arange(1, 5) + chance.normal(0, 0.3, labels.shape), 0, 1)
    rows = [
        (f"p{n // 2}", name, scores[n, k], float(labels[n, k])) for n in range(60) for k, name in enumerate(FINDINGS)
    ]
    images = pd.DataFrame(rows, columns=["patient", "finding", "score", "label"])
    there = images[images.label == 1].reset_index(drop=True)
    pointing = (chance.random(len(there)) < 0.3 + skill).astype(float)
    return Answers(images, there[["patient", "finding"]].assign(pointing=pointing))


@pytest.fixture(scope="module")
def found() -> RecognitionAndGrounding:
    return RecognitionAndGrounding({f"m{n}": answers(n + 1, 0.15 * n) for n in range(4)}, FEW)


def test_recognition_per_finding_equals_scikit_learn(found: RecognitionAndGrounding) -> None:
    for model, given in found.models.items():
        for finding in FINDINGS:
            rows = given.images[given.images.finding == finding]
            called = rows.score >= 0.5
            assert found.estimate(model, finding, "auc").value == pytest.approx(roc_auc_score(rows.label, rows.score))
            assert found.estimate(model, finding, "accuracy").value == pytest.approx(accuracy_score(rows.label, called))
            assert found.estimate(model, finding, "f1").value == pytest.approx(f1_score(rows.label, called))
            phrases = given.phrases[given.phrases.finding == finding]
            assert found.estimate(model, finding, "pointing").value == pytest.approx(phrases.pointing.mean())


def test_correlations_are_spearmans_over_findings_models_and_pairs(found: RecognitionAndGrounding) -> None:
    once = np.ones((1, len(found.patients)))
    auc, pointing = (found.table([*found.models], name)(once)[0] for name in ("auc", "pointing"))
    assert found.across_findings("m2", "auc", "pointing").value == pytest.approx(spearmanr(auc[2], pointing[2])[0])
    assert found.across_models("auc", "pointing").value == pytest.approx(spearmanr(auc.mean(1), pointing.mean(1))[0])
    pairs = found.of_pairs("auc", "pointing")
    assert pairs.value == pytest.approx(spearmanr(auc.ravel(), pointing.ravel())[0])
    assert pairs.low < pairs.value < pairs.high
    assert found.across_models("auc", "pointing").has_interval


def test_a_finding_counts_only_if_every_model_has_enough_answers_about_it() -> None:
    whole, part = answers(1, 0.2), answers(2, 0.2)
    few = Answers(part.images, part.phrases[part.phrases.finding != "c"])
    found = RecognitionAndGrounding({"whole": whole, "few": few}, FEW)
    assert sorted(found.findings) == ["a", "b", "d"]

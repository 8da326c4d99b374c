"""The pure parts of ``benchmarks/phantom_transfer.py``: folds, priors, intervals, labels of scenes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks import phantom_transfer as script
from rightlung.lexicon import FINDINGS
from rightlung.scoring import recognition
from rightlung.scoring.statistics import bootstrap_by_counts


def scene_with(*findings: str) -> Any:
    return SimpleNamespace(lesions=tuple(SimpleNamespace(finding=finding) for finding in findings))


def test_all_of_a_patients_images_are_in_one_fold() -> None:
    patients = np.array([f"p{number // 3}" for number in range(60)])
    folds = script.folds_of(patients, 4)
    assert all(len(set(folds[patients == patient])) == 1 for patient in set(patients))
    assert np.bincount(folds).tolist() == [15, 15, 15, 15]


def test_auroc_by_counts_is_scikit_learns_on_the_repeated_images_ties_included() -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.integers(0, 5, 40).astype(float), (generator.random(40) < 0.4).astype(float)
    counts = generator.integers(0, 4, (3, 40)).astype(float)
    found = script.auroc_by_counts(scores, labels)(counts)
    for value, row in zip(found, counts.astype(int), strict=True):
        assert value == pytest.approx(roc_auc_score(np.repeat(labels, row), np.repeat(scores, row)))


def test_the_interval_of_one_label_and_seed_is_that_of_recognition() -> None:
    generator = np.random.default_rng(1)
    labels = (generator.random((80, 1)) < 0.3).astype(float)
    scores, patients = generator.random((80, 1)) + labels / 2, np.arange(80) // 2
    ours = bootstrap_by_counts(script.mean_by_counts([scores], labels), 80, clusters=patients, resamples=300)
    theirs = recognition.interval(scores[:, 0], labels[:, 0], clusters=patients, resamples=300)
    assert (ours.estimate, ours.low, ours.high) == pytest.approx((theirs.estimate, theirs.low, theirs.high))


def test_a_network_compared_with_itself_gains_nothing() -> None:
    generator = np.random.default_rng(2)
    scores, labels = generator.random((30, 2)), (generator.random((30, 2)) < 0.5).astype(float)
    counts = generator.integers(0, 3, (5, 30)).astype(float)
    assert script.gain_by_counts([scores], [scores], labels)(counts).tolist() == [0.0] * 5
    worse = script.gain_by_counts([-labels], [labels], labels)(np.ones((1, 30)))
    assert worse.tolist() == [-1.0]


def test_the_location_prior_never_sees_the_patient_it_is_asked_about() -> None:
    masks = np.zeros((20, 8, 8))
    masks[:, 2:4, 2:4] = 1.0
    masks[0] = 0.0
    masks[0, 7, 7] = 1.0
    findings, patients = np.array(["mass"] * 20), np.array([f"p{number}" for number in range(20)])
    prior = script.location_prior(masks, findings, patients)
    assert prior[0, 7, 7] == pytest.approx(0.0, abs=1e-3)
    assert prior[0].argmax() in np.flatnonzero(masks[1])


def test_scenes_are_labelled_as_nih_would_and_what_cannot_be_known_is_left_open() -> None:
    def labels(*findings: str) -> dict[str, float]:
        return dict(zip(script.FINDINGS, script.labels_of(scene_with(*findings)), strict=True))

    assert set(labels().values()) == {0.0}
    assert labels("consolidation")["infiltration"] == 1.0
    assert math.isnan(labels("consolidation")["pneumonia"])
    assert labels("consolidation", "pneumonia")["pneumonia"] == 1.0
    assert math.isnan(labels("mass")["nodule"])
    assert set(labels("scoliosis").values()) == {0.0}


def test_every_finding_in_the_table_of_meanings_is_one_of_the_lexicon() -> None:
    assert set(script.MEANING) <= set(FINDINGS)
    assert {name for parts in script.MEANING.values() for part in parts for name in part} <= set(script.FINDINGS)


def test_lesions_reach_the_cells_of_their_own_image_and_labels() -> None:
    scenes = [scene_with("nodule"), scene_with(), scene_with("scoliosis", "pneumonia")]
    masks = [torch.zeros(len(scene.lesions), 56, 56, dtype=torch.bool) for scene in scenes]
    masks[0][0, 0, 0] = True
    masks[2][1, 55, 55] = True
    cells = script.cells_of(scenes, masks, torch.device("cpu"))
    expected = torch.zeros(3, 8, 28, 28, dtype=torch.uint8)
    expected[0, script.FINDINGS.index("nodule"), 0, 0] = 255
    for name in ("pneumonia", "infiltration"):
        expected[2, script.FINDINGS.index(name), 27, 27] = 255
    assert torch.equal(cells, expected)


def test_a_number_that_differs_tells_phantom_from_real_and_one_that_does_not_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    dark = torch.randint(0, 100, (40, 32, 32), generator=generator, dtype=torch.uint8)
    found = script.compare_statistics(dark + 100, dark)
    assert found["numbers"]["mean"]["auroc"] == 1.0
    assert found["numbers"]["log power, band 5"]["auroc"] == pytest.approx(0.5, abs=0.01)
    assert found["histogram_distance"] == pytest.approx(1.0)
    assert script.compare_statistics(dark, dark)["histogram_distance"] == 0.0


def test_what_takes_information_away_keeps_shape_and_type() -> None:
    images = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for name, change in script.views(images).items():
        changed = change(images)
        assert changed.shape == images.shape, name
        assert changed.dtype == torch.uint8, name
    equalised = script.views(images)["histogram equalised"](images // 4)
    assert torch.bincount(equalised.flatten().long(), minlength=256).min() > 0


def test_trying_out_and_looking_at_val_exclude_each_other() -> None:
    with pytest.raises(SystemExit):
        script.read_arguments(["--nih", "x", "--out", "y", "--quick", "--final"])

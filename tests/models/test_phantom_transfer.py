"""The benchmarks that compare phantoms with real images: folds, priors, intervals, labels, sources."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import rightlung
from rightlung.core import Polarity
from rightlung.lexicon import FINDINGS
from rightlung.models.preprocessing import standardise
from rightlung.scoring import recognition
from rightlung.scoring.statistics import bootstrap_by_counts
from tests.models.classifier.tiny import tiny_classifier

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


def module(name: str) -> ModuleType:
    sys.path.insert(0, BENCHMARKS)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(BENCHMARKS)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return module("phantom_transfer")


@pytest.fixture(scope="module")
def data() -> ModuleType:
    return module("phantom_and_nih")


@pytest.fixture(scope="module")
def discriminator() -> ModuleType:
    return module("phantom_or_real")


def test_all_of_a_patients_images_are_in_one_fold(data: ModuleType) -> None:
    patients = np.array([f"p{number // 3}" for number in range(60)])
    folds = data.folds_of(patients, 4)
    assert all(len(set(folds[patients == patient])) == 1 for patient in set(patients))
    assert np.bincount(folds).tolist() == [15, 15, 15, 15]


def test_the_interval_of_one_label_and_seed_is_that_of_recognition(script: ModuleType) -> None:
    generator = np.random.default_rng(1)
    labels = (generator.random((80, 1)) < 0.3).astype(float)
    scores, patients = generator.random((80, 1)) + labels / 2, np.arange(80) // 2
    ours = bootstrap_by_counts(script.mean_by_counts([scores], labels), 80, clusters=patients, resamples=300)
    theirs = recognition.interval(scores[:, 0], labels[:, 0], clusters=patients, resamples=300)
    assert (ours.estimate, ours.low, ours.high) == pytest.approx((theirs.estimate, theirs.low, theirs.high))


def test_a_network_compared_with_itself_gains_nothing(script: ModuleType) -> None:
    generator = np.random.default_rng(2)
    scores, labels = generator.random((30, 2)), (generator.random((30, 2)) < 0.5).astype(float)
    counts = generator.integers(0, 3, (5, 30)).astype(float)
    assert script.gain_by_counts([scores], [scores], labels)(counts).tolist() == [0.0] * 5
    worse = script.gain_by_counts([-labels], [labels], labels)(np.ones((1, 30)))
    assert worse.tolist() == [-1.0]


def test_the_location_prior_never_sees_the_patient_it_is_asked_about(data: ModuleType) -> None:
    masks = np.zeros((20, 8, 8))
    masks[:, 2:4, 2:4] = 1.0
    masks[0] = 0.0
    masks[0, 7, 7] = 1.0
    findings, patients = np.array(["mass"] * 20), np.array([f"p{number}" for number in range(20)])
    prior = data.location_prior(masks, findings, patients)
    assert prior[0, 7, 7] == pytest.approx(0.0, abs=1e-3)
    assert prior[0].argmax() in np.flatnonzero(masks[1])


def test_lesions_are_labelled_as_nih_would_and_what_cannot_be_known_is_left_open(data: ModuleType) -> None:
    assert set(data.nih_labels([]).values()) == {Polarity.NEGATIVE}
    assert data.nih_labels(["consolidation"])["infiltration"] == Polarity.POSITIVE
    assert data.nih_labels(["consolidation"])["pneumonia"] == Polarity.UNCERTAIN
    assert data.nih_labels(["consolidation", "pneumonia"])["pneumonia"] == Polarity.POSITIVE
    assert data.nih_labels(["mass"])["nodule"] == Polarity.UNCERTAIN
    assert set(data.nih_labels(["scoliosis"]).values()) == {Polarity.NEGATIVE}


def test_every_finding_in_the_table_of_meanings_is_one_of_the_lexicon(data: ModuleType) -> None:
    assert set(data.MEANING) <= set(FINDINGS)
    assert {name for parts in data.MEANING.values() for part in parts for name in part} <= set(data.FINDINGS)


def test_a_phantom_with_nih_labels_has_the_mask_of_each_finding(data: ModuleType) -> None:
    studies = list(rightlung.open_source("phantom-nih?count=8&seed=5&size=64"))
    plain = list(rightlung.open_source("phantom-nih?count=8&seed=5&size=64").inner)  # type: ignore[attr-defined]
    asked = 0
    for study, before in zip(studies, plain, strict=True):
        assert set(study.findings) == set(data.FINDINGS)
        lesions = [lesion["finding"] for lesion in before.extra["scene"]["lesions"]]
        present = {name for name, polarity in study.findings.items() if polarity == Polarity.POSITIVE}
        assert {phrase.text for phrase in study.phrases} == present
        for phrase in study.phrases:
            own = [
                mask.pixels
                for name, mask in zip(lesions, before.extra["lesion_masks"], strict=True)
                if phrase.text in data.MEANING.get(name, ((),))[0]
            ]
            assert phrase.mask is not None
            assert np.array_equal(phrase.mask.pixels, np.any(own, axis=0))
            asked += 1
    assert asked


def test_the_parts_of_a_source_share_no_patient_and_are_all_of_it(data: ModuleType) -> None:
    inner = "patients:phantom?count=24&seed=5&size=64"
    whole, learn, held_out = (
        list(rightlung.open_source(inner + part)) for part in ("", "&part=learn", "&part=held-out")
    )
    assert sorted(study.id for study in (*learn, *held_out)) == [study.id for study in whole]
    assert not {study.patient for study in learn} & {study.patient for study in held_out}
    assert held_out
    assert len(rightlung.open_source(inner + "&every=5")) == 5


def test_adapted_statistics_are_those_of_the_new_images_and_weights_stay(data: ModuleType) -> None:
    model = tiny_classifier("nodule")
    squares = np.random.default_rng(0).integers(0, 256, (10, 64, 64), dtype=np.uint8)
    adapted = data.adapt_statistics(model, squares)
    stem = adapted.image_encoder.backbone.embedder.embedder
    with torch.no_grad():
        seen = stem.convolution(standardise(torch.from_numpy(squares)[:, None].float() / 255))
    torch.testing.assert_close(stem.normalization.running_mean, seen.mean(dim=(0, 2, 3)), atol=1e-5, rtol=1e-4)
    assert not adapted.training
    assert stem.normalization.momentum == 0.1
    for (name, before), after in zip(model.named_parameters(), adapted.parameters(), strict=True):
        assert torch.equal(before, after), name


def test_a_number_that_differs_tells_phantom_from_real_and_one_that_does_not_fails(
    discriminator: ModuleType,
) -> None:
    generator = torch.Generator().manual_seed(0)
    dark = torch.randint(0, 100, (40, 32, 32), generator=generator, dtype=torch.uint8)
    found = discriminator.compare_statistics(dark + 100, dark)
    assert found["numbers"]["mean"]["auroc"] == 1.0
    assert found["numbers"]["log power, band 5"]["auroc"] == pytest.approx(0.5, abs=0.01)
    assert found["histogram_distance"] == pytest.approx(1.0)
    assert discriminator.compare_statistics(dark, dark)["histogram_distance"] == 0.0


def test_what_takes_information_away_keeps_shape_and_type(discriminator: ModuleType) -> None:
    images = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for name, change in discriminator.views(64).items():
        changed = change(images)
        assert changed.shape == images.shape, name
        assert changed.dtype == torch.uint8, name
    equalised = discriminator.views(64)["histogram equalised"](images // 4)
    assert torch.bincount(equalised.flatten().long(), minlength=256).min() > 0


def test_trying_out_and_looking_at_val_exclude_each_other(script: ModuleType) -> None:
    with pytest.raises(SystemExit):
        script.read_arguments(["--nih", "x", "--out", "y", "--quick", "--final"])


def test_the_benchmarks_run_at_a_small_scale(script: ModuleType, discriminator: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("rightlung.training.targets")
    script.main(["--quick", "--out", str(tmp_path / "transfer")])
    discriminator.main(["--quick", "--out", str(tmp_path / "tell")])
    for name in ("transfer", "tell"):
        assert (tmp_path / name / "log.txt").read_text(encoding="utf-8").endswith("done\n")

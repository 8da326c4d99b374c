"""Exact twins: the same patient with one finding changed, and everything else equal to the pixel."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

import rightlung
from rightlung.core import InputError, Mask, Polarity, Study
from rightlung.phantom.config import default_config
from rightlung.phantom.scene import Scene
from rightlung.phantom.twins import CHANGES, changed_scene
from tests.phantom.scenes import lesion, with_lesions

# Findings that neither deform the chest nor reach far beyond their place.
LOCAL = ("nodule", "mass", "lung opacity", "calcified granuloma", "pneumonia")
NEAR = 0.25
"""Largest distance of a changed pixel from a local finding, in fractions of the image."""


@cache
def studies() -> list[Study]:
    """Twelve small studies with a planted marker."""
    return list(rightlung.open_source("phantom?count=12&seed=19&size=128&shortcut=marker:cardiomegaly=1"))


def twins(change: str, findings: tuple[str, ...] = LOCAL) -> list[tuple[Study, str, Study]]:
    """Return some studies with a local finding and their twins."""
    pairs = [(one, name) for one in studies() if one.twins for name in one.twins.findings(change) if name in findings]
    assert len(pairs) > 3
    return [(one, name, one.twin(change, name)) for one, name in pairs[:6]]


def place_of(study: Study, finding: str) -> np.ndarray:
    """Return the mask of a finding, whether it is in the image or not."""
    masks = [one.mask.pixels for one in study.located_findings if one.mask is not None and finding in one.findings]
    return masks[0] if masks else np.zeros(study.image.shape, bool)


@pytest.mark.parametrize("change", CHANGES)
def test_pixels_away_from_the_changed_finding_are_equal_to_the_bit(change: str) -> None:
    for own, finding, twin in twins(change):
        changed = own.image != twin.image
        near = distance_transform_edt(~(place_of(own, finding) | place_of(twin, finding)))
        assert changed.any()
        assert near[changed].max() < NEAR * own.image.shape[0], (own.id, finding)
        assert changed.mean() == pytest.approx(twin.extra["twin"]["influence"], abs=0.01)


def test_a_removed_finding_is_neither_in_the_image_nor_in_labels_masks_and_phrases() -> None:
    for own, finding, twin in twins("removed"):
        there = place_of(own, finding)
        away = ~there & (distance_transform_edt(~there) > 8)
        assert np.abs(own.image - twin.image)[there].mean() > 3 * np.abs(own.image - twin.image)[away].mean()
        assert own.findings[finding] == Polarity.POSITIVE
        assert all(finding not in one.findings for one in twin.located_findings)
        assert not any(one.findings.get(finding) in ("positive", "uncertain") for one in twin.phrases)


def test_other_findings_keep_their_masks() -> None:
    for own, finding, twin in twins("removed"):
        others = {name for one in own.located_findings for name in one.findings} - {finding}
        for name in others:
            np.testing.assert_array_equal(place_of(own, name), place_of(twin, name), err_msg=f"{own.id}, {name}")


def test_a_moved_finding_is_in_the_other_lung() -> None:
    for own, finding, twin in twins("moved"):
        boxes = [Mask(place_of(one, finding)).box() for one in (own, twin)]
        before, after = (box.centre[0] for box in boxes if box is not None)
        middle = (own.regions["right lung"].x1 + own.regions["left lung"].x0) / 2
        assert (before < middle) != (after < middle)
        assert twin.findings == own.findings


def test_a_worse_finding_changes_the_image_more() -> None:
    for own, finding, twin in twins("worse"):
        without = own.twin("removed", finding).image
        assert np.abs(twin.image - without).sum() > np.abs(own.image - without).sum()
        assert place_of(twin, finding).sum() >= place_of(own, finding).sum()


def test_a_twin_keeps_the_planted_marker_that_its_finding_had() -> None:
    marked = [
        (one, "cardiomegaly") for one in studies() if one.twins and "cardiomegaly" in one.twins.findings("removed")
    ][:2]
    assert marked
    for own, finding in marked:
        assert "marker" in own.extra["faults"]
        twin = own.twin("removed", finding)
        assert twin.extra["faults"] == own.extra["faults"]
        corner = np.s_[-24:, :]  # where the marker is
        white = own.image[corner] == np.float32(0.97)
        assert white.any()
        np.testing.assert_array_equal(twin.image[corner][white], own.image[corner][white])


def test_twins_are_repeatable_and_survive_pickling() -> None:
    own, finding, twin = twins("removed")[0]
    again = pickle.loads(pickle.dumps(own)).twin("removed", finding)
    np.testing.assert_array_equal(again.image, twin.image)
    assert [one.text for one in again.phrases] == [one.text for one in twin.phrases]


@pytest.mark.parametrize(
    ("scene", "change", "finding", "message"),
    [
        (with_lesions(lesion("nodule")), "removed", "mass", "the patient has no mass"),
        (with_lesions(lesion("scoliosis", "none", region="spine")), "moved", "scoliosis", "not in one lung only"),
        (with_lesions(lesion("nodule", "left"), lesion("nodule")), "moved", "nodule", "not in one lung only"),
        (with_lesions(lesion("nodule", severity=0.9)), "worse", "nodule", "already severe"),
        (with_lesions(lesion("atelectasis", form="lobar")), "moved", "atelectasis", "the left lung has none"),
        (with_lesions(lesion("nodule")), "smaller", "nodule", "unknown change of a twin"),
    ],
)
def test_an_impossible_twin_is_refused_with_the_reason(scene: Scene, change: str, finding: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        changed_scene(scene, default_config(), change, finding)


def test_other_sources_have_no_twins() -> None:
    with pytest.raises(InputError, match="study 'a' has no exact twins: only phantoms and painted studies have them"):
        Study("a", lambda: np.zeros((8, 8), np.float32)).twin("removed", "nodule")


def test_a_twin_without_a_planted_sign_is_the_study_in_which_it_was_never_planted() -> None:
    marked = [*rightlung.open_source("phantom?count=12&seed=3&size=64&shortcut=marker:cardiomegaly=0,border=0")]
    plain = [*rightlung.open_source("phantom?count=12&seed=3&size=64&shortcut=border=0")]
    unsigned = [one for one in marked if "marker" in one.twins.findings("unsigned")]
    assert {one.id for one in unsigned} == {one.id for one in marked if "marker" in one.extra["faults"]}
    assert 0 < len(unsigned) < len(marked)
    for one, without in zip(marked, plain, strict=True):
        change = "unsigned" if one in unsigned else "signed"
        twin = one.twin(change, "marker").load()
        assert (twin != one.image).any()
        shown = twin if change == "unsigned" else one.image
        np.testing.assert_array_equal(shown, without.image)
    with pytest.raises(InputError, match="the sign tube cannot be unsigned"):
        marked[0].twin("unsigned", "tube")

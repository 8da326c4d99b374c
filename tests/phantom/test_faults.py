"""Planted faults do what they say, to whom they say, and to nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import InputError, Mask, Study
from rightlung.phantom.config import default_config
from rightlung.phantom.faults import (
    FAULT_NAMES,
    parse_fault,
    parse_faults,
    plant_tube,
    report_donor,
    shows_sign,
    strikes,
)
from rightlung.phantom.study import make_studies, study_scene
from rightlung.phantom.truth import present_findings

INDICES = range(10)
SIZE = 64


@pytest.fixture(scope="module")
def clean() -> list[Study]:
    return make_studies(default_config(), 7, INDICES, SIZE)


def with_fault(*texts: str) -> list[Study]:
    return make_studies(default_config(), 7, INDICES, SIZE, faults=parse_faults(texts))


def told(study: Study) -> list[object]:
    """What is said and where: everything that comes from a report."""
    return [(p.text, p.boxes, p.mask.pixels.tobytes() if p.mask else None, p.regions) for p in study.phrases]


@pytest.mark.parametrize("name", ["marker", "tube", "border"])
@pytest.mark.parametrize("strength", [0.0, 0.8])
def test_a_sign_goes_with_its_finding_as_strongly_as_asked(name: str, strength: float) -> None:
    fault = parse_fault(f"{name}:lung opacity={strength}")
    there: dict[bool, list[bool]] = {True: [], False: []}
    for index in range(2000):
        scene = study_scene(default_config(), 3, index)
        there["lung opacity" in present_findings(scene)].append(shows_sign(fault, scene))
    assert min(map(len, there.values())) > 500
    assert np.mean(there[True]) == pytest.approx((1 + strength) / 2, abs=0.05)
    assert np.mean(there[False]) == pytest.approx((1 - strength) / 2, abs=0.05)


def test_a_planted_tube_is_the_only_chest_tube_and_lies_on_the_findings_side() -> None:
    faults = parse_faults(["tube=1"])
    with_tube = 0
    for index in range(400):
        scene = plant_tube(study_scene(default_config(), 3, index), faults)
        tubes = [device for device in scene.devices if device.kind == "chest tube"]
        sides = {lesion.side for lesion in scene.lesions if lesion.finding == "pneumothorax"}
        assert len(tubes) == (1 if sides else 0)
        if tubes:
            with_tube += 1
            effusions = {lesion.side for lesion in scene.lesions if lesion.finding == "pleural effusion"}
            assert tubes[0].side in sides | effusions
    assert with_tube > 5


def test_a_marker_is_burnt_into_a_lower_corner_and_changes_nothing_else(clean: list[Study]) -> None:
    marked = 0
    for plain, faulty in zip(clean, with_fault("marker=0"), strict=True):
        changed = plain.image != faulty.image
        assert changed.any() == ("marker" in faulty.extra["faults"])
        assert not changed[: SIZE // 2].any()
        assert not changed[:, 2 * SIZE // 5 : SIZE - 2 * SIZE // 5].any()
        assert told(plain) == told(faulty)
        marked += bool(changed.any())
    assert 0 < marked < len(clean)


def test_a_border_is_bright_and_leaves_the_inside_alone(clean: list[Study]) -> None:
    framed = 0
    for plain, faulty in zip(clean, with_fault("border=0"), strict=True):
        assert np.array_equal(plain.image[2:-2, 2:-2], faulty.image[2:-2, 2:-2])
        if "border" in faulty.extra["faults"]:
            assert faulty.extra["faults"]["border"] == {"finding": "cardiomegaly"}
            assert faulty.image[0].min() > 0.8
            framed += 1
    assert 0 < framed < len(clean)


def test_a_mirrored_picture_keeps_report_boxes_and_labels(clean: list[Study]) -> None:
    for plain, faulty in zip(clean, with_fault("mirrored=1"), strict=True):
        assert np.array_equal(faulty.image, plain.image[:, ::-1])
        assert told(plain) == told(faulty)
        assert plain.regions == faulty.regions
        assert faulty.extra["faults"] == {"mirrored": {}}


def test_shuffled_reports_are_exchanged_in_pairs_and_pictures_stay(clean: list[Study]) -> None:
    faults = parse_faults(["shuffled=1"])
    donors = [report_donor(index, 7, faults) for index in range(128)]
    assert all(donor is not None and donor != index and donors[donor] == index for index, donor in enumerate(donors))
    faulty = with_fault("shuffled=1")
    for index, (plain, study) in enumerate(zip(clean, faulty, strict=True)):
        assert np.array_equal(plain.image, study.image)
        assert plain.findings == study.findings
        donor = donors[index]
        assert donor is not None
        assert study.extra["faults"] == {"shuffled": {"report_of": f"phantom-7-{donor:06d}"}}
        if index < 2:
            origin = make_studies(default_config(), 7, [donor], SIZE)[0]
            assert told(study) == told(origin)
            assert study.report == origin.report


def test_wrong_boxes_lose_every_target_and_the_truth_stays_in_extra(clean: list[Study]) -> None:
    moved = 0
    for plain, faulty in zip(clean, with_fault("wrong-boxes=1"), strict=True):
        assert np.array_equal(plain.image, faulty.image)
        assert plain.extra["lesion_masks"] == faulty.extra["lesion_masks"]
        for before, after in zip(plain.phrases, faulty.phrases, strict=True):
            assert before.text == after.text
            assert (before.mask is None) == (after.mask is None)
            if before.mask is not None and after.mask is not None:
                assert before.mask != after.mask
                assert before.boxes != after.boxes
                assert Mask.from_boxes(after.boxes, (SIZE, SIZE)) == after.mask
                moved += 1
    assert moved > 5


def test_a_share_is_struck() -> None:
    for name in ("mirrored", "wrong-boxes"):
        fault = parse_fault(f"{name}=0.3")
        assert np.mean([strikes(fault, 1, index) for index in range(3000)]) == pytest.approx(0.3, abs=0.03)
    faults = parse_faults(["shuffled=0.3"])
    struck = [report_donor(index, 1, faults) is not None for index in range(1280)]
    assert np.mean(struck) == pytest.approx(0.3, abs=0.06)


def test_no_fault_strikes_at_strength_nought_and_none_is_recorded_where_none_is_planted(clean: list[Study]) -> None:
    for plain, faulty in zip(clean, with_fault("mirrored=0", "shuffled=0", "wrong-boxes=0"), strict=True):
        assert plain.extra["faults"] == faulty.extra["faults"] == {}
        assert np.array_equal(plain.image, faulty.image)
        assert told(plain) == told(faulty)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["markr=0.5"], "did you mean 'marker'"),
        (["marker=1.5"], "the strength must be a number from 0 to 1; got 1.5"),
        (["marker=-0.1"], "the strength must be a number from 0 to 1; got -0.1"),
        (["marker=nan"], "the strength must be a number from 0 to 1"),
        (["marker=lots"], "must be a number from 0 to 1; got 'lots'"),
        (["marker"], "a shortcut is NAME=STRENGTH"),
        (["marker:pnemonia=0.5"], "did you mean 'pneumonia'"),
        (["mirrored:pneumonia=0.5"], "takes no finding"),
        (["marker=0.1", "marker:edema=0.2"], "marker is given twice"),
        ([""], "a shortcut is NAME=STRENGTH"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_in_a_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_faults(texts)


@pytest.mark.parametrize("name", FAULT_NAMES)
def test_a_fault_reads_as_it_is_written(name: str) -> None:
    fault = parse_fault(f"{name}=0.25")
    assert parse_fault(str(fault)) == fault

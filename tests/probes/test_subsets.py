from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from rightlung.core import Box, InputError, Phrase, Polarity, Study
from rightlung.lexicon.regions import with_containing
from rightlung.probes import Owner
from rightlung.probes.subsets import is_abnormal, is_one_lung, mean_overlap, most_diverse_reports
from rightlung.probes.targets import derangement, exchanged_targets, region_target, trimmed_regions


@pytest.mark.parametrize(
    ("findings", "abnormal"),
    [
        ({"nodule": "positive", "edema": "negative"}, True),
        ({"nodule": "negative"}, False),
        ({"nodule": "uncertain"}, True),  # "there is the suggestion of emphysema", table 5
        ({"abnormal": "positive"}, True),
        *(({name: "positive"}, False) for name in ("normal", "support devices", "no finding")),
        ({}, False),
    ],
)
def test_abnormal_is_a_condition_said_to_be_there(findings: dict[str, str], abnormal: bool) -> None:
    assert is_abnormal(Phrase("x", findings={name: Polarity(said) for name, said in findings.items()})) is abnormal


@pytest.mark.parametrize(
    ("regions", "one"),
    [
        (("left lung",), True),
        (("right lung", "right lower lung zone"), True),
        (("left lung", "right lung"), False),
        (("left lower lung zone",), True),
        (("left costophrenic angle", "right hilar structures"), False),
        (("left hemidiaphragm", "left clavicle"), False),
        (("lower lung zones",), False),
        ((), False),
    ],
)
def test_one_lung_has_the_box_of_one_lung_and_not_of_both(regions: tuple[str, ...], one: bool) -> None:
    assert is_one_lung(Phrase("x", regions=regions)) is one


def test_the_mean_overlap_is_over_all_pairs() -> None:
    one, two, three = (np.zeros((2, 4), dtype=bool) for _ in range(3))
    one[0], two[0, :2], three[1] = True, True, True
    assert mean_overlap([one, two, three]) == pytest.approx((0.5 + 0 + 0) / 3)
    assert mean_overlap([one]) is None
    assert mean_overlap([np.zeros((2, 2), dtype=bool)] * 2) is None
    with pytest.raises(InputError, match="differ in size"):
        mean_overlap([one, np.zeros((3, 3), dtype=bool)])


def test_the_most_diverse_reports_hold_the_wanted_share_of_instances() -> None:
    overlaps = {"a": 0.5, "b": 0.1, "c": 0.0, "d": None, "e": 0.1}
    instances = {"a": 10, "b": 5, "c": 3, "d": 1, "e": 21}
    assert most_diverse_reports(overlaps, instances, 0.1) == ["c", "b"]  # 4 of 40 wanted; b is taken whole
    assert most_diverse_reports(overlaps, instances, 1.0) == ["c", "b", "e", "a"]
    with pytest.raises(InputError, match="share must be above 0"):
        most_diverse_reports(overlaps, instances, 0)


def test_a_whole_lung_goes_where_the_same_side_is_named_more_closely() -> None:
    closer = ("right lung", "left hilar structures")
    assert trimmed_regions([closer[0], "left lung", closer[1]]) == closer
    for whole in (("left lung",), ("left lung", "right lung"), ("left lung", "spine")):
        assert trimmed_regions(whole) == whole


@pytest.mark.parametrize(
    ("regions", "all_of_them"),
    [
        (["right apical zone"], ("right apical zone", "right lung")),
        (["left hilar structures", "left lung"], ("left hilar structures", "left lung")),
        (["left costophrenic angle", "spine"], ("left costophrenic angle", "spine", "left lung")),
        (["lungs"], ("right lung", "left lung")),
        (["lung bases"], ("right lower lung zone", "left lower lung zone", "right lung", "left lung")),
        (["right atrium", "left hemidiaphragm"], ("right atrium", "left hemidiaphragm")),
        (["left shoulder"], ("left shoulder",)),
        ([], ()),
    ],
)
def test_what_is_told_of_a_part_of_a_lung_is_told_of_the_lung(regions: list[str], all_of_them: tuple[str, ...]) -> None:
    assert with_containing(regions) == all_of_them
    assert with_containing(all_of_them) == all_of_them


def test_a_region_target_is_the_boxes_that_the_study_has_with_the_lung_unless_trimmed() -> None:
    lung, zone = Box(0.5, 0.1, 0.9, 0.9), Box(0.5, 0.6, 0.9, 0.9)
    regions = {"left lung": lung, "left lower lung zone": zone}
    study = Study("s", lambda: np.zeros((2, 2), dtype=np.float32), regions=regions)
    for names, expected in (
        (("left lower lung zone",), (zone, lung)),
        (("left lung", "left lower lung zone", "left clavicle"), (lung, zone)),
    ):
        assert region_target(study, Phrase("x", regions=names)) == expected
        assert region_target(study, Phrase("x", regions=names), trimmed=True) == (zone,)
    assert region_target(study, Phrase("x", regions=("left clavicle",))) == ()


def test_random_targets_are_other_patients_each_once_where_that_can_be() -> None:
    owners = [Owner(str(number), patient) for number, patient in enumerate("aabbbc")]
    found = exchanged_targets(owners, 3) or {}
    assert sorted(found.values()) == sorted(found) == [owner.study for owner in owners]
    patient_of = {owner.study: owner.patient for owner in owners}
    assert all(patient_of[one] != patient_of[other] for one, other in found.items())
    most = exchanged_targets([Owner("0", "a"), Owner("1", "a"), Owner("2", "a"), Owner("3", "b")], 0) or {}
    assert [most[name] for name in "012"] == ["3"] * 3
    assert exchanged_targets([Owner("0", "a"), Owner("1", "a")], 0) is None
    assert exchanged_targets([], 0) is None


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_derangement_leaves_nothing_in_its_place(count: int) -> None:
    for seed in range(50):
        order = derangement(count, random.Random(seed)) or ()
        assert sorted(order) == list(range(count))
        assert all(place != number for place, number in enumerate(order))


def test_all_derangements_of_four_are_about_equally_likely() -> None:
    counts = Counter(tuple(derangement(4, random.Random(seed)) or ()) for seed in range(2700))
    assert len(counts) == 9
    assert min(counts.values()) > 220
    assert max(counts.values()) < 380

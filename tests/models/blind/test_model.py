"""The image-blind model: what it answers without the image, and the frequencies of findings."""

from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import Box, Phrase, Polarity, Query, Report, Study
from rightlung.models.blind import fold_of
from rightlung.models.blind.frequency import FindingFrequency, NearbyFindings
from rightlung.models.blind.model import BlindModel, known_findings

EFFUSION = {"pleural effusion": Polarity.POSITIVE}
LEFT_LUNG, RIGHT_LUNG = Box(0.5, 0.1, 0.9, 0.9), Box(0.1, 0.1, 0.5, 0.9)
IMAGES = [np.zeros((8, 8), np.float32)] * 2
BY_FOLD = {fold_of(f"p{number}"): f"p{number}" for number in range(40)}
"""A patient of each fold."""


def study(name: str, text: str, box: Box | None, report: str) -> Study:
    present = Polarity.NEGATIVE if box is None else Polarity.POSITIVE
    phrases = () if box is None else (Phrase(text, boxes=(box,), findings=EFFUSION),)
    return Study(
        name, patient=name, load=lambda: IMAGES[0], phrases=phrases, report=Report(report),
        regions={"left lung": LEFT_LUNG, "right lung": RIGHT_LUNG},
        region_findings={"left lung": {"effusion": present}, "right lung": {"effusion": Polarity.NEGATIVE}},
    )  # fmt: skip


@pytest.fixture
def blind() -> BlindModel:
    clear = "The lungs are clear."
    studies = [
        study("a", "left effusion", Box(0.6, 0.6, 0.8, 0.9), "There is a left effusion."),
        study("b", "left effusion", Box(0.7, 0.7, 0.9, 0.9), clear),
        study("c", "right effusion", Box(0.1, 0.6, 0.3, 0.9), clear),
        study("d", "", None, clear),
    ]
    return BlindModel.fit(iter(studies))


def test_a_phrase_gets_the_median_box_of_its_finding_on_its_side_else_of_all_phrases(blind: BlindModel) -> None:
    left, right, other = blind.ground([], ["a left pleural effusion", "right effusion", "the heart is large"])
    assert left.boxes[0].box.as_tuple() == pytest.approx((0.65, 0.65, 0.85, 0.9))
    assert right.boxes[0].box.as_tuple() == pytest.approx((0.1, 0.6, 0.3, 0.9))
    assert other.boxes[0].box.as_tuple() == pytest.approx((0.6, 0.6, 0.8, 0.9))  # medians of three boxes


def test_findings_that_were_never_named_together_get_the_box_of_one_of_them(blind: BlindModel) -> None:
    (both,) = blind.ground([], ["left pleural effusion with pneumothorax"])
    assert both.boxes[0].box.as_tuple() == pytest.approx((0.65, 0.65, 0.85, 0.9))


def test_a_finding_gets_its_median_box_and_its_frequency_in_every_image(blind: BlindModel) -> None:
    found = blind.detect(IMAGES, ["pleural effusion", "nodule"])
    assert [[(one.label, one.score) for one in own] for own in found] == [[("pleural effusion", 0.75)]] * 2
    assert found[0][0].box.as_tuple() == pytest.approx((0.6, 0.6, 0.8, 0.9))


def test_texts_are_the_most_frequent_ones_and_a_box_stands_for_its_region(blind: BlindModel) -> None:
    queries = [
        Query("pleural effusion"),
        Query(box=Box(0.5, 0.1, 0.9, 0.8)),
        Query("nodule"),
        Query(box=Box(0, 0, 0.1, 0.1)),
    ]
    texts = blind.describe([], queries)
    assert (texts[0], texts[2]) == ("There is a left effusion.", "The lungs are clear.")
    assert texts[3] == "The lungs are clear."  # no region is there: the most frequent sentence
    assert blind.region_at(Box(0.5, 0.1, 0.9, 0.8)) == "left lung"
    assert blind.region_at(Box(0, 0, 0.1, 0.1)) is None
    assert blind.report(IMAGES)[1].text == "The lungs are clear."


def test_a_region_has_the_findings_of_that_region_in_other_studies(blind: BlindModel) -> None:
    scores = blind.classify(IMAGES, ["pleural effusion", "nodule"], [Box(0.5, 0.1, 0.9, 0.8), RIGHT_LUNG])
    everywhere = (3 + 5 * 0.5) / (8 + 5)  # 3 of 8 lungs, drawn towards one half
    expected = [[(3 + 5 * everywhere) / 9, 0.5], [(0 + 5 * everywhere) / 9, 0.5]]
    assert scores == pytest.approx(np.array(expected), abs=1e-6)
    assert blind.classify(IMAGES, ["nodule"]).tolist() == [[0.5], [0.5]]
    assert blind.classify([], ["nodule"]).shape == (0, 1)
    (near,) = blind.classify(IMAGES[:1], ["pleural effusion"], [LEFT_LUNG], multiclass=True)
    assert near[0] == 1.0  # all three boxes are of effusions


def test_frequencies_leave_out_the_fold_of_the_patient() -> None:
    counted = FindingFrequency()
    for fold, there in ((0, True), (1, True), (2, False)):
        counted.add("left lung", BY_FOLD[fold], {"mass": there})
    overall = (1 + 5 * 0.5) / (2 + 5)
    assert counted.shares("left lung", ["mass"], BY_FOLD[0]) == pytest.approx([(1 + 5 * overall) / (2 + 5)])
    assert counted.shares("heart", ["mass"], BY_FOLD[0]) == pytest.approx([overall])


def test_boxes_have_the_findings_of_boxes_nearby() -> None:
    nearby = NearbyFindings(neighbours=1)
    place, other = (0.1, 0.1, 0.3, 0.3), (0.6, 0.6, 0.9, 0.9)
    nearby.add(BY_FOLD[0], place, ["mass"])
    nearby.add(BY_FOLD[1], other, ["cardiomegaly"])
    box = Box(0.1, 0.1, 0.3, 0.4)
    assert nearby.shares(box, ["mass", "cardiomegaly"], None) == pytest.approx([(1 + 2.5) / 6, 2.5 / 6])
    assert nearby.shares(box, ["mass", "cardiomegaly"], BY_FOLD[0]) == [0.0, 1.0]
    assert NearbyFindings().shares(box, ["mass"], None) == [0.5]


def test_findings_of_which_nothing_is_known_do_not_count() -> None:
    given = {"effusion": "positive", "mass": "negative", "nodule": "uncertain"}
    assert known_findings(given) == {"pleural effusion": True, "mass": False}

from __future__ import annotations

import numpy as np
import pytest

from rightlung.core import Box, Grounding, InputError, ScoredBox
from rightlung.measuring import BoxSettings, tune_boxes
from rightlung.measuring.box_settings import BoxExample, processed
from rightlung.predictions import Batch, Prediction

LEFT, NEAR, RIGHT = Box(0.5, 0.2, 0.9, 0.6), Box(0.5, 0.2, 0.8, 0.6), Box(0.1, 0.2, 0.3, 0.4)
BOXES = [
    ScoredBox(NEAR, 0.4, "nodule"), ScoredBox(LEFT, 0.8, "nodule"), ScoredBox(RIGHT, 0.2, "nodule"),
    ScoredBox(RIGHT, 0.7, "mass"),
]  # fmt: skip


def test_nms_leaves_out_boxes_that_overlap_a_better_one_of_their_class() -> None:
    # IoU of LEFT and NEAR: 0.12 / 0.16 = 0.75.
    assert BoxSettings(nms=0.5).apply(BOXES) == [BOXES[1], BOXES[2], BOXES[3]]
    assert BoxSettings(nms=0.76).apply(BOXES) == [BOXES[1], BOXES[0], BOXES[2], BOXES[3]]
    assert BoxSettings().apply(BOXES) == [BOXES[1], BOXES[0], BOXES[2], BOXES[3]]


def test_merging_covers_all_boxes_of_a_class_with_the_highest_score() -> None:
    covering = ScoredBox(Box(0.1, 0.2, 0.9, 0.6), 0.8, "nodule")
    assert BoxSettings(merge=True).apply(BOXES) == [covering, BOXES[3]]
    assert BoxSettings(merge=True).apply([]) == []


def test_each_class_has_its_own_scale_under_any_of_its_names() -> None:
    settings = BoxSettings(scale={"pleural effusion": 2.0})
    found = settings.apply([ScoredBox(RIGHT, 0.5, "Effusion"), ScoredBox(RIGHT, 0.5, "mass")])
    assert np.allclose(found[0].box.as_tuple(), (0.0, 0.1, 0.4, 0.5))
    assert found[1].box == RIGHT


@pytest.mark.parametrize("text", ["nms=2", "nms=x", "nms", "soft", "merge=1"])
def test_a_wrong_setting_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="must be merge, none, or nms=IOU"):
        BoxSettings.parse(text)


def test_settings_are_read_from_text() -> None:
    read = [BoxSettings.parse(text) for text in ("merge", "none", "nms=0.25")]
    assert read == [BoxSettings(merge=True), BoxSettings(), BoxSettings(nms=0.25)]


def examples(label: str, factor: float, count: int, patient: str) -> list[BoxExample]:
    """Boxes whose targets are the predictions scaled by a factor, and images without the finding."""
    made = []
    for number in range(count):
        box = Box(0.4, 0.3 + 0.01 * number, 0.6, 0.5 + 0.01 * number)
        made.append(BoxExample(patient, label, [ScoredBox(box, 0.9, label or None)], [box.scaled(factor)]))
        made.append(BoxExample(patient, label, [ScoredBox(box, 0.1, label or None)], []))
    return made


def test_tuning_finds_the_scale_of_each_class() -> None:
    # At the true scale a box matches at all IoU thresholds up to 0.7; so do neighbours, of which the nearest to 1 wins.
    some = [*examples("mass", 2.0, 3, "a"), *examples("nodule", 1.0, 3, "a")]
    (found,) = tune_boxes(some, np.ones((1, len(some)), bool), BoxSettings(merge=True))
    assert found.merge
    assert found.nms is None
    assert found.scale["nodule"] == 1.0
    assert found.scale["mass"] == 1.7  # 1.7² / 2² = 0.7225 is the first IoU above 0.7


def test_the_scale_of_a_fold_comes_from_the_other_folds() -> None:
    some = [*examples("mass", 2.0, 3, "a"), *examples("mass", 0.8, 3, "b")]
    used = np.array([[one.patient != "a" for one in some], [one.patient != "b" for one in some]])
    of_a, of_b = tune_boxes(some, used, BoxSettings(nms=0.25))
    assert of_b.scale["mass"] == 1.7
    assert of_a.scale["mass"] == 0.9  # 0.8² / 0.9² = 0.79


def test_phrases_share_one_scale() -> None:
    some = [*examples("", 2.0, 3, "a"), *examples("", 2.0, 2, "b")]
    (found,) = tune_boxes(some, np.ones((1, len(some)), bool), BoxSettings(nms=0.25))
    assert found.scale == {"": 1.7}


def test_nms_is_tuned_unless_it_is_given() -> None:
    # A second box beside each hit, IoU 0.3, ranks above the hits of other images: only a low threshold removes it.
    targets = [Box(0.1 * n, 0.1, 0.1 * n + 0.2, 0.5) for n in range(1, 5)]
    shifted = [Box(box.x0 + 0.2 * 0.5385, box.y0, box.x1 + 0.2 * 0.5385, box.y1) for box in targets]
    assert targets[0].iou(shifted[0]) == pytest.approx(0.3, abs=1e-3)
    some = [
        BoxExample(f"p{n}", "mass", [ScoredBox(hit, 0.9 - n / 10, "mass"), ScoredBox(miss, 0.55, "mass")], [hit])
        for n, (hit, miss) in enumerate(zip(targets, shifted, strict=True))
    ]
    (found,) = tune_boxes(some, np.ones((1, len(some)), bool))
    assert found.nms == 0.25
    (kept,) = tune_boxes(some, np.ones((1, len(some)), bool), BoxSettings(nms=0.5))
    assert kept.nms == 0.5


def test_predictions_are_processed_with_the_settings_of_their_study() -> None:
    rows = [Prediction(study, "image", grounding=Grounding(boxes=BOXES)) for study in ("a", "b")]
    of = {"a": BoxSettings(merge=True), "b": BoxSettings(nms=0.5)}
    first, second = (row for batch in processed([Batch.of(rows)], of.__getitem__) for row in batch.predictions())
    assert first.grounding is not None
    assert second.grounding is not None
    assert [len(one.grounding.boxes) for one in (first, second) if one.grounding] == [2, 3]

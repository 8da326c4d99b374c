"""Scores of boxes against faster-coco-eval, pycocotools, painted pixels and hand calculations."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rightlung.core import Box, InputError
from rightlung.core.box import union_iou
from rightlung.scoring.detection import (
    IOU_THRESHOLDS,
    Detections,
    SortedDetections,
    match,
    mean_iou,
    pooled_iou,
    score,
    union_overlaps,
)

pytest.importorskip("faster_coco_eval")

LEFT, RIGHT, TOP = Box(0.5, 0, 1, 1), Box(0, 0, 0.5, 1), Box(0, 0, 1, 0.5)
CLASSES = 3


def drawn_boxes(generator: np.random.Generator, count: int) -> list[Box]:
    corners, sizes = generator.random((count, 2)) * 0.5, generator.random((count, 2)) * 0.4 + 0.05
    return [Box(*low, *(low + size)) for low, size in zip(corners, sizes, strict=True)]


def drawn_detections(images: int, seed: int = 0) -> list[Detections]:
    """Return the detections of each image and class in turn: targets, the same a little moved, and false ones."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(images * CLASSES):
        targets = drawn_boxes(generator, int(generator.integers(0, 4)))
        moved = [np.clip(np.array(box.as_tuple()) + generator.normal(0, 0.03, 4), 0, 1) for box in targets]
        boxes = [*filter(None, (Box.clipped(*one) for one in moved)), *drawn_boxes(generator, 2)]
        found.append(Detections(boxes, generator.random(len(boxes)).tolist(), targets))
    return found


def coco_precision(module: str, detections: list[Detections], drawn: list[int]) -> Any:
    """Return the precisions (thresholds, recalls, classes) by a COCO evaluation of images, drawn repeatedly."""
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image, original in enumerate(drawn, start=1):
        for kind in range(CLASSES):
            one = detections[original * CLASSES + kind]
            place = {"image_id": image, "category_id": kind + 1}
            for box in one.targets:
                corners = [box.x0, box.y0, box.width, box.height]
                annotations.append(
                    place | {"bbox": corners, "area": box.area, "iscrowd": 0, "id": len(annotations) + 1}
                )
            for box, value in zip(one.boxes, one.scores, strict=True):
                results.append(place | {"bbox": [box.x0, box.y0, box.width, box.height], "score": value})
    content = {
        "images": [{"id": image, "width": 1, "height": 1} for image in range(1, len(drawn) + 1)],
        "annotations": annotations,
        "categories": [{"id": kind + 1, "name": str(kind)} for kind in range(CLASSES)],
        "info": {},
    }
    if module == "pycocotools":
        truth = importlib.import_module("pycocotools.coco").COCO()
        truth.dataset = content
        truth.createIndex()
        evaluation = importlib.import_module("pycocotools.cocoeval").COCOeval(truth, truth.loadRes(results), "bbox")
    else:
        fast = importlib.import_module("faster_coco_eval")
        truth = fast.COCO(content)
        evaluation = fast.COCOeval_faster(truth, truth.loadRes(results), "bbox")
    evaluation.params.iouThrs = np.array(IOU_THRESHOLDS)
    evaluation.evaluate()
    evaluation.accumulate()
    return evaluation.eval["precision"][:, :, :, 0, -1]


@pytest.mark.parametrize("module", ["faster_coco_eval", "pycocotools"])
def test_average_precision_is_cocos_also_for_images_drawn_repeatedly(module: str) -> None:
    pytest.importorskip(module)
    detections, images = drawn_detections(12), 12
    expected = coco_precision(module, detections, list(range(images)))
    found = score(detections, list(range(CLASSES)) * images)
    np.testing.assert_allclose(found.average_precision, expected.mean(axis=1).T, atol=1e-12)
    assert found.map == pytest.approx(expected.mean())
    assert found.by_threshold == pytest.approx(expected.mean(axis=(1, 2)))

    drawn = np.random.default_rng(3).integers(0, images, images).tolist()
    counts = np.bincount(drawn, minlength=images).astype(float)
    again = coco_precision(module, detections, drawn)
    matched = match(detections)
    for kind in range(CLASSES):
        own = detections[kind::CLASSES]
        targets = np.array([len(one.targets) for one in own], float)
        some = SortedDetections([one.scores for one in own], matched[kind::CLASSES], targets)
        of_kind = some.average_precision(np.stack([np.ones(images), counts]))
        np.testing.assert_allclose(of_kind[1], again[:, :, kind].mean(axis=1), atol=1e-12)


def test_average_precision_by_hand() -> None:
    """A hit after a miss has precision 1/2; of two targets, one found first reaches recall 1/2: 51 of 101 points."""
    after_a_miss, half = Detections([RIGHT, LEFT], [0.9, 0.6], [LEFT]), Detections([LEFT], [0.2], [LEFT, RIGHT])
    found = score([after_a_miss, half, Detections([], [], [LEFT]), Detections([LEFT], [0.5], [])], list("abcd"))
    assert found.average_precision[:, 0] == pytest.approx([1 / 2, 51 / 101, 0.0, np.nan], nan_ok=True)
    assert found.map == pytest.approx((1 / 2 + 51 / 101) / 3)
    # IoU of the left half and the upper half is 1/3.
    assert score([Detections([LEFT], [0.2], [TOP])], ["a"]).average_precision[0].tolist() == [1, 1, 1, 0, 0, 0, 0]
    # The second box on a target that is taken is a miss.
    assert [one.tolist() for one in match([Detections([LEFT, LEFT], [0.3, 0.4], [LEFT])], [0.5])] == [[[False], [True]]]


def test_union_overlaps_are_those_of_finely_painted_masks() -> None:
    side, generator = 1000, np.random.default_rng(5)
    one = Detections(drawn_boxes(generator, 5), [0.05, 0.15, 0.25, 0.45, 0.9], drawn_boxes(generator, 3))

    def painted(boxes: list[Box]) -> Any:
        pixels = np.zeros((side, side), bool)
        for box in boxes:
            pixels[box.pixel_slices((side, side))] = True
        return pixels

    intersections, unions = union_overlaps([one])
    for place, count in enumerate((4, 3, 2, 2, 1)):
        answer, target = painted(list(one.boxes)[-count:]), painted(list(one.targets))
        assert intersections[0, place] == pytest.approx((answer & target).mean(), abs=3e-3)
        assert unions[0, place] == pytest.approx((answer | target).mean(), abs=3e-3)
    assert union_iou(one.boxes[1:], one.targets) == intersections[0, 0] / unions[0, 0]


def test_both_definitions_of_miou_by_hand() -> None:
    """One small target is found, of a large one the left half; from 0.3 on, nothing is left of the second answer."""
    small = Box(0, 0, 0.1, 1)
    areas = union_overlaps([Detections([small], [0.5], [small]), Detections([LEFT], [0.25], [Box(0, 0, 1, 1)])])
    once = np.ones((1, 2))
    assert mean_iou(*areas, once) == pytest.approx((2 * 0.75 + 3 * 0.5) / 5)
    assert pooled_iou(*areas, once) == pytest.approx((2 * 0.6 / 1.1 + 3 * 0.1 / 1.1) / 5)
    resampled = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert mean_iou(*areas, resampled) == pytest.approx([1.0, 2 * 0.5 / 5, np.nan], nan_ok=True)


def test_bad_detections_are_named() -> None:
    with pytest.raises(InputError, match="2 boxes have 1 scores"):
        Detections([LEFT, RIGHT], [0.1], [])
    with pytest.raises(InputError, match="finite"):
        Detections([LEFT], [float("nan")], [])
    with pytest.raises(InputError, match="1 instances have 2 classes"):
        score([Detections([], [], [])], ["a", "b"])


def test_measuring_imports_neither_faster_coco_eval_nor_pycocoevalcap() -> None:
    code = "import sys, rightlung.measuring; print(sorted({'faster_coco_eval', 'pycocoevalcap'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

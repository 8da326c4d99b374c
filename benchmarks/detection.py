"""How long 250 bootstrap resamples of sentence grounding take: from cached statistics, and by painting masks again.

    python benchmarks/detection.py [--images 169] [--resamples 250] [--side 1024]

Boxes are random; a patient has one image or a few. "Painting" computes mIoU as supplement D.4 of the ChEX paper words
it: for each resample, sentence and threshold, boxes are merged into a mask, which is compared with the mask of the
targets. It is timed for 5 resamples and scaled. Both ways must give the same mIoU up to the width of a pixel.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from rightlung.core import Box, Mask
from rightlung.scoring.detection import (
    SCORE_THRESHOLDS,
    Detections,
    SortedDetections,
    match,
    mean_iou,
    pooled_iou,
    score,
    union_overlaps,
)
from rightlung.scoring.statistics import bootstrap, bootstrap_by_counts

PAINTED = 5
CLASSES = 8


def sentences(images: int, generator: np.random.Generator) -> tuple[list[Detections], list[int], list[int]]:
    """Return the boxes of one to three sentences of each image, with the sentences' patients and classes."""

    def box() -> Box:
        low, size = generator.random(2) * 0.5, generator.random(2) * 0.4 + 0.05
        return Box(*low, *(low + size))

    found, patients, classes = [], [], []
    patient = 0
    for _ in range(images):
        patient += int(generator.random() < 0.7)
        for _ in range(int(generator.integers(1, 4))):
            targets = [box() for _ in range(int(generator.integers(1, 3)))]
            boxes = [*(one.scaled(0.8) for one in targets), box()]
            found.append(Detections(boxes, generator.random(len(boxes)).tolist(), targets))
            patients.append(patient)
            classes.append(int(generator.integers(CLASSES)))
    return found, patients, classes


def painted_miou(detections: list[Detections], side: int) -> float:
    """Return mIoU from masks of ``side`` × ``side`` pixels."""
    ious = np.zeros((len(detections), len(SCORE_THRESHOLDS)))
    for row, one in zip(ious, detections, strict=True):
        target = Mask.from_boxes(one.targets, (side, side)).pixels
        for place, threshold in enumerate(SCORE_THRESHOLDS):
            chosen = [box for box, value in zip(one.boxes, one.scores, strict=True) if value >= threshold]
            answer = Mask.from_boxes(chosen, (side, side)).pixels
            row[place] = (answer & target).sum() / (answer | target).sum()
    return float(ious.mean())


def main() -> None:
    """Run and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=169)
    parser.add_argument("--resamples", type=int, default=250)
    parser.add_argument("--side", type=int, default=1024)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    detections, patients, classes = sentences(options.images, generator)
    instances = len(detections)
    print(f"{instances} sentences of {options.images} images, {options.resamples} resamples of patients, seconds")

    start = time.perf_counter()
    areas, matched = union_overlaps(detections), match(detections)
    by_sentence = score(detections, range(instances)).average_precision.mean(axis=1)
    print(f"  statistics, once              {time.perf_counter() - start:8.2f}")
    start = time.perf_counter()
    drawn = {"clusters": patients, "resamples": options.resamples}
    exact = bootstrap_by_counts(lambda counts: mean_iou(*areas, counts), instances, **drawn)
    bootstrap_by_counts(lambda counts: pooled_iou(*areas, counts), instances, **drawn)
    bootstrap(by_sentence, **drawn)
    print(f"  both mIoU and sentence mAP    {time.perf_counter() - start:8.2f}")

    start = time.perf_counter()
    kinds = []
    for kind in range(CLASSES):
        places = [place for place, one in enumerate(classes) if one == kind]
        targets = np.array([len(detections[place].targets) for place in places], np.float64)
        scores, own = [detections[place].scores for place in places], [matched[place] for place in places]
        kinds.append((places, SortedDetections(scores, own, targets)))
    bootstrap_by_counts(
        lambda counts: np.mean([one.average_precision(counts[:, at]).mean(axis=1) for at, one in kinds], axis=0),
        instances,
        **drawn,
    )
    print(f"  mAP over {CLASSES} classes            {time.perf_counter() - start:8.2f}")

    owners = np.array(patients)
    start = time.perf_counter()
    for _ in range(PAINTED):
        chosen = generator.choice(np.unique(owners), len(np.unique(owners)))
        painted_miou([detections[at] for one in chosen for at in np.flatnonzero(owners == one)], options.side)
    seconds = (time.perf_counter() - start) / PAINTED * options.resamples
    minutes = f"({seconds / 60:.1f} minutes, scaled from {PAINTED} resamples)"
    print(f"  mIoU, painted on {options.side}²       {seconds:8.0f}  {minutes}")
    painted = painted_miou(detections, options.side)
    print(f"  mIoU {exact.estimate:.4f} [{exact.low:.4f}, {exact.high:.4f}], painted {painted:.4f}")


if __name__ == "__main__":
    main()

"""Measure the anatomy model: outlines and boxes on phantoms, hearts and findings on real films, mirrored copies.

    python benchmarks/anatomy.py anatomy --nih 'manifest:/data/nih.tar?split=boxes'

Baselines never look at the image: the mean box of a region over 400 training phantoms, and for real hearts also the
mean of the boxes of other patients. Intervals (95 %) resample patients. ``--sheet`` draws outlines.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung import load, open_source
from rightlung.core import Box, Mask, Study
from rightlung.core.plotting import paint
from rightlung.lexicon import IMAGENOME_REGIONS, STRUCTURES, canonical_finding, mirror_region
from rightlung.models.anatomy.finding import LEAST_CONFIDENCE
from rightlung.models.anatomy.model import AnatomyModel, AnatomyReading
from rightlung.pages.overlays import make_sheet
from rightlung.phantom.structures import structure_masks
from rightlung.phantom.twins import PhantomTwins
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator

TRAINING, HELD_OUT = "phantom?count=400&seed=21", "phantom?count=400&seed=31"
HEART = "cardiac silhouette"
INSIDE = (
    "atelectasis",
    "lung opacity",
    "infiltration",
    "mass",
    "nodule",
    "pneumonia",
    "pneumothorax",
    "pleural effusion",
)
"""Boxed findings that lie in a lung."""


def stated(values: Sequence[float] | NDArray[np.float64], patients: Sequence[object]) -> str:
    """Return a mean with its interval over patients."""
    found = Estimator(list(patients), BootstrapSettings(1000)).mean(np.asarray(values, dtype=np.float64))
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def mean_boxes(studies: Iterable[Study]) -> dict[str, Box]:
    """Return the mean box of each region."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for study in studies:
        for name, box in study.regions.items():
            rows.setdefault(name, []).append(box.as_tuple())
    return {name: Box(*np.mean(of_region, axis=0).tolist()) for name, of_region in rows.items()}


def iou_or_nothing(reading: AnatomyReading, name: str, truth: Box) -> float:
    """Return the IoU of a region's box, 0 if the model has none."""
    return reading.regions[name].box.iou(truth) if name in reading.regions else 0.0


def on_phantoms(model: AnatomyModel) -> None:
    """Print IoU of masks and boxes by name, beside the mean box of the training phantoms."""
    blind = mean_boxes(open_source(TRAINING))
    masks: dict[str, list[float]] = {name: [] for name in STRUCTURES}
    boxes: dict[str, list[tuple[float, float, float]]] = {name: [] for name in IMAGENOME_REGIONS}
    patients = []
    for study in open_source(HELD_OUT):
        (reading,) = model.read([study.image])
        assert isinstance(study.twins, PhantomTwins)
        truths = structure_masks([study.twins.scene], study.image.shape[0])[0].numpy()
        patients.append(study.patient)
        for name, truth in zip(STRUCTURES, truths, strict=True):
            masks[name].append(reading.structures[name].iou(Mask(truth)) if truth.any() else np.nan)
        for name, box in study.regions.items():
            score = reading.regions[name].score if name in reading.regions else 0.0
            there = box.width > 0.01 and box.height > 0.01  # a region outside the image has a box of 0.001
            overlaps = (iou_or_nothing(reading, name, box), blind[name].iou(box), score)
            boxes[name].append(overlaps if there else (np.nan, np.nan, np.nan))
    print(f"\n{HELD_OUT}\n\n| structure | IoU of the mask |\n| --- | --- |")
    for name, values in masks.items():
        print(f"| {name} | {stated(values, patients)} |")
    print("\n| region | IoU of the box | mean box, blind | mean confidence |\n| --- | --- | --- | ---: |")
    table = {name: np.array(rows) for name, rows in boxes.items()}
    everything = np.nanmean(np.stack(list(table.values())), axis=0)
    for name, rows in [*table.items(), ("all 29, mean", everything)]:
        cells = [stated(rows[:, column], patients) for column in (0, 1)]
        print(f"| {name} | {' | '.join(cells)} | {np.nanmean(rows[:, 2]):.2f} |")
    pairs = np.concatenate(list(table.values()))
    pairs = pairs[~np.isnan(pairs[:, 0])]
    print(
        f"\nConfidence and IoU of {len(pairs):,} boxes: correlation {np.corrcoef(pairs[:, 0], pairs[:, 2])[0, 1]:.2f}"
    )


def across(box: Box) -> Box:
    """Return a box from the top to the bottom of the image: only its sides count."""
    return Box(box.x0, 0.0, box.x1, 1.0)


def on_hearts(studies: Sequence[Study], readings: Sequence[AnatomyReading], blind: Box) -> None:
    """Print how the heart fits the boxes of cardiomegaly, beside two hearts that never look at the image."""
    pairs = [
        (study.patient, reading, box)
        for study, reading in zip(studies, readings, strict=True)
        for phrase in study.phrases
        for box in phrase.boxes
        if "cardiomegaly" in map(canonical_finding, phrase.findings)
    ]
    rows = []
    for patient, reading, box in pairs:
        others = [other.as_tuple() for owner, _, other in pairs if owner != patient]
        own = reading.regions[HEART].box if HEART in reading.regions else blind
        guesses = (own, blind, Box(*np.mean(others, axis=0).tolist()))
        rows.append([one.iou(box) for one in guesses] + [across(one).iou(across(box)) for one in guesses])
    table, patients = np.array(rows), [patient for patient, *_ in pairs]
    print(f"heart region and the {len(table)} boxes of cardiomegaly\n")
    print("| IoU | model | mean phantom heart, blind | mean box of other patients, blind | model less the latter |")
    print("| --- | --- | --- | --- | --- |")
    for name, first in (("of the boxes", 0), ("of their horizontal extents", 3)):
        cells = [stated(table[:, first + column], patients) for column in range(3)]
        print(f"| {name} | {' | '.join(cells)} | {stated(table[:, first] - table[:, first + 2], patients)} |")
    corners = np.array([[one.as_tuple() for one in (reading.regions[HEART].box, box)] for _, reading, box in pairs
                        if HEART in reading.regions])  # fmt: skip
    for name, values in (("left", corners[..., 0]), ("top", corners[..., 1]), ("right", corners[..., 2]),
                         ("bottom", corners[..., 3]), ("width", corners[..., 2] - corners[..., 0])):  # fmt: skip
        correlation, bias = np.corrcoef(values.T)[0, 1], (values[:, 0] - values[:, 1]).mean()
        print(f"{name}: correlation of model and radiologist {correlation:.2f}, mean difference {bias:+.3f}")


def on_findings(studies: Sequence[Study], readings: Sequence[AnatomyReading], sides: Sequence[Box]) -> None:
    """Print how many boxed findings of the lungs have their centre in a lung."""

    def holds(boxes: Iterable[Box], x: float, y: float) -> float:
        return float(any(one.x0 <= x <= one.x1 and one.y0 <= y <= one.y1 for one in boxes))

    found: dict[str, list[tuple[float, ...]]] = {}
    patients: dict[str, list[object]] = {}
    for study, reading in zip(studies, readings, strict=True):
        lungs = reading.structures["right lung"].union(reading.structures["left lung"])
        around = [reading.regions[name].box for name in ("right lung", "left lung") if name in reading.regions]
        for phrase in study.phrases:
            for name in {canonical_finding(name) for name in phrase.findings} & set(INSIDE):
                for box in phrase.boxes:
                    x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
                    inside = float(lungs.pixels[int(y * lungs.size[0]), int(x * lungs.size[1])])
                    found.setdefault(name, []).append((inside, holds(around, x, y), holds(sides, x, y), lungs.area))
                    patients.setdefault(name, []).append(study.patient)
    print(
        "\n| boxed finding | boxes | centre in a lung's outline | in its box | in a mean lung's, blind | lungs' area |"
    )
    print("| --- | ---: | --- | --- | --- | ---: |")
    found["all"], patients["all"] = [*chain(*found.values())], [*chain(*patients.values())]
    for name, values in found.items():
        own = np.array(values)
        cells = [stated(own[:, column], patients[name]) for column in range(3)]
        print(f"| {name} | {len(own)} | {' | '.join(cells)} | {own[:, 3].mean():.2f} |")


def mirrored(model: AnatomyModel, address: str, count: int) -> None:
    """Print how far regions of mirrored copies are from the mirrored regions."""
    worst, overlaps = 0.0, []
    source = open_source(address)
    for position in random.Random(0).sample(range(len(source)), min(count, len(source))):
        image = source[position].image
        one, other = model.read([image, np.ascontiguousarray(image[:, ::-1])])
        for name, found in one.regions.items():
            box = found.box
            turned = Box(1 - box.x1, box.y0, 1 - box.x0, box.y1)
            if mirror_region(name) in other.regions:
                theirs = other.regions[mirror_region(name)].box
                worst = max(worst, *(abs(a - b) for a, b in zip(theirs.as_tuple(), turned.as_tuple(), strict=True)))
        overlaps.append(one.structures["right lung"].mirrored().iou(other.structures["left lung"]))
    print(f"\n{address}, mirrored copies: corners differ by {worst:.1e} at most; IoU of lungs {np.mean(overlaps):.4f}")


def sheet(model: AnatomyModel, address: str, count: int, out: Path) -> None:
    """Draw outlines of evenly spaced studies on one sheet; it shows images of the source."""
    source = open_source(address)
    pictures = []
    for position in range(0, len(source), max(1, len(source) // count))[:count]:
        image = source[position].image
        shown = [
            mask for name, mask in model.structures([image])[0].items() if "zone" not in name and "clav" not in name
        ]
        pictures.append(paint(image, masks=shown, side=220))
    make_sheet(pictures, 10).save(out)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--nih", help="source with radiologists' boxes")
    parser.add_argument("--real", action="store_true", help="leave out the phantoms")
    parser.add_argument("--sheet", nargs=2, metavar=("SOURCE", "PNG"))
    parser.add_argument("--count", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = load(args.model)
    if args.sheet:
        sheet(model, args.sheet[0], args.count, Path(args.sheet[1]))
        return
    print(f"regions below a confidence of {LEAST_CONFIDENCE} are left out of sources; here all of them count")
    if not args.real:
        on_phantoms(model)
        mirrored(model, HELD_OUT, 40)
    if args.nih:
        studies = [study for study in open_source(args.nih) if any(phrase.boxes for phrase in study.phrases)]
        readings, means = model.read([study.image for study in studies]), mean_boxes(open_source(TRAINING))
        print(f"\n{args.nih}: ", end="")
        on_hearts(studies, readings, means[HEART])
        on_findings(studies, readings, [means["right lung"], means["left lung"]])
        mirrored(model, args.nih, 40)


if __name__ == "__main__":
    main()

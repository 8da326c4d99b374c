"""Synthetic studies: scene, image, report and ground truth combined into a `Study`.

A study depends only on configuration, seed, index, size and planted faults, not on the other studies made with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, FrozenMapping, Image, Mask, Phrase, Polarity, Study
from rightlung.core.files import plain
from rightlung.core.gaze import gaze_map
from rightlung.lexicon.prompts import prompt
from rightlung.phantom.config import FINDING_ORDER, Part, PhantomConfig, check_picture_size
from rightlung.phantom.faults import Fault, paint, plant_tube, planted, report_donor, strikes, wrong_targets
from rightlung.phantom.gaze import scan_path
from rightlung.phantom.graph import finding_locations, lesion_regions, region_findings, scene_graph
from rightlung.phantom.image.marks import mark_boxes
from rightlung.phantom.render import Rendering, render
from rightlung.phantom.report import Statement, assemble_report, write_report
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Scene
from rightlung.phantom.truth import chexpert_labels, study_findings
from rightlung.phantom.twins import PhantomTwins

PATIENT_PATTERN: tuple[int, ...] = (1, 2, 1, 3, 1)
"""Numbers of consecutive studies per patient, repeated: five patients have eight studies."""

_FIRST_STUDIES = tuple(accumulate(PATIENT_PATTERN[:-1], initial=0))

CHRONIC_FINDINGS = frozenset({"calcified granuloma", "pleural thickening", "hiatal hernia", "scoliosis"})
CHRONIC_DEVICES = frozenset({"pacemaker", "sternal wires"})
"""Findings and devices that a patient has in all studies or in none, like the body."""

SPECK = 0.02  # an isolated part below this share of a lesion is an artefact of drawing
MASKS_IN_EXTRA = ("anatomy_masks", "lesion_masks")
"""The keys of ``extra`` that hold `Mask` values; all others are plain values for JSON."""

_PIXELS_AT_ONCE = 32 * 256 * 256


def _packed(pixels: NDArray[np.bool_]) -> Mask:
    """Return a mask stored with one bit per pixel until it is used: a study has many, and few are used."""
    return Mask.deferred(partial(_unpacked, np.packbits(pixels), pixels.shape))


def _unpacked(bits: NDArray[np.uint8], shape: tuple[int, int]) -> Mask:
    return Mask(np.unpackbits(bits, count=shape[0] * shape[1]).reshape(shape).astype(np.bool_))


def study_id(seed: int, index: int, part: Part) -> str:
    """Return a study's id.

    >>> study_id(7, 123, "all"), study_id(7, 123, "train")
    ('phantom-7-000123', 'phantom-7-train-000123')
    """
    return f"phantom-{seed}-{index:06d}" if part == "all" else f"phantom-{seed}-{part}-{index:06d}"


def patient_of(index: int) -> tuple[int, int]:
    """Return the patient's number and the index of the patient's first study.

    >>> [patient_of(index)[0] for index in range(9)]
    [0, 1, 1, 2, 3, 3, 3, 4, 5]
    """
    block, place = divmod(index, sum(PATIENT_PATTERN))
    number = bisect_right(_FIRST_STUDIES, place) - 1
    return block * len(PATIENT_PATTERN) + number, index - place + _FIRST_STUDIES[number]


def study_scene(config: PhantomConfig, seed: int, index: int) -> Scene:
    """Return the scene of a study: sampled by itself, but with the patient's body and chronic findings."""
    scene = sample_scene(config, seed, index)
    _, first = patient_of(index)
    if first == index:
        return scene
    patient = sample_scene(config, seed, first)
    lesions = [lesion for lesion in scene.lesions if lesion.finding not in CHRONIC_FINDINGS]
    lesions += [lesion for lesion in patient.lesions if lesion.finding in CHRONIC_FINDINGS]
    devices = [device for device in scene.devices if device.kind not in CHRONIC_DEVICES]
    devices += [device for device in patient.devices if device.kind in CHRONIC_DEVICES]
    lesions.sort(key=lambda lesion: FINDING_ORDER.index(lesion.finding))
    return replace(scene, body=patient.body, lesions=tuple(lesions), devices=tuple(devices))


def make_studies(
    config: PhantomConfig,
    seed: int,
    indices: Iterable[int],
    size: int = 256,
    faults: Sequence[Fault] = (),
    source: str = "",
) -> list[Study]:
    """Return the studies of these indices, in this order."""
    return list(iterate_studies(config, seed, indices, size, faults, source))


def iterate_studies(
    config: PhantomConfig,
    seed: int,
    indices: Iterable[int],
    size: int = 256,
    faults: Sequence[Fault] = (),
    source: str = "",
) -> Iterator[Study]:
    """Yield the studies of these indices, rendered in batches."""
    check_picture_size(size)
    remaining = iter(indices)
    while wanted := list(islice(remaining, max(1, _PIXELS_AT_ONCE // (size * size)))):
        donors = {index: report_donor(index, seed, faults) for index in wanted}
        needed = list(dict.fromkeys([*wanted, *(donor for donor in donors.values() if donor is not None)]))
        scenes = [plant_tube(study_scene(config, seed, index), faults) for index in needed]
        rendering = render(scenes, size)
        made = {
            scene.index: _made(scene, write_report(scene, config, seed), rendering, place)
            for place, scene in enumerate(scenes)
        }
        for index in wanted:
            donor = donors[index]
            yield _study(made[index], made[index if donor is None else donor], config, faults, source)


def scene_study(
    scene: Scene, rendering: Rendering, place: int, config: PhantomConfig, faults: Sequence[Fault], source: str,
    statements: list[Statement] | None = None,
) -> Study:  # fmt: skip
    """Return the study of any scene, at a place of a rendering, with the scene's own report or the given one."""
    told = write_report(scene, config, scene.seed) if statements is None else statements
    made = _made(scene, told, rendering, place)
    return _study(made, made, config, faults, source)


@dataclass(frozen=True)
class _Made:
    """The parts of one index, before reports are exchanged. Masks are ``(lesions or devices, size, size)``."""

    scene: Scene
    image: Image
    statements: list[Statement]
    lungs: NDArray[np.bool_]
    heart: NDArray[np.bool_]
    lesion_masks: NDArray[np.bool_]
    device_masks: NDArray[np.bool_]
    tips: list[list[float]]
    regions: dict[str, Box]

    @cached_property
    def reached(self) -> list[set[str]]:
        """The regions of each lesion."""
        pairs = zip(self.scene.lesions, self.lesion_masks, strict=True)
        return [lesion_regions(lesion, mask, self.regions) for lesion, mask in pairs]


def _made(scene: Scene, statements: list[Statement], rendering: Rendering, place: int) -> _Made:
    boxes = {
        name: Box(*(round(value, 5) for value in box.as_tuple())) for name, box in rendering.region_boxes(place).items()
    }
    return _Made(
        scene=scene,
        image=rendering.images[place].cpu().numpy().copy(),
        statements=statements,
        lungs=rendering.lungs[place].cpu().numpy(),
        heart=rendering.heart[place].cpu().numpy(),
        lesion_masks=_without_specks(rendering.lesion_masks[place].cpu().numpy()),
        device_masks=rendering.device_masks[place].cpu().numpy(),
        tips=[[round(value, 5) for value in tip] for tip in rendering.device_tips[place].tolist()],
        regions=boxes,
    )


def _study(own: _Made, told: _Made, config: PhantomConfig, faults: Sequence[Fault], source: str) -> Study:
    """Return the study with its own image and labels, and the words and targets of the report that it has."""
    scene = own.scene
    lost = any(fault.name == "wrong-boxes" and strikes(fault, scene.seed, scene.index) for fault in faults)
    phrases = tuple(_phrases(told, (scene.seed, scene.index) if lost else None))
    looked = scan_path(scene, own.regions, own.lesion_masks, own.tips)
    path = [fixation for fixation, _ in looked]
    number, _ = patient_of(scene.index)
    return Study(
        id=study_id(scene.seed, scene.index, scene.part),
        load=partial(np.asarray, paint(own.image, scene, faults)),
        patient=f"phantom-{scene.seed}-p{number:06d}",
        view=scene.exposure.view,
        age=float(scene.body.age),
        sex=scene.body.sex,
        report=assemble_report(told.statements, [phrase.boxes for phrase in phrases]),
        phrases=phrases,
        regions=FrozenMapping(own.regions),
        findings=study_findings(scene),
        gaze=gaze_map(path),
        source=source,
        extra=FrozenMapping(
            {
                "seed": scene.seed,
                "index": scene.index,
                "scene": _facts(own),
                "marks": mark_boxes(scene, own.image.shape[0]),
                "scene_graph": scene_graph(scene, own.regions, own.reached),
                "chexpert": dict(chexpert_labels(scene)),
                "fixations": [list(fixation) for fixation in path],
                "fixation_subjects": [subject for _, subject in looked],
                "faults": planted(scene, faults, study_id(scene.seed, told.scene.index, scene.part)),
                "anatomy_masks": {
                    "right lung": _packed(own.lungs[0]),
                    "left lung": _packed(own.lungs[1]),
                    "cardiac silhouette": _packed(own.heart),
                },
                "lesion_masks": tuple(_packed(mask) for mask in own.lesion_masks),
            }
        ),
        region_findings=region_findings(scene, own.reached),
        located_findings=() if lost else tuple(_located_findings(own)),
        twins=PhantomTwins(scene, config, own.image.shape[0], tuple(faults), source),
    )


@dataclass(frozen=True)
class RenderedTruth:
    """What a rendering shows of one scene, as in its `Study`: boxes by finding, and the regions of each lesion.

    ``outlines`` are the boxes around each lesion, then around each device; None for what is not in the image.
    """

    boxes: dict[str, list[Box]]
    lesion_regions: list[set[str]]
    outlines: list[Box | None]


def rendered_truth(scene: Scene, rendering: Rendering, place: int) -> RenderedTruth:
    """Return the truth of the scene at a place of a rendering, which should be on the CPU."""
    made = _made(scene, [], rendering, place)
    boxes: dict[str, list[Box]] = {}
    for number, lesion in enumerate(scene.lesions):
        boxes.setdefault(lesion.finding, []).extend(_lesion_boxes(made, number))
    for box in _bounding_boxes(made.device_masks):
        boxes.setdefault("support devices", []).append(box)
    outlines = [Mask(mask).box() for mask in (*made.lesion_masks, *made.device_masks)]
    return RenderedTruth(boxes, made.reached, outlines)


def _located_findings(made: _Made) -> Iterator[Phrase]:
    """Yield a prompt for each finding with all its lesions, reported or not, and one for the devices."""
    groups: dict[str, list[tuple[NDArray[np.bool_], list[Box]]]] = {}
    for number, lesion in enumerate(made.scene.lesions):
        groups.setdefault(lesion.finding, []).append((made.lesion_masks[number], _lesion_boxes(made, number)))
    for mask in made.device_masks:
        groups.setdefault("support devices", []).append((mask, _bounding_boxes([mask])))
    for finding, parts in groups.items():
        boxes = tuple(box for _, own in parts for box in own)
        mask = np.logical_or.reduce([mask for mask, _ in parts])
        if boxes:
            yield Phrase(prompt(finding), boxes, _packed(mask), findings={finding: Polarity.POSITIVE})


def _phrases(told: _Made, lost: tuple[int, int] | None) -> Iterator[Phrase]:
    """Yield a phrase per sentence; ``lost`` is seed and index of a study whose true targets are replaced."""
    masks: dict[tuple[tuple[int, ...], tuple[int, ...]], Mask | None] = {}
    for statement in told.statements:
        key = statement.lesions, statement.devices
        boxes = _boxes(told, statement)
        if lost is not None and boxes:
            names = [f"lesion {number}" for number in statement.lesions] + [f"device {n}" for n in statement.devices]
            boxes, pixels = wrong_targets(*lost, names, told.image.shape[0])
            masks.setdefault(key, _packed(pixels))
        elif key not in masks:
            parts = [told.lesion_masks[number] for number in statement.lesions]
            parts += [told.device_masks[number] for number in statement.devices]
            masks[key] = _packed(np.logical_or.reduce(parts)) if boxes else None
        locations = finding_locations(told.scene, statement, told.reached)
        yield Phrase(statement.text, boxes, masks[key], statement.regions, statement.findings, locations, coded=True)


def _boxes(made: _Made, statement: Statement) -> tuple[Box, ...]:
    """Return a box per lesion and device of a sentence, and one per lung for bilateral lesions."""
    lesions = [box for number in statement.lesions for box in _lesion_boxes(made, number)]
    return (*lesions, *_bounding_boxes(made.device_masks[number] for number in statement.devices))


def _lesion_boxes(made: _Made, number: int) -> list[Box]:
    mask = made.lesion_masks[number]
    # A single box around both lungs would mostly contain the heart.
    parts = [mask & lung for lung in made.lungs] if made.scene.lesions[number].side == "both" else [mask]
    return _bounding_boxes(parts) or _bounding_boxes([mask])


def _bounding_boxes(masks: Iterable[NDArray[np.bool_]]) -> list[Box]:
    return [box for mask in masks if (box := Mask(mask).box()) is not None]


def _without_specks(masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return lesion masks ``(lesions, h, w)`` without parts below 2 % of the lesion, which would enlarge its box."""
    from scipy.ndimage import label

    kept = masks.copy()
    for whole in kept:
        rows, columns = whole.any(1).nonzero()[0], whole.any(0).nonzero()[0]
        if not len(rows):
            continue
        mask = whole[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]  # much less to look at
        parts, count = label(mask, structure=np.ones((3, 3)))
        if count > 1:
            areas = np.bincount(parts.ravel())
            areas[0] = 0
            mask[(areas < SPECK * areas.sum())[parts]] = False
    return kept


def _facts(made: _Made) -> dict[str, Any]:
    """Return the scene as plain values, with the positions of lesions and device tips."""
    facts = plain(asdict(made.scene))
    for number, lesion in enumerate(facts["lesions"]):
        lesion["boxes"] = [list(box.as_tuple()) for box in _lesion_boxes(made, number)]
    for device, tip in zip(facts["devices"], made.tips, strict=True):
        device["tip_at"] = tip if all(np.isfinite(tip)) else None
    return {name: facts[name] for name in ("body", "exposure", "lesions", "devices", "prior")}

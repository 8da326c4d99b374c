"""Paint scenes into films: the phantom draws their findings in the film's anatomy, the film shows them.

The heart, the mediastinum and the domes are moved by deforming the film; everything else is attenuation that is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from rightlung.core import Image
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.painting.chest import Chest, build_thorax
from rightlung.painting.film import Effect, Film, apply, develop, levels_of, vessels_of
from rightlung.painting.warp import deformed, displacements
from rightlung.phantom.image import lesions, maps, physics, tissue
from rightlung.phantom.image.anatomy import Thorax
from rightlung.phantom.image.columns import table
from rightlung.phantom.image.composite import PLEURA, Overlay, draw_lesions
from rightlung.phantom.image.devices import draw_devices, lay_devices
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.maps import LUNG_DENSITY, AnatomyMaps, enlarge, smooth_step
from rightlung.phantom.image.randomness import SmoothNoise, draw_noise, low_bits, seeds_of
from rightlung.phantom.image.regions import region_boxes
from rightlung.phantom.image.strokes import draw_windows, windows
from rightlung.phantom.prepare import Prepared, SceneBatch
from rightlung.phantom.render import Rendering
from rightlung.phantom.scene import Scene
from rightlung.phantom.twins import LEAST_CHANGE

NOISE_STREAM = 71
_WAVES = ((8, 0.2), (30, 0.09))  # cells across the square, and centimetres: how borders waver
SHAPES = ("cardiomegaly", "hiatal hernia")
"""Findings whose outline is that of an organ."""
_PAIRS = [wave for wave in _WAVES for _ in range(2)]
_LUCENT = 0.14  # further share of the air that a pneumothorax adds
_FAINT = 0.4  # of the severity of a phantom's nodule
_LINE = 0.75  # of a pixel: the thinnest line that is drawn
_RIM = 0.5  # centimetres beyond the outline of a lung that are filled with it
_LEAST_SHIFT = 0.02  # centimetres


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A film and what to paint into it. With ``strength`` 0 all is done and nothing is seen."""

    image: Image
    chest: Chest
    scene: Scene
    strength: float = 1.0


def paint(jobs: Sequence[Job]) -> list[Rendering]:
    """Return the painted films with their masks, one `Rendering` each; films of one size are drawn together."""
    by_side: dict[int, list[int]] = {}
    for place, job in enumerate(jobs):
        by_side.setdefault(job.chest.side, []).append(place)
    done: dict[int, Rendering] = {}
    for places in by_side.values():
        done.update(zip(places, _paint([jobs[place] for place in places]), strict=True))
    return [done[place] for place in range(len(jobs))]


@torch.no_grad()
def _paint(jobs: Sequence[Job]) -> list[Rendering]:
    side = jobs[0].chest.side
    scenes = [job.scene for job in jobs]
    thorax, own = build_thorax([job.chest for job in jobs], scenes)
    frame = Frame.of([scene.exposure for scene in scenes])
    batch, own_batch = _batch(thorax, frame, side), _batch(own, frame, side, drawn=False)
    coarse, film_maps = (maps.build(one.studies, one.outlines, side // 2) for one in (batch, own_batch))
    lungs = enlarge(coarse.lungs.flatten(0, 1), side).view(len(jobs), 2, side, side)
    outline = lungs.amax(1)
    clouds = draw_noise(wanted) if (wanted := batch.placed.clouds(side // 2, side)) else []
    pleura = (_LINE * batch.studies["pixel"]).clamp_min(PLEURA)
    overlay = draw_lesions(batch.placed, batch.studies, coarse, outline, clouds, pleura)
    depth = draw_windows(batch.strokes, len(batch.chains), side, torch.device("cpu"))
    metal, devices = draw_devices(depth, batch.chains, batch.density, len(jobs), len(batch.tips))
    overlay = _roughened(overlay, batch, scenes)
    effects = _effects(jobs, batch, own_batch, coarse, outline, overlay, metal)
    before = (enlarge(film_maps.lungs.amax(1), side), enlarge(film_maps.heart, side))
    full = physics.WATER * (1 - LUNG_DENSITY) * enlarge(film_maps.depth, side)
    regions = region_boxes(thorax, frame, np.array([[0.0, 0.0, 1.0, 1.0]] * len(jobs)))
    lesion_masks, device_masks = torch.split(overlay.masks, batch.lesion_counts), torch.split(devices, batch.devices)
    tips = torch.split(batch.tips, batch.devices)
    heart = (enlarge(coarse.heart, side) > 0) & (outline <= 0)
    shifts = displacements(own, thorax, coarse)
    painted = []
    for row, job in enumerate(jobs):
        image, exposed = job.image, torch.ones((side, side), dtype=torch.bool)
        if job.scene.lesions or job.scene.devices:
            pixel = 1.0 / (job.chest.scale * side)
            film = develop(_square(image, side), before[0][row], before[1][row], full[row], pixel, levels_of(image))
            image, exposed = _blended(job, film, effects[row], shifts[row] / pixel, pixel), film.exposed
        cut = (slice(0, job.image.shape[0]), slice(0, job.image.shape[1]))
        painted.append(
            Rendering(
                images=torch.from_numpy(np.array(image))[None],
                lungs=((lungs[row] > 0) & exposed)[:, *cut][None],
                heart=(heart[row] & exposed)[cut][None],
                lesion_masks=[(lesion_masks[row] & exposed)[:, *cut]],
                device_masks=[(device_masks[row] & exposed)[:, *cut]],
                device_tips=[job.chest.in_film(tips[row])],
                regions=torch.from_numpy(job.chest.regions(regions[row]))[None],
            )
        )
    return painted


def _blended(job: Job, film: Film, effect: Effect, shift: Tensor, pixel: float) -> Image:
    """Return the film with an effect, deformed by ``shift`` pixels."""
    log, vessels = film.log, film.log
    if float((effect.markings - 1).abs().amax()) > 0.01:
        vessels = vessels_of(film, pixel)
    if float(shift.abs().amax()) * pixel * job.strength > _LEAST_SHIFT:
        log, vessels = deformed(torch.stack([log, vessels]), shift * job.strength)
    image = apply(film, effect, log, vessels)[: job.image.shape[0], : job.image.shape[1]]
    return _finished(image.numpy(), job.image, film.levels)


def _batch(thorax: Thorax, frame: Frame, side: int, drawn: bool = True) -> SceneBatch:
    """Return what drawing findings and devices needs, without the phantom's own bones, vessels and airways."""
    count = len(thorax)
    columns = {**maps.columns(thorax, frame, side), **tissue.columns(thorax)}
    scenes = [_drawn(scene) if drawn else replace(scene, lesions=(), devices=()) for scene in thorax.scenes]
    shown = replace(thorax, scenes=tuple(scenes))
    wires, chains, density, tips = lay_devices(shown, frame, side)
    prepared = Prepared(
        size=side, names=tuple(columns), columns=table(columns, count), outlines=maps.outlines(thorax),
        seeds=tissue.seeds(thorax), field=np.tile(np.array([[0, 0, side, side]], np.int32), (count, 1)),
        regions=np.zeros((count, len(IMAGENOME_REGIONS), 4), dtype=np.float32), ink=np.zeros((0, 1), dtype=np.int32),
        strokes={}, wires=windows(wires, side) if wires is not None else {}, chains=chains, density=density,
        tips=tips.astype(np.float32), devices=[len(scene.devices) for scene in shown.scenes],
        lesions=lesions.prepare(shown, {}),
    )  # fmt: skip
    # Without anatomy there are no other planes than those of the devices' chains, see `SceneBatch.of`.
    batch = SceneBatch.of([prepared], torch.device("cpu"))
    return replace(batch, strokes={key: torch.from_numpy(rows) for key, rows in prepared.wires.items()})


def _drawn(scene: Scene) -> Scene:
    """Return the scene as it is drawn: a nodule is no denser than a ball of soft tissue of its size."""
    return replace(scene, lesions=tuple(
        replace(lesion, severity=_FAINT * lesion.severity) if lesion.finding == "nodule" else lesion
        for lesion in scene.lesions
    ))  # fmt: skip


def _roughened(overlay: Overlay, batch: SceneBatch, scenes: Sequence[Scene]) -> Overlay:
    """Return the findings with borders that waver by a millimetre or two: no real nodule is a perfect ball."""
    side, studies, count = batch.size, batch.studies, len(batch.studies)
    waves = [SmoothNoise(batch.seeds[:, place], cells, 1, cells + 1) for cells, _ in _WAVES for place in range(2)]
    fields = [interpolate(waver[:, None], (side // 2,) * 2, mode="bicubic")[:, 0] for waver in draw_noise(waves)]
    noise = [waver * (reach / studies["pixel"]) for waver, (_, reach) in zip(fields, _PAIRS, strict=True)]
    shift = torch.stack([noise[0] + noise[2], noise[1] + noise[3]], dim=1)  # pixels
    planes = torch.stack([overlay.keep, overlay.water, overlay.bone, overlay.markings], dim=1)
    masks = torch.split(overlay.masks, batch.lesion_counts)
    moved = [deformed(torch.cat([planes[row], masks[row].float()]), shift[row], "bilinear") for row in range(count)]
    keep, water, bone, markings = torch.stack([one[:4] for one in moved]).unbind(1)
    changed = torch.cat([one[4:] for one in moved]) > 0.5
    own = [lesion.finding in SHAPES for scene in scenes for lesion in scene.lesions]
    changed[own] = overlay.masks[own]
    return Overlay(changed, keep, water, bone, markings)


def _effects(
    jobs: Sequence[Job], batch: SceneBatch, own: SceneBatch, coarse: AnatomyMaps, outline: Tensor, overlay: Overlay,
    metal: Tensor,
) -> list[Effect]:  # fmt: skip
    """Return what is to be seen on each film."""
    studies, side = batch.studies, batch.size
    softness = enlarge(maps.border_softness(coarse), side)
    coverage = (outline / (studies["pixel"] + softness) + 0.5).clamp_(0, 1)
    air = physics.WATER * (1 - LUNG_DENSITY) * coverage * enlarge(coarse.depth, side)
    filled = 1 - overlay.keep * (1 - studies["density"]) / (1 - LUNG_DENSITY) - _LUCENT * _free_air(jobs, overlay)
    # Fluid also takes the place of the air behind heart and domes, so that their borders disappear in it.
    behind = tissue.hidden_air(own.studies, coarse) - tissue.hidden_air(studies, coarse)
    # The top of a lung is the least certain part of its outline: nothing is painted above it.
    within = enlarge(smooth_step(coarse.y - studies["apex"], -0.3, 0.7), side)
    filled = filled * within * (outline / _RIM + 1).clamp_(0, 1)
    water = physics.WATER * (overlay.water * within + (1 - coverage) * enlarge(behind, side))
    bone = physics.BONE * (overlay.bone + metal)
    calibre = studies["calibre"] * overlay.markings
    markings = torch.where(outline > 0, calibre, torch.ones_like(calibre))
    effects = []
    for row, job in enumerate(jobs):
        share = job.strength
        seed = int(low_bits(seeds_of([job.scene.exposure.seed], NOISE_STREAM))[0])
        effects.append(Effect(air[row], share * filled[row], share * water[row], share * bone[row],
                              1 + share * (markings[row] - 1), seed))  # fmt: skip
    return effects


def _free_air(jobs: Sequence[Job], overlay: Overlay) -> Tensor:
    """Return 1 where there is a pneumothorax (n, side, side): there the film still has the lung's own tissue."""
    masks = torch.split(overlay.masks, [len(job.scene.lesions) for job in jobs])
    air = [own[[one.finding == "pneumothorax" for one in job.scene.lesions]].any(0)
           for job, own in zip(jobs, masks, strict=True)]  # fmt: skip
    return torch.stack(air).float()


def _square(image: Image, side: int) -> Tensor:
    height, width = image.shape
    return pad(torch.from_numpy(np.array(image)), (0, side - width, 0, side - height))


def _finished(image: Image, film: Image, levels: int) -> Image:
    """Return the painted image in the film's grey levels; pixels that hardly change keep the film's value."""
    stepped = np.round(image * np.float32(levels)) / np.float32(levels)
    return np.where(np.abs(image - film) >= LEAST_CHANGE, stepped, film).astype(np.float32)

"""Painted studies: a film, its scene, and everything that is known about them; and their twins.

Only what is painted is known to be present. Absent is what the film is known to lack and what its source paints in
other studies; everything else is unknown, so that nothing can be learned from a film's being real.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress

import numpy as np
import torch

from rightlung.core import FrozenMapping, Image, InputError, Polarity, Study
from rightlung.core.keyed import key_number, key_uniform
from rightlung.lexicon.findings import broader_findings, canonical_finding
from rightlung.lexicon.labels import label_set
from rightlung.painting.chest import Chest
from rightlung.painting.render import SHAPES, Job, paint
from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.render import Rendering
from rightlung.phantom.report import Statement, write_report
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import scene_study
from rightlung.phantom.truth import present_findings
from rightlung.phantom.twins import LEAST_CHANGE, changeable_findings, changed_scene

NOT_PAINTED = ("enlarged cardiomediastinum", "low lung volumes", "rib fracture", "scoliosis")
"""Findings of the phantom that are the shape of its mediastinum or skeleton, or of its breath."""
NO_FINDING, DEVICES = "no finding", "support devices"
NORMAL_LABELS = "nih-14"
"""The label set whose labels a film with the label "no finding" lacks."""
_LEAST_VISIBLE = 6  # pixels
_LEAST_TRACE = 1.5 / 255  # mean change of the grey values where a lesion is


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a source paints: findings and their frequencies, and the shares of the controls."""

    config: PhantomConfig
    seed: int
    untouched: float  # share of the films that are returned as they are
    control: float  # share that is painted with zero strength
    absent: str | None  # the label set that every film lacks
    source: str

    @property
    def painted(self) -> frozenset[str]:
        """The findings that are painted in some studies, with all that they imply."""
        kinds = [name for name, share in self.config.prevalence.items() if share > 0]
        return frozenset(name for kind in kinds for name in (kind, *broader_findings(kind)))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One painted study before it is painted."""

    recipe: Recipe
    film: Study
    chest: Chest
    copy: int
    role: str  # painted, control or untouched
    scene: Scene


def painting_config(config: PhantomConfig, findings: Sequence[str] = ()) -> PhantomConfig:
    """Return a phantom's configuration for painting: at least one finding a study, in the phantom's proportions.

    With ``findings``, those findings and devices only.
    """
    wanted = set(findings) or {*config.prevalence, *config.devices}
    wanted -= set(NOT_PAINTED)
    rate = 1.0 / max(1.0 - config.normal, 1e-3)
    prevalence = {name: min(share * rate, 1.0) * (name in wanted) for name, share in config.prevalence.items()}
    devices = {name: share * (name in wanted) for name, share in config.devices.items()}
    normal = 0.0 if any(prevalence.values()) else 1.0
    if normal:  # devices alone
        total = max(sum(devices.values()), 1e-9)
        devices = {name: share / total for name, share in devices.items()}
    # The apex of a lung is the least certain part of its outline, and a cap on it would lie outside the chest.
    rinds = {name: 0.0 if "apical" in name else share for name, share in config.regions["pleural thickening"].items()}
    regions = {**config.regions, **({"pleural thickening": rinds} if any(rinds.values()) else {})}
    return replace(
        config, normal=normal, prevalence=FrozenMapping(prevalence), devices=FrozenMapping(devices), prior=0.0,
        regions=FrozenMapping(regions),
    )  # fmt: skip


def plan(recipe: Recipe, film: Study, chest: Chest, copy: int) -> Plan:
    """Return what becomes of a film: it depends on the recipe, the film's id and the number of the copy."""
    key = (recipe.seed, copy, film.id)
    draw = key_uniform("role", *key)
    role = "untouched" if draw < recipe.untouched else "painted"
    role = "control" if recipe.untouched <= draw < recipe.untouched + recipe.control else role
    index = key_number("scene", *key) >> 11
    scene = sample_scene(recipe.config, recipe.seed, index)
    body = chest.body(scene.body, film.sex, film.age)
    exposure = chest.exposure(film.view, scene.exposure.seed)
    return Plan(recipe, film, chest, copy, role, replace(scene, body=body, exposure=exposure))


def make_studies(plans: Sequence[Plan]) -> list[Study]:
    """Return painted studies, drawn together; each depends on its own plan only."""
    scenes = [one.scene if one.role == "painted" else _bare(one.scene) for one in plans]
    renderings = paint([Job(one.film.image, one.chest, scene) for one, scene in zip(plans, scenes, strict=True)])
    for place, one in enumerate(plans):
        if one.role == "untouched":
            continue
        if one.role == "control":
            (blended,) = paint([Job(one.film.image, one.chest, one.scene, strength=0.0)])
            renderings[place] = replace(renderings[place], images=blended.images)
            continue
        seen = visible_scene(scenes[place], renderings[place], one.film.image)
        if seen != scenes[place]:
            scenes[place] = seen
            (renderings[place],) = paint([Job(one.film.image, one.chest, seen)])
    return [_study(*parts) for parts in zip(plans, scenes, renderings, strict=True)]


def _bare(scene: Scene) -> Scene:
    return replace(scene, lesions=(), devices=())


def visible_scene(scene: Scene, rendering: Rendering, film: Image) -> Scene:
    """Return the scene without the lesions and devices that lie outside the film or leave no trace on it."""
    change = (rendering.images[0] - torch.tensor(film)).abs()
    masks = rendering.lesion_masks[0], rendering.device_masks[0]
    sizes, device_sizes = (part.flatten(1).sum(1) for part in masks)
    traces = (masks[0] * change).flatten(1).sum(1) / sizes.clamp_min(1)
    shaped = torch.tensor([lesion.finding in SHAPES for lesion in scene.lesions], dtype=torch.bool)
    seen = (sizes >= _LEAST_VISIBLE) & ((traces >= _LEAST_TRACE) | shaped)
    return replace(
        scene,
        lesions=tuple(compress(scene.lesions, seen.tolist())),
        devices=tuple(compress(scene.devices, (device_sizes >= _LEAST_VISIBLE).tolist())),
    )


def _study(one: Plan, scene: Scene, rendering: Rendering) -> Study:
    """Return the study of a plan: its scene has lost what lies outside the film."""
    film, recipe = one.film, one.recipe
    absent = absent_findings(film, recipe)
    present = present_findings(scene) - {NO_FINDING}
    statements = [told for told in write_report(scene, recipe.config, recipe.seed) if _is_known(told, present, absent)]
    made = scene_study(scene, rendering, 0, recipe.config, (), recipe.source, statements)
    findings = dict.fromkeys(sorted(present), Polarity.POSITIVE)
    findings |= dict.fromkeys(sorted(absent - present), Polarity.NEGATIVE)
    regions = {
        region: {name: kind for name, kind in known.items() if kind is Polarity.POSITIVE or name in absent}
        for region, known in made.region_findings.items()
    }
    facts = made.extra["scene"]
    extra = {
        "painted": {"film": film.id, "seed": recipe.seed, "copy": one.copy, "role": one.role},
        "scene": {"lesions": facts["lesions"], "devices": facts["devices"]},
        "lesion_masks": made.extra["lesion_masks"],
    }
    return replace(
        made, id=f"{film.id}-painted-{recipe.seed}-{one.copy}", patient=film.patient, exam=film.exam, view=film.view,
        split=film.split, age=film.age, sex=film.sex, report=made.report if statements else None, gaze=None,
        findings=FrozenMapping(findings | ({NO_FINDING: Polarity.NEGATIVE} if scene.lesions else {})),
        region_findings=FrozenMapping(regions), extra=FrozenMapping(extra),
        twins=PaintedTwins(replace(one, scene=scene)),
    )  # fmt: skip


def absent_findings(film: Study, recipe: Recipe) -> frozenset[str]:
    """Return what a film is known to lack, of what its source paints."""
    stated = {canonical_finding(name): kind for name, kind in film.findings.items()}
    lacking = {name for name, kind in stated.items() if kind is Polarity.NEGATIVE}
    normal = NORMAL_LABELS if stated.get(NO_FINDING) is Polarity.POSITIVE else None
    for name in (recipe.absent, normal):
        lacking |= set(label_set(name).findings.values()) if name is not None else set()
    return recipe.painted & lacking - {NO_FINDING}


def _is_known(statement: Statement, present: frozenset[str], absent: frozenset[str]) -> bool:
    """Whether a sentence denies nothing but what the film is known to lack.

    "No acute process" names no finding and hints at many.
    """
    denied = {name for name, kind in statement.findings.items() if kind is Polarity.NEGATIVE}
    vague = statement.topics if not statement.findings else frozenset()
    return NO_FINDING not in statement.findings and denied <= absent and vague <= present | absent


@dataclass(frozen=True, eq=False)
class PaintedTwins:
    """The twins of a painted study (`rightlung.core.study.Twins`): the same film with another scene."""

    plan: Plan

    def findings(self, change: str) -> tuple[str, ...]:
        """Return the findings that can be changed so, without painting anything."""
        one = self.plan
        if one.role != "painted" or change in ("signed", "unsigned"):
            return ()
        return changeable_findings(one.scene, one.recipe.config, change)

    def make(self, study: Study, change: str, finding: str) -> Study:
        """Paint the twin of ``study``; ``extra["twin"]`` says what was changed, and in what share of the pixels."""
        one = self.plan
        try:
            if one.role != "painted":
                raise InputError("nothing is painted in it")
            scene = changed_scene(one.scene, one.recipe.config, change, finding)
            job = Job(one.film.image, one.chest, scene)
            changed, own = paint([job, replace(job, scene=one.scene)])
            seen = {lesion.finding for lesion in visible_scene(scene, changed, one.film.image).lesions}
            if change != "removed" and finding not in seen:
                raise InputError("it would lie outside the image or leave no trace on it")
        except InputError as error:
            raise InputError(f"study {study.id!r}: there is no twin with {finding} {change}: {error}") from None
        image, before = changed.images[0].numpy(), own.images[0].numpy()
        influence = np.abs(image - before) >= LEAST_CHANGE
        twin = {"of": study.id, "change": change, "finding": finding, "influence": float(influence.mean())}
        made = _study(one, scene, changed)
        shown = np.where(influence, image, before)
        return replace(
            made, id=f"{study.id} with {finding} {change}", load=partial(np.asarray, shown), twins=None,
            extra=FrozenMapping({**made.extra, "twin": twin}),
        )  # fmt: skip

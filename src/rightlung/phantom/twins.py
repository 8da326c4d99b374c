"""Exact twins: the same synthetic patient with one finding removed, moved to the other lung, or made worse.

Body, exposure, noise, devices, planted shortcuts and all other lesions stay. The twin has its own masks and report.
Pixels that would change by less than half a grey level of an 8-bit image (scattered radiation reaches far) keep the
original's value, so that everything outside the finding's influence is equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rightlung.core import FrozenMapping, InputError, Study
from rightlung.core.errors import check_known
from rightlung.lexicon import REGIONS
from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.faults import Fault, paint, painted_signs
from rightlung.phantom.render import render
from rightlung.phantom.sampling import ALVEOLAR_EDEMA, LARGE_EFFUSION
from rightlung.phantom.scene import Lesion, Scene

CHANGES = ("removed", "moved", "worse")
LEAST_CHANGE = 0.5 / 255
"""Smaller differences of grey values are not drawn."""
SIGN_CHANGES = {"unsigned": False, "signed": True}
"""Changes of a planted sign instead of a finding, with whether the sign then appears."""
WORSE, LEAST_WORSE = 0.4, 0.2
"""How much the severity rises (up to 1), and how much it must rise to count as worse."""
_LARGER = 1.5
_ORDINARY_BREATH, _SHALLOW, _SHALLOWER = (
    0.72,
    0.42,
    0.4,
)  # inspiration without and with low lung volumes, see `sampling`


def changed_scene(scene: Scene, config: PhantomConfig, change: str, finding: str) -> Scene:
    """Return the scene with all lesions of a finding changed; the error says why that is impossible."""
    check_known("change of a twin:", change, CHANGES)
    own = [lesion for lesion in scene.lesions if lesion.finding == finding]
    others = [lesion for lesion in scene.lesions if lesion.finding != finding]
    if not own:
        raise InputError(f"the patient has no {finding}")
    if change == "removed":
        changed: list[Lesion | None] = [None for _ in own]
    elif change == "moved":
        if len({lesion.side for lesion in own}) > 1 or own[0].side not in ("left", "right"):
            raise InputError(f"the {finding} is not in one lung only")
        changed = [_moved(lesion) for lesion in own]
    else:
        changed = [_worse(lesion, config, others) for lesion in own]
    after = dict(zip(own, changed, strict=True))
    lesions = tuple(one for lesion in scene.lesions if (one := after.get(lesion, lesion)) is not None)
    exposure = scene.exposure
    if finding == "low lung volumes" and change != "moved":  # the finding is the shallow breath
        severity = next((lesion.severity for lesion in lesions if lesion.finding == finding), None)
        breath = _ORDINARY_BREATH if severity is None else _SHALLOW - _SHALLOWER * severity
        exposure = replace(exposure, inspiration=breath)
    return replace(scene, lesions=lesions, exposure=exposure)


def changeable_findings(scene: Scene, config: PhantomConfig, change: str) -> tuple[str, ...]:
    """Return the findings of a scene that `changed_scene` can change so."""
    found = []
    for finding in dict.fromkeys(lesion.finding for lesion in scene.lesions):
        try:
            changed_scene(scene, config, change, finding)
        except InputError:
            continue
        found.append(finding)
    return tuple(found)


def _moved(lesion: Lesion) -> Lesion:
    """Return the lesion at the same place of the other lung."""
    if lesion.form == "lobar" and lesion.region == "right mid lung zone":
        raise InputError("a collapsed middle lobe cannot move: the left lung has none")
    return replace(lesion, side="left" if lesion.side == "right" else "right", region=REGIONS[lesion.region].mirror)


def _worse(lesion: Lesion, config: PhantomConfig, others: Sequence[Lesion]) -> Lesion:
    """Return a more severe and larger lesion, in the form and place that the sampler gives it."""
    severity = min(lesion.severity + WORSE, 1.0)
    beside = ("pneumothorax", lesion.side) in {(other.finding, other.side) for other in others}
    if lesion.finding == "pleural effusion" and beside:
        raise InputError("an effusion beside a pneumothorax stays small")
    if severity - lesion.severity < LEAST_WORSE:
        raise InputError(f"the {lesion.finding} is already severe")
    size = min(round(_LARGER * lesion.size, 2), config.sizes.get(lesion.finding, (0.0, lesion.size))[1])
    worse = replace(lesion, severity=severity, size=max(size, lesion.size))
    if lesion.finding == "pleural effusion" and severity >= LARGE_EFFUSION:
        return replace(worse, region=f"{lesion.side} lower lung zone", place=(0.6, 0.8))
    if lesion.finding == "edema" and severity >= ALVEOLAR_EDEMA:
        return replace(worse, form="alveolar")
    return worse


@dataclass(frozen=True)
class PhantomTwins:
    """The twins of one study (`rightlung.core.study.Twins`); ``scene`` is the study's own."""

    scene: Scene
    config: PhantomConfig
    size: int
    faults: tuple[Fault, ...]
    source: str

    def findings(self, change: str) -> tuple[str, ...]:
        """Return the findings (or signs) that can be changed so, without rendering anything."""
        if change in SIGN_CHANGES:
            signs = painted_signs(self.scene, self.faults)
            return tuple(name for name, shown in signs.items() if shown != SIGN_CHANGES[change])
        return changeable_findings(self.scene, self.config, change)

    def make(self, study: Study, change: str, finding: str) -> Study:
        """Render the twin of ``study``; ``extra["twin"]`` says what was changed, and in what share of the pixels."""
        if change in SIGN_CHANGES:
            return self._with_sign(study, change, finding)
        from rightlung.phantom.study import scene_study  # which attaches the twins to its studies

        try:
            scene = changed_scene(self.scene, self.config, change, finding)
        except InputError as error:
            raise InputError(f"study {study.id!r}: there is no twin with {finding} {change}: {error}") from None
        rendering = render([scene, self.scene], self.size)
        made = scene_study(scene, rendering, 0, self.config, self.faults, self.source)
        image, own = rendering.images.cpu().numpy()
        influence = np.abs(image - own) >= LEAST_CHANGE
        shown = paint(np.where(influence, image, own), self.scene, self.faults)
        twin = {"of": study.id, "change": change, "finding": finding, "influence": float(influence.mean())}
        return replace(
            made, id=f"{study.id} with {finding} {change}", load=partial(np.asarray, shown), twins=None,
            extra=FrozenMapping({**made.extra, "faults": study.extra["faults"], "twin": twin}),
        )  # fmt: skip

    def _with_sign(self, study: Study, change: str, sign: str) -> Study:
        if sign not in self.findings(change):
            raise InputError(f"study {study.id!r}: the sign {sign} cannot be {change}")
        image = render([self.scene], self.size).images[0].cpu().numpy()
        shown = paint(image, self.scene, self.faults, {sign: SIGN_CHANGES[change]})
        return replace(study, id=f"{study.id} {change} {sign}", load=partial(np.asarray, shown), twins=None)

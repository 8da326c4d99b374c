"""The kinds of findings, and the arrays that drawing a batch of them needs; `composite` draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rightlung.phantom.image import finding, opacities, pleura
from rightlung.phantom.image.anatomy import Thorax
from rightlung.phantom.image.columns import table
from rightlung.phantom.image.finding import Drawn, Group, Own, in_forms, in_region, reaching
from rightlung.phantom.image.randomness import Floats, low_bits, seeds_of, uniforms

_NOTHING = in_forms()


@dataclass(frozen=True, slots=True)
class Kind:
    """How findings of one kind are drawn: function, additional columns, and noise (cells across, octaves)."""

    draw: Callable[[Group], Drawn]
    columns: Own = _NOTHING
    clouds: tuple[tuple[int, int], ...] = ()


COARSE: dict[str, Kind] = {
    "atelectasis": Kind(opacities.atelectasis, opacities.atelectasis_columns, ((16, 3),)),
    "cardiomegaly": Kind(pleura.heart),
    "consolidation": Kind(opacities.consolidation, opacities.ellipse(8.0, 0.3), ((12, 3), (30, 2))),
    "edema": Kind(opacities.edema, in_forms("interstitial"), ((16, 3),)),
    "emphysema": Kind(opacities.emphysema, in_region("upper"), ((9, 3),)),
    "enlarged cardiomediastinum": Kind(pleura.mediastinum, in_region("upper")),
    "hiatal hernia": Kind(pleura.hernia, reaching(5.0)),
    "low lung volumes": Kind(opacities.whole_lung),
    "lung opacity": Kind(opacities.haze, opacities.ellipse(8.0, 0.35), ((10, 3),)),
    "mass": Kind(opacities.mass, opacities.mass_columns, ((40, 2),)),
    "pleural effusion": Kind(pleura.effusion, in_forms("loculated"), ((8, 2),)),
    "pleural thickening": Kind(pleura.thickening, in_region("apical"), ((16, 2),)),
    "pneumonia": Kind(opacities.pneumonia, opacities.ellipse(8.0, 0.4), ((22, 3),)),
    "pneumothorax": Kind(pleura.pneumothorax, in_forms("tension", "apical"), ((5, 1),)),
    "scoliosis": Kind(pleura.spine),
}
FINE = {"nodule": Kind(opacities.nodule, reaching(1.6), ((60, 2),))}  # too small for the coarse grid
POINTS: dict[str, Own] = {
    "calcified granuloma": lambda lesions, _: {"reach": [max(lesion.size or 0.5, 0.3) / 2 for lesion in lesions]},
    "rib fracture": lambda lesions, _: {"reach": [0.7 + 0.35 * (lesion.size or 1.0) for lesion in lesions]},
}
_OWN: dict[str, Own] = {name: kind.columns for name, kind in (COARSE | FINE).items()} | POINTS
KINDS = tuple(_OWN)  # all kinds of findings, those on the coarse grid first
_MOST_OWN = 6  # maximum number of additional columns of a kind
TURN = {kind: turn for turn, kind in enumerate(sorted(KINDS))}
"""Findings are composited in the alphabetical order of their names."""


@dataclass(frozen=True, slots=True)
class Lesions:
    """The findings of a batch as arrays with one row per finding."""

    counts: list[int]  # of each study
    whole: NDArray[np.int32]  # (k, 4): kind, study, position among all findings study by study, seed of its noise
    common: NDArray[np.float32]  # (k, c) columns of every kind
    own: NDArray[np.float32]  # (k, 6) additional columns of the kind


@cache
def own_names(kind: str) -> tuple[str, ...]:
    """Return the names of the additional columns of a kind of finding."""
    return tuple(_OWN[kind]([], np.zeros((0, 6))))


def prepare(thorax: Thorax, breaks: Mapping[tuple[int, int], Floats]) -> Lesions:
    """Compute the arrays for drawing a batch of findings; ``breaks`` maps (study, lesion number) to rib fractures."""
    found = [(study, number, lesion) for study, scene in enumerate(thorax.scenes)
             for number, lesion in enumerate(scene.lesions)]  # fmt: skip
    counts = [len(scene.lesions) for scene in thorax.scenes]
    lesions = [lesion for _, _, lesion in found]
    seeds = seeds_of([lesion.seed for lesion in lesions], finding.LESION_STREAM)
    chance = uniforms(seeds, 6)
    kinds = np.array([KINDS.index(lesion.finding) for lesion in lesions], dtype=np.int64)
    studies = np.array([study for study, _, _ in found], dtype=np.int64)
    broken = {row: breaks[study, number] for row, (study, number, _) in enumerate(found) if (study, number) in breaks}
    own = np.zeros((len(found), _MOST_OWN), dtype=np.float32)
    for kind in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        columns = _OWN[KINDS[kind]]([lesions[row] for row in rows], chance[rows])
        own[rows, : len(columns)] = table(columns, len(rows))
    whole = np.stack([kinds, studies, np.arange(len(found)), low_bits(seeds)], axis=1).astype(np.int32)
    return Lesions(counts, whole, table(finding.columns(thorax, studies, lesions, broken), len(found)), own)

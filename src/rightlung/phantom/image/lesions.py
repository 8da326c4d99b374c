"""All findings of a batch: drawn kind by kind, then laid over one another in each study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image import opacities, pleura
from rightlung.phantom.image.anatomy import Thorax
from rightlung.phantom.image.chance import Floats
from rightlung.phantom.image.fields import Fields, column, enlarge
from rightlung.phantom.image.finding import Drawn, Group, gather, places
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.scene import Lesion

_DRAWINGS: dict[str, Callable[[Group], Drawn]] = {
    "atelectasis": opacities.atelectasis,
    "cardiomegaly": pleura.heart,
    "consolidation": opacities.consolidation,
    "edema": opacities.edema,
    "emphysema": opacities.emphysema,
    "enlarged cardiomediastinum": pleura.mediastinum,
    "hiatal hernia": pleura.hernia,
    "low lung volumes": opacities.whole_lung,
    "lung opacity": opacities.haze,
    "mass": opacities.mass,
    "nodule": opacities.nodule,
    "pleural effusion": pleura.effusion,
    "pleural thickening": pleura.thickening,
    "pneumonia": opacities.pneumonia,
    "pneumothorax": pleura.pneumothorax,
    "scoliosis": pleura.spine,
}
_FINE = ("nodule",)  # too small for the coarse grid
_POINTS = ("calcified granuloma", "fracture", "rib fracture")


@dataclass(slots=True)
class Overlay:
    """What the findings of a batch do together, at the picture's resolution ``(n, size, size)``, and their masks."""

    keep: Tensor | None  # share of the lung's air that stays
    water: Tensor | None  # centimetres of water added
    bone: Tensor | None  # centimetres of bone added
    markings: Tensor | None  # factor of the vessels
    masks: list[Tensor]  # per study (lesions, size, size) bool


def draw_lesions(
    thorax: Thorax, frame: Frame, fields: Fields, lungs: Tensor, breaks: dict[tuple[int, int], Floats], size: int
) -> Overlay:
    """Draw the findings of a batch. ``lungs (n, 2, size, size)`` are signed distances; ribs broke at ``breaks``."""
    device = fields.x.device
    count = len(thorax)
    overlay = Overlay(None, None, None, None, [])
    overlay.masks = [
        torch.zeros((len(scene.lesions), size, size), dtype=torch.bool, device=device) for scene in thorax.scenes
    ]
    kinds: dict[str, list[tuple[int, int, Lesion]]] = {}
    for study, scene in enumerate(thorax.scenes):
        for number, lesion in enumerate(scene.lesions):
            kinds.setdefault(lesion.finding, []).append((study, number, lesion))
    outline = lungs.amax(1)
    for finding in sorted(kinds):
        entries = kinds[finding]
        studies = np.array([study for study, _, _ in entries], dtype=np.int64)
        found = [lesion for _, _, lesion in entries]
        if finding in _POINTS:
            masks = _draw_points(overlay, thorax, frame, entries, breaks, outline, size)
        else:
            group = gather(thorax, fields, studies, found)
            if finding in _FINE:
                group = _at_full_size(group, frame, size)
            drawn = _DRAWINGS[finding](group)
            masks = _merge(overlay, drawn, studies, outline, count, size)
        for (study, number, _), mask in zip(entries, masks, strict=True):
            overlay.masks[study][number] = mask
    return overlay


def _at_full_size(group: Group, frame: Frame, size: int) -> Group:
    """Return the group with distances from its middle at the picture's own resolution."""
    x, y = frame.take(group.studies).grid(size, group.dx.device)
    middle = places(group.thorax, group.studies, group.lesions)
    is_left = np.array([lesion.side == "left" for lesion in group.lesions])
    own = np.where(is_left[:, None], middle[:, 1], middle[:, 0])
    inside = enlarge(group.inside, size)
    sign = column(np.where(is_left, 1.0, -1.0), x)
    dx, dy = (x - column(own[:, 0], x)) * sign, y - column(own[:, 1], x)
    return Group(group.lesions, group.studies, group.thorax, group.fields, dx, dy, inside)


def _ranks(studies: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split positions into rounds in which every study occurs at most once, so that a round can be applied at once."""
    seen: dict[int, int] = {}
    rounds: list[list[int]] = []
    for position, study in enumerate(studies.tolist()):
        turn = seen.get(study, 0)
        seen[study] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(position)
    return [np.array(entry, dtype=np.int64) for entry in rounds]


def _merge(
    overlay: Overlay, drawn: Drawn, studies: NDArray[np.int64], outline: Tensor, count: int, size: int
) -> Tensor:
    """Lay findings of one kind over their studies and return their masks ``(k, size, size)``."""

    def full(maps: Tensor) -> Tensor:
        return maps if maps.shape[-1] == size else enlarge(maps, size)

    def blank(value: float) -> Tensor:
        return torch.full((count, size, size), value, device=outline.device)

    mask = full(drawn.extent) > 0
    fill = None if drawn.fill is None else full(drawn.fill)
    water = None if drawn.water is None else full(drawn.water)
    fade = None if drawn.fade is None else full(drawn.fade)
    if drawn.gap is not None:
        # The visceral pleura is a fraction of a millimetre thick, but met edge-on over centimetres.
        line = torch.exp(-(full(drawn.gap) / 0.085).square()) * 1.7
        water = line if water is None else water + line
    chosen = outline[torch.from_numpy(studies).to(outline.device)]
    if drawn.where == "between":
        mask &= chosen <= 0
    elif drawn.where == "lung":
        mask &= chosen > 0
        if water is not None:
            water = water * (chosen / 0.14 + 0.5).clamp(0, 1)
    for positions in _ranks(studies):
        where = torch.from_numpy(studies[positions]).to(outline.device)
        rows = torch.from_numpy(positions).to(outline.device)
        if fill is not None:
            overlay.keep = blank(1.0) if overlay.keep is None else overlay.keep
            overlay.keep[where] = overlay.keep[where] * (1.0 - fill[rows])
        if water is not None:
            overlay.water = blank(0.0) if overlay.water is None else overlay.water
            overlay.water[where] = overlay.water[where] + water[rows]
        if fade is not None:
            overlay.markings = blank(1.0) if overlay.markings is None else overlay.markings
            overlay.markings[where] = torch.minimum(overlay.markings[where], (1.0 - fade[rows]).clamp_min(-0.7))
    return mask


def _draw_points(
    overlay: Overlay,
    thorax: Thorax,
    frame: Frame,
    entries: Sequence[tuple[int, int, Lesion]],
    breaks: dict[tuple[int, int], Floats],
    outline: Tensor,
    size: int,
) -> Tensor:
    """Draw what is a few pixels large: calcified granulomas, and the masks of broken ribs."""
    studies = np.array([study for study, _, _ in entries], dtype=np.int64)
    lesions = [lesion for _, _, lesion in entries]
    middle = places(thorax, studies, lesions)
    own = np.stack([middle[row, int(lesion.side == "left")] for row, lesion in enumerate(lesions)])
    for row, (study, number, _) in enumerate(entries):
        own[row] = breaks.get((study, number), own[row])
    x, y = frame.take(studies).grid(size, outline.device)
    distance = torch.hypot(x - column(own[:, 0], x), y - column(own[:, 1], x))
    if lesions[0].finding != "calcified granuloma":
        # Blood lies around a fresh break, callus around an old one; both grow with the displacement.
        worse = column([lesion.severity for lesion in lesions], x)
        blood = 1.5 * worse * torch.exp(-(distance / 1.0).square())
        callus = (worse - 0.45).clamp_min(0) * torch.exp(-((distance - 0.55) / 0.28).square())
        _add(overlay, blood, callus, studies, len(thorax))
        return distance < column([0.7 + 0.35 * (lesion.size or 1.0) for lesion in lesions], x)
    reach = column([max(lesion.size or 0.5, 0.3) / 2 for lesion in lesions], x)
    pixel = column(1.0 / (frame.scale[studies] * size), x)
    ball = (1.0 - (distance / torch.maximum(reach, pixel)).square()).clamp_min(0).sqrt()
    severity = column([lesion.severity for lesion in lesions], x)
    bone = ball * (0.6 + 1.0 * severity) * (0.8 + reach)
    _add(overlay, None, bone, studies, len(thorax))
    return ball > 0.3


def _add(overlay: Overlay, water: Tensor | None, bone: Tensor, studies: NDArray[np.int64], count: int) -> None:
    """Add what small findings ``(k, size, size)`` hold to their studies."""
    if overlay.bone is None:
        overlay.bone = bone.new_zeros((count, *bone.shape[1:]))
    if water is not None and overlay.water is None:
        overlay.water = bone.new_zeros((count, *bone.shape[1:]))
    for positions in _ranks(studies):
        where = torch.from_numpy(studies[positions]).to(bone.device)
        rows = torch.from_numpy(positions).to(bone.device)
        overlay.bone[where] = overlay.bone[where] + bone[rows]
        if water is not None and overlay.water is not None:
            overlay.water[where] = overlay.water[where] + water[rows]

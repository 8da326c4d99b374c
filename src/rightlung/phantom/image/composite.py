"""Composite all findings of a batch: draw them kind by kind, then combine those of each study.

Findings are rows sorted by kind, so that those of one kind are a slice. Steps that every kind needs are done for all
kinds at once: a device is fast at one large task and slow at many small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.columns import ColumnTensors, carry
from rightlung.phantom.image.finding import COLUMNS, Drawn, Group, around
from rightlung.phantom.image.frame import grid
from rightlung.phantom.image.lesions import COARSE, FINE, POINTS, TURN, own_names
from rightlung.phantom.image.maps import AnatomyMaps, enlarge
from rightlung.phantom.image.randomness import SmoothNoise


class Run(NamedTuple):
    """The rows ``first`` to ``last - 1`` of one kind of finding."""

    kind: str
    first: int
    last: int

    @property
    def rows(self) -> slice:
        """The rows as a slice."""
        return slice(self.first, self.last)


@dataclass(frozen=True, slots=True)
class Placed:
    """The findings of a batch on the device, ``k`` rows sorted by kind."""

    runs: list[Run]
    host_study: NDArray[np.int32]  # (k,) the study of each, in host memory for planning
    study: Tensor  # (k,) the same on the device
    row_of: Tensor  # (k,) the row of each finding, study by study
    study_of: Tensor  # (k,) the study of each finding, study by study
    seeds: Tensor  # (k,) of their noise
    common: Tensor  # (k, columns)
    own: Tensor  # (k, 6)

    def clouds(self, coarse: int, size: int) -> list[SmoothNoise]:
        """Return the noise requests of the findings, kind by kind."""
        return [
            SmoothNoise(self.seeds[run.rows], cells, octaves, coarse if run.kind in COARSE else size)
            for run in self.runs
            if run.kind not in POINTS
            for cells, octaves in (COARSE | FINE)[run.kind].clouds
        ]

    def own_of(self, run: Run) -> ColumnTensors:
        """Return the additional columns of a kind."""
        names = own_names(run.kind)
        return ColumnTensors(names, self.own[run.rows, : len(names)])

    def common_of(self, run: Run) -> ColumnTensors:
        """Return the columns of every kind."""
        return ColumnTensors(COLUMNS, self.common[run.rows])


@dataclass(frozen=True, slots=True)
class Overlay:
    """The combined effect of a batch's findings at full resolution ``(n, size, size)``, and their masks."""

    masks: Tensor  # (k, size, size) bool, study by study
    keep: Tensor  # share of the lung's air that remains
    water: Tensor  # centimetres of water added
    bone: Tensor  # centimetres of bone added
    markings: Tensor  # factor of the vessels


_EFFECTS: dict[str, tuple[float, Callable[[Tensor, Tensor], Tensor]]] = {
    "keep": (1.0, torch.mul),
    "water": (0.0, torch.add),
    "markings": (1.0, torch.minimum),
    "bone": (0.0, torch.add),
}
"""The fields of an `Overlay`: the value without findings, and how a finding changes it."""

Effects = dict[str, list[tuple[Run, Tensor]]]  # by field, the kinds that have it and their maps (rows, size, size)


PLEURA = 0.085
"""Half of the width at which a visceral pleura is drawn, in centimetres."""


def draw_lesions(
    placed: Placed,
    studies: ColumnTensors,
    anatomy: AnatomyMaps,
    lungs: Tensor,
    clouds: Sequence[Tensor],
    pleura: Tensor | None = None,
) -> Overlay:
    """Draw the findings of a batch; ``lungs (n, size, size)`` is the distance inside either lung.

    ``pleura (n, 1, 1)`` is the width at which a visceral pleura is drawn, instead of `PLEURA`.
    """
    size = lungs.shape[-1]
    outline = lungs[placed.study]
    effects: Effects = {name: [] for name in _EFFECTS}
    masks = [torch.zeros((0, size, size), dtype=torch.bool, device=lungs.device)]
    for run, drawn in _draw_coarse(placed, anatomy, iter(clouds), size):
        line = PLEURA if pleura is None else pleura[placed.study[run.rows]]
        masks.append(_merge(effects, run, drawn, outline[run.rows], line))
    masks += _draw_small(effects, placed, studies, anatomy, clouds, outline)
    return Overlay(torch.cat(masks)[placed.row_of], **_combined(effects, placed, lungs.shape))


def _draw_coarse(placed: Placed, anatomy: AnatomyMaps, clouds: Iterator[Tensor], size: int) -> list[tuple[Run, Drawn]]:
    """Draw the findings that fit on the coarse grid, and enlarge them."""
    runs = [run for run in placed.runs if run.kind in COARSE]
    if not runs:
        return []
    last = runs[-1].last
    chosen = anatomy.take(placed.study[:last])
    dx, dy, inside = around(ColumnTensors(COLUMNS, placed.common[:last]), chosen)
    drawn: list[Drawn] = []
    for run in runs:
        kind, rows = COARSE[run.kind], run.rows
        noise = tuple(islice(clouds, len(kind.clouds)))
        own, common = placed.own_of(run), placed.common_of(run)
        drawn.append(kind.draw(Group(common, own, chosen.take(rows), dx[rows], dy[rows], inside[rows], noise)))
    return list(zip(runs, _enlarged(drawn, size), strict=True))


_MAPS = ("extent", "fill", "water", "fade", "gap")


def _enlarged(drawn: Sequence[Drawn], size: int) -> list[Drawn]:
    """Enlarge all maps of all findings at once."""
    named = [(place, name, maps) for place, found in enumerate(drawn) for name in _MAPS
             if (maps := getattr(found, name)) is not None]  # fmt: skip
    large = enlarge(torch.cat([maps for _, _, maps in named]), size)
    made: list[dict[str, Tensor]] = [{} for _ in drawn]
    for (place, name, _), maps in zip(named, torch.split(large, [len(maps) for *_, maps in named]), strict=True):
        made[place][name] = maps
    return [Drawn(**maps, where=found.where) for maps, found in zip(made, drawn, strict=True)]


def _draw_small(
    effects: Effects,
    placed: Placed,
    studies: ColumnTensors,
    anatomy: AnatomyMaps,
    clouds: Sequence[Tensor],
    outline: Tensor,
) -> list[Tensor]:
    """Draw findings that need full resolution (nodules, calcified granulomas, rib fractures) and return their masks."""
    runs = [run for run in placed.runs if run.kind not in COARSE]
    if not runs:
        return []
    size, first = outline.shape[-1], runs[0].first
    frames = studies.take(placed.study[first:])
    centre = ColumnTensors(COLUMNS, placed.common[first:])
    x, y = grid(frames, size)
    dx, dy = x.sub_(centre["own_x"]), y.sub_(centre["own_y"])
    masks = []
    for run in runs:
        rows = slice(run.first - first, run.last - first)
        common, own = placed.common_of(run), placed.own_of(run)
        if run.kind in FINE:
            kind = FINE[run.kind]
            inside = enlarge(around(common, anatomy.take(placed.study[run.rows]))[2], size)
            noise = clouds[len(clouds) - len(kind.clouds) :]
            drawn = kind.draw(Group(common, own, anatomy, dx[rows] * common["outward"], dy[rows], inside, noise))
            masks.append(_merge(effects, run, drawn, outline[run.rows]))
        else:
            distance = torch.hypot(dx[rows], dy[rows])
            masks.append(_draw_points(effects, run, common["severity"], own["reach"], distance, frames["pixel"][rows]))
    return masks


def _merge(effects: Effects, run: Run, drawn: Drawn, outline: Tensor, pleura: Tensor | float = PLEURA) -> Tensor:
    """Record the effects of one kind of finding at full resolution and return their masks ``(k, size, size)``."""
    mask = drawn.extent > 0
    water = drawn.water
    if drawn.gap is not None:
        # The visceral pleura is a fraction of a millimetre thick, but tangential to the beam over centimetres.
        line = torch.exp(-(drawn.gap / pleura).square()) * 1.7
        water = line if water is None else water + line
    if drawn.where == "between":
        mask &= outline <= 0
    elif drawn.where == "lung":
        mask &= outline > 0
        if water is not None:
            water = water * (outline / 0.14 + 0.5).clamp_(0, 1)
    if drawn.fill is not None:
        effects["keep"].append((run, 1.0 - drawn.fill))
    if water is not None:
        effects["water"].append((run, water))
    if drawn.fade is not None:
        effects["markings"].append((run, (1.0 - drawn.fade).clamp_min_(-0.7)))
    return mask


def _draw_points(
    effects: Effects, run: Run, severity: Tensor, reach: Tensor, distance: Tensor, pixel: Tensor
) -> Tensor:
    """Draw findings of a few pixels: calcified granulomas, and the masks of rib fractures."""
    if run.kind != "calcified granuloma":
        # Blood surrounds a fresh fracture, callus an old one; both increase with the displacement.
        effects["water"].append((run, 1.5 * severity * torch.exp(-(distance / 1.0).square())))
        callus = (severity - 0.45).clamp_min(0) * torch.exp(-((distance - 0.55) / 0.28).square())
        effects["bone"].append((run, callus))
        return distance < reach
    ball = (1.0 - (distance / torch.maximum(reach, pixel)).square()).clamp_min(0).sqrt()
    effects["bone"].append((run, ball * (0.6 + 1.0 * severity) * (0.8 + reach)))
    return ball > 0.3


def _combined(effects: Effects, placed: Placed, shape: Sequence[int]) -> dict[str, Tensor]:
    """Return all effects on all studies, each ``(n, size, size)``."""
    device = placed.study.device
    plans = {name: _rounds([run for run, _ in found], placed.host_study) for name, found in effects.items()}
    steps = [array for plan in plans.values() for pair in plan for array in pair]
    sizes = [len(step) for step in steps]
    copied = iter(torch.split(carry(np.concatenate(steps), device), sizes) if steps else ())
    combined = {}
    for name, (start, combine) in _EFFECTS.items():
        total = torch.full(tuple(shape), start, device=device)
        maps = torch.cat([total[:0], *(maps for _, maps in effects[name])])
        for _ in plans[name]:
            where, rows = next(copied), next(copied)
            total[where] = combine(total[where], maps[rows])
        combined[name] = total
    return combined


def _rounds(runs: Sequence[Run], study: NDArray[np.int32]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the studies and rows of these kinds in rounds with each study at most once, in alphabetical order."""
    if not runs:
        return []
    whose = np.concatenate([study[run.rows] for run in runs]).astype(np.int64)
    turn = np.repeat([TURN[run.kind] for run in runs], [run.last - run.first for run in runs])
    order = np.lexsort((np.arange(len(whose)), turn, whose))
    begins = np.flatnonzero(np.diff(whose[order], prepend=-1))
    place = np.arange(len(whose)) - np.repeat(begins, np.diff(begins, append=len(whose)))
    return [(whose[order[place == step]], order[place == step]) for step in range(int(place.max()) + 1)]

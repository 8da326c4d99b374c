"""Geometry of many scenes at once, before any pixels: NumPy only, and cheap to send between processes.

`prepare` computes it, `SceneBatch.of` copies what several processes have prepared to the device at once, and
`render.paint` draws it. The result for a scene depends only on the scene and the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image import anatomy, lesions, maps, physics, skeleton, tissue, vessels
from rightlung.phantom.image.columns import ColumnTensors, table
from rightlung.phantom.image.composite import Placed, Run
from rightlung.phantom.image.devices import lay_devices
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.lesions import KINDS
from rightlung.phantom.image.marks import exposed_field, ink
from rightlung.phantom.image.regions import region_boxes
from rightlung.phantom.image.strokes import Strokes, windows
from rightlung.phantom.scene import Scene

BONES, VESSELS, AIRWAYS, LAYERS = 0, skeleton.LAYERS, skeleton.LAYERS + 3, skeleton.LAYERS + 5
"""The first layers of bones, vessels and airways among the stroke planes of an image, and the number of layers."""

Rows = dict[int, NDArray[np.int32]]  # strokes by the side of their windows, see `windows`


@dataclass(frozen=True, slots=True)
class Prepared:
    """What rendering ``n`` scenes needs, as arrays of four-byte numbers. Indices count within these scenes."""

    size: int
    names: tuple[str, ...]  # of the columns
    columns: NDArray[np.float32]  # (n, columns)
    outlines: NDArray[np.float32]  # (n, tables, places)
    seeds: NDArray[np.int32]  # (n, 4): of the clouds, then of the noise
    field: NDArray[np.int32]  # (n, 4): exposed columns and rows, ends exclusive
    regions: NDArray[np.float32]  # (n, 29, 4) boxes
    ink: NDArray[np.int32]  # (p, 1) pixels of all images under letters
    strokes: Rows  # on planes (study, layer)
    wires: Rows  # of devices, on one plane per chain
    chains: NDArray[np.int32]  # (c, 2): study and device of each chain
    density: NDArray[np.float32]  # (c,)
    tips: NDArray[np.float32]  # (devices, 2)
    devices: list[int]  # number of devices of each study
    lesions: lesions.Lesions

    def __len__(self) -> int:
        return len(self.columns)


def prepare(scenes: Sequence[Scene], size: int) -> Prepared:
    """Compute the geometry of scenes for images of ``size`` pixels."""
    thorax = anatomy.build(scenes)
    frame = Frame.of([scene.exposure for scene in scenes])
    field = exposed_field(scenes, size)
    bones, breaks = skeleton.bone_chains(thorax)
    inner = [*bones, *vessels.vessel_chains(thorax, VESSELS), *vessels.airway_chains(thorax, AIRWAYS)]
    wires, chains, density, tips = lay_devices(thorax, frame, size)
    columns = {
        **maps.columns(thorax, frame, size),
        **tissue.columns(thorax),
        **skeleton.columns(thorax),
        "airway_width": np.sqrt(thorax.width),
        **physics.columns(scenes),
    }
    owner = np.repeat(np.arange(len(scenes)), [len(scene.devices) for scene in scenes])
    limits = (field / size)[owner]
    seen = (tips >= limits[:, :2]) & (tips <= limits[:, 2:])
    tips[~seen.all(axis=1)] = np.nan
    return Prepared(
        size=size,
        names=tuple(columns),
        columns=table(columns, len(scenes)),
        outlines=maps.outlines(thorax),
        seeds=tissue.seeds(thorax),
        field=field.astype(np.int32),
        regions=region_boxes(thorax, frame, field / size).astype(np.float32),
        ink=ink(scenes, size)[:, None],
        strokes=windows(Strokes.join([frame.strokes(chain, LAYERS, size) for chain in inner]), size),
        wires=windows(wires, size) if wires is not None else {},
        chains=chains,
        density=density,
        tips=tips.astype(np.float32),
        devices=[len(scene.devices) for scene in scenes],
        lesions=lesions.prepare(thorax, breaks),
    )


@dataclass(frozen=True, slots=True)
class SceneBatch:
    """Prepared scenes on the device, ready for rendering."""

    size: int
    studies: ColumnTensors
    outlines: Tensor  # (n, tables, places)
    seeds: Tensor  # (n, 4)
    field: Tensor  # (n, 4)
    regions: Tensor  # (n, 29, 4)
    ink: Tensor  # (p,)
    strokes: dict[int, Tensor]  # of the anatomy on planes (study, layer), then of devices on one plane per chain
    chains: Tensor  # (c, 2)
    density: Tensor  # (c,)
    tips: Tensor  # (devices, 2)
    devices: list[int]
    study_of_device: Tensor  # (devices,)
    lesion_counts: list[int]
    placed: Placed

    @staticmethod
    def of(parts: Sequence[Prepared], device: torch.device) -> SceneBatch:
        """Join several prepared parts and copy them to the device at once."""
        size, count = parts[0].size, sum(map(len, parts))
        first_study = _begins(len(part) for part in parts)
        first_device = _begins(sum(part.devices) for part in parts)
        first_chain = _begins(len(part.chains) for part in parts)
        devices = [number for part in parts for number in part.devices]
        runs, cargo = _sort_lesions([part.lesions for part in parts], first_study)
        for name in ("columns", "outlines", "seeds", "field", "regions", "tips", "density"):
            cargo[name] = [getattr(part, name) for part in parts]
        cargo["ink"] = _shifted([part.ink for part in parts], 0, [first * size * size for first in first_study])
        cargo["chains"] = _shifted(_shifted([part.chains for part in parts], 0, first_study), 1, first_device)
        cargo["hosts"] = [np.repeat(np.arange(count, dtype=np.int32), devices)]
        sides = sorted({side for part in parts for side in (*part.strokes, *part.wires)})
        planes = [first * LAYERS for first in first_study] + [count * LAYERS + first for first in first_chain]
        for side in sides:
            rows = [part.strokes.get(side, _NO_STROKES) for part in parts]
            cargo[f"strokes {side}"] = _shifted(rows + [part.wires.get(side, _NO_STROKES) for part in parts], 6, planes)
        arrived = _send(cargo, device)
        return SceneBatch(
            size=size,
            studies=ColumnTensors(parts[0].names, arrived["columns"]),
            ink=arrived["ink"][:, 0],
            strokes={side: arrived[f"strokes {side}"] for side in sides},
            devices=devices,
            study_of_device=arrived["hosts"].long(),
            lesion_counts=[number for part in parts for number in part.lesions.counts],
            placed=Placed(
                runs=runs,
                host_study=cargo["whole"][0][:, 1],
                study=arrived["whole"][:, 1].long(),
                row_of=arrived["row_of"][:, 0].long(),
                study_of=arrived["row_of"][:, 1].long(),
                seeds=arrived["whole"][:, 3].contiguous(),
                common=arrived["common"],
                own=arrived["own"],
            ),
            **{name: arrived[name] for name in ("outlines", "seeds", "field", "regions", "chains", "density", "tips")},
        )


Cargo = dict[str, list[NDArray[Any]]]  # arrays of four-byte numbers, each as consecutive parts
_NO_STROKES = np.zeros((0, 8), dtype=np.int32)


def _begins(counts: Iterable[int]) -> list[int]:
    """Return the offset of each part when all are concatenated."""
    return [0, *accumulate(counts)][:-1]


def _shifted(parts: Sequence[NDArray[np.int32]], column: int, shifts: Sequence[int]) -> list[NDArray[np.int32]]:
    """Return the parts with one column's indices shifted by each part's offset."""
    return [part + np.eye(1, part.shape[1], column, dtype=np.int32) * np.int32(shift)
            for part, shift in zip(parts, shifts, strict=True)]  # fmt: skip


def _send(cargo: Cargo, device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to the device in one transfer."""
    flat = [part.reshape(-1).view(np.int32) for parts in cargo.values() for part in parts]
    packed = torch.empty(sum(map(len, flat)), dtype=torch.int32, pin_memory=device.type == "cuda")
    np.concatenate(flat, out=packed.numpy())
    sizes = [sum(part.size for part in parts) for parts in cargo.values()]
    pieces = torch.split(packed.to(device, non_blocking=True), sizes)
    kinds = [torch.float32 if parts[0].dtype == np.float32 else torch.int32 for parts in cargo.values()]
    return {
        name: piece.view(kind).view(-1, *parts[0].shape[1:])
        for (name, parts), piece, kind in zip(cargo.items(), pieces, kinds, strict=True)
    }


def _sort_lesions(parts: Sequence[lesions.Lesions], first_study: Sequence[int]) -> tuple[list[Run], Cargo]:
    """Join the findings of several parts, renumber their studies, and sort by kind.

    ``row_of (k, 2)`` holds the row and study of each finding, study by study.
    """
    whole = np.concatenate([part.whole for part in parts])
    whole[:, 1] += np.repeat(first_study, [len(part.whole) for part in parts]).astype(np.int32)
    whole[:, 2] = np.arange(len(whole))
    order = np.argsort(whole[:, 0], kind="stable")
    bounds = np.searchsorted(whole[order, 0], np.arange(len(KINDS) + 1)).tolist()
    runs = [Run(kind, *both) for kind, both in zip(KINDS, pairwise(bounds), strict=True) if both[0] < both[1]]
    return runs, {
        "whole": [whole[order]],
        "common": [np.concatenate([part.common for part in parts])[order]],
        "own": [np.concatenate([part.own for part in parts])[order]],
        "row_of": [np.stack([np.argsort(order), whole[:, 1]], axis=1).astype(np.int32)],
    }

"""All of a picture that is geometry and not pixels, for many scenes at once: NumPy alone, and plain enough to be sent.

`prepare` works it out, `Batch.of` brings what several processes have prepared to the device in one piece, and `paint`
in `render` draws it. What is prepared for a scene depends on the scene and the size alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.phantom.config import check_picture_size
from rightlung.phantom.image import anatomy, fields, lesions, physics, skeleton, tissue, vessels
from rightlung.phantom.image.devices import lay_devices
from rightlung.phantom.image.frame import Frame
from rightlung.phantom.image.lesions import KINDS
from rightlung.phantom.image.numbers import Numbers, table
from rightlung.phantom.image.overlay import Placed, Run
from rightlung.phantom.image.overlays import exposed_field, ink
from rightlung.phantom.image.regions import region_boxes
from rightlung.phantom.image.strokes import Strokes, windows
from rightlung.phantom.scene import Scene

BONES, VESSELS, AIRWAYS, LAYERS = 0, skeleton.LAYERS, skeleton.LAYERS + 3, skeleton.LAYERS + 5
"""The first layers of bones, vessels and airways among the planes of strokes of a picture, and how many there are."""

Rows = dict[int, NDArray[np.int32]]  # strokes by the side of their windows, see `windows`


@dataclass(frozen=True, slots=True)
class Prepared:
    """What painting ``n`` scenes needs, as arrays of four-byte numbers. Indices count within these scenes."""

    size: int
    names: tuple[str, ...]  # of the columns
    columns: NDArray[np.float32]  # (n, columns)
    outlines: NDArray[np.float32]  # (n, tables, places)
    seeds: NDArray[np.int32]  # (n, 4): of the clouds, then of the noise
    field: NDArray[np.int32]  # (n, 4): exposed columns and rows, first and last and one more
    regions: NDArray[np.float32]  # (n, 29, 4) boxes
    ink: NDArray[np.int32]  # (p, 1) pixels of all pictures that lie under letters
    strokes: Rows  # on planes (study, layer)
    wires: Rows  # of devices, on a plane for each chain
    chains: NDArray[np.int32]  # (c, 2): study and device of each chain
    density: NDArray[np.float32]  # (c,)
    tips: NDArray[np.float32]  # (devices, 2)
    devices: list[int]  # how many each study has
    lesions: lesions.Lesions

    def __len__(self) -> int:
        return len(self.columns)


def prepare(scenes: Sequence[Scene], size: int) -> Prepared:
    """Work out all of the pictures that needs no pixels."""
    check_picture_size(size)
    if not scenes:
        raise InputError("there are no scenes to render")
    thorax = anatomy.build(scenes)
    frame = Frame.of([scene.exposure for scene in scenes])
    field = exposed_field(scenes, size)
    bones, breaks = skeleton.bone_strokes(thorax, frame, size, LAYERS)
    inner = vessels.vessel_strokes(thorax, frame, size, VESSELS, LAYERS)
    airways = vessels.airway_strokes(thorax, frame, size, AIRWAYS, LAYERS)
    devices = lay_devices(thorax, frame, size)
    columns = {
        **fields.columns(thorax, frame, size),
        **tissue.columns(thorax),
        **skeleton.columns(thorax),
        "airway_width": np.sqrt(thorax.width),
        **physics.columns(scenes),
    }
    owner = np.repeat(np.arange(len(scenes)), [len(scene.devices) for scene in scenes])
    limits = (field / size)[owner]
    seen = (devices.tips >= limits[:, :2]) & (devices.tips <= limits[:, 2:])
    devices.tips[~seen.all(axis=1)] = np.nan
    return Prepared(
        size=size,
        names=tuple(columns),
        columns=table(columns, len(scenes)),
        outlines=fields.outlines(thorax),
        seeds=np.concatenate([tissue.seeds(thorax), physics.seeds(scenes)[:, None]], axis=1),
        field=field.astype(np.int32),
        regions=region_boxes(thorax, frame, field / size).astype(np.float32),
        ink=ink(scenes, size)[:, None],
        strokes=windows(Strokes.join([*bones, *inner, *airways]), size),
        wires=windows(devices.strokes, size) if devices.strokes is not None else {},
        chains=np.stack([devices.study, devices.owner], axis=1),
        density=devices.density,
        tips=devices.tips.astype(np.float32),
        devices=[len(scene.devices) for scene in scenes],
        lesions=lesions.prepare(thorax, breaks),
    )


@dataclass(frozen=True, slots=True)
class SceneBatch:
    """Prepared scenes on the device, ready to be painted."""

    size: int
    studies: Numbers
    outlines: Tensor  # (n, tables, places)
    seeds: Tensor  # (n, 4)
    field: Tensor  # (n, 4)
    regions: Tensor  # (n, 29, 4)
    ink: Tensor  # (p,)
    strokes: dict[int, Tensor]  # those of the anatomy, (study, layer), then those of devices, a plane for each chain
    chains: Tensor  # (c, 2)
    density: Tensor  # (c,)
    tips: Tensor  # (devices, 2)
    devices: list[int]
    study_of_device: Tensor  # (devices,)
    lesion_counts: list[int]
    placed: Placed

    @staticmethod
    def of(parts: Sequence[Prepared], device: torch.device) -> SceneBatch:
        """Join what was prepared apart and bring it to the device: one copy, whatever the number of arrays."""
        size, count = parts[0].size, sum(map(len, parts))
        cargo = _Cargo()
        first_study = _begins([len(part) for part in parts])
        first_chain = _begins([len(part.chains) for part in parts])
        first_device = _begins([sum(part.devices) for part in parts])
        columns = cargo.add([part.columns for part in parts])
        outlines = cargo.add([part.outlines for part in parts])
        seeds = cargo.add([part.seeds for part in parts])
        field = cargo.add([part.field for part in parts])
        regions = cargo.add([part.regions for part in parts])
        tips = cargo.add([part.tips for part in parts])
        density = cargo.add([part.density for part in parts])
        inked = cargo.add([part.ink for part in parts], {0: [first * size * size for first in first_study]})
        chains = cargo.add([part.chains for part in parts], {0: first_study, 1: first_device})
        planes = [first * LAYERS for first in first_study], [count * LAYERS + first for first in first_chain]
        strokes = {
            side: cargo.add(
                [part.strokes.get(side, _NO_STROKES) for part in parts]
                + [part.wires.get(side, _NO_STROKES) for part in parts],
                {6: [*planes[0], *planes[1]]},
            )
            for side in sorted({side for part in parts for side in (*part.strokes, *part.wires)})
        }
        found = _SortedLesions.of([part.lesions for part in parts], first_study)
        whole, common, own = cargo.add([found.whole]), cargo.add([found.common]), cargo.add([found.own])
        row_of = cargo.add([found.row_of])
        devices = [number for part in parts for number in part.devices]
        hosts = cargo.add([np.repeat(np.arange(count, dtype=np.int32), devices)])
        arrived = cargo.send(device)
        rows = arrived(whole, torch.int32)
        return SceneBatch(
            size=size,
            studies=Numbers(parts[0].names, arrived(columns)),
            outlines=arrived(outlines),
            seeds=arrived(seeds, torch.int32),
            field=arrived(field, torch.int32),
            regions=arrived(regions),
            ink=arrived(inked, torch.int32)[:, 0],
            strokes={side: arrived(place, torch.int32) for side, place in strokes.items()},
            chains=arrived(chains, torch.int32),
            density=arrived(density),
            tips=arrived(tips),
            devices=devices,
            study_of_device=arrived(hosts, torch.int32).long(),
            lesion_counts=[number for part in parts for number in part.lesions.counts],
            placed=Placed(
                runs=found.runs,
                host_study=found.whole[:, 1],
                study=rows[:, 1].long(),
                row_of=arrived(row_of, torch.int32)[:, 0].long(),
                study_of=arrived(row_of, torch.int32)[:, 1].long(),
                seeds=rows[:, 3].contiguous(),
                common=arrived(common),
                own=arrived(own),
            ),
        )


_NO_STROKES = np.zeros((0, 8), dtype=np.int32)


def _begins(counts: Sequence[int]) -> list[int]:
    """Return where each part begins when all stand in a row."""
    return [0, *np.cumsum(counts)[:-1].tolist()]


class _Cargo:
    """Arrays of four-byte numbers that travel as one."""

    def __init__(self) -> None:
        self._loads: list[tuple[int, Sequence[NDArray[np.generic]], Mapping[int, Sequence[int]]]] = []
        self._shapes: list[tuple[int, tuple[int, ...]]] = []
        self._length = 0

    def add(self, parts: Sequence[NDArray[np.generic]], shifts: Mapping[int, Sequence[int]] | None = None) -> int:
        """Take parts that stand in a row, whole numbers in some columns shifted for each part; return the number."""
        self._loads.append((self._length, parts, shifts or {}))
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        self._shapes.append((self._length, shape))
        self._length += int(np.prod(shape))
        return len(self._shapes) - 1

    def send(self, device: torch.device) -> _Arrived:
        """Copy everything to the device."""
        packed = torch.empty(self._length, dtype=torch.int32, pin_memory=device.type == "cuda")
        room = packed.numpy()
        for begin, parts, shifts in self._loads:
            for number, part in enumerate(parts):
                place = room[begin : begin + part.size].reshape(part.shape)
                np.copyto(place, part.view(np.int32))
                for column, shift in shifts.items():
                    if shift[number]:
                        place[:, column] += shift[number]
                begin += part.size
        return _Arrived(packed.to(device, non_blocking=True), self._shapes)


@dataclass(frozen=True, slots=True)
class _Arrived:
    packed: Tensor
    shapes: list[tuple[int, tuple[int, ...]]]

    def __call__(self, number: int, kind: torch.dtype = torch.float32) -> Tensor:
        begin, shape = self.shapes[number]
        return self.packed[begin : begin + int(np.prod(shape))].view(kind).view(shape)


@dataclass(frozen=True, slots=True)
class _SortedLesions:
    """The findings of several parts, sorted by kind."""

    runs: list[Run]
    whole: NDArray[np.int32]
    common: NDArray[np.float32]
    own: NDArray[np.float32]
    row_of: NDArray[np.int32]  # (k, 2): of each finding study by study, its row and its study

    @staticmethod
    def of(parts: Sequence[lesions.Lesions], first_study: Sequence[int]) -> _SortedLesions:
        """Join, count studies and findings through, and sort."""
        whole = np.concatenate([part.whole for part in parts])
        whole[:, 1] += np.repeat(first_study, [len(part.whole) for part in parts]).astype(np.int32)
        whole[:, 2] = np.arange(len(whole))
        order = np.argsort(whole[:, 0], kind="stable")
        bounds = np.searchsorted(whole[order, 0], np.arange(len(KINDS) + 1)).tolist()
        return _SortedLesions(
            runs=[Run(kind, *both) for kind, both in zip(KINDS, pairwise(bounds), strict=True) if both[0] < both[1]],
            whole=whole[order],
            common=np.concatenate([part.common for part in parts])[order],
            own=np.concatenate([part.own for part in parts])[order],
            row_of=np.stack([np.argsort(order), whole[:, 1]], axis=1).astype(np.int32),
        )

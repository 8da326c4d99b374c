"""Cached studies on disk, so that several runs on the same studies read or render them once.

The key is the source, the number of studies and how they are built. Files that have changed under the same ids are not
noticed: remove the folder then.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rightlung import __version__
from rightlung.core import InputError, OutputError
from rightlung.models.replacing import replaced
from rightlung.studies.sources import Source
from rightlung.training.annotations import StudyAnnotations
from rightlung.training.datasets import CachedDataset, LoadedStudies, LoadOptions
from rightlung.training.targets.base import Column, RaggedTensor, TargetBuilder

FORMAT = 2
"""Changes with what is stored, so that older folders are not read."""
_TENSORS, _VALUES = "tensors.safetensors", "studies.json"


class DiskCache:
    """The place of one cached data set in a folder."""

    def __init__(self, folder: str | Path, source: Source, count: int, options: LoadOptions) -> None:
        ids = hashlib.blake2b("\n".join(source.ids[:count]).encode("utf-8", "surrogatepass")).hexdigest()
        looked_for = {one.name for one in options.builders if one.name not in _in_every_study(options)}
        wanted = {one.name for one in options.builders_to_run} | looked_for
        targets = [(one.name, asdict(one)) for one in options.builders if one.name in wanted]  # type: ignore[call-overload]
        made = json.dumps(
            [
                FORMAT,
                __version__,
                source.address,
                ids,
                count,
                options.size,
                options.grid,
                options.entry.phrase_masks,
                targets,
            ]
        )
        self.everywhere = _in_every_study(options)
        self.path = Path(folder) / hashlib.blake2b(made.encode(), digest_size=10).hexdigest()

    def read(self, device: torch.device) -> CachedDataset | None:
        """Return the data set if it is there."""
        if not self.path.is_dir():
            return None
        return _read(self.path, self.path.stat().st_mtime_ns, str(device), self.everywhere)

    def write(self, data: CachedDataset) -> None:
        """Write a data set, whole or not at all; two processes that do so write the same."""
        rows = {name: column for name, column in data.loaded.columns.items() if isinstance(column, RaggedTensor)}
        tensors: dict[str, Tensor] = {name: column.values.cpu().contiguous() for name, column in rows.items()}
        known = {
            "annotations": [asdict(data.annotations(index)) for index in range(len(data))],
            "columns": {name: column for name, column in data.loaded.columns.items() if name not in rows},
            "rows": {name: list(column.counts) for name, column in rows.items()},
            "grid": data.loaded.grid,
            "available_targets": sorted(data.available_targets - self.everywhere),
            "problems": list(data.problems),
        }
        try:
            with replaced(self.path) as folder:
                save_file(tensors | {"images": data.loaded.images.cpu().contiguous()}, folder / _TENSORS)
                (folder / _VALUES).write_text(json.dumps(known, default=sorted), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{self.path}: the studies cannot be cached ({error.strerror or error})") from None


def _in_every_study(options: LoadOptions) -> frozenset[str]:
    """Return the targets that every study has. They are not stored: runs with other targets share the folder."""
    own = (one for one in options.builders if type(one).available_in is TargetBuilder.available_in)
    return frozenset(one.name for one in own)


@lru_cache(maxsize=1)  # the stages of a run read the same studies one after the other
def _read(path: Path, written_at: int, device: str, everywhere: frozenset[str]) -> CachedDataset:
    try:
        tensors = load_file(path / _TENSORS, device=device)
        known = json.loads((path / _VALUES).read_text(encoding="utf-8"))
        annotations = [StudyAnnotations.from_json(one) for one in known["annotations"]]
        columns: dict[str, Column] = dict(known["columns"])
        columns |= {name: RaggedTensor.of(tensors[name], counts) for name, counts in known["rows"].items()}
        for name, column in [*columns.items(), ("images", tensors["images"])]:
            if (count := len(column.counts if isinstance(column, RaggedTensor) else column)) != len(annotations):
                raise ValueError(f"{name} has {count} studies and not {len(annotations)}")
        loaded = LoadedStudies(tensors["images"], known["grid"], columns)
        return CachedDataset(loaded, annotations, everywhere | set(known["available_targets"]), known["problems"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: the cached studies cannot be read ({error}); remove the folder") from None

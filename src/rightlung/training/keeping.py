"""Filled pools kept on disk, so that several runs on the same studies fill theirs once.

A pool is known by its source, its length and how it was made. A source whose files have changed under the same ids is
not noticed: then the folder must go.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rightlung import __version__
from rightlung.core import InputError, OutputError
from rightlung.models.replacing import replaced
from rightlung.studies.sources import Source
from rightlung.training.facts import TargetKind, facts_from_plain, plain_facts
from rightlung.training.pools import Pool

_TENSORS, _FACTS = "pictures.safetensors", "facts.json"


class KeptPool:
    """The place of one pool in a folder of pools."""

    def __init__(
        self, folder: str | Path, source: Source, count: int, size: int, grid: int, targets: TargetKind
    ) -> None:
        ids = hashlib.blake2b("\n".join(source.ids[:count]).encode("utf-8", "surrogatepass")).hexdigest()
        made = json.dumps([__version__, source.address, ids, count, size, grid, targets])
        self.path = Path(folder) / hashlib.blake2b(made.encode(), digest_size=10).hexdigest()

    def read(self, device: torch.device) -> Pool | None:
        """Return the pool if it is there."""
        if not self.path.is_dir():
            return None
        try:
            tensors = load_file(self.path / _TENSORS, device=str(device))
            known = json.loads((self.path / _FACTS).read_text(encoding="utf-8"))
            first, facts = tensors.pop("first").tolist(), [facts_from_plain(one) for one in known["facts"]]
            pool = Pool(first=first, facts=facts, problems=known["problems"], **tensors)
            if not len(pool.images) == len(first) == len(pool.boxes) == len(facts):
                raise ValueError(f"{len(pool.images)} pictures do not go with {len(facts)} studies")
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.path}: the pool that was kept here cannot be read ({error}); remove it") from None
        return pool

    def write(self, pool: Pool) -> None:
        """Keep a pool, whole or not at all; of two processes that do so, each leaves the same."""
        tensors = {name: getattr(pool, name).cpu().contiguous() for name in ("images", "shares", "boxes")}
        known = {"facts": [pool.facts(number) for number in range(len(pool))], "problems": list(pool.problems)}
        try:
            with replaced(self.path) as folder:
                save_file(tensors | {"first": torch.tensor(pool.first, dtype=torch.long)}, folder / _TENSORS)
                (folder / _FACTS).write_text(json.dumps(known, default=plain_facts), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{self.path}: the pool cannot be kept ({error.strerror or error})") from None

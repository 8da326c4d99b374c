"""Studies and targets prepared once for an experiment that measures many models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rightlung.core import InputError
from rightlung.measuring.protocols import Protocol
from rightlung.measuring.targets import TARGETS, Targets, gather_targets
from rightlung.studies import Source
from rightlung.studies.kept import KeptSource


def prepare_studies(
    source: Source,
    folder: str | Path,
    protocol: Protocol,
    *,
    seed: int = 0,
    limit: int | None = None,
    pixels: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[KeptSource, Targets]:
    """Keep the studies that a protocol measures, and their targets, in a folder; or open what is kept there.

    A folder that was prepared with other settings is refused.
    """
    folder, rules = Path(folder), protocol.rules
    pixels = pixels or protocol.pixels
    if not (folder / TARGETS).exists():
        gather_targets(
            source, None, folder, rules=rules, pixels=pixels, seed=seed, subsets=protocol.subsets, limit=limit,
            keep_studies=True, progress=progress,
        )  # fmt: skip
    targets = Targets.open(folder)
    asked = {"source": source.address, "rules": [*rules], "pixels": pixels, "seed": seed, "limit": limit}
    for name, value in asked.items():
        earlier = (targets.settings | {"source": targets.source})[name]
        if earlier != value:
            raise InputError(f"{folder}: was prepared with {name} {earlier!r}, not {value!r}; choose another folder")
    return KeptSource(folder), targets

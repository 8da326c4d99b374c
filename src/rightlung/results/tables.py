"""The instances tables of a result, as an audit, ``score-reports`` or ``measuring.write_instances`` wrote them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.core.errors import InputError, shortened
from rightlung.measuring.protocols import Protocol
from rightlung.results.model import read_instances

_STEM = "instances"
BY_INSTANCE = {
    "phrase_set": "instances are paired one by one, and their targets must be equal",
    "target_kinds": "the kind of each target must be equal",
    "resamples": "intervals are computed anew",
    "level": "intervals are computed anew",
    "prior": "the image-blind prior is not compared",
    "prior_set": "the image-blind prior is not compared",
    "prior_folds": "the image-blind prior is not compared",
    "conditions": "answers under one condition are compared, which all results must have",
    "analysis": "verdicts of gates and batteries, and strata, are not compared",
}
"""Fields of the protocol that count for the hash and may differ in a comparison, and why."""
OF_NO_SCORE = ("resamples", "conditions", "analysis")
"""Those of them that change no score of the unchanged question, so that a leaderboard ranks across them.

Without instances, it can neither pair phrases nor compute intervals of another level, and it shows the prior.
"""


@dataclass(frozen=True, eq=False)
class ResultTable:
    """The instances of one model in one part of a result."""

    model: str
    path: Path
    part: str
    """What follows ``instances-`` in the file's name, such as ``detection``; empty for ``instances.parquet``."""
    protocol: Protocol
    table: pa.Table


def read_results(paths: Sequence[str | Path]) -> tuple[dict[str, list[ResultTable]], list[str]]:
    """Return the tables of results by the parts that all of them have, and notes on what was left out or renamed.

    A path is a folder with ``instances.parquet`` or ``instances-*.parquet``, or such a file.
    """
    if len(paths) < 2:
        raise InputError("a comparison needs at least two results")
    resolved = [Path(path).resolve() for path in paths]
    for same, count in Counter(resolved).items():
        if count > 1:
            raise InputError(f"{same} is given twice; compare different results")
    found = [_tables(Path(path)) for path in paths]
    if any(Path(path).is_file() for path in paths):  # the name of a file may be anything
        for path, tables in zip(paths, found, strict=True):
            if len(tables) > 1:
                raise InputError(f"{path}: holds several tables ({_listed(tables)}); give one of these files instead")
        found = [{"": next(iter(tables.values()))} for tables in found]
    parts = [part for part in found[0] if all(part in tables for tables in found)]
    if not parts:
        told = "; ".join(f"{path} has {_listed(tables)}" for path, tables in zip(paths, found, strict=True))
        raise InputError(f"the results have no table in common: {told}")
    notes = [
        f"{file.name} of {path} is not compared: not all results have it"
        for path, tables in zip(paths, found, strict=True)
        for part, file in tables.items()
        if part not in parts
    ]
    read = {part: [_read(tables[part], part) for tables in found] for part in parts}
    return {part: _named(tables, notes) for part, tables in read.items()}, [*dict.fromkeys(notes)]


def _listed(tables: Mapping[str, Path]) -> str:
    return ", ".join(file.name for file in tables.values())


def _tables(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder")
        return {"": path}
    files = [file for file in (path / f"{_STEM}.parquet", *sorted(path.glob(f"{_STEM}-*.parquet"))) if file.exists()]
    if not files:
        raise InputError(
            f"{path}: holds no table of instances ({_STEM}.parquet, {_STEM}-detection.parquet, …); give a folder that "
            "'rightlung audit' or 'rightlung score-reports' wrote"
        )
    return {file.stem.removeprefix(_STEM).removeprefix("-"): file for file in files}


def _read(file: Path, part: str) -> ResultTable:
    table = read_instances(str(file), file)
    metadata = table.schema.metadata or {}
    try:
        given = json.loads(metadata.get(b"rightlung.protocol", b"null"))
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InputError(f"{file}: names no protocol, so that its numbers cannot be compared; measure again")
    model = metadata.get(b"rightlung.model", b"").decode(errors="replace")
    folder = file.resolve().parent.name
    return ResultTable(
        model or (folder if file.stem.startswith(_STEM) else file.stem), file, part,
        Protocol.from_json(given, str(file)), table,
    )  # fmt: skip


def _named(tables: Sequence[ResultTable], notes: list[str]) -> list[ResultTable]:
    """Add folders, or else files, to the names of models that have the same."""
    found = list(tables)
    for tell in (lambda one: one.path.resolve().parent.name, lambda one: str(one.path)):
        counts = Counter(one.model for one in found)
        for name in (name for name, count in counts.items() if count > 1):
            notes.append(f"{counts[name]} results name their model {name!r}; they are told apart by folder or file")
        found = [
            one if counts[one.model] == 1 else replace(one, model=f"{before.model} ({tell(one)})")
            for one, before in zip(found, tables, strict=True)
        ]
    return found


def check_alike(tables: Sequence[ResultTable]) -> None:
    """Raise an error that names the first field in which the protocols differ, with both values."""
    first = tables[0]
    for other in tables[1:]:
        one, two = first.protocol.hashed, other.protocol.hashed
        names = [field.name for field in fields(Protocol) if field.name not in BY_INSTANCE]
        unlike = [name for name in names if one.get(name) != two.get(name)]
        if not unlike:
            continue
        name = unlike[0]
        values = [_said(getattr(table.protocol, name), getattr(against.protocol, name))
                  for table, against in ((first, other), (other, first))]  # fmt: skip
        more = f" (and in {', '.join(unlike[1:])})" if unlike[1:] else ""
        raise InputError(
            f"unlike protocols: they differ in {name}{more}: {first.path} has {values[0]}, {other.path} has "
            f"{values[1]}; measure both under one protocol"
        )


def _said(value: Any, against: Any) -> str:
    """Return a value for an error message; of a list, what the other lacks."""
    if isinstance(value, tuple) and isinstance(against, tuple):
        own = [one for one in value if one not in against]
        return f"{own} besides the rest" if own and len(own) < len(value) else shortened(list(value))
    if isinstance(value, str) and isinstance(against, str) and len(value) > 60:
        begin = int(np.argmin([*(one == two for one, two in zip(value, against, strict=False)), False]))
        return shortened(f"…{value[max(0, begin - 20) :]}")
    return repr(value)

"""One measured model: its description and its instances table, indexed by phrase."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung.core.errors import InputError
from rightlung.core.files import read_json
from rightlung.results.estimator import Floats
from rightlung.results.on_disk import TableOnDisk

GROUPS = ("paper", "ours", "reference")
_KEYS = ("study", "query", "condition", "target", "patient")
ABOUT = ("slug", "variant", "name", "group", "comparable", "ablation", "seed", "order", "note", "training")
"""The keys of ``about.json`` that are fields of `MeasuredModel`."""

_REQUIRED = {"slug": str, "variant": str, "name": str, "group": str, "comparable": bool, "order": int}

Rows = Mapping[tuple[str, str], NDArray[np.intp]]
"""Row of each phrase by (condition, target), −1 where there is none."""


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """One model, trained with one seed, measured on phrases."""

    slug: str
    variant: str
    name: str
    group: str = "ours"
    comparable: bool = True
    ablation: bool = False
    seed: int | None = None
    order: int = 0
    note: str = ""
    training: Mapping[str, Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """The whole content of ``about.json``."""
    origin: str = ""
    """The file, for error messages."""
    table: pa.Table = field(default_factory=lambda: pa.table({}), repr=False)
    rows: Rows = field(default_factory=dict, repr=False)
    phrases: int = 0
    """Number of phrases; a model that grounds none has no rows."""

    @property
    def label(self) -> str:
        """The name for tables, with an asterisk if the model is not comparable."""
        return self.name if self.comparable else f"{self.name} *"

    def row_of(self, condition: str | None = None, target: str | None = None) -> NDArray[np.intp]:
        """Return the first row of each phrase, −1 where there is none; ``none`` comes first among conditions."""
        chosen = [place for place in self.rows if condition in (None, place[0]) and target in (None, place[1])]
        found = np.full(self.phrases, -1, dtype=np.intp)
        for place in sorted(chosen, key=lambda place: place[0] != "none"):
            found = np.where(found < 0, self.rows[place], found)
        return found

    def value(self, measure: str, target: str | None, condition: str) -> Floats:
        """Return a column as numbers, one per phrase; NaN where it was not measured."""
        rows = self.row_of(condition, target)
        if measure not in self.table.column_names:
            return np.full(len(rows), np.nan)
        try:
            values = self.table.column(measure).cast(pa.float64()).to_numpy()
        except pa.ArrowException:
            raise InputError(f"{self.origin}, column {measure!r}: expected numbers") from None
        found = np.full(len(rows), np.nan)
        found[rows >= 0] = values[rows[rows >= 0]]
        if (infinite := np.isinf(found)).any():
            raise InputError(
                f"{self.origin}, row {rows[infinite][0]}, column {measure!r}: expected a finite number; got "
                f"{found[infinite][0]}"
            )
        return found

    def fact(self, name: str, target: str | None = None) -> Any:
        """Return a column as an Arrow array with one entry per phrase, null where there is no row."""
        rows = self.row_of(target=target)
        return self.table.column(name).take(pa.array(rows, mask=rows < 0)).combine_chunks()

    @property
    def errors(self) -> int:
        """Number of questions without an answer."""
        reasons = self.table.column("reason").cast(pa.string()).fill_null("")
        failed = pc.starts_with(reasons, "no answer").to_numpy()
        rows = [self.row_of(condition) for condition in {condition for condition, _ in self.rows}]
        return sum(int(failed[one[one >= 0]].sum()) for one in rows)


def read_instances(origin: str, table: pa.Table | TableOnDisk | str | Path) -> pa.Table:
    """Return an instances table, read from Parquet if a path is given."""
    if isinstance(table, str | Path):
        try:
            table = pq.read_table(table, read_dictionary=[*_KEYS, "phrase", "asked", "reason"])
        except FileNotFoundError:
            raise InputError(f"{origin}: the file does not exist") from None
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{origin}: cannot be read as Parquet ({error})") from None
    for name in _KEYS:
        if name not in table.column_names:
            raise InputError(f"{origin}: column {name!r} is missing")
        if name in _KEYS[:3] and table.column(name).null_count:
            row = table.column(name).is_null().to_pylist().index(True)
            raise InputError(f"{origin}, row {row}, column {name!r}: the value is missing")
    return table.combine_chunks()


def protocol_of(table: pa.Table) -> str | None:
    """Return the protocol hash in the metadata of a table, ``None`` if there is none."""
    metadata = (table.schema.metadata or {}).get(b"rightlung.protocol")
    return None if metadata is None else str(json.loads(metadata).get("hash", metadata.decode()))


def phrase_names(table: pa.Table) -> Any:
    """Return study and query of each row as one text."""
    parts = [table.column(name).cast(pa.string()) for name in ("study", "query")]
    return pc.binary_join_element_wise(*parts, "\0").combine_chunks()


def rows_by_phrase(origin: str, table: pa.Table, names: Any, complete: bool) -> Rows:
    """Index the rows by phrase; raise an error for duplicate rows and, if ``complete``, for unknown phrases."""

    def refuse(row: int, reason: str) -> InputError:
        study, query = (table.column(name)[row].as_py() for name in ("study", "query"))
        return InputError(f"{origin}, row {row}: {study} {query} {reason}")

    at = pc.index_in(phrase_names(table), value_set=names).fill_null(-1).to_numpy().astype(np.intp)
    if complete and (at < 0).any():
        raise refuse(int((at < 0).argmax()), "is not among the phrases")
    columns = {name: table.column(name).cast(pa.string()).fill_null("") for name in ("condition", "target")}
    frame = pa.table(columns | {"at": at}).to_pandas()
    known = frame[frame["at"] >= 0]
    for row, (condition, target, _) in known[known.duplicated()].iterrows():
        raise refuse(row, f"occurs twice with condition {condition}, target {target}")
    found = {}
    for place, rows in frame.groupby(["condition", "target"], sort=False)["at"]:
        rows = rows[rows >= 0]
        found[place] = np.full(len(names), -1, dtype=np.intp)
        found[place][rows] = rows.index
    return found


def read_about(path: Path) -> dict[str, Any]:
    """Read and check an ``about.json``."""
    about = read_json(path)
    for name, kind in _REQUIRED.items():
        if not isinstance(about.get(name), kind):
            raise InputError(f"{path}, {name}: expected {kind.__name__}; got {about.get(name)!r}")
    if about["group"] not in GROUPS:
        raise InputError(f"{path}, group: expected one of {', '.join(GROUPS)}; got {about['group']!r}")
    return about

"""What can be judged: phrases of a source with patient and findings, from the tables that measuring leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.core import InputError
from rightlung.predictions import phrase_query
from rightlung.predictions.prediction import PHRASE_QUERY


@dataclass(frozen=True, slots=True)
class JudgedInstance:
    """A study and one of its phrases; ``number`` is its place in an experiment's ``instances.parquet``."""

    study: str
    query: str
    text: str
    patient: str | None = None
    findings: tuple[str, ...] = ()
    abnormal: bool = False
    number: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Study and query."""
        return self.study, self.query

    @property
    def order(self) -> tuple[str, int]:
        """What instances are sorted by: the study, then the phrase's place in it."""
        match = PHRASE_QUERY.fullmatch(self.query)
        return self.study, int(match[1]) if match else -1


Instances = dict[tuple[str, str], JudgedInstance]


def read_instances(path: str | Path) -> Instances:
    """Read the instances of an experiment folder or of an audit: the folder, or its ``instances.parquet``."""
    file = instances_file(Path(path))
    table = read_parquet(file)
    if "query" in table.column_names:
        rows = _of_audit(file, table)
    elif "instance" in table.column_names:
        rows = _of_experiment(file, table)
    else:
        raise InputError(f"{file}: has neither a column 'query' (an audit's) nor 'instance' (an experiment's)")
    found: Instances = {}
    for row in rows:
        if found.setdefault(row.key, row) is not row and row.number is not None:
            raise InputError(f"{file}: study {row.study!r} has the phrase {row.query!r} twice")
    if not found:
        raise InputError(f"{file}: holds no phrase of a source")
    return found


def instances_file(path: Path) -> Path:
    """Return the table of a folder, or the file itself."""
    file = path / "instances.parquet" if path.is_dir() else path
    if not file.is_file():
        where = f"{path} has no instances.parquet" if path.is_dir() else f"{path} is not there"
        raise InputError(f"{where}: give the folder of an experiment or an audit, or its instances.parquet")
    return file


def read_parquet(path: Path, columns: list[str] | None = None) -> Any:
    """Read a Parquet table, naming the file and the column where that fails."""
    try:
        file = pq.ParquetFile(path)
        for name in columns or ():
            if name not in file.schema_arrow.names:
                raise InputError(f"{path}: has no column {name!r}")
        return file.read(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error})") from None


def columns_of(path: Path, table: Any, names: tuple[str, ...]) -> list[list[Any]]:
    """Return columns as lists, naming the one that is missing."""
    for name in names:
        if name not in table.column_names:
            raise InputError(f"{path}: has no column {name!r}")
    return [table.column(name).to_pylist() for name in names]


def _of_audit(path: Path, table: Any) -> list[JudgedInstance]:
    names = ("study", "query", "condition", "phrase", "patient", "findings", "polarity")
    return [
        JudgedInstance(study, query, text, patient, tuple(findings or ()), polarity == "positive")
        for study, query, condition, text, patient, findings, polarity in zip(
            *columns_of(path, table, names), strict=True
        )
        if condition == "none" and PHRASE_QUERY.fullmatch(query)
    ]


def _of_experiment(path: Path, table: Any) -> list[JudgedInstance]:
    names = ("study", "phrase", "text", "patient", "findings", "abnormal", "instance")
    return [
        JudgedInstance(study, phrase_query(phrase), text, patient, tuple(findings or ()), bool(abnormal), number)
        for study, phrase, text, patient, findings, abnormal, number in zip(
            *columns_of(path, table, names), strict=True
        )
    ]

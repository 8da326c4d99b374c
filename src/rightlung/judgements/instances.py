"""What can be judged: the phrases that an experiment or an audit has measured, with patient and findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.core.errors import InputError
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.results.measured import Measured


@dataclass(frozen=True, slots=True)
class JudgedInstance:
    """A study and one of its phrases."""

    study: str
    query: str
    text: str
    patient: str | None = None
    findings: tuple[str, ...] = ()
    abnormal: bool = False

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


def open_measured(path: str | Path) -> Measured:
    """Open an experiment's folder, an audit's folder, or an audit's ``instances.parquet``."""
    path = Path(path)
    if (path / "measures").is_dir():
        measured = Measured.read(path)
        if not measured.models:
            raise InputError(f"{path} holds no measured models")
        return measured
    file = path / "instances.parquet" if path.is_dir() else path
    if not file.is_file():
        where = f"{path} has no instances.parquet" if path.is_dir() else f"{path} does not exist"
        raise InputError(f"{where}: give the folder of an experiment or an audit, or its instances.parquet")
    try:
        model = (pq.read_schema(file).metadata or {}).get(b"rightlung.model", b"").decode()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: cannot be read as Parquet ({error})") from None
    if not model:
        raise InputError(f"{file}: does not say which model was measured")
    return Measured.of({model: file})


def read_instances(path: str | Path) -> Instances:
    """Read the phrases of an experiment or an audit (see `open_measured`)."""
    return instances_of(open_measured(path), path)


def instances_of(measured: Measured, path: str | Path) -> Instances:
    """Return the phrases that were asked as they are; ``path`` is where they come from, for error messages."""
    asked = np.logical_or.reduce([model.row_of("none") >= 0 for model in measured.models])
    columns = set.intersection(*(set(model.table.column_names) for model in measured.models))
    abnormal = measured.subset("abnormal") if "abnormal" in columns else measured.fact("polarity") == "positive"
    facts = zip(
        measured.keys, measured.fact("phrase"), measured.fact("patient"), measured.fact("findings"), abnormal, asked,
        strict=True,
    )  # fmt: skip
    found = {
        (study, query): JudgedInstance(study, query, text, patient, tuple(findings or ()), bool(flag))
        for (study, query), text, patient, findings, flag, there in facts
        if there and PHRASE_QUERY.fullmatch(query)
    }
    if not found:
        raise InputError(f"{path}: holds no phrase of a source")
    return found

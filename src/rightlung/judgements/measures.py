"""Automatic measures of the judged answers, by model, and the phrases that can be judged.

All measures are of the condition ``none``, because annotators judge unperturbed answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.core.errors import InputError, unknown_name
from rightlung.judgements.blinding import same_name
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.results.estimator import Flags, Floats
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel
from rightlung.scoring.localisation import METRICS

_SCORES = tuple(name for name in METRICS if name != "entropy")
MEASURES: dict[str, tuple[str, str | None]] = {
    "entropy": ("grid_entropy", None),
    **{name: (name, None) for name in ("abstention", "similarity_global", "similarity_local", "kl_random")},
    **{name: (name, "own") for name in (*_SCORES, "peak_on_side")},
    **{f"{name} ({target})": (name, target) for target in ("regions", "exact") for name in _SCORES},
}
"""Column of the instances table and target, by name. Audits have the target ``own``, experiments the others."""


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


Instances = Mapping[tuple[str, str], JudgedInstance]
"""Instances by study and query."""


@dataclass(frozen=True, eq=False)
class Measures:
    """The automatic measures of several models."""

    models: Mapping[str, tuple[Measured, MeasuredModel]]
    """By slug (an experiment's) or name (of an audited model)."""
    instances: Instances
    """The phrases asked, with patients and findings."""

    @property
    def names(self) -> dict[str, str]:
        """Name by slug."""
        return {slug: model.name for slug, (_, model) in self.models.items()}

    def find(self, model: str) -> str | None:
        """Return the slug of a model given by slug or name, ``None`` if it was not measured."""
        if model in self.models:
            return model
        found = [slug for slug, name in self.names.items() if same_name(slug, model) or same_name(name, model)]
        if len(found) > 1:
            listed = ", ".join(found)
            raise InputError(f"several measured models are named {model!r}; give one of these instead: {listed}")
        return found[0] if found else None

    def values(self, slug: str, keys: Sequence[tuple[str, str]]) -> tuple[Flags, dict[str, Floats]]:
        """Return which of the (study, query) ``keys`` a model answered, and their measures (NaN if undefined)."""
        measured, model = self.models[slug]
        places = {key: place for place, key in enumerate(measured.keys)}
        rows = np.array([places.get(key, -1) for key in keys], dtype=np.intp)
        asked = (rows >= 0) & (model.row_of("none")[rows] >= 0)
        values = {
            name: np.where(asked, model.value(column, target, "none")[rows], np.nan)
            for name, (column, target) in MEASURES.items()
            if column in model.table.column_names and (target is None or target in measured.targets)
        }
        return asked, values

    def to_judge(self) -> tuple[list[str], list[str]]:
        """Return the models to judge by default, and the others.

        The others are references, ablations, further seeds of a variant, and models that are not comparable.
        """
        chosen: list[str] = []
        others: list[str] = []
        for slug, (_, model) in sorted(self.models.items()):
            worthwhile = model.group != "reference" and model.comparable and not model.ablation
            (chosen if worthwhile and model.variant == slug else others).append(slug)
        return chosen, others

    def named(self, models: Iterable[str]) -> list[str]:
        """Return the slugs of models given by slug or name.

        An unknown model is an error for an experiment. For an audit it is kept as given: other models can be judged on
        the audited phrases.
        """
        experiment = any("group" in known.about for _, known in self.models.values())
        found = []
        for model in models:
            slug = self.find(model)
            if slug is None and experiment:
                raise unknown_name("model", model, self.models)
            found.append(slug or model)
        return found


def read_measures(paths: Sequence[str | Path]) -> Measures:
    """Read the measures of experiment folders, audit folders and ``instances.parquet`` files."""
    models: dict[str, tuple[Measured, MeasuredModel]] = {}
    instances: dict[tuple[str, str], JudgedInstance] = {}
    for path in paths:
        measured = _open(Path(path))
        for model in measured.models:
            slug = str(model.about["slug"])  # `Measured` renames those of a variant with several seeds
            if slug in models:
                raise InputError(f"{path}: model {slug!r} is in several of the given folders; give only one of them")
            models[slug] = measured, model
        for key, instance in _instances(measured).items():
            before = instances.setdefault(key, instance)
            if before.text != instance.text:
                raise InputError(
                    f"{path}: {instance.query!r} of study {instance.study!r} is {instance.text!r} here but "
                    f"{before.text!r} in another folder; the measures must be of the same source"
                )
    if not instances:
        raise InputError(f"{', '.join(map(str, paths))}: the tables have no measured phrase")
    return Measures(models, instances)


def _open(path: Path) -> Measured:
    if (path / "measures").is_dir():
        return Measured.read(path)
    file = path / "instances.parquet" if path.is_dir() else path
    if not file.is_file():
        where = f"{path} has no instances.parquet" if path.is_dir() else f"{path} does not exist"
        raise InputError(f"{where}; expected the folder of an experiment or an audit, or an instances.parquet file")
    try:
        model = (pq.read_schema(file).metadata or {}).get(b"rightlung.model", b"").decode()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: cannot be read as Parquet ({error})") from None
    if not model:
        raise InputError(f"{file}: the metadata key rightlung.model is missing, so the measured model is unknown")
    return Measured.of({model: file})


def _instances(measured: Measured) -> dict[tuple[str, str], JudgedInstance]:
    """Return the phrases asked under the condition ``none``."""
    if not measured.models:
        return {}
    asked = np.logical_or.reduce([model.row_of("none") >= 0 for model in measured.models])
    flagged = any("abnormal" in model.table.column_names for model in measured.models)
    abnormal = measured.subset("abnormal") if flagged else measured.fact("polarity") == "positive"
    facts = zip(*(measured.fact(name) for name in ("phrase", "patient", "findings")), abnormal, asked, strict=True)
    return {
        (study, query): JudgedInstance(study, query, text, patient, tuple(findings or ()), bool(flag))
        for (study, query), (text, patient, findings, flag, there) in zip(measured.keys, facts, strict=True)
        if there and PHRASE_QUERY.fullmatch(query)
    }

"""What was measured of the same answers without asking anybody: every automatic measure of every instance, by model.

From an experiment's folder (``measures/<model>/answers.parquet`` and ``scores.parquet``) or from audits
(``instances.parquet``), always under the condition ``none``: what was judged is the plain answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rightlung.audit.judgements.blinding import alike
from rightlung.audit.judgements.instances import (
    Instances,
    columns_of,
    instances_file,
    read_instances,
    read_parquet,
)
from rightlung.core import InputError
from rightlung.core.errors import unknown_name
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.scoring.localisation import METRICS

TARGETS = ("regions", "exact")
_ANSWERS = ("entropy", "abstention", "similarity_global", "similarity_local", "kl_random")
_SCORES = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip
_AUDITED = (*METRICS, "peak_on_side", "abstention", "similarity_global", "similarity_local")

Values = dict[tuple[str, str], dict[str, float]]
"""By study and query: each measure's value."""


@dataclass(frozen=True)
class Measures:
    """The automatic measures of several models, by the name a key may give each of them."""

    values: Mapping[str, Values]
    """By model (an experiment's slug, an audit's model)."""
    names: Mapping[str, str]
    """From model to what it is called; the same where nothing else is said."""
    instances: Instances
    """What was asked, with patients and findings."""

    @property
    def all_names(self) -> tuple[str, ...]:
        """Every name by which a model of these might be given away."""
        return tuple(dict.fromkeys([*self.names, *self.names.values()]))

    def of(self, model: str) -> Values | None:
        """Return the measures of a model by slug or name, ``None`` where there are none."""
        slug = _slug_of(model, self.names)
        return None if slug is None else self.values[slug]

    def listed(self) -> list[str]:
        """All measures that some instance has, in the order in which they were found."""
        found: dict[str, None] = {}
        for values in self.values.values():
            for measured in values.values():
                found.update(dict.fromkeys(measured))
        return list(found)


def read_measures(paths: Iterable[str | Path]) -> Measures:
    """Read the measures of experiment folders and audits, all together."""
    values: dict[str, Values] = {}
    names: dict[str, str] = {}
    instances: Instances = {}
    for path in map(Path, paths):
        here = read_instances(path)
        experiment = (path / "measures").is_dir()
        for model, name, measured in _of_experiment(path, here) if experiment else _of_audit(path):
            if model in values:
                raise InputError(f"{path}: the model {model!r} is measured twice; give one of the two")
            values[model], names[model] = measured, name
        for instance in here.values():
            before = instances.setdefault(instance.key, instance)
            if before.text != instance.text:
                raise InputError(
                    f"{path}: {instance.query!r} of study {instance.study!r} is {instance.text!r}, and elsewhere "
                    f"{before.text!r}: these are measures of different sources"
                )
    if not values:
        raise InputError("no measures were found")
    return Measures(values, names, instances)


def models_to_judge(folder: str | Path) -> tuple[list[str], list[str]]:
    """Return the measured models of an experiment that are worth judging, and those that are not, unless asked for.

    The latter are references, ablations, the same variant with another seed, and what does not compare.
    """
    chosen: list[str] = []
    others: list[str] = []
    for path in sorted(Path(folder).glob("measures/*/about.json")):
        about, slug = _about(path), path.parent.name
        telling = about.get("group") != "reference" and about.get("comparable") is not False
        first = about.get("variant", slug) == slug and not about.get("ablation")
        (chosen if telling and first else others).append(slug)
    return chosen, others


def measured_models(folder: str | Path, models: Iterable[str]) -> list[str]:
    """Return models that are named by slug or name as an experiment calls them; one that it has not is refused.

    What audits are of is not known before they are read: of those every name is taken as it is.
    """
    paths = sorted(Path(folder).glob("measures/*/about.json"))
    known = {path.parent.name: str(_about(path).get("name") or path.parent.name) for path in paths}
    found = []
    for model in models:
        slug = _slug_of(model, known) if known else model
        if slug is None:
            raise unknown_name("model", model, known)
        found.append(slug)
    return found


def _slug_of(model: str, names: Mapping[str, str]) -> str | None:
    """Return the one model that is meant by a slug or a name, ``None`` where there is none."""
    if model in names:
        return model
    alikes = [slug for slug, name in names.items() if alike(slug, model) or alike(name, model)]
    if len(alikes) > 1:
        raise InputError(f"the measures have several models called {model!r}: {', '.join(alikes)}; name one of these")
    return alikes[0] if alikes else None


def _of_experiment(folder: Path, instances: Instances) -> Iterator[tuple[str, str, Values]]:
    keys = {instance.number: key for key, instance in instances.items()}
    for part in sorted(path for path in (folder / "measures").iterdir() if (path / "about.json").is_file()):
        about = _about(part / "about.json")
        measured: Values = {key: {} for key in instances}
        answers = read_parquet(part / "answers.parquet")
        present = tuple(name for name in _ANSWERS if name in answers.column_names)
        _gather(measured, keys, part / "answers.parquet", answers, present, "")
        scores = read_parquet(part / "scores.parquet")
        for target in TARGETS:
            _gather(measured, keys, part / "scores.parquet", scores, _SCORES, target)
        yield part.name, str(about.get("name") or part.name), measured


def _about(path: Path) -> Mapping[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(about, dict):
        raise InputError(f"{path}: must hold a JSON object")
    return about


def _gather(
    measured: Values, keys: Mapping[int | None, tuple[str, str]], path: Path, table: Any, names: tuple[str, ...],
    target: str,
) -> None:  # fmt: skip
    columns = ("instance", "condition", *(["target"] if target else ()))
    numbers, conditions, *targets = columns_of(path, table, columns)
    rows = [
        place
        for place, condition in enumerate(conditions)
        if condition == "none" and (not target or targets[0][place] == target)
    ]
    for name, column in zip(names, columns_of(path, table, names), strict=True):
        for place in rows:
            if numbers[place] not in keys:
                raise InputError(f"{path}, row {place}, field instance: there is no instance {numbers[place]}")
            value = column[place]
            label = f"{name} ({target})" if target else name
            measured[keys[numbers[place]]][label] = np.nan if value is None else float(value)


def _of_audit(path: Path) -> Iterator[tuple[str, str, Values]]:
    file = instances_file(path)
    metadata = pq.read_schema(file).metadata or {}
    model = metadata.get(b"rightlung.model", b"").decode()
    if not model:
        raise InputError(f"{file}: does not say which model was audited")
    table = read_parquet(file)
    columns = columns_of(file, table, ("study", "query", "condition", *_AUDITED))
    measured: Values = {}
    for study, query, condition, *numbers in zip(*columns, strict=True):
        if condition == "none" and PHRASE_QUERY.fullmatch(query):
            known = (np.nan if number is None else float(number) for number in numbers)
            measured[study, query] = dict(zip(_AUDITED, known, strict=True))
    yield model, model, measured

"""What was measured about the same answers without asking anybody: every automatic measure of every phrase, by model.

All measures are of the answers under the condition ``none``: what was judged is the plain answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rightlung.core.errors import InputError, unknown_name
from rightlung.judgements.blinding import alike
from rightlung.judgements.instances import Instances, instances_of, open_measured
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
"""By name: the column of the instances table and the target; ``own`` is an audit's, the others are an experiment's."""


@dataclass(frozen=True, eq=False)
class Measures:
    """The automatic measures of several models."""

    models: Mapping[str, tuple[Measured, MeasuredModel]]
    """By slug (an experiment's) or name (of an audited model)."""
    instances: Instances
    """What was asked, with patients and findings."""

    @property
    def names(self) -> dict[str, str]:
        """From slug to name; the same where no other name is given."""
        return {slug: model.name for slug, (_, model) in self.models.items()}

    @property
    def all_names(self) -> tuple[str, ...]:
        """Every name that would give a model away."""
        return tuple(dict.fromkeys([*self.names, *self.names.values()]))

    def find(self, model: str) -> str | None:
        """Return the slug of a model given by slug or name, ``None`` where it was not measured."""
        if model in self.models:
            return model
        found = [slug for slug, name in self.names.items() if alike(slug, model) or alike(name, model)]
        if len(found) > 1:
            raise InputError(
                f"the measures have several models called {model!r}: {', '.join(found)}; name one of these"
            )
        return found[0] if found else None

    def values(self, slug: str, keys: Sequence[tuple[str, str]]) -> tuple[Flags, dict[str, Floats]]:
        """Return which of the (study, query) ``keys`` a model was asked, and each measure of them, NaN if undefined."""
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
        """Return the models that are worth a person's time, and the others.

        The others are references, ablations, the same variant with another seed, and what is not comparable.
        """
        chosen: list[str] = []
        others: list[str] = []
        for slug, (_, model) in sorted(self.models.items()):
            worthwhile = model.group != "reference" and model.comparable and not model.ablation
            (chosen if worthwhile and model.variant == slug else others).append(slug)
        return chosen, others

    def named(self, models: Iterable[str]) -> list[str]:
        """Return the slugs of models given by slug or name; a model that an experiment does not have is refused.

        An audit has one model, and its phrases may be judged for others, too: those keep the names given.
        """
        experiment = any("group" in model.about for _, model in self.models.values())
        found = []
        for model in models:
            slug = self.find(model)
            if slug is None and experiment:
                raise unknown_name("model", model, self.models)
            found.append(slug or model)
        return found


def read_measures(paths: Iterable[str | Path]) -> Measures:
    """Read the measures of experiments and audits, all together."""
    models: dict[str, tuple[Measured, MeasuredModel]] = {}
    instances: Instances = {}
    for path in paths:
        measured = open_measured(path)
        for model in measured.models:
            slug = str(model.about["slug"])  # `Measured` renames those of a variant with several seeds
            if slug in models:
                raise InputError(f"{path}: the model {slug!r} is measured twice; give one of the two")
            models[slug] = measured, model
        for key, instance in instances_of(measured, path).items():
            before = instances.setdefault(key, instance)
            if before.text != instance.text:
                raise InputError(
                    f"{path}: {instance.query!r} of study {instance.study!r} is {instance.text!r}, and elsewhere "
                    f"{before.text!r}: these are measures of different sources"
                )
    if not models:
        raise InputError("no measures were found")
    return Measures(models, instances)

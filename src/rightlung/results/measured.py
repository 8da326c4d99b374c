"""Several models measured on the same phrases, with every measure as an array over the phrases.

An array has one entry per (study, query), NaN where undefined, so that changes and comparisons are array arithmetic;
`Estimator` gives means and intervals. The data are the instances tables of `rightlung.measuring`, one per model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.core.errors import InputError, unknown_name
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator, Flags, Floats
from rightlung.results.model import (
    ABOUT,
    MeasuredModel,
    phrase_names,
    protocol_of,
    read_about,
    read_instances,
    rows_by_phrase,
)
from rightlung.results.on_disk import TableOnDisk
from rightlung.scoring.localisation import METRICS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Perturbation:
    """A change of words or image (a condition), or of the target, and the subset on which it is measured."""

    name: str
    title: str
    subset: str
    condition: str | None = None
    """The condition, ``None`` if the target is changed instead."""
    target: str | None = None
    """Suffix of the target's name, ``None`` if the target stays."""
    plain: str = "none"
    """The condition to compare with."""

    def scored_target(self, target: str) -> str:
        """Return the target against which the perturbed answer is scored.

        >>> Perturbation("shuffle", "Shuffle in Report", "mdrb", target="shuffled").scored_target("regions")
        'regions-shuffled'
        """
        return target if self.target is None else f"{target}-{self.target}"


@dataclass(frozen=True, eq=False)
class Measured:
    """Models measured on the same phrases under the same protocol."""

    keys: tuple[tuple[str, str], ...]
    """(study, query) of each phrase, sorted."""
    models: tuple[MeasuredModel, ...]
    unfinished: tuple[str, ...] = ()
    """Folders without ``about.json``, which is written last."""
    _facts: dict[tuple[str, str | None], NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        tables: Mapping[str, pa.Table | TableOnDisk | str | Path],
        about: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        complete: bool = True,
    ) -> Measured:
        """Combine instances tables (or Parquet files), by the slug of each model.

        With ``complete``, all models must have answered the same questions. Otherwise the phrases are those of the
        first table: rows about other phrases are ignored, and missing rows are undefined.
        """
        origins = {slug: str(table) if isinstance(table, str | Path) else slug for slug, table in tables.items()}
        read = {slug: read_instances(origins[slug], table) for slug, table in tables.items()}
        protocols = {protocol: slug for slug, table in read.items() if (protocol := protocol_of(table)) is not None}
        if len(protocols) > 1:
            listed = ", ".join(f"{origins[slug]} under {protocol}" for protocol, slug in protocols.items())
            raise InputError(f"the tables were measured under different protocols: {listed}")
        first = next((table for table in read.values() if table.num_rows), pa.table({"study": [], "query": []}))
        names = pc.unique(phrase_names(first))
        names = names.take(pc.array_sort_indices(names))
        models = []
        for order, (slug, table) in enumerate(read.items()):
            description: dict[str, Any] = {"slug": slug, "variant": slug, "name": slug, "order": order}
            description |= (about or {}).get(slug) or {}
            known = {name: description[name] for name in ABOUT if description.get(name) is not None}
            rows = rows_by_phrase(origins[slug], table, names, complete)
            models.append(
                MeasuredModel(
                    **known, about=description, origin=origins[slug], table=table, rows=rows, phrases=len(names)
                )
            )
        keys = tuple((study, query) for study, _, query in (name.partition("\0") for name in names.to_pylist()))
        measured = cls(keys, _seeds_named(sorted(models, key=lambda model: (model.order, model.slug))))
        if complete:
            measured._check_complete()
        return measured

    @classmethod
    def read(cls, folder: str | Path) -> Measured:
        """Read an experiment folder: ``measures/<slug>/`` with ``instances.parquet`` and ``about.json``."""
        found = sorted(path for path in (Path(folder) / "measures").glob("*") if path.is_dir())
        whole = [path for path in found if (path / "about.json").exists()]
        about = {path: read_about(path / "about.json") for path in whole}
        slugs = Counter(description["slug"] for description in about.values())
        if twice := [slug for slug, count in slugs.items() if count > 1]:
            raise InputError(f"{Path(folder) / 'measures'}: two folders have the same slug in about.json, {twice[0]!r}")
        tables = {description["slug"]: path / "instances.parquet" for path, description in about.items()}
        measured = cls.of(tables, {description["slug"]: description for description in about.values()})
        return replace(measured, unfinished=tuple(path.name for path in found if path not in whole))

    def _check_complete(self) -> None:
        for model in self.models:
            for condition in dict.fromkeys(condition for condition, _ in model.rows):
                missing = np.flatnonzero(self.changed(condition) & (model.row_of(condition) < 0)).tolist()
                if missing:
                    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                    study, query = self.keys[missing[0]]
                    raise InputError(f"{model.origin}: no row for {study} {query}{more} under condition {condition}")

    def __len__(self) -> int:
        return len(self.keys)

    def to_pandas(self) -> pd.DataFrame:
        """Return the instances of all models as one data frame; the column ``model`` holds the slug."""
        import pandas as pd

        frames = [model.table.to_pandas() for model in self.models]
        for model, frame in zip(self.models, frames, strict=True):
            frame.insert(0, "model", model.slug)
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The names of all targets, in the order of the tables."""
        return tuple(dict.fromkeys(target for model in self.models for _, target in model.rows))

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """The names of all conditions, ``none`` first."""
        found = {condition for model in self.models for condition, _ in model.rows}
        return tuple(sorted(found, key=lambda name: (name != "none", name)))

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns of all tables."""
        return frozenset(name for model in self.models for name in model.table.column_names)

    def fact(self, name: str, target: str | None = None) -> Any:
        """Return a column about the phrases or about their ``target``: booleans, numbers, or objects.

        Values come from the condition ``none`` if it was asked. A phrase without a row has False, NaN or None.
        """
        if (name, target) not in self._facts:
            columns = [model.fact(name, target) for model in self.models if name in model.table.column_names]
            if not columns:
                raise unknown_name("column", name, self.columns)
            self._facts[name, target] = _as_array(columns[0] if len(columns) == 1 else pc.coalesce(*columns))
        return self._facts[name, target]

    @cached_property
    def patients(self) -> NDArray[Any]:
        """The patient of each phrase, or the study if the patient is unknown."""
        return np.array([p or f"study {key[0]}" for p, key in zip(self.fact("patient"), self.keys, strict=True)])

    @property
    def resampled(self) -> Literal["patients", "studies", "patients and studies"]:
        """What the bootstrap resamples: patients, studies if no patient is known, or both."""
        known = {bool(p != f"study {key[0]}") for p, key in zip(self.patients, self.keys, strict=True)}
        return "studies" if known == {False} else "patients and studies" if len(known) > 1 else "patients"

    def estimator(self, settings: BootstrapSettings | None = None) -> Estimator:
        """Return an estimator for arrays over the phrases."""
        return Estimator(self.patients, settings)

    def without(self, conditions: Collection[str]) -> Measured:
        """Return the same without some conditions."""
        kept = [{at: rows for at, rows in one.rows.items() if at[0] not in conditions} for one in self.models]
        return replace(self, models=tuple(replace(one, rows=rows) for one, rows in zip(self.models, kept, strict=True)))

    def subset(self, name: str) -> Flags:
        """Return which phrases are in a subset: ``all``, or a boolean column (``one-lung`` is ``one_lung``)."""
        if name == "all":
            return np.ones(len(self), dtype=bool)
        flags = self.fact(name.replace("-", "_"))
        if flags.dtype != bool:
            raise InputError(f"{name!r} is not a subset: its column is not boolean")
        return np.asarray(flags)

    def within(self, values: Floats, subset: str | Flags) -> Floats:
        """Return the values of a subset, NaN elsewhere."""
        return np.where(self.subset(subset) if isinstance(subset, str) else subset, values, np.nan)

    def has(self, target: str) -> Flags:
        """Return which phrases have a target."""
        return np.array([kind is not None for kind in self.fact("target_kind", target)], dtype=bool)

    def changed(self, what: str | Perturbation, target: str | None = None) -> Flags:
        """Return which phrases a condition changes, or for which a changed target differs from the phrase's own.

        A perturbation of words or image only counts for phrases that have the ``target`` it is scored against.
        """
        if isinstance(what, Perturbation):
            against = target or self.targets[0]
            if what.condition is None:
                return self.changed(what.scored_target(against))
            return self.changed(what.condition) & self.has(against)
        column = f"{what.replace('-', '_')}_differs"
        if column in self.columns:
            return np.asarray(self.fact(column))
        place = {"condition": what} if what not in self.targets else {"condition": "none", "target": what}
        found = [model.row_of(**place) >= 0 for model in self.models]
        return np.asarray(np.logical_or.reduce([np.zeros(len(self), dtype=bool), *found]))

    @cached_property
    def rows(self) -> tuple[MeasuredModel, ...]:
        """The rows of tables: one model per variant; a variant with several seeds is their mean."""
        first = {model.variant: model for model in reversed(self.models)}
        several = {variant for variant in first if len(self.seeds(variant)) > 1}
        ordered = dict.fromkeys(model.variant for model in self.models)
        return tuple(replace(first[name], slug=name) if name in several else first[name] for name in ordered)

    def seeds(self, variant: str) -> tuple[MeasuredModel, ...]:
        """Return the models of a variant."""
        return tuple(model for model in self.models if model.variant == variant)

    def model(self, slug: str) -> MeasuredModel | None:
        """Return a variant or one of its seeds by slug, ``None`` if it was not measured."""
        return next((model for model in (*self.rows, *self.models) if model.slug == slug), None)

    def _each(self, slug: str) -> tuple[MeasuredModel, ...]:
        row = self.model(slug)
        return () if row is None else self.seeds(row.variant) if row in self.rows else (row,)

    def nothing(self) -> Floats:
        """Return an array of NaN."""
        return np.full(len(self), np.nan)

    def _mean(self, slug: str, values: Callable[[MeasuredModel], Floats]) -> Floats:
        """Return values of a model, or the mean over the seeds of a variant; NaN where a seed has none."""
        found = [values(model) for model in self._each(slug)]
        return np.asarray(np.mean(found, axis=0)) if found else self.nothing()

    def asked(self, slug: str, condition: str = "none") -> Flags:
        """Return which phrases a model (or every seed of a variant) was asked under a condition."""
        found = [model.row_of(condition) >= 0 for model in self._each(slug)]
        return np.asarray(np.logical_and.reduce(found)) if found else np.zeros(len(self), dtype=bool)

    def numeric(self, slug: str) -> tuple[str, ...]:
        """Return the numeric columns of a model's table."""
        schema = [column for model in self._each(slug)[:1] for column in model.table.schema]
        return tuple(column.name for column in schema if pa.types.is_floating(column.type))

    def value(self, slug: str, measure: str, target: str | None = None, condition: str = "none") -> Floats:
        """Return a measure of all phrases, NaN where it was not measured.

        Without a ``target`` it is a property of the answer itself: a similarity, abstention or entropy.
        ``selection_local`` and ``selection_global`` are those of `selection`. ``peak_on_side`` is by default against
        the exact target.
        """
        if measure.startswith("selection_"):
            return self.selection(slug, measure.removeprefix("selection_"))
        if measure == "peak_on_side" and "exact" in self.targets:
            target = target or "exact"
        if target is None and len(self.targets) > 1 and measure in (*METRICS, "peak_on_side"):
            raise InputError(f"{measure} needs a target: {', '.join(self.targets)}")
        return self._mean(slug, lambda model: model.value(measure, target, condition))

    def selection(self, slug: str, kind: str, against: str = "random-sentence") -> Floats:
        """Return whether the image's own sentence is more similar (``local`` or ``global``) than another.

        1 if it is, 0 if not, 0.5 for a tie.
        """

        def selected(model: MeasuredModel) -> Floats:
            own, other = (model.value(f"similarity_{kind}", None, condition) for condition in ("none", against))
            return np.where(np.isnan(own) | np.isnan(other), np.nan, (1 + np.sign(own - other)) / 2)

        return self._mean(slug, selected)

    def change(
        self,
        slug: str,
        perturbation: Perturbation,
        measure: str,
        target: str,
        how: Literal["changed", "all"] = "changed",
    ) -> Floats:
        """Return the perturbed value minus the original.

        ``changed`` uses the phrases that the perturbation changes; with ``all``, unchanged phrases count 0.
        """
        where = self.changed(perturbation, target)
        condition, against = perturbation.condition or perturbation.plain, perturbation.scored_target(target)

        def moved(model: MeasuredModel) -> Floats:
            plain = model.value(measure, target, perturbation.plain)
            counted = how == "all" and (condition, against) in model.rows
            unchanged = np.where(np.isnan(plain), np.nan, 0.0) if counted else self.nothing()
            return np.where(where, model.value(measure, against, condition) - plain, unchanged)

        return self._mean(slug, moved)


def _as_array(column: Any) -> NDArray[Any]:
    if pa.types.is_boolean(column.type):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False))
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    values = np.full(len(column), None, dtype=object)
    values[:] = column.to_pylist()
    return values


def _seeds_named(models: Sequence[MeasuredModel]) -> tuple[MeasuredModel, ...]:
    """Add the seed to the slug of models that have the slug of a variant with several seeds."""
    several = {variant for variant, count in Counter(model.variant for model in models).items() if count > 1}
    return tuple(
        replace(model, slug=f"{model.slug}-seed{model.seed}") if model.slug == model.variant in several else model
        for model in models
    )

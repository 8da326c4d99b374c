"""Differences of two variants over their seeds: measures in task files, geometry, and reliance on a shortcut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from rightlung.measuring import find_measure
from rightlung.reproduce.eclip.embeddings import EMBEDDINGS, Embedded, distinct
from rightlung.reproduce.eclip.measuring import BY_CHANCE, PLANTED
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.aggregates import estimate_mean
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.scoring.geometry import SHARPNESS
from rightlung.scoring.retrieval import unit_vectors
from rightlung.scoring.statistics.intervals import Resampling, Sample
from rightlung.scoring.statistics.resampling import COUNTS_AT_ONCE, interval_of_replicates, replicates

GEOMETRY, RELIANCE = "geometry", "reliance"
"""What stands for the name of a file: these are made of several files, or of embeddings."""
AUROC = "finding_auroc"
Levels = Callable[[Floats], Floats]
"""Maps counts of each study per resample, (resamples, studies), to values (resamples,)."""


class EclipFiles(TaskFiles):
    """The files of every run, and the two kinds of differences that need more than one column of one file."""

    def estimate(self, variant: str, task: str, measure: str) -> Estimate | None:
        """Return a measure of a variant, its mean over the seeds that have it; None if it was not measured."""
        if task != RELIANCE:
            return super().estimate(variant, task, measure)
        planted, chance = self.tables(variant, PLANTED), self.tables(variant, BY_CHANCE)
        if not planted or not chance:
            return None
        return estimate_mean(planted, AUROC, minus=chance, settings=self.settings, method=self.method)

    def difference(self, variant: str, other: str, task: str, measure: str) -> Estimate | None:
        """Return the difference of two variants, paired by patient, over the seeds that both have."""
        if task not in (GEOMETRY, RELIANCE):
            return super().difference(variant, other, task, measure)
        key = variant, other, task, measure
        if key not in self._known:
            made = self._geometry if task == GEOMETRY else self._reliance
            self._known[key] = made(variant, other, measure)
        return self._known[key]

    def seeds(self, variant: str, task: str, measure: str) -> list[float]:
        """Return the value of each seed, without an interval."""
        if task == RELIANCE:
            planted, chance = (super(EclipFiles, self).seeds(variant, name, AUROC) for name in (PLANTED, BY_CHANCE))
            return [one - other for one, other in zip(planted, chance, strict=True)]
        if task == GEOMETRY:
            found = (one.levels[measure] for one in self._embeddings(variant))
            return [float(levels(np.ones((1, count)))[0]) for levels, count in found]
        return [one.value for one in self._resampled(variant, task, measure)]

    def _estimate(self, variant: str, other: str, task: str, measure: str) -> Estimate | None:
        """Return a mean over seeds, or a difference of two, from the resamples of the single runs.

        Runs on the same patients have the same resamples, so a run is resampled once and not for every comparison.
        """
        first = self._resampled(variant, task, measure)
        second: Sequence[ResampledRun] = ()
        if other:
            second = self._resampled(other, task, measure)
            shared = min(len(first), len(second))
            first, second = first[:shared], second[:shared]
        if not first:
            return None
        if any(one.patients != first[0].patients for one in (*first, *second)):
            return super()._estimate(variant, other, task, measure)
        values = np.mean([one.values for one in first], axis=0)
        if second:
            values = values - np.mean([one.values for one in second], axis=0)
        count = len(first[0].patients)
        basis = Sample(sum(one.rows for one in (*first, *second)), 0, count, True)
        scale = max(1.0, abs(float(values[0])))
        return Estimate.of(interval_of_replicates(float(values[0]), values[1:], None, basis, scale, self._resampling))

    @property
    def _resampling(self) -> Resampling:
        return Resampling(method="percentile", **self.settings.as_options())

    @cached_property
    def _runs(self) -> dict[tuple[str, ...], list[ResampledRun]]:
        return {}

    def _resampled(self, variant: str, task: str, measure: str) -> Sequence[ResampledRun]:
        key = variant, task, measure
        if key not in self._runs:
            tables = self.tables(variant, task)
            self._runs[key] = [ResampledRun.of(table, measure, self._resampling) for table in tables]
        return self._runs[key]

    def _reliance(self, variant: str, other: str, measure: str) -> Estimate | None:
        """Return how much more AUROC a variant gains from the planted word than the other one."""
        of = {(name, kind): self.tables(name, kind) for name in (variant, other) for kind in (PLANTED, BY_CHANCE)}
        shared = min(map(len, of.values()))
        if not shared:
            return None
        more = [*of[variant, PLANTED][:shared], *of[other, BY_CHANCE][:shared]]
        less = [*of[variant, BY_CHANCE][:shared], *of[other, PLANTED][:shared]]
        found = estimate_mean(more, AUROC, minus=less, settings=self.settings, method=self.method)
        return replace(found, value=2 * found.value, low=2 * found.low, high=2 * found.high)  # of means of two each

    def _geometry(self, variant: str, other: str, measure: str) -> Estimate | None:
        first, second = self._embeddings(variant), self._embeddings(other)
        shared = min(len(first), len(second))
        if not shared:
            return None
        levels = [[one.levels[measure][0] for one in some[:shared]] for some in (first, second)]

        def statistic(counts: Floats) -> Floats:
            means = [np.mean([level(counts) for level in some], axis=0) for some in levels]
            difference: Floats = means[0] - means[1]
            return difference

        patients = np.array(first[0].patients, dtype=object)
        estimator = Estimator(patients, self.settings)
        return estimator.aggregate(statistic, np.ones(len(patients), bool), method=self.method)

    def _embeddings(self, variant: str) -> list[KeptGeometry]:
        labels = self.found.prepared.targets.labels
        found = []
        for run in self.found.measured.seeds(variant):
            path = self.found.folder / "measures" / run.slug / EMBEDDINGS
            if path.is_file():
                embedded, _ = Embedded.read(path)
                first = distinct([str(labels[study].report) for study in embedded.studies])
                patients = [str(labels[embedded.studies[place]].patient) for place in first]
                found.append(KeptGeometry(patients, embedded.images[first], embedded.texts[first]))
        return found


@dataclass(frozen=True)
class ResampledRun:
    """A measure of one run: its value, followed by that in every resample of the patients."""

    patients: tuple[str, ...]
    rows: int
    values: Floats = field(repr=False)

    @property
    def value(self) -> float:
        """The measure over all patients."""
        return float(self.values[0])

    @classmethod
    def of(cls, table: pa.Table, name: str, settings: Resampling) -> ResampledRun:
        """Resample a measure of a table of instances."""
        measure = find_measure(name)
        frame = table.select(sorted({"condition", "patient", *measure.columns})).to_pandas()
        frame = frame[frame.condition == "none"]
        patients, index = np.unique(frame.patient.to_numpy(dtype=str), return_inverse=True)
        columns = {column: frame[column].to_numpy() for column in measure.columns}
        at_once = max(1, COUNTS_AT_ONCE // max(len(index), 1))

        def of_counts(counts: Floats) -> Floats:
            parts = (counts[at : at + at_once, index] for at in range(0, len(counts), at_once))
            return np.concatenate([measure.of_counts(columns, part) for part in parts])

        value = of_counts(np.ones((1, len(patients))))
        resampled = replicates(of_counts, len(patients), settings) if len(patients) > 1 else np.empty(0)
        return cls(tuple(patients.tolist()), len(index), np.concatenate([value, resampled]))


@dataclass(frozen=True)
class KeptGeometry:
    """The geometry of pairs of embeddings (n, dimension) as functions of how often each pair is drawn."""

    patients: Sequence[str]
    images: ArrayLike = field(repr=False)
    texts: ArrayLike = field(repr=False)

    @cached_property
    def levels(self) -> Mapping[str, tuple[Levels, int]]:
        """Gap, alignment and uniformity (see `scoring.geometry`), and the number of pairs."""
        images, texts = unit_vectors(self.images), unit_vectors(self.texts)
        squares, apart = ((images - texts) ** 2).sum(axis=1), images - texts
        made: dict[str, Levels] = {
            "gap": lambda counts: np.linalg.norm(counts @ apart, axis=1) / counts.sum(axis=1),
            "alignment": lambda counts: counts @ squares / counts.sum(axis=1),
            "uniformity_images": _uniformity(images),
            "uniformity_texts": _uniformity(texts),
        }
        return {name: (one, len(images)) for name, one in made.items()}


def _uniformity(vectors: Floats) -> Levels:
    near = np.exp(-2 * SHARPNESS * (1 - np.minimum(vectors @ vectors.T, 1.0)))
    np.fill_diagonal(near, 0.0)  # pairs of different studies; one that is drawn twice is no pair

    def of(counts: Floats) -> Floats:
        totals = counts.sum(axis=1)
        pairs = totals**2 - (counts**2).sum(axis=1)
        found: Floats = np.log(np.einsum("rn,rn->r", counts @ near, counts) / pairs)
        return found

    return of

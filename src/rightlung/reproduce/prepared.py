"""The test data of an experiment: the studies, stored on disk, their targets, and the image-blind priors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rightlung.core import InputError
from rightlung.core.progress import Progress, no_progress
from rightlung.measuring import Protocol, Targets, prepare_studies
from rightlung.models.blind.prior import LocationPrior, PriorRow
from rightlung.studies import open_source
from rightlung.studies.study_cache import CachedSource

FOLDER = "studies"
PRIORS = {"prior": ("Location prior", "exact"), "prior-regions": ("Location prior, of region boxes", "regions")}


@dataclass(frozen=True)
class PreparedStudies:
    """Studies to ask models about, and the targets to measure the answers against."""

    source: CachedSource
    targets: Targets
    protocol: Protocol

    @classmethod
    def make(
        cls, source: str, out: Path, protocol: Protocol, limit: int | None = None, progress: Progress = no_progress
    ) -> PreparedStudies:
        """Prepare the first ``limit`` studies of a source, or open them if they are prepared already."""
        kept, targets = prepare_studies(
            open_source(source), out / FOLDER, protocol, limit=limit,
            progress=lambda done, total: progress("preparing studies", done, total),
        )  # fmt: skip
        without_phrases = "region" in protocol.queries  # a protocol that keeps studies without a phrase
        if not targets.phrases and not (without_phrases and any(one.report for one in targets.labels.values())):
            reasons = "; ".join(f"{reason}: {count:,}" for reason, count in targets.left_out.items())
            raise InputError(f"{source} has no phrase to measure ({reasons})")
        return cls(kept, targets, protocol.applied_to(targets))

    @classmethod
    def open(cls, out: Path, protocol: Protocol) -> PreparedStudies:
        """Open what `make` has prepared."""
        targets = Targets.open(out / FOLDER)
        return cls(CachedSource(out / FOLDER), targets, protocol.applied_to(targets))


def fit_priors(prepared: PreparedStudies) -> Iterator[tuple[str, tuple[str, str, LocationPrior]]]:
    """Yield the priors by slug, with name and note; a patient's maps come from the other folds."""
    for slug, (name, rule) in PRIORS.items():
        prior = LocationPrior(source=prepared.source.address)
        for phrase in prepared.targets.phrases.values():
            if (target := phrase.masks.get(rule)) is not None:
                pixels = prepared.targets.store.read([target.place])[0]
                prior.add(PriorRow(phrase.patient, phrase.text, phrase.findings, pixels, target.side))
        if len(prior):
            yield slug, (name, "uses the finding, side and zone in the words; never sees an image", prior)

"""Image-blind baselines of an experiment: location priors fitted on exact targets and on region boxes."""

from __future__ import annotations

from collections.abc import Iterator

from rightlung.models.blind.prior import LocationPrior, PriorRow
from rightlung.reproduce.prepared import PreparedStudies

PRIORS = {"prior": ("Location prior", "exact"), "prior-regions": ("Location prior, of region boxes", "regions")}


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

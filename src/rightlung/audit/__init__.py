"""Whether a model's maps can be believed: scores beside the image-blind prior, with intervals, as files and a page."""

from rightlung.audit.aggregate import Instances, Sureness, aggregate
from rightlung.audit.prior import LocationPrior, PriorRow, fit_prior
from rightlung.audit.protocol import Protocol
from rightlung.audit.run import Audit, audit

__all__ = [
    "Audit", "Instances", "LocationPrior", "PriorRow", "Protocol", "Sureness", "aggregate", "audit", "fit_prior",
]  # fmt: skip

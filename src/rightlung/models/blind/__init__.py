"""Image-blind baselines: models that answer from the words alone."""

from rightlung.models.blind.prior import LocationPrior, PriorRow, fit_prior, fold_of

__all__ = ["LocationPrior", "PriorRow", "fit_prior", "fold_of"]

"""Image-blind baselines: models that answer from the words alone."""

from rightlung.models.blind.constants import ConstantText, MedianBoxes
from rightlung.models.blind.prior import LocationPrior, PriorRow, fit_prior, fold_of

__all__ = ["ConstantText", "LocationPrior", "MedianBoxes", "PriorRow", "fit_prior", "fold_of"]

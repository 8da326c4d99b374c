"""The location prior lives in `rightlung.models.blind`."""

from rightlung.models.blind.prior import FOLDS, GRID, LocationPrior, PriorRow, fit_prior, fold_of

__all__ = ["FOLDS", "GRID", "LocationPrior", "PriorRow", "fit_prior", "fold_of"]

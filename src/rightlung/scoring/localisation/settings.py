"""The settings of localisation scores, checked once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rightlung.core.checks import check_number
from rightlung.core.errors import InputError, check_known
from rightlung.scoring.localisation.measures import NORMALISATIONS, Normalisation

SHARES: tuple[float, ...] = (5, 10, 30)
THRESHOLDS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
PLAIN = ("auroc", "average_precision", "pointing", "cnr", "entropy", "mass_inside", "miou", "mdice")
AT_SHARE = ("iou", "precision", "dice")


def metric_names(shares: Sequence[float] = SHARES) -> tuple[str, ...]:
    """Return the names of all measures, including those at top shares.

    >>> metric_names([5])[-3:]
    ('iou@5', 'precision@5', 'dice@5')
    """
    return PLAIN + tuple(f"{name}@{share:g}" for share in shares for name in AT_SHARE)


METRICS = metric_names()


@dataclass(frozen=True, slots=True)
class Settings:
    """The requested measures and their settings."""

    metrics: tuple[str, ...]
    shares: tuple[float, ...]
    tolerance: float
    thresholds: tuple[float, ...]
    normalisation: Normalisation

    @classmethod
    def checked(
        cls,
        metrics: Iterable[str] | None,
        shares: Sequence[float],
        tolerance: float,
        thresholds: Sequence[float],
        normalisation: Normalisation,
    ) -> Settings:
        """Build from a caller's arguments; wrong ones are errors."""
        for share in shares:
            if not 0 < check_number(share, "share") / 100 <= 1:
                raise InputError(f"a share must lie above 0 and up to 100 percent; got {share}")
        for threshold in thresholds:
            if check_number(threshold, "threshold") < 0:
                raise InputError(f"a threshold must not be negative; got {threshold}")
        if check_number(tolerance, "tolerance") < 0:
            raise InputError(f"the pointing tolerance must not be negative; got {tolerance}")
        check_known("map normalisation", normalisation, NORMALISATIONS)
        known = metric_names(shares)
        if len(set(known)) < len(known):
            raise InputError(f"shares must differ in their first six digits; got {list(shares)}")
        if isinstance(metrics, str):
            metrics = [metrics]
        names = known if metrics is None else tuple(metrics)
        for name in names:
            check_known("metric", name, known)
        if not thresholds and {"miou", "mdice"} & set(names):
            raise InputError("miou and mdice average over thresholds; got none")
        return cls(names, tuple(shares), float(tolerance), tuple(thresholds), normalisation)

    def wants(self, *names: str) -> bool:
        """Whether any of these measures is requested; ``iou@`` stands for IoU at any share."""
        return _wanted(self.metrics, names)


@lru_cache(maxsize=256)  # asked for every map
def _wanted(metrics: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return any(metric.startswith(names) for metric in metrics)

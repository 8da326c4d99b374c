"""Intervals, comparisons, correlations, agreement between raters, and adjustment for many tests.

Pure functions of NumPy arrays. Patients are resampled, not images; the same seed gives the same result.
"""

from rightlung.scoring.statistics.agreement import krippendorff_alpha, krippendorff_interval
from rightlung.scoring.statistics.bootstrap import bootstrap, bootstrap_by_counts, bootstrap_columns
from rightlung.scoring.statistics.comparison import (
    Difference,
    Verdict,
    fewest_clusters,
    paired_difference,
    paired_differences,
    sign_flip_test,
    smallest_p,
    verdict_of,
)
from rightlung.scoring.statistics.correlation import Correlation, pearson, pearson_by_counts, pearson_pairs, spearman
from rightlung.scoring.statistics.intervals import FEW_CLUSTERS, Interval
from rightlung.scoring.statistics.multiplicity import benjamini_hochberg, holm
from rightlung.scoring.statistics.swapping import swap_test

__all__ = [
    "FEW_CLUSTERS", "Correlation", "Difference", "Interval", "Verdict", "benjamini_hochberg", "bootstrap",
    "bootstrap_by_counts", "bootstrap_columns", "fewest_clusters", "holm", "krippendorff_alpha",
    "krippendorff_interval", "paired_difference", "paired_differences", "pearson", "pearson_by_counts", "pearson_pairs",
    "sign_flip_test", "smallest_p", "spearman", "swap_test", "verdict_of",
]  # fmt: skip

"""From instances to estimates: typed numbers with intervals, comparisons, subsets, changes, groups and seeds."""

"""One reader per data set, each opened by address: see `rightlung.studies.sources` and ``docs/sources.md``."""

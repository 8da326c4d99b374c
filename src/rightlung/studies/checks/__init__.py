"""The parts of ``rightlung data check``: what is looked at, one file a subject; `rightlung.studies.check` runs them."""

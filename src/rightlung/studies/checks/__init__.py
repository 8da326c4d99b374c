"""The parts of ``rightlung data check``, one module per subject; `rightlung.studies.check` runs them."""

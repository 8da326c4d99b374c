"""Which convention reproduces a published number? One predictions file, scored under every known convention."""

from rightlung.diagnosis.run import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]

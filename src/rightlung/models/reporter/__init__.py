"""A plain report generator, the baseline of grounded ones."""

from rightlung.models.reporter.model import PlainReporter, ReporterConfig

__all__ = ["PlainReporter", "ReporterConfig"]

"""The audit: is what a model points at owed to the image? It reads predictions and writes rows, numbers and a page."""

from rightlung.audit.run import Audit, audit

__all__ = ["Audit", "audit"]

"""Audit a model: do its maps depend on the image, or on the words alone?"""

from rightlung.audit.run import Audit, audit

__all__ = ["Audit", "audit"]

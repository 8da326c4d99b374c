"""The anatomy of a frontal chest radiograph: outlines of twelve structures and boxes of 29 regions."""

from rightlung.models.anatomy.config import AnatomyConfig
from rightlung.models.anatomy.model import AnatomyModel

__all__ = ["AnatomyConfig", "AnatomyModel"]

"""UNITER as "That's the Wrong Lung!" modifies it: words and ground-truth regions in one stream."""

from rightlung.models.uniter.config import UniterConfig
from rightlung.models.uniter.model import Uniter

__all__ = ["Uniter", "UniterConfig"]

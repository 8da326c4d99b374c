"""Sentences and reports by retrieval, with any model that embeds images and texts."""

from rightlung.models.retrieval.model import Retrieval

__all__ = ["Retrieval"]

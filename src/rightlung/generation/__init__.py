"""Reports from retrieval: an index of training reports, writers with and without a language model (eCLIP supp. D)."""

from rightlung.generation.index import ReportIndex, build_index
from rightlung.generation.language_model import ChatModel
from rightlung.generation.reporter import RetrievalReporter, Settings, WrittenReport
from rightlung.generation.samples import write_samples
from rightlung.generation.writers import WRITERS

__all__ = [
    "WRITERS", "ChatModel", "ReportIndex", "RetrievalReporter", "Settings", "WrittenReport", "build_index",
    "write_samples",
]  # fmt: skip

"""XBench (abstract): do vision-language models see what they recognise? Seven and more models × kinds of maps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.sanity import SanityCheck
from rightlung.reproduce.xbench.measuring import ask_more
from rightlung.reproduce.xbench.page import make_page
from rightlung.reproduce.xbench.variants import FINDINGS, VARIANTS, quick_changes
from rightlung.results.measured import Measured

PROTOCOL = Protocol(
    "xbench", ("exact",), ("pointing", "mdice", "miou", "auroc", "average_precision", "abstention"), pixels=224,
    conditions=("none",), decimals=5,
)  # fmt: skip


def _sanity_checks(measured: Measured) -> Iterator[SanityCheck]:
    """Yield the values that the oracle must have."""
    perfect = measured.value("oracle", "auroc", "exact")
    words = "the oracle's lowest AUROC on exact masks is {:.5f}"
    yield SanityCheck(words, perfect, np.min, lambda of: bool(of.min() > 1 - 1e-5))


PAPER = Paper(
    name="xbench",
    title="XBench's claims",
    summary="XBench (abstract): do models that recognise findings also ground them?",
    variants=VARIANTS,
    protocol=PROTOCOL,
    source="phantom?count=300&seed=17&size=224",
    quick_source="phantom?count=24&seed=13&size=96",
    quick_changes=quick_changes,
    sanity_checks=_sanity_checks,
    page=make_page,
    queries=("phrases", "image"),
    findings=FINDINGS,
    ask_more=ask_more,
)

"""XBench (abstract): do vision-language models see what they recognise? Seven and more models × kinds of maps."""

from __future__ import annotations

from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.sanity import perfect_oracle
from rightlung.reproduce.xbench.measuring import ask_more
from rightlung.reproduce.xbench.page import make_page
from rightlung.reproduce.xbench.variants import FINDINGS, VARIANTS, quick_changes

PROTOCOL = Protocol(
    "xbench", ("exact",), ("pointing", "mdice", "miou", "auroc", "average_precision", "abstention"), pixels=224,
    conditions=("none",), decimals=5,
)  # fmt: skip


PAPER = Paper(
    name="xbench",
    title="XBench's claims",
    summary="XBench (abstract): do models that recognise findings also ground them?",
    variants=VARIANTS,
    protocol=PROTOCOL,
    source="phantom?count=300&seed=17&size=224",
    quick_source="phantom?count=24&seed=13&size=96",
    quick_changes=quick_changes,
    sanity_checks=perfect_oracle,
    page=make_page,
    queries=("phrases", "image"),
    findings=FINDINGS,
    ask_more=ask_more,
)

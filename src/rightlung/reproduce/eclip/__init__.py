"""eCLIP (Kumar and Marttinen, ECCV 2024): its variants, tables and figures, and the value of an expert's annotation."""

from __future__ import annotations

from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.eclip.measuring import FINDINGS, ask_more
from rightlung.reproduce.eclip.page import make_page
from rightlung.reproduce.eclip.variants import VARIANTS, quick_changes
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.sanity import perfect_oracle

PROTOCOL = Protocol(
    "eclip",
    ("exact",),
    ("auroc", "average_precision", "pointing", "similarity_global"),
    pixels=128,
    conditions=("none",),
    decimals=5,
    queries=("image", "region"),  # so that studies without a phrase are kept, too
)


PAPER = Paper(
    name="eclip",
    title="eCLIP, reproduced",
    summary="eCLIP (Kumar and Marttinen, ECCV 2024): what is an expert's gaze worth?",
    variants=VARIANTS,
    protocol=PROTOCOL,
    source="phantom?count=1200&seed=17&size=128",
    quick_source="phantom?count=60&seed=13&size=96",
    quick_changes=quick_changes,
    sanity_checks=perfect_oracle,
    page=make_page,
    findings=FINDINGS,
    ask_more=ask_more,
)

"""FITA (Yang et al., 2024): from a plain transformer to FITA, its ablation, and whether its reports can be trusted."""

from __future__ import annotations

from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.fita.measuring import ask_more, measure_more
from rightlung.reproduce.fita.page import make_page
from rightlung.reproduce.fita.variants import VARIANTS, quick_changes
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.sanity import perfect_oracle

PROTOCOL = Protocol(
    "fita", ("exact",), ("auroc", "average_precision", "pointing"), pixels=112,
    conditions=("none",), decimals=5, queries=("image", "region"),  # so that studies without a phrase are kept, too
)  # fmt: skip


PAPER = Paper(
    name="fita",
    title="FITA, reproduced",
    summary="FITA (Yang et al., 2024): do aligned image and text features give better reports?",
    variants=VARIANTS,
    protocol=PROTOCOL,
    source="phantom?count=400&seed=17&size=112&part=held-out",
    quick_source="phantom?count=12&seed=13&size=64",
    quick_changes=quick_changes,
    sanity_checks=perfect_oracle,
    page=make_page,
    ask_more=ask_more,
    measure_more=measure_more,
)

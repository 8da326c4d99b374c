"""ChEX (Müller et al., ECCV 2024): its ablations, tasks, interactive questions and figures."""

from __future__ import annotations

from rightlung.explain import BoxRule
from rightlung.measuring.protocols import Protocol
from rightlung.reproduce.chex.measuring import ask_more, measure_more, report_all_findings
from rightlung.reproduce.chex.page import make_page
from rightlung.reproduce.chex.variants import FINDINGS, VARIANTS, quick_changes
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.sanity import perfect_oracle

PROTOCOL = Protocol(
    "chex",
    ("exact", "regions", "trimmed"),
    (
        "auroc", "average_precision", "pointing", "peak_on_side", "grid_entropy", "abstention", "similarity_global",
        "similarity_local",
    ),
    pixels=224,
    conditions=("none",),
    decimals=5,
    queries=("image", "region"),
)  # fmt: skip


PAPER = Paper(
    name="chex",
    title="ChEX, reproduced",
    summary="ChEX (Müller et al., ECCV 2024): what do boxes, labels and sentences contribute, and does it do as asked?",
    variants=VARIANTS,
    protocol=PROTOCOL,
    source="phantom?count=300&seed=17&size=224",
    quick_source="phantom?count=10&seed=13&size=96",
    quick_changes=quick_changes,
    sanity_checks=perfect_oracle,
    page=make_page,
    queries=("phrases", "regions", "image"),
    findings=FINDINGS,
    boxes=BoxRule(score="box"),
    prepare_model=report_all_findings,
    ask_more=ask_more,
    measure_more=measure_more,
)

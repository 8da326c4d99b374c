"""What eCLIP claims, and what we ask besides, each judged by a paired difference of two variants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import span
from rightlung.reproduce.claims import FAILS, HOLDS, NOT_SHOWN, SEED_DEPENDENT
from rightlung.reproduce.eclip.variants import HOSTS
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import Comparison, Estimate
from rightlung.scoring.statistics import holm

Place = tuple[str, str]
"""A file and a measure in it."""
ACCURACY: Place = ("5x", "class_accuracy")
AUROC: Place = ("zero-shot", "finding_auroc")
POINTING: Place = ("instances", "pointing")
RECALL: Place = ("retrieval", "recall@10")
PROBE: Place = ("probe-1", "finding_auroc")
TITLES = {ACCURACY: "accuracy, 5 classes", AUROC: "zero-shot AUROC", POINTING: "pointing", RECALL: "recall@10",
          PROBE: "probe, 1 % of labels"}  # fmt: skip
LEVEL = 0.95


@dataclass(frozen=True)
class PairClaim:
    """The first variant is better than the second, by a measure that is better if higher."""

    where: str
    text: str
    first: str
    second: str
    place: Place
    ours: bool = False


@dataclass(frozen=True)
class Judged:
    """A claim with its difference and the differences of the single seeds."""

    claim: PairClaim
    found: Comparison
    seeds: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """Whether the claim holds; an effect whose sign depends on the seed is not one."""
        if not self.found.shown:
            return NOT_SHOWN
        if len({math.copysign(1, one) for one in self.seeds}) > 1:
            return SEED_DEPENDENT
        return HOLDS if self.found.value > 0 else FAILS


def _of_hosts() -> list[PairClaim]:
    found = []
    for host, title in HOSTS.items():
        for place in (ACCURACY, AUROC):
            found += [
                PairClaim("Table 1", f"{title}: expert images help.", f"{host}-expert", host, place),
                PairClaim("Table 1", f"{title}: expert images help after training, beyond training on.",
                          f"{host}-expert-post", f"{host}-continued", place),
                PairClaim("Table 1", f"{title}: expert images help more than naive ones.", f"{host}-expert",
                          f"{host}-naive", place),
            ]  # fmt: skip
    return found


CLAIMS: tuple[PairClaim, ...] = (
    *_of_hosts(),
    PairClaim("Ablation", "Gaze helps more than random fixations.", "clip-expert", "map-random", ACCURACY),
    PairClaim("Ablation", "Mixup helps.", "ablation-e-m", "ablation-e", ACCURACY),
    PairClaim("Ablation", "The curriculum helps.", "ablation-e-m-c", "ablation-e-m", ACCURACY),
    PairClaim("Ablation", "Priming helps.", "clip-expert", "ablation-e-m-c", ACCURACY),
    PairClaim("Ablation", "Attention is better than a mask.", "ablation-e", "ablation-mask", ACCURACY),
    PairClaim("Figure 1", "eCLIP is ahead of DACL after few steps.", "clip-expert-180", "clip-dacl-180", AUROC),
    PairClaim("Figure 1", "eCLIP is ahead of m³-mix with few labels.", "clip-expert", "clip-m3", PROBE),
    PairClaim("Retrieval", "eCLIP retrieves better than CLIP.", "clip-expert", "clip", RECALL),
    PairClaim("ours", "Gaze changes where the model looks.", "clip-expert", "clip", POINTING, True),
    PairClaim("ours", "Exact masks change where the model looks.", "map-sentence-mask", "clip", POINTING, True),
    PairClaim("ours", "Gaze is better than the same images without maps.", "clip-expert", "map-none", AUROC, True),
    PairClaim("ours", "Tied: gaze on the sentence makes the model look there.", "clip-tied", "clip", POINTING, True),
    PairClaim("ours", "Tied: zero-shot is better.", "clip-tied", "clip", AUROC, True),
    PairClaim("ours", "Tied on GLoRIA: the model looks there.", "gloria-tied", "gloria", POINTING, True),
)  # fmt: skip


def judge(files: TaskFiles, claims: Sequence[PairClaim] = CLAIMS) -> list[Judged]:
    """Judge the claims whose variants were measured; p-values are adjusted (Holm) for all of them.

    A p-value is that of a normal distribution with the standard deviation of the bootstrap over patients.
    """
    found: list[tuple[PairClaim, Comparison, tuple[float, ...]]] = []
    for claim in claims:
        one = files.difference(claim.first, claim.second, *claim.place)
        if one is None or not one.has_interval:
            continue
        pairs = zip(files.seeds(claim.first, *claim.place), files.seeds(claim.second, *claim.place), strict=False)
        found.append((claim, _tested(one), tuple(first - second for first, second in pairs)))
    adjusted = holm(np.array([one.p for _, one, _ in found])).tolist() if found else []
    return [
        Judged(claim, replace(one, p_adjusted=p, shown=one.shown and p < 1 - LEVEL), seeds)
        for (claim, one, seeds), p in zip(found, adjusted, strict=True)
    ]


def _tested(found: Estimate) -> Comparison:
    normal = NormalDist()
    spread = (found.high - found.low) / (2 * normal.inv_cdf((1 + LEVEL) / 2))
    p = 2 * normal.cdf(-abs(found.value) / spread) if spread > 0 else float(found.value == 0)
    return Comparison(**vars(found), p=p, shown=found.excludes(0.0), level=LEVEL)


def claims_table(judged: Sequence[Judged]) -> Table:
    """Return the table of verdicts."""
    lines = [
        [
            Cell(one.claim.text, one.claim.where), Cell(TITLES[one.claim.place]),
            Cell(span(one.found, signed=True, brief=True, scale=100.0, digits=1), value=one.found.as_json()),
            Cell(", ".join(f"{100 * value:+.1f}" for value in one.seeds)), Cell(one.verdict, strong=True),
        ]
        for one in judged
    ]  # fmt: skip
    header = [Column("claim", "text"), Column("measure", "text"), Column("difference, points"),
              Column("by seed", "text"), Column("verdict", "text")]  # fmt: skip
    caption = (
        "Paired differences of the means over seeds, with 95 % intervals over patients; judged after Holm's "
        f"correction for all {len(judged)}. An effect whose sign depends on the seed is not counted."
    )
    return Table("claims", "Claims", caption, header, lines)

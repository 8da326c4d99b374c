"""What eCLIP claims, and what we ask besides, each judged by a paired difference of two variants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import span
from rightlung.reproduce.claims import FAILS, HOLDS, NOT_SHOWN, SEED_DEPENDENT
from rightlung.reproduce.eclip.files import GEOMETRY, RELIANCE
from rightlung.reproduce.eclip.variants import HOSTS
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import Comparison, Estimate
from rightlung.scoring.statistics import holm
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT, TEXT_TO_IMAGE

Place = tuple[str, str]
"""A file and a measure in it."""
ACCURACY: Place = ("5x", "class_accuracy")
AUROC: Place = ("zero-shot", "finding_auroc")
POINTING: Place = ("instances", "pointing")
RECALL: Place = (IMAGE_TO_TEXT, "recall@10")
RECALL_BACK: Place = (TEXT_TO_IMAGE, "recall@10")
PROBE: Place = ("probe-1", "finding_auroc")
SHORTCUT: Place = (RELIANCE, "finding_auroc")
GAP, ALIGNMENT, UNIFORMITY = (GEOMETRY, "gap"), (GEOMETRY, "alignment"), (GEOMETRY, "uniformity_images")
TITLES = {ACCURACY: "accuracy, 5 classes", AUROC: "zero-shot AUROC", POINTING: "pointing",
          RECALL: "R@10, reports by images", RECALL_BACK: "R@10, images by reports", PROBE: "probe, 1 % of labels",
          SHORTCUT: "AUROC, planted − by chance", GAP: "modality gap × 100", ALIGNMENT: "alignment × 100",
          UNIFORMITY: "uniformity of images × 100"}  # fmt: skip
LEVEL = 0.95
FEWEST_SEEDS = 3
LARGE, SMALL = 0.05, 0.01
"""What our own aims call an effect (5 points), and what they call no worse (1 point)."""


@dataclass(frozen=True)
class PairClaim:
    """The first variant is better than the second.

    ``higher`` and ``lower`` say what is better. ``much higher``: also by `LARGE` at least. ``no worse``: the interval
    of the difference lies above −`SMALL`.
    """

    where: str
    text: str
    first: str
    second: str
    place: Place
    ours: bool = False
    better: Literal["higher", "lower", "much higher", "no worse"] = "higher"

    @property
    def border(self) -> float:
        """The difference that the claim is tested against."""
        return -SMALL if self.better == "no worse" else 0.0


@dataclass(frozen=True)
class Judged:
    """A claim with its difference and the differences of the single seeds."""

    claim: PairClaim
    found: Comparison
    seeds: tuple[float, ...]

    @property
    def enough(self) -> bool:
        """Whether there are enough seeds for a verdict."""
        return len(self.seeds) >= FEWEST_SEEDS

    @property
    def verdict(self) -> str:
        """Whether the claim holds; an effect whose sign depends on the seed is not one."""
        if not self.enough:
            return "one seed only" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds only"
        large = self.claim.better == "much higher"
        if not self.found.shown:
            return FAILS if large and self.found.high < LARGE else NOT_SHOWN
        if len({math.copysign(1, one - self.claim.border) for one in self.seeds}) > 1:
            return SEED_DEPENDENT
        if large and 0 < self.found.value < LARGE:
            return FAILS if self.found.high < LARGE else NOT_SHOWN
        right = self.found.value < self.claim.border if self.claim.better == "lower" else (
            self.found.value > self.claim.border)  # fmt: skip
        return HOLDS if right else FAILS


def _of_hosts() -> Iterator[PairClaim]:
    for host in ("clip", "gloria"):
        title = HOSTS[host]
        pairs = [
            ("expert images help", "expert", ""),
            ("expert images help after training, beyond training on", "expert-post", "continued"),
            ("post-trained with expert images, the host is better than before", "expert-post", ""),
            ("expert images help more than naive ones", "expert", "naive"),
            ("m³-mix helps", "m3", ""),
            ("DACL helps", "dacl", ""),
            ("expert images help more than m³-mix", "expert", "m3"),
        ]
        for text, first, second in pairs:
            other = f"{host}-{second}".strip("-")
            yield PairClaim("Table 1", f"{title}: {text}.", f"{host}-{first}", other, ACCURACY)
        yield PairClaim("Table 1", f"{title}: expert images help.", f"{host}-expert", host, AUROC)
    for host, title in HOSTS.items():
        if host not in ("clip", "gloria"):
            yield PairClaim("Table 1", f"{title}: expert images help.", f"{host}-expert", host, ACCURACY)


def _of_tied() -> Iterator[PairClaim]:
    for host in ("clip", "gloria"):
        who, tied = HOSTS[host], f"{host}-tied"
        yield PairClaim(
            "aim", f"{who} + tied points at least 5 points better.", tied, host, POINTING, True, "much higher"
        )
        text = f"{who} + tied: zero-shot is no worse (interval above −1 point)."
        yield PairClaim("aim", text, tied, host, AUROC, True, "no worse")
    for control, maps in (("tied-random", "random fixations"), ("tied-ones", "maps of ones")):
        yield PairClaim(
            "aim, control", f"CLIP + tied points better than with {maps}.", "clip-tied", control, POINTING, True
        )


CLAIMS: tuple[PairClaim, ...] = (
    *_of_hosts(),
    PairClaim("Ablation", "Gaze helps more than random fixations.", "clip-expert", "map-random", ACCURACY),
    PairClaim("Ablation", "Mixup helps.", "ablation-e-m", "ablation-e", ACCURACY),
    PairClaim("Ablation", "The curriculum helps.", "ablation-e-m-c", "ablation-e-m", ACCURACY),
    PairClaim("Ablation", "Priming helps.", "clip-expert", "ablation-e-m-c", ACCURACY),
    PairClaim("Ablation", "Attention is better than a mask.", "ablation-e", "ablation-mask", ACCURACY),
    PairClaim("Figure 1", "eCLIP is ahead of DACL after few steps.", "clip-expert-180", "clip-dacl-180", AUROC),
    PairClaim("Figure 1", "eCLIP is ahead of m³-mix with few labels.", "clip-expert", "clip-m3", PROBE),
    PairClaim("Retrieval", "eCLIP finds reports better than CLIP.", "clip-expert", "clip", RECALL),
    PairClaim("Retrieval", "eCLIP finds images better than CLIP.", "clip-expert", "clip", RECALL_BACK),
    PairClaim("Geometry", "eCLIP has a smaller modality gap (no merit by itself).", "clip-expert", "clip", GAP,
              better="lower"),
    PairClaim("Geometry", "eCLIP aligns images and reports more closely.", "clip-expert", "clip", ALIGNMENT,
              better="lower"),
    PairClaim("Geometry", "eCLIP spreads images more evenly.", "clip-expert", "clip", UNIFORMITY, better="lower"),
    PairClaim("ours", "Gaze changes where the model looks.", "clip-expert", "clip", POINTING, True),
    PairClaim("ours", "Exact masks change where the model looks.", "map-sentence-mask", "clip", POINTING, True),
    PairClaim("ours", "Gaze is better than the same images without maps.", "clip-expert", "map-none", AUROC, True),
    PairClaim("ours", "Gaze is better than as many more plain pairs.", "clip-expert", "clip-naive-plain", AUROC, True),
    PairClaim("ours", "10,000 gaze maps are better than 1,080.", "map-gaze-10000", "clip-expert", AUROC, True),
    PairClaim("ours", "1,080 gaze maps are better than 100.", "clip-expert", "map-gaze-100", AUROC, True),
    PairClaim("ours", "10,000 exact masks are better than 1,080.", "map-sentence-mask-10000", "map-sentence-mask",
              AUROC, True),
    PairClaim("ours", "Expert images reduce reliance on a planted word.", "shortcut-clip-expert", "shortcut-clip",
              SHORTCUT, True, "lower"),
    PairClaim("ours", "Tied reduces reliance on a planted word.", "shortcut-clip-tied", "shortcut-clip", SHORTCUT, True,
              "lower"),
    *_of_tied(),
)  # fmt: skip


def judge(files: TaskFiles, claims: Sequence[PairClaim] = CLAIMS) -> list[Judged]:
    """Judge the claims whose variants were measured.

    P-values are adjusted (Holm) for all claims with enough seeds; the others are described and not judged. A p-value is
    that of a normal distribution with the standard deviation of the bootstrap over patients.
    """
    found: list[Judged] = []
    for claim in claims:
        one = files.difference(claim.first, claim.second, *claim.place)
        if one is None or not one.has_interval:
            continue
        pairs = zip(files.seeds(claim.first, *claim.place), files.seeds(claim.second, *claim.place), strict=False)
        seeds = tuple(first - second for first, second in pairs)
        found.append(Judged(claim, _tested(one, claim.border), seeds))
    family = [place for place, one in enumerate(found) if one.enough]
    adjusted = holm(np.array([found[place].found.p for place in family])).tolist() if family else []
    for place, p in zip(family, adjusted, strict=True):
        tested = found[place].found
        shown = tested.shown and p < 1 - LEVEL
        found[place] = replace(found[place], found=replace(tested, p_adjusted=p, shown=shown))
    return found


def _tested(found: Estimate, border: float) -> Comparison:
    normal = NormalDist()
    spread = (found.high - found.low) / (2 * normal.inv_cdf((1 + LEVEL) / 2))
    p = 2 * normal.cdf(-abs(found.value - border) / spread) if spread > 0 else float(found.value == border)
    return Comparison(**vars(found), p=p, shown=found.excludes(border), level=LEVEL)


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
        "Paired differences of the means over seeds, with 95 % intervals over patients. The "
        f"{sum(one.enough for one in judged)} claims with at least {FEWEST_SEEDS} seeds are judged after Holm's "
        "correction for all of them; an effect whose sign depends on the seed is not counted. The others are described."
    )
    return Table("claims", "Claims", caption, header, lines)

"""Claims that one variant is better than another, each judged by a paired difference over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import number, span
from rightlung.reproduce.claims import FAILS, HOLDS, NOT_SHOWN, SEED_DEPENDENT, TOO_FEW
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.scoring.statistics import holm, smallest_p

Place = tuple[str, str]
"""A file and a measure in it."""
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
        if self.found.verdict == TOO_FEW:
            return TOO_FEW
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


def judge(files: TaskFiles, claims: Sequence[PairClaim]) -> list[Judged]:
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
    least = smallest_p(found.patients, BootstrapSettings().flips) if found.patients else 0.0
    shown = found.excludes(border) and least < 1 - LEVEL
    return Comparison(**vars(found), p=p, shown=shown, level=LEVEL, smallest_p=least)


def claims_table(judged: Sequence[Judged], titles: Mapping[Place, str]) -> Table:
    """Return the table of verdicts."""
    lines = [
        [
            Cell(one.claim.text, one.claim.where), Cell(titles[one.claim.place]),
            Cell(span(one.found, signed=True, brief=True, scale=100.0, digits=1), value=one.found.as_json()),
            Cell(", ".join(number(100 * value, 1, signed=True) for value in one.seeds)), Cell(one.verdict, strong=True),
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

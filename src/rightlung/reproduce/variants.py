"""What is trained: the variants of a paper, and their training runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rightlung.core.errors import unknown_name

Group = Literal["paper", "ours", "reference"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A row of the tables, trained by ``recipe``, from the model of the variant ``start`` where there is one."""

    slug: str
    name: str
    group: Group
    note: str
    recipe: str
    start: Variant | None = None
    comparable: bool = True
    ablation: bool = False
    picks: bool = False
    """Whether it learns from some of the studies only, so that they must all be held at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training run: a variant with a seed."""

    variant: Variant
    seed: int
    order: int = field(default=0, compare=False)

    @property
    def slug(self) -> str:
        """The name of its folders."""
        return self.variant.slug if self.seed == 1 else f"{self.variant.slug}-seed{self.seed}"

    @property
    def start(self) -> Job | None:
        """The run whose model it starts from."""
        return None if self.variant.start is None else replace(self, variant=self.variant.start, order=0)

    def about(self) -> dict[str, Any]:
        """What its ``about.json`` says of it, the training left out."""
        variant = self.variant
        names = ("name", "group", "comparable", "ablation", "note")
        known = {name: getattr(variant, name) for name in names}
        return {"slug": self.slug, "variant": variant.slug, "seed": self.seed, "order": self.order, **known}


def jobs(variants: Sequence[Variant], only: Sequence[str] = (), seeds: int = 3) -> list[Job]:
    """Return all runs, those with the first seed first.

    ``only`` names variants (``retrained``) or runs (``retrained-seed2``); ``none`` alone stands for none at all.
    """
    found = [
        Job(variant, seed, 10 * place + seed)
        for seed in range(1, max(1, seeds) + 1)
        for place, variant in enumerate(variants)
    ]
    if tuple(only) == ("none",):
        return []
    known = {name for job in found for name in (job.slug, job.variant.slug)}
    for name in only:
        if name not in known:
            raise unknown_name("variant", name, [variant.slug for variant in variants])
    return [job for job in found if not only or job.slug in only or job.variant.slug in only]


def with_starts(wanted: Sequence[Job]) -> list[Job]:
    """Return runs and those that they start from, none twice, each after the one that it starts from."""
    found: dict[Job, None] = {}
    for job in wanted:
        if (start := job.start) is not None:
            found.setdefault(start)
        found.setdefault(job)
    return list(found)

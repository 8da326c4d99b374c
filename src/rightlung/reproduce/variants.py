"""The variants of a paper and their training runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rightlung.core import Study
from rightlung.core.errors import unknown_name

Group = Literal["paper", "ours", "reference"]
QUICK_POOLS = {"train": 48, "validation": 16}
"""Number of studies that ``--quick`` trains and validates on."""
QUICK_FEW_SHOTS = 24


@dataclass(frozen=True, slots=True)
class Variant:
    """A row of the tables, trained with ``recipe``, starting from the model of the variant ``start`` if given."""

    slug: str
    name: str
    group: Group
    note: str
    recipe: str
    start: Variant | None = None
    comparable: bool = True
    ablation: bool = False
    picks: bool = False
    """Whether it trains on a selection of the studies, so that all must be in memory at once."""
    max_seeds: int | None = None
    """The most seeds to train it with, ``None`` for as many as are asked for."""
    derive: Callable[[Any, Iterable[Study]], object] | None = None
    """Makes the model instead of training it: from that of ``start`` (None without one) and the recipe's studies."""
    changes: tuple[str, ...] = ()
    """Changes of the recipe, ``field=value``, as ``--set`` makes them."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training run: a variant with a seed."""

    variant: Variant
    seed: int
    order: int = field(default=0, compare=False)

    @property
    def slug(self) -> str:
        """The name of the run's folders."""
        return self.variant.slug if self.seed == 1 else f"{self.variant.slug}-seed{self.seed}"

    @property
    def few_shot(self) -> bool:
        """Whether it trains further the model of another run."""
        return self.variant.start is not None and self.variant.derive is None

    @property
    def start(self) -> Job | None:
        """The run whose model this one starts from."""
        return None if self.variant.start is None else replace(self, variant=self.variant.start, order=0)

    def about(self) -> dict[str, Any]:
        """Return the content of ``about.json`` without the training."""
        variant = self.variant
        names = ("name", "group", "comparable", "ablation", "note")
        known = {name: getattr(variant, name) for name in names}
        return {"slug": self.slug, "variant": variant.slug, "seed": self.seed, "order": self.order, **known}


def jobs(variants: Sequence[Variant], only: Sequence[str] = (), seeds: int = 3) -> list[Job]:
    """Return the runs, ordered by seed.

    ``only`` selects variants (``retrained``) or runs (``retrained-seed2``), and orders them; ``none`` selects nothing.
    """
    found = [
        Job(variant, seed, 10 * place + seed)
        for seed in range(1, max(1, seeds) + 1)
        for place, variant in enumerate(variants)
        if variant.max_seeds is None or seed <= variant.max_seeds
    ]
    if tuple(only) == ("none",):
        return []
    known = {name for job in found for name in (job.slug, job.variant.slug)}
    for name in only:
        if name not in known:
            raise unknown_name("variant", name, [variant.slug for variant in variants])
    if not only:
        return found
    places = {name: place for place, name in enumerate(only)}
    chosen = [(job.seed, min(places.get(name, len(only)) for name in (job.slug, job.variant.slug)), job)
              for job in found if job.slug in places or job.variant.slug in places]  # fmt: skip
    return [job for *_, job in sorted(chosen, key=lambda one: one[:2])]


def with_starts(wanted: Sequence[Job]) -> list[Job]:
    """Return the runs and those they start from, without duplicates, each after its start."""
    found: dict[Job, None] = {}
    for job in wanted:
        if (start := job.start) is not None:
            found.setdefault(start)
        found.setdefault(job)
    return list(found)

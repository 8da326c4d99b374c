"""The variants of "That's the Wrong Lung!", each a shipped recipe, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rightlung.core.errors import unknown_name

Group = Literal["paper", "ours", "reference"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A row of the tables: ``recipe`` is trained, from the model of the variant ``start`` where there is one."""

    slug: str
    name: str
    group: Group
    note: str
    start: str | None = None
    comparable: bool = True
    ablation: bool = False

    @property
    def recipe(self) -> str:
        """The recipe's name."""
        return "wrong-lung-" + self.slug.removeprefix("retrained-")


VARIANTS: tuple[Variant, ...] = (
    Variant("retrained", "GLoRIA Retrained", "paper", "two softmaxes, as the released code attends"),
    Variant("retrained-one-softmax", "Retrained, one softmax", "paper", "the paper's Eq. 1"),
    Variant("word-masking", "+Word Masking", "paper", "30 % of the words hidden"),
    Variant("clinical-masking", "+Clinical Masking", "paper", "50 % of the clinical entities hidden, by the lexicon"),
    Variant("no-attn", '+"No Attn" Token', "paper", "may attend to nothing"),
    Variant("abnormal", "+Abnormal", "paper", "abnormal sentences only"),
    Variant("thirty-shot", "+30-shot Finetuned", "paper", "attention shown 30 sentences' region boxes", "retrained"),
    Variant("thirty-shot-exact", "+30-shot, exact masks", "ours", "the same with their exact masks", "retrained"),
    Variant("rand-sents", "+Rand Sents", "paper", "other studies' sentences: nothing to learn"),
    Variant("uniter", "UNITER", "paper", "shown the true region boxes", comparable=False),
    Variant("sided", "+Sided", "ours", "sentence with its best region, beside its mirror image"),
    Variant("sided-abstaining", "+Sided, abstaining", "ours", "may attend to nothing, and learns when"),
    Variant("sided-without-mirror", "+Sided without mirror images", "ours", "an ablation", ablation=True),
    Variant("sided-without-sides", "+Sided without exchanged sides", "ours", "an ablation", ablation=True),
    Variant("sided-without-apart", "+Sided without maps apart", "ours", "an ablation", ablation=True),
    Variant("sided-without-positions", "+Sided without positions", "ours", "an ablation", ablation=True),
    Variant("sided-without-small-regions", "+Sided without small regions", "ours", "an ablation", ablation=True),
    Variant("sided-without-abnormal-first", "+Sided without abnormal first", "ours", "an ablation", ablation=True),
    Variant("sided-without-sentence", "+Sided, word by word", "ours", "GLoRIA's local loss instead", ablation=True),
)

BY_SLUG = {variant.slug: variant for variant in VARIANTS}


@dataclass(frozen=True, slots=True)
class Job:
    """One training run: a variant with a seed."""

    variant: Variant
    seed: int

    @property
    def slug(self) -> str:
        """The name of its folders."""
        return self.variant.slug if self.seed == 1 else f"{self.variant.slug}-seed{self.seed}"

    @property
    def start(self) -> Job | None:
        """The run whose model it starts from."""
        return None if self.variant.start is None else replace(self, variant=BY_SLUG[self.variant.start])

    def about(self) -> dict[str, Any]:
        """What its ``about.json`` says of it, the training left out."""
        variant = self.variant
        return {
            "slug": self.slug,
            "variant": variant.slug,
            "name": variant.name,
            "group": variant.group,
            "comparable": variant.comparable,
            "ablation": variant.ablation,
            "seed": self.seed,
            "order": 10 * VARIANTS.index(variant) + self.seed,
            "note": variant.note,
        }


def jobs(only: Sequence[str] = (), seeds: int = 3) -> list[Job]:
    """Return all runs, those with the first seed first.

    ``only`` names variants (``retrained``) or runs (``retrained-seed2``); ``none`` alone stands for none at all.
    """
    found = [Job(variant, seed) for seed in range(1, max(1, seeds) + 1) for variant in VARIANTS]
    if tuple(only) == ("none",):
        return []
    known = {*BY_SLUG, *(job.slug for job in found)}
    for name in only:
        if name not in known:
            raise unknown_name("variant", name, sorted(known))
    return [job for job in found if not only or job.slug in only or job.variant.slug in only]


def with_starts(wanted: Sequence[Job]) -> list[Job]:
    """Return runs and those that they start from, none twice, each after the one that it starts from."""
    found: dict[Job, None] = {}
    for job in wanted:
        if (start := job.start) is not None:
            found.setdefault(start)
        found.setdefault(job)
    return list(found)

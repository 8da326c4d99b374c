"""A perturbation of words, image or target whose effect is measured on a subset of the phrases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Perturbation:
    """A change of words or image (a condition), or of the target, and the subset on which it is measured."""

    name: str
    title: str
    subset: str
    condition: str | None = None
    """The condition, ``None`` if the target is changed instead."""
    target: str | None = None
    """Suffix of the target's name, ``None`` if the target stays."""
    plain: str = "none"
    """The condition to compare with."""

    def scored_target(self, target: str) -> str:
        """Return the target against which the perturbed answer is scored.

        >>> Perturbation("shuffle", "Shuffle in Report", "mdrb", target="shuffled").scored_target("regions")
        'regions-shuffled'
        """
        return target if self.target is None else f"{target}-{self.target}"

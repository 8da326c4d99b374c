"""A change of words, image or target whose effect is measured on a subset of the phrases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Perturbation:
    """A change of words or image (a condition), or of the target, and the subset that it should matter on."""

    name: str
    title: str
    subset: str
    condition: str | None = None
    """The condition asked, ``None`` where the target is changed instead."""
    target: str | None = None
    """What is put behind the target's name, ``None`` where the target stays."""
    plain: str = "none"
    """The condition that the change is counted from."""

    def aim(self, target: str) -> str:
        """Return the target that the perturbed answer is scored against.

        >>> Perturbation("shuffle", "Shuffle in Report", "mdrb", target="shuffled").aim("regions")
        'regions-shuffled'
        """
        return target if self.target is None else f"{target}-{self.target}"

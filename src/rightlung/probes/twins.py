"""Exact twins as probes: the original question about the same patient with one finding changed (`Study.twin`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightlung.core import Image, InputError, Phrase, Polarity, Study
from rightlung.core.keyed import text_digest
from rightlung.probes.rules import Target, own_target

TWIN = "twin-"
"""Begins the name of a condition that asks about a twin; the change follows."""


@dataclass(frozen=True)
class TwinImage:
    """The image of a study's twin instead of its own. Equal twins compare equal, so that each is rendered once."""

    study: Study
    change: str
    finding: str

    def __call__(self, image: Image) -> Image:
        """Render the twin."""
        return self.study.twin(self.change, self.finding).load()


def changed_finding(study: Study, phrase: Phrase | None, change: str) -> str | None:
    """Return the finding that a twin changes: the one that the phrase asserts, None if it asserts none or several.

    Without a phrase it is drawn among those that can be changed, by the study's id.
    """
    possible = () if study.twins is None else study.twins.findings(change)
    if phrase is None:
        return min(possible, key=lambda name: text_digest(study.id, name), default=None)
    if isinstance(own_target(study, phrase), str):
        return None
    present = {one for one, polarity in phrase.findings.items() if polarity != Polarity.NEGATIVE}
    return next(iter(present)) if len(present) == 1 and present <= set(possible) else None


def twin_target(study: Study, phrase: Phrase, change: str) -> Target | str:
    """Return the pixels of the changed finding in the twin's image, or the reason why there are none."""
    finding = changed_finding(study, phrase, change)
    if finding is None:
        return "phrases without a twin"
    located = [one for one in study.twin(change, finding).located_findings if finding in one.findings]
    if not located or located[0].mask is None:
        return "phrases whose finding is not in the twin's image"
    return Target(np.asarray(located[0].mask.pixels), "exact mask")


def check_twins(address: str, has_twins: bool, condition: str) -> None:
    """Raise an error if a condition needs twins and the source has none."""
    if condition.startswith(TWIN) and not has_twins:
        raise InputError(
            f"the condition {condition} needs exact twins, which only the source phantom?… renders; {address} has none"
        )

"""Exact twins as probes: the original question about the same patient with one finding changed (`Study.twin`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rightlung.core import Image, InputError, Phrase, Polarity, Study
from rightlung.core.keyed import text_digest
from rightlung.lexicon.wordkeys import findings_about
from rightlung.probes.rules import own_target

TWIN = "twin-"
"""Begins the name of a condition that asks about a twin; the change follows."""
SIGNS = {
    f"{how}-{sign}": (change, sign)
    for sign in ("marker", "border")
    for how, change in (("without", "unsigned"), ("with", "signed"))
}
"""Conditions that ask about a twin without a planted sign, or with it: the change and the sign."""


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

    Without a phrase it is drawn among those that can be changed and have a place, by the study's id.
    """
    possible = () if study.twins is None else study.twins.findings(change)
    if phrase is None:
        places = located(study)
        return _drawn(study, [name for name in possible if name in places])
    if isinstance(own_target(study, phrase), str):
        return None
    present = {one for one, polarity in phrase.findings.items() if polarity != Polarity.NEGATIVE}
    return next(iter(present)) if len(present) == 1 and present <= set(possible) else None


def _drawn(study: Study, findings: Iterable[str]) -> str | None:
    return min(findings, key=lambda name: text_digest(study.id, name), default=None)


def located(study: Study) -> dict[str, Phrase]:
    """Return the findings whose place is known, each as a phrase with its target."""
    places: dict[str, list[Phrase]] = {}
    for phrase in study.located_findings or study.phrases:
        about = findings_about(phrase.findings)
        if len(about) == 1 and not isinstance(own_target(study, phrase), str):
            places.setdefault(about[0], []).append(phrase)
    return {
        name: some[0]
        if len(some) == 1
        else replace(some[0], boxes=tuple(dict.fromkeys(box for one in some for box in one.target_boxes)), mask=None)
        for name, some in places.items()
    }


def occluded_finding(study: Study) -> Phrase | None:
    """Return the finding that is covered where no phrase names one: the one that ``twin-removed`` takes out, if any."""
    places = located(study)
    drawn = changed_finding(study, None, "removed") if study.twins is not None else _drawn(study, places)
    return None if drawn is None else places[drawn]


def check_twins(address: str, has_twins: bool, condition: str) -> None:
    """Raise an error if a condition needs twins and the source has none."""
    if (condition.startswith(TWIN) or condition in SIGNS) and not has_twins:
        raise InputError(
            f"the condition {condition} needs exact twins, which only the sources phantom?… and painted:… render; "
            f"{address} has none"
        )

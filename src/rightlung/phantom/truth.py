"""Ground truth of a scene, in the lexicon's names and in CheXpert's.

A finding is present if its lesion is, and so is everything that it implies (a consolidation is a lung opacity, a rib
fracture a fracture). All other findings that the phantom can show are absent, not unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rightlung.core.frozen import FrozenMapping
from rightlung.core.study import Polarity
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labels import label_map, label_set
from rightlung.phantom.config import FINDING_ORDER
from rightlung.phantom.scene import Lesion, Scene

TORTUOUS_AORTA = 0.7  # the prominence from which a report may call the aorta tortuous
_CERTAIN = ("same", "close", "broader")  # relations of a label map; "one of" is ambiguous


@cache
def known_findings() -> tuple[str, ...]:
    """Return every finding whose presence a scene determines, by the lexicon's names."""
    names = dict.fromkeys(FINDING_ORDER)
    for finding in FINDING_ORDER:
        names.update(dict.fromkeys(broader_findings(finding)))
    return (*names, "tortuous aorta", "support devices", "no finding")


def lesion_findings(lesion: Lesion) -> frozenset[str]:
    """Return a lesion's finding and everything that it implies."""
    return frozenset((lesion.finding, *broader_findings(lesion.finding)))


def present_findings(scene: Scene) -> frozenset[str]:
    """Return the present findings; "no finding" means no lesion, whatever devices or aorta there are."""
    found = {finding for lesion in scene.lesions for finding in lesion_findings(lesion)}
    others = {
        "tortuous aorta": scene.body.aorta >= TORTUOUS_AORTA,
        "support devices": bool(scene.devices),
        "no finding": not scene.lesions,
    }
    return frozenset(found | {name for name in others if others[name]})


def study_findings(scene: Scene) -> FrozenMapping[str, Polarity]:
    """Return the polarity of every known finding."""
    present = present_findings(scene)
    return FrozenMapping(
        {name: Polarity.POSITIVE if name in present else Polarity.NEGATIVE for name in known_findings()}
    )


@cache
def _chexpert_of(finding: str) -> tuple[str, ...]:
    labels = label_map("findings", "chexpert-14")
    return labels.apply(finding) or () if labels.relations[finding] in _CERTAIN else ()


def chexpert_labels(scene: Scene) -> Mapping[str, int]:
    """Return CheXpert's 14 labels, 1 or 0; "No Finding" means none of CheXpert's pathologies, whatever else it has."""
    present = {label for finding in present_findings(scene) for label in _chexpert_of(finding)}
    labels = {name: int(name in present) for name in label_set("chexpert-14").labels}
    return labels | {"No Finding": int(not present - {"No Finding", "Support Devices"})}

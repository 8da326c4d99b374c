"""Selections of images that show exactly one of k classes, n of each, such as ``5x200`` (GLoRIA, eCLIP supp. A.4).

Any source with findings has them. The choice depends on the seed and on the ids of the studies only, and a smaller
selection is part of a larger one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rightlung.core import InputError
from rightlung.core.keyed import key_uniform
from rightlung.lexicon import canonical_finding, label_set
from rightlung.measuring.targets import StudyLabels

NO_FINDING, DEVICES, HERNIA = "no finding", "support devices", "hernia"
COMPETITION = ("atelectasis", "cardiomegaly", "consolidation", "edema", "pleural effusion")
NOT_CODED = "no indexing"
"""What Open-I writes for a report that nobody has coded: nothing is known about its findings."""
_NAME = re.compile(r"(5|14)x([1-9][0-9]*)|pneumonia")


@dataclass(frozen=True)
class Selection:
    """``per_class`` images that show one of the ``classes`` and no other of them; None: as many as the rarest has."""

    name: str
    classes: tuple[str, ...]
    per_class: int | None = None


def find_selection(name: str) -> Selection:
    """Return the selection of a name.

    - ``5xN``: the five findings of CheXpert's competition; ``5x200`` is GLoRIA's.
    - ``14xN``: no finding, and NIH's 14 findings without hernia; ``14x100`` is eCLIP's.
    - ``pneumonia``: pneumonia against no finding.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"unknown selection {name!r}: there are 5xN (such as 5x200), 14xN and pneumonia")
    if match[1] is None:
        return Selection(name, ("pneumonia", NO_FINDING))
    nih = [one for one in label_set("nih-14").findings.values() if one != HERNIA]
    return Selection(name, COMPETITION if match[1] == "5" else (NO_FINDING, *nih), int(match[2]))


def select(labels: Mapping[str, StudyLabels], selection: Selection, seed: int = 0) -> dict[str, StudyLabels]:
    """Return the chosen studies; in their findings one class is positive and all others are negative.

    A study qualifies for a class if that one is positive and no other class is positive or uncertain. It qualifies for
    "no finding" if it is labelled so, or if findings are known to be absent and none but devices is present.
    """
    found: dict[str, list[str]] = {name: [] for name in selection.classes}
    for study, one in labels.items():
        if (only := _only_class(one, selection.classes)) is not None:
            found[only].append(study)
    wanted = min(map(len, found.values())) if selection.per_class is None else selection.per_class
    if short := {name: len(some) for name, some in found.items() if len(some) < max(wanted, 1)}:
        listed = ", ".join(f"{name} {count}" for name, count in short.items())
        raise InputError(f"selection {selection.name} needs {max(wanted, 1)} studies of each class alone; got {listed}")
    chosen = {
        study: name
        for name, some in found.items()
        for study in sorted(some, key=lambda study: key_uniform(seed, "selection", study))[:wanted]
    }
    return {
        study: replace(
            one, findings={name: "positive" if name == chosen[study] else "negative" for name in selection.classes}
        )
        for study, one in labels.items()
        if study in chosen
    }


def _only_class(one: StudyLabels, classes: tuple[str, ...]) -> str | None:
    polarities = {canonical_finding(name): polarity for name, polarity in one.findings.items()}
    shown = {name for name, polarity in polarities.items() if polarity in ("positive", "uncertain")}
    if NOT_CODED in shown:
        return None
    if not shown - {DEVICES} and "negative" in polarities.values():
        shown.add(NO_FINDING)
        polarities[NO_FINDING] = "positive"
    own = [name for name in classes if name in shown]
    return own[0] if len(own) == 1 and polarities[own[0]] == "positive" else None


def missing_as_negative(labels: Mapping[str, StudyLabels]) -> dict[str, StudyLabels]:
    """Return labels in which a missing finding is absent if other studies of the source have it.

    This is how NIH's and Open-I's labels are mostly used, which list what is present only. A study without any finding
    but devices is a "no finding"; one that was not coded stays as it is.
    """
    every = {canonical_finding(name) for one in labels.values() for name in one.findings} - {NOT_CODED}
    every.add(NO_FINDING)
    found = {}
    for study, one in labels.items():
        known = {canonical_finding(name): polarity for name, polarity in one.findings.items()}
        present = {name for name, polarity in known.items() if polarity != "negative"} - {DEVICES, NO_FINDING}
        if NOT_CODED not in known:
            none = {NO_FINDING: "negative" if present else "positive"}
            known = dict.fromkeys(sorted(every), "negative") | none | known
        found[study] = replace(one, findings=known)
    return found

"""The image-blind location prior as a row beside the models: what the words asked would point at without a look.

It is the audit's (`rightlung.audit.prior`): the mean target by finding, side and zone named, fitted on other patients
only, its smoothing chosen among those. It reads the words of each condition: the findings of a random sentence, the
sides as swapped. The image it never sees, so that exchanging images changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from rightlung.audit.prior import LocationPrior, PriorRow
from rightlung.audit.targets import side_of_target
from rightlung.audit.words import WordKey, word_key
from rightlung.core import Grounding, Heatmap, InputError
from rightlung.core.errors import unknown_name
from rightlung.reproduce.wrong_lung.instances import Instances
from rightlung.reproduce.wrong_lung.measuring import Answer, Progress, Question, measure_pointer

FittedOn = Literal["exact", "regions"]


def fit_on(instances: Instances, target: FittedOn) -> LocationPrior:
    """Fit the prior on one kind of target of all instances that have it; its maps leave out each patient's own fold."""
    if target not in ("exact", "regions"):
        raise unknown_name("target", str(target), ("exact", "regions"))
    prior = LocationPrior(source=str(instances.about["source"]))
    for instance in instances:
        if target in instance.targets:
            said = instance.asked["none"]
            pixels = instances.mask(instance.targets[target])
            side = side_of_target(pixels, instances.shown[instance.image].midline)
            prior.add(PriorRow(instances.patient(instance), said.text, said.findings, pixels, side))
    if not len(prior):
        raise InputError(f"{instances.folder}: no instance has the target {target!r} to fit a prior on")
    return prior


@dataclass(slots=True)
class PriorPointer:
    """Answers from the words alone."""

    prior: LocationPrior
    instances: Instances

    def same(self, question: Question) -> Hashable:
        """Return what the words say and whose phrase it is."""
        return self._key(question), self._fold(question)

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the map of each question's words, fitted without the patient's fold."""
        return [
            Answer(Grounding(Heatmap(self.prior.values_of(self._key(question), self._fold(question)))))
            for question in questions
        ]

    def _key(self, question: Question) -> WordKey:
        return word_key(question.asked.text, question.asked.findings)

    def _fold(self, question: Question) -> int | None:
        return self.prior.held_out(self.instances.patient(question.instance))


def measure_prior(
    instances: Instances,
    folder: str | Path,
    *,
    about: Mapping[str, Any],
    fitted_on: FittedOn = "exact",
    device: torch.device | str = "cpu",
    batch_size: int = 256,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Measure the prior as `measure` does a model.

    Fitted on exact targets it is the stronger reference for those, fitted on region boxes for region boxes.
    """
    prior = fit_on(instances, fitted_on)
    known = {"weights": None, "training": None, **about}
    known["prior"] = {"fitted_on": fitted_on, "phrases": len(prior), "folds": prior.folds}
    return measure_pointer(
        PriorPointer(prior, instances), instances, folder, about=known, device=device, batch_size=batch_size,
        progress=progress,
    )  # fmt: skip

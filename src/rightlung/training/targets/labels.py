"""Findings of an image as labels, for classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rightlung.core import InputError, Study
from rightlung.lexicon import canonical_finding
from rightlung.training.annotations import DEVICES, NO_FINDING, StudyAnnotations
from rightlung.training.targets.base import TARGETS, BatchPart, TargetBuilder, label_values


@TARGETS.register
@dataclass(frozen=True)
class LabelTargets(TargetBuilder):
    """The labels of each image for the ``f`` ``findings`` of the settings.

    - ``values`` (n, f): 1 (present), 0 (absent) or NaN (uncertain or missing). With ``missing_labels: negative``, a
      missing one is 0 if other studies of the source have this label.
    """

    findings: tuple[str, ...] = ()

    name = "labels"

    def __post_init__(self) -> None:
        if not self.findings:
            raise InputError("findings must name at least one finding")

    def available_in(self, study: Study) -> bool:
        """Whether one of the findings is labelled."""
        return not {canonical_finding(name) for name in study.findings}.isdisjoint(
            map(canonical_finding, self.findings)
        )

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return the values."""
        labelled = part.source_findings if part.entry.missing_labels == "negative" else frozenset()
        missing = [0.0 if canonical_finding(name) in labelled else torch.nan for name in self.findings]
        return {"values": part.tensor([self._of(annotations, missing) for annotations in part.studies], torch.float32)}

    def _of(self, annotations: StudyAnnotations, missing: list[float]) -> list[float]:
        absent = annotations.absent | ({NO_FINDING} if annotations.present - {NO_FINDING, DEVICES} else set())
        values = label_values(self.findings, annotations.present, absent)
        unsure = [canonical_finding(name) in annotations.uncertain for name in self.findings]
        known = zip(values, missing, unsure, strict=True)
        return [otherwise if value != value and not doubt else value for value, otherwise, doubt in known]

"""The text of an image's report, for models that write one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rightlung.core import Study
from rightlung.lexicon.side_changes import mirrored
from rightlung.training.annotations import StudyAnnotations
from rightlung.training.targets.base import TARGETS, BatchPart, DrawContext, TargetBuilder


@TARGETS.register
@dataclass(frozen=True)
class ReportText(TargetBuilder):
    """The report of each image. The model tokenises it.

    - ``texts``: list of length n; empty where there is no report. The report of a mirrored image is mirrored, and an
      image whose report has no mirror image is not mirrored.
    """

    name = "report"

    def available_in(self, study: Study) -> bool:
        """Whether there is a report."""
        return study.report is not None and bool(study.report.text.strip())

    def draw(self, annotations: StudyAnnotations, context: DrawContext) -> str:
        """Return the report."""
        return annotations.report

    def mirror(self, words: str) -> str | None:
        """Return the mirrored report, None where it has no mirror image."""
        return mirrored(words) if words else words

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return the texts."""
        return {"texts": list(part.drawn)}

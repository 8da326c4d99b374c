"""What can be answered about an image without seeing it: median boxes, frequencies of findings, frequent texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, Phrase, Query, Report, ScoredBox, Study
from rightlung.lexicon import REGIONS
from rightlung.lexicon.findings import canonical_finding
from rightlung.lexicon.wordkeys import findings_about, side_named
from rightlung.models.blind.constants import ConstantText, MedianBoxes
from rightlung.models.blind.frequency import UNKNOWN, FindingFrequency, NearbyFindings
from rightlung.models.blind.texts import FrequentText
from rightlung.models.findings import findings_named

ANYTHING = ""
"""The subject of every text, and the name of a box of any phrase."""
SAME_REGION = 0.5
"""IoU of a box and the median box of a region from which on it is taken for the box of that region."""


@dataclass
class BlindModel:
    """The image-blind baseline of all tasks.

    Its statistics leave out the fold of a patient, so that it can be fitted on the source that it answers about: see
    `phrase_box` and `text`. The methods that take images, like those of any model, answer about other patients than
    those of `fit`.
    """

    phrase_boxes: MedianBoxes = field(default_factory=MedianBoxes)
    finding_boxes: MedianBoxes = field(default_factory=MedianBoxes)
    region_boxes: MedianBoxes = field(default_factory=MedianBoxes)
    region_findings: FindingFrequency = field(default_factory=FindingFrequency)
    box_findings: NearbyFindings = field(default_factory=NearbyFindings)
    texts: dict[str, ConstantText] = field(default_factory=lambda: defaultdict(ConstantText))
    """By subject: those of a region, and all."""
    reports: ConstantText = field(default_factory=ConstantText)
    sentences: FrequentText | None = None
    """The sentences of reports by what they are about."""
    outlined: dict[str, float] = field(default_factory=dict)
    """The share of studies with a box of each finding."""
    regions: dict[str, Box] = field(default_factory=dict)

    @classmethod
    def fit(cls, studies: Iterable[Study]) -> Self:
        """Learn from studies."""
        model, known, counts = cls(), list(studies), Counter[str]()
        for study in known:
            counts.update(model._learn(study))
        model.outlined = {name: count / len(known) for name, count in counts.items()}
        medians = {name: model.region_boxes.box([name], None) for name in REGIONS}
        model.regions = {name: box for name, box in medians.items() if box is not None}
        model.sentences = FrequentText.fit(known)
        return model

    def _learn(self, study: Study) -> set[str]:
        """Learn from a study, and return the findings that it has boxes of."""
        patient = study.patient or study.id
        for name, box in study.regions.items():
            if name in REGIONS:
                self.region_boxes.add(name, patient, box.as_tuple())
                self.region_findings.add(name, patient, known_findings(study.region_findings.get(name, {})))
        outlined: dict[tuple[tuple[str, ...], str, Box], None] = {}
        for phrase in (*study.located_findings, *study.phrases):
            about = tuple(sorted(findings_about(phrase.findings)))
            outlined |= dict.fromkeys((about, phrase.text, box) for box in phrase.target_boxes)
        for about, text, box in outlined:
            self.learn_phrase(patient, about, text, box.as_tuple())
        for about, box in dict.fromkeys((about, box) for about, _, box in outlined):
            self.box_findings.add(patient, box.as_tuple(), about)
        boxes = {(finding, box) for about, _, box in outlined for finding in about}
        for finding, box in boxes:
            self.finding_boxes.add(finding, patient, box.as_tuple())
        if study.report is not None and study.report.text.strip():
            self.reports.add(patient, study.report.text)
        return {finding for finding, _ in boxes}

    def learn_phrase(self, patient: str, findings: Collection[str], text: str, corners: Sequence[float]) -> None:
        """Learn from one box of a phrase about these findings."""
        for name in _phrase_names(findings, text):
            self.phrase_boxes.add(name, patient, corners)

    def phrase_box(self, findings: Collection[str], text: str, patient: str | None) -> Box | None:
        """Return the median box of phrases about the same findings and the same side.

        If there is none: of the same findings, of phrases about one of them (and on the same side), of all phrases.
        """
        return self.phrase_boxes.box(_phrase_names(findings, text), patient)

    def text(self, subject: str, patient: str | None) -> str | None:
        """Return the most frequent text about a subject, else of all."""
        own = self.texts[subject].text(patient) if subject in self.texts else None
        return own or self.texts[ANYTHING].text(patient)

    def ground(self, images: Sequence[Any], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Return the median box of the findings and the side that each phrase names."""
        texts = [phrase.text if isinstance(phrase, Phrase) else phrase for phrase in phrases]
        boxes = [self.phrase_box(findings_named(text), text, None) for text in texts]
        return [Grounding(boxes=[] if box is None else [ScoredBox(box, 1.0)]) for box in boxes]

    def detect(self, images: Sequence[Any], findings: Sequence[str]) -> list[list[ScoredBox]]:
        """Return the median box of each finding, with its frequency as the score, for every image."""
        found = [(self.finding_boxes.box([name], None), self.outlined.get(name, 0.0), name) for name in findings]
        return [[ScoredBox(box, score, name) for box, score, name in found if box is not None] for _ in images]

    def classify(
        self,
        images: Sequence[Any],
        findings: Sequence[str],
        boxes: Sequence[Box] | None = None,
        multiclass: bool = False,
    ) -> NDArray[np.float32]:
        """Return the frequency of each finding, (images, findings): in the region of a box; 0.5 for whole images.

        With ``multiclass``, and for boxes that resemble no region, it is that of the boxes of findings nearby.
        """
        rows = [[UNKNOWN] * len(findings)] * len(images) if boxes is None else []
        for box in boxes or ():
            region = None if multiclass else self.region_at(box)
            if region is None:
                rows.append(self.box_findings.shares(box, findings, None))
            else:
                rows.append(self.region_findings.shares(region, findings, None))
        return np.array(rows, dtype=np.float32).reshape(len(images), len(findings))

    def region_at(self, box: Box) -> str | None:
        """Return the region whose median box resembles a box most, None if none does."""
        best = max(self.regions, key=lambda name: box.iou(self.regions[name]), default=None)
        return best if best is not None and box.iou(self.regions[best]) >= SAME_REGION else None

    def describe(self, images: Sequence[Any], queries: Sequence[Query]) -> list[str]:
        """Return the most frequent sentence about what each query names, or about the region at its box."""
        return [self._describe(query) for query in queries]

    def _describe(self, query: Query) -> str:
        assert self.sentences is not None, "fitted before"
        if query.phrase is not None or query.box is None:
            return self.sentences.describe([], query)[0]
        region = self.region_at(query.box)
        return self.sentences.describe([], query if region is None else Query(REGIONS[region].spoken))[0]

    def report(self, images: Sequence[Any]) -> list[Report]:
        """Return the most frequent report for every image."""
        return [Report(self.reports.text(None) or "") for _ in images]


def known_findings(polarities: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether each finding is present, by canonical name, without those of which this is not known."""
    known = {canonical_finding(name): str(polarity) for name, polarity in polarities.items()}
    return {name: polarity == "positive" for name, polarity in known.items() if polarity in ("positive", "negative")}


def _phrase_names(findings: Collection[str], text: str) -> list[Hashable]:
    """Return the names under which to look up the box of a phrase, the most specific first."""
    about, side = tuple(sorted(map(canonical_finding, findings))), side_named(text)
    among: list[Hashable] = [name for one in about for name in (("among", one, side), ("among", one))]
    return [(about, side), about, *among, ANYTHING]

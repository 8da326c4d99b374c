"""Studies whose truth is known by hand, and a model that knows it: the first pixel says which study it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, Image, Phrase, Polarity, Query, Report, ScoredBox, Study
from rightlung.studies import Source
from tests.asking.models import picture
from tests.measuring.made_up import REGIONS

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE
HEART = Box(0.3, 0.5, 0.7, 0.9)
NODULE = {True: Box(0.6, 0.2, 0.8, 0.4), False: Box(0.1, 0.5, 0.3, 0.7)}
"""Where the nodule is: on the patient's left in even studies."""


class Ward(Source):
    """Studies of a nodule each, and in every third an enlarged heart; two studies to a patient."""

    def __init__(self, count: int = 12, address: str = "ward", first: int = 0) -> None:
        super().__init__(address)
        self.count, self.first = count, first

    @property
    def ids(self) -> Sequence[str]:
        return [f"s{number}" for number in range(self.count)]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None

    def _build(self, position: int) -> Study:
        left, large = position % 2 == 0, position % 3 == 0
        side = "left" if left else "right"
        lung = {f"{side} lung": {"nodule": POSITIVE}, f"{'right' if left else 'left'} lung": {"nodule": NEGATIVE}}
        nodule = Phrase(
            f"Nodule in the {side} lung.", (NODULE[left],), regions=(f"{side} lung",), findings={"nodule": POSITIVE}
        )
        heart = Phrase("The heart is enlarged.", (HEART,), findings={"cardiomegaly": POSITIVE})
        phrases = (nodule, *([heart] if large else ()), Phrase("No effusion.", findings={"pleural effusion": NEGATIVE}))
        image = picture(position)
        image[0, 0] = (position + 1) / 255
        findings = {"nodule": POSITIVE, "cardiomegaly": POSITIVE if large else NEGATIVE}
        report = Report(" ".join(phrase.text for phrase in phrases))
        return Study(
            f"s{position}", lambda: image, f"p{(position + self.first) // 2}", phrases=phrases, regions=REGIONS,
            findings=findings, report=report, region_findings=lung,
        )  # fmt: skip


class BoxesOnly(Ward):
    """The same without reports, regions and findings of images: boxes are all that is known."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        located = tuple(phrase for phrase in study.phrases if phrase.boxes)
        return replace(study, phrases=located, regions={}, region_findings={}, findings={}, report=None)


class Oracle:
    """Answers with the truth; its boxes are half as wide and high as those of the studies if ``scale`` is 0.5."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def study(self, image: Image) -> Study:
        return Ward()._build(round(float(image[0, 0]) * 255) - 1)

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        known = [{one.text: one.boxes for one in self.study(image).phrases} for image in images]
        found = [boxes[str(phrase)] for boxes, phrase in zip(known, phrases, strict=True)]
        return [Grounding(boxes=[ScoredBox(box.scaled(self.scale), 0.9) for box in boxes]) for boxes in found]

    def detect(self, images: Sequence[Image], findings: Sequence[str]) -> list[list[ScoredBox]]:
        found = []
        for image in images:
            own = [(name, box) for one in self.study(image).phrases for name in one.findings for box in one.boxes]
            found.append([ScoredBox(box.scaled(self.scale), 0.9, name) for name, box in own if name in findings])
        return found

    def classify(
        self, images: Sequence[Image], findings: Sequence[str], boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        rows = []
        for place, image in enumerate(images):
            study = self.study(image)
            known = {name for name, polarity in study.findings.items() if polarity == POSITIVE}
            if boxes is not None:
                located = [(name, box) for one in study.phrases for name in one.findings for box in one.boxes]
                known = {name for name, box in located if box.intersection(boxes[place])}
                known &= {"cardiomegaly"} if boxes[place] == HEART else {"nodule"}
            rows.append([float(name in known) for name in findings])
        return np.array(rows, np.float32)

    def describe(self, images: Sequence[Image], queries: Sequence[Query]) -> list[str]:
        found = []
        for image, query in zip(images, queries, strict=True):
            phrases = self.study(image).phrases
            if query.phrase is not None:
                found.append(" ".join(one.text for one in phrases if query.phrase in one.text))
                continue
            inside = [one for one in phrases if any(box.intersection(query.box or HEART) for box in one.boxes)]
            exact = [one for one in inside if query.box in one.boxes]
            found.append(" ".join(one.text for one in exact or inside[:1]))
        return found

    def report(self, images: Sequence[Image]) -> list[Report]:
        found = [self.study(image).report for image in images]
        return [report for report in found if report is not None]

    def encode_image(self, images: Sequence[Image]) -> NDArray[np.float32]:
        return self.encode_text([report.text for report in self.report(images)])

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        words = ("left", "right", "enlarged")
        return np.array([[float(word in text) for word in words] for text in texts], np.float32)

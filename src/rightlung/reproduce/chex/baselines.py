"""Baselines of ChEX that are made instead of trained: from a CLIP, or from the training studies alone (supp. E.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, Image, Phrase, Query, Report, ScoredBox, Study
from rightlung.lexicon import REGIONS
from rightlung.lexicon.wordkeys import findings_about, side_named
from rightlung.models.blind.constants import MedianBoxes
from rightlung.models.blind.texts import FrequentText
from rightlung.models.findings import findings_named
from rightlung.models.retrieval import Retrieval

FITTED_ON = 1000
"""Number of training studies whose sentences, boxes and reports are used."""


def retrieve_sentences(clip: Any, studies: Iterable[Study]) -> Retrieval:
    """Return a model that answers with the nearest sentence of the training studies."""
    return Retrieval.fit(clip, islice(studies, FITTED_ON))


@dataclass
class CroppedClip:
    """A CLIP that classifies regions by their crops, not by their pooled patches, and does nothing else."""

    clip: Any

    @classmethod
    def of(cls, clip: Any, studies: Iterable[Study]) -> Self:
        """Return the model with the weights of another; no study is needed."""
        config = clip.to_config() | {"regions": "cropped"}
        return cls(type(clip).from_parts(config, clip.tensors(), clip.extra_files()).to(clip.device))

    def classify(
        self,
        images: Sequence[Image],
        findings: Sequence[str],
        boxes: Sequence[Box] | None = None,
        multiclass: bool = False,
    ) -> NDArray[np.float32]:
        """Return the probability of each finding, (images, findings)."""
        found: NDArray[np.float32] = self.clip.classify(images, findings, boxes, multiclass)
        return found


@dataclass
class BlindBaseline:
    """What can be answered without the image: median boxes, frequencies of findings, the most frequent texts.

    ``boxes`` are those of a finding, of a finding on a side, and of a region (under its name).
    """

    boxes: Mapping[Hashable, Box]
    frequencies: Mapping[str, float]
    """The share of studies with a box of each finding."""
    texts: FrequentText

    @classmethod
    def fit(cls, start: None, studies: Iterable[Study]) -> Self:
        """Count the boxes and texts of training studies."""
        known = list(islice(studies, FITTED_ON))
        corners, counts, names = MedianBoxes(), Counter[str](), dict[Hashable, None]()
        for study in known:
            found: list[tuple[Hashable, Box]] = [(name, box) for name, box in study.regions.items() if name in REGIONS]
            outlined = {
                (finding, side_named(phrase.text), box)
                for phrase in (*study.located_findings, *study.phrases)
                for finding in findings_about(phrase.findings)
                for box in phrase.target_boxes
            }
            found += [(finding, box) for finding, _, box in outlined]
            found += [((finding, side), box) for finding, side, box in outlined]
            counts.update({finding for finding, _, _ in outlined})
            for name, box in found:
                names[name] = None
                corners.add(name, study.patient or study.id, box.as_tuple())
        medians = {name: median for name in names if (median := corners.box([name], None)) is not None}
        return cls(medians, {name: count / len(known) for name, count in counts.items()}, FrequentText.fit(known))

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Return the median box of the findings and the side that each phrase names."""
        texts = [phrase.text if isinstance(phrase, Phrase) else phrase for phrase in phrases]
        return [Grounding(boxes=self._boxes(text)) for text in texts]

    def _boxes(self, text: str) -> list[ScoredBox]:
        names = [((finding, side_named(text)), finding) for finding in findings_named(text)]
        found = [next((self.boxes[name] for name in some if name in self.boxes), None) for some in names]
        return [ScoredBox(box, 1.0) for box in dict.fromkeys(found) if box is not None]

    def detect(self, images: Sequence[Image], findings: Sequence[str]) -> list[list[ScoredBox]]:
        """Return the median box of each finding, with its frequency as the score, for every image."""
        known = [name for name in findings if name in self.frequencies]
        return [[ScoredBox(self.boxes[name], self.frequencies[name], name) for name in known] for _ in images]

    def describe(self, images: Sequence[Image], queries: Sequence[Query]) -> list[str]:
        """Return the most frequent sentence about what each query names, or about the region at its box."""
        return [self.texts.describe([], query)[0] for query in map(self._named, queries)]

    def _named(self, query: Query) -> Query:
        if query.phrase is not None or query.box is None:
            return query
        regions = {name: query.box.iou(box) for name, box in self.boxes.items() if name in REGIONS}
        best = max(regions, key=lambda name: regions[name], default=None)
        return query if best is None else Query(REGIONS[str(best)].spoken)

    def report(self, images: Sequence[Image]) -> list[Report]:
        """Return the most frequent report for every image."""
        return self.texts.report(images)

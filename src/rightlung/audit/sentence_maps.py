"""Where the sentences of a written report point: their maps against the findings of the image, next to the prior.

A sentence is scored for each finding that it asserts and that the source outlines in the image (exact masks, or boxes).
The location prior reads the same sentence and has learned from other patients. A finding that the image does not show
has no target: it is counted, and so are sentences that only deny.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rightlung.core import Mask, Phrase, Polarity, Report, Study
from rightlung.lexicon.findings import broader_findings, canonical_finding
from rightlung.lexicon.labeller import read_sentence
from rightlung.measuring.maps import AnswerMap, to_pixels
from rightlung.models.blind.prior import LocationPrior, PriorRow
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator
from rightlung.scoring.localisation import score

PIXELS = 128
SCORES = ("pointing", "auroc", "average_precision")


@dataclass
class SentenceMaps:
    """The sentences of reports with a map that assert a finding, and the outlines of the findings by study."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    prior: LocationPrior = field(default_factory=LocationPrior)
    _targets: dict[tuple[str, str], NDArray[np.bool_]] = field(default_factory=dict)
    _maps: list[AnswerMap | None] = field(default_factory=list)

    def add(self, study: Study, report: Report) -> None:
        """Take in a report and the study that it is about."""
        patient = study.patient or f"study {study.id}"
        for name, (phrase, pixels) in outlines(study).items():
            self._targets[study.id, name] = pixels
            self.prior.add(PriorRow(patient, phrase.text, phrase.findings, pixels))
        for sentence in report.sentences:
            if sentence.heatmap is None:
                continue
            findings = read_sentence(sentence.text).findings
            stated = [name for name, polarity in findings.items() if polarity == "positive"]
            for name in stated or [None]:  # type: ignore[list-item]
                self.rows.append({"study": study.id, "patient": patient, "text": sentence.text, "finding": name,
                                  "abstention": sentence.heatmap.abstention})  # fmt: skip
                map_ = sentence.heatmap
                self._maps.append(None if name is None else AnswerMap(map_.values, map_.extent.as_tuple()))

    def table(self) -> pa.Table:
        """Return a row for each sentence and finding, with the scores of the map and of the prior (``prior_…``)."""
        columns: dict[str, Any] = {name: [row[name] for row in self.rows] for name in
                                   ("study", "patient", "text", "finding", "abstention")}  # fmt: skip
        known = [place for place, row in enumerate(self.rows) if row["finding"] and self._target(row) is not None]
        targets = np.array([self._target(self.rows[place]) for place in known], bool).reshape(-1, PIXELS, PIXELS)
        own = [one for one in (self._maps[place] for place in known) if one is not None]
        phrases = [Phrase(self.rows[n]["text"], findings={self.rows[n]["finding"]: Polarity.POSITIVE}) for n in known]
        grounded = self.prior.ground_blind(phrases, [self.rows[n]["patient"] for n in known]) if known else []
        priors = [AnswerMap(one.heatmap.values, one.heatmap.extent.as_tuple()) for one in grounded if one.heatmap]
        for prefix, maps in (("", own), ("prior_", priors)):
            found = score(_pixels(maps), targets, metrics=SCORES) if known else {name: [] for name in SCORES}
            for name in SCORES:
                column = np.full(len(self.rows), np.nan)
                column[known] = found[name]
                columns[f"{prefix}{name}"] = column
        columns["condition"] = ["none"] * len(self.rows)
        return pa.table(columns)

    def _target(self, row: Mapping[str, Any]) -> NDArray[np.bool_] | None:
        names = [canonical_finding(row["finding"]), *broader_findings(row["finding"])]
        return next(
            (self._targets[row["study"], name] for name in names if (row["study"], name) in self._targets), None
        )


def outlines(study: Study) -> dict[str, tuple[Phrase, NDArray[np.bool_]]]:
    """Return a phrase and the pixels of each finding that a study outlines; of all its places, if they are known."""
    found: dict[str, tuple[Phrase, NDArray[np.bool_]]] = {}
    for phrase in study.located_findings or study.phrases:
        asserted = [name for name, polarity in phrase.findings.items() if polarity == "positive"]
        if len(asserted) != 1 or (phrase.mask is None and not phrase.target_boxes):
            continue
        mask = phrase.mask or Mask.from_boxes(phrase.target_boxes, (PIXELS, PIXELS))
        name, pixels = canonical_finding(asserted[0]), mask.resized((PIXELS, PIXELS)).pixels
        for one in (name, *broader_findings(name)):
            before = found.get(one)
            found[one] = (phrase, pixels if before is None else before[1] | pixels)
    return found


def _pixels(maps: Sequence[AnswerMap]) -> NDArray[np.float32]:
    return np.concatenate([to_pixels([one], (PIXELS, PIXELS)) for one in maps]).astype(np.float32)


def written_maps(model: Any, studies: Iterable[Study], at_once: int = 16) -> SentenceMaps:
    """Write the reports of studies, and collect the maps of their sentences."""
    found, left = SentenceMaps(), iter(studies)
    while some := [*islice(left, at_once)]:
        for study, report in zip(some, model.report([one.load() for one in some]), strict=True):
            found.add(study, report)
    return found


def map_estimates(table: pa.Table, settings: BootstrapSettings) -> dict[str, tuple[Estimate, Estimate, Comparison]]:
    """Return each score of the maps, that of the prior, and their difference, paired by patient."""
    frame = table.to_pandas()
    estimator = Estimator(frame.patient.to_numpy(dtype=object), settings)
    found = {}
    for name in SCORES:
        own, prior = (frame[column].to_numpy(np.float64) for column in (name, f"prior_{name}"))
        found[name] = (*estimator.means([own, prior]), estimator.difference(own, prior))
    return found  # type: ignore[return-value]

"""The most frequent sentence and the most frequent report: what texts score that never look at the image."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from rightlung.core import InputError, Query, Report, Study
from rightlung.lexicon.labeller import read_report, read_sentence
from rightlung.models.blind.constants import ConstantText
from rightlung.models.hub import Pretrained
from rightlung.models.inputs import Images, as_images

ANYTHING = ""
"""The subject of every sentence."""


@dataclass
class FrequentText(Pretrained):
    """The most frequent sentence about what a query names, and the most frequent report, without the image.

    ``sentences`` are those by finding or region, and that of all (`ANYTHING`), which answers all other queries.
    """

    full_report: str
    sentences: Mapping[str, str]

    kind: ClassVar[str] = "frequent-text"

    @classmethod
    def fit(cls, studies: Iterable[Study]) -> Self:
        """Count the texts of studies: those of other patients than the ones to be asked about."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        reports = ConstantText()
        for study in studies:
            if study.report is not None and study.report.text.strip():
                reports.add(study.patient or study.id, study.report.text)
                for sentence in read_report(study.report):
                    for subject in (ANYTHING, *sentence.findings, *sentence.regions):
                        counts[subject][sentence.text] += 1
        if not counts:
            raise InputError("no study has a report with a sentence that describes the image")
        most = {subject: max(sorted(own), key=own.__getitem__) for subject, own in counts.items()}
        return cls(reports.text(None) or "", most)

    def describe(self, images: Images, queries: Query | Sequence[Query]) -> list[str]:
        """Return the most frequent sentence about the first finding, else the first region, that each query names."""
        return [self._sentence(query) for query in ([queries] if isinstance(queries, Query) else queries)]

    def _sentence(self, query: Query) -> str:
        read = read_sentence(query.phrase or "")
        subjects = (*read.findings, *read.regions, ANYTHING)
        return next(self.sentences[subject] for subject in subjects if subject in self.sentences)

    def report(self, images: Images) -> list[Report]:
        """Return the most frequent report for each image."""
        return [Report(self.full_report) for _ in as_images(images)]

    def to_config(self) -> dict[str, Any]:
        """Return the texts."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return no weights."""
        return {}

    def extra_files(self) -> dict[str, bytes]:
        """Return no files."""
        return {}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Self:
        """Build the model from `to_config`."""
        if ANYTHING not in config["sentences"]:
            raise InputError("sentences must have a sentence for the empty name, which answers all other queries")
        return cls(config["full_report"], config["sentences"])

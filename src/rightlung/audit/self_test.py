"""The self-test of text metrics: each must prefer the identical report, and punish a negated finding and a wrong side.

No model and no source is needed: the reports are those of synthetic patients, without their images. In each report the
sentences about one finding on one side are changed: the finding by a synonym (harmless), negated, or with left and
right exchanged. A metric *notices* an error if it falls to less than nine tenths of its value for the synonym.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.report_files import PairedReports, WrittenReport
from rightlung.audit.report_page import MISSES
from rightlung.audit.report_scores import ReportScoring, checked
from rightlung.core import Phrase
from rightlung.core.problem import Problem
from rightlung.lexicon import swap_sides
from rightlung.lexicon.wordkeys import findings_about
from rightlung.measuring import find_measure
from rightlung.probes.wording import opposite, synonymous

REPORTS, SEED = 60, 20
ERRORS = {"negated": "a negated finding", "wrong-side": "a wrong side"}
CHANGES = {"none": "the identical report", "synonym": "a synonym (harmless)", **ERRORS}
"""What becomes of a report, by name."""

Change = Callable[[Phrase], Phrase | None]


def _exchanged(phrase: Phrase) -> Phrase | None:
    text = swap_sides(phrase.text)
    return None if text == phrase.text else Phrase(text)


_CHANGE: dict[str, Change] = {
    "none": lambda phrase: phrase,
    "synonym": synonymous,
    "negated": opposite,
    "wrong-side": _exchanged,
}


@dataclass(frozen=True)
class MetricTest:
    """A metric's values for the references and for changed references, by the names of `CHANGES`."""

    measure: str
    values: dict[str, float]

    @property
    def computed(self) -> bool:
        """Whether the metric has a value for every change."""
        return not any(map(math.isnan, self.values.values()))

    @property
    def prefers_identical(self) -> bool:
        """Whether no changed report scores higher than the identical one."""
        return self.computed and max(self.values.values()) <= self.values["none"] + 1e-9

    def notices(self, error: str) -> bool:
        """Whether the metric falls to less than nine tenths of its value for the synonym."""
        return self.values[error] < MISSES * self.values["synonym"]


@dataclass(frozen=True)
class SelfTest:
    """The tests of all metrics on the same reports."""

    reports: int
    metrics: Sequence[MetricTest]

    @property
    def not_computed(self) -> list[str]:
        """Metrics that lack a program (METEOR: Java)."""
        return [f"{find_measure(one.measure).title} was not computed" for one in self.metrics if not one.computed]

    def blind_to(self, error: str) -> list[MetricTest]:
        """Return the metrics that do not notice an error."""
        return [one for one in self.metrics if one.computed and not one.notices(error)]

    @property
    def wrong(self) -> list[MetricTest]:
        """The metrics that prefer a changed report to the identical one."""
        return [one for one in self.metrics if one.computed and not one.prefers_identical]

    def sentences(self) -> list[str]:
        """Return what was found."""
        some = [one for one in self.metrics if one.computed]
        said = [
            f"{len(some) - len(self.wrong)} of {len(some)} metrics prefer the identical report"
            + (f", but not {_listed(self.wrong)}." if self.wrong else ".")
        ]
        for error, title in ERRORS.items():
            blind = self.blind_to(error)
            said.append(f"{len(some) - len(blind)} of {len(some)} punish {title}; not: {_listed(blind) or 'none'}.")
        return said

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "note": NOT_A_MEDICAL_DEVICE,
            "reports": self.reports,
            "metrics": [
                {"measure": one.measure, **one.values, "prefers_identical": one.prefers_identical}
                | {f"notices_{error.replace('-', '_')}": one.computed and one.notices(error) for error in ERRORS}
                for one in self.metrics
            ],
            "summary": self.sentences(),
            "problems": self.not_computed,
        }


def _listed(metrics: Sequence[MetricTest]) -> str:
    return ", ".join(one.measure for one in metrics)


def self_test(count: int = REPORTS) -> SelfTest:
    """Test every metric of words and clinical efficacy of ``score-reports`` on ``count`` synthetic reports."""
    written = dict(zip((f"report {n}" for n in range(count)), changed_reports(), strict=False))
    changed = {name: {study: texts[name] for study, texts in written.items()} for name in CHANGES}
    place = Problem("phantom", "")
    references = {study: WrittenReport(study, text, study, place) for study, text in changed["none"].items()}
    pairs = PairedReports(references, references, (), ())
    scoring = ReportScoring(pairs, ("synthetic reports", "synthetic reports"), ("whole",))
    table = checked(scoring, [part for part in scoring.parts if part.name != "diversity"], changed, changed["none"])
    rows = [MetricTest(row.pop("measure"), row) for row in table.to_pylist()]
    return SelfTest(len(written), [one for one in rows if find_measure(one.measure).better == "higher"])


def changed_reports() -> Iterator[dict[str, str]]:
    """Yield synthetic reports with their changed forms; reports without a finding that can be changed are skipped."""
    from rightlung.phantom.config import default_config
    from rightlung.phantom.report import write_report
    from rightlung.phantom.study import study_scene

    config, index = default_config(), 0
    while True:
        said = write_report(study_scene(config, SEED, index), config, SEED)
        phrases = [Phrase(one.text, findings=one.findings) for one in said]
        for finding in dict.fromkeys(name for one in phrases for name in findings_about(one.findings)):
            texts = {name: _changed(phrases, finding, change) for name, change in _CHANGE.items()}
            if all(text is not None for text in texts.values()):
                yield {name: text or "" for name, text in texts.items()}
                break
        index += 1


def _changed(phrases: Sequence[Phrase], finding: str, change: Change) -> str | None:
    """Return a report with the sentences about one finding changed; None if one of them cannot be."""
    sentences = []
    for phrase in phrases:
        about = findings_about(phrase.findings)
        if finding in about:
            found = change(phrase) if about == (finding,) else None
            if found is None:
                return None
            phrase = found
        sentences.append(phrase.text)
    return " ".join(sentences)

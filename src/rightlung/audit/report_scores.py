"""Score generated reports from a file against references: words, clinical efficacy and diversity, with blind baselines.

The files become predictions and targets; measuring, intervals and the page are those of every audit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.blind import BASELINES, INDEX_CONSTANT, BlindBaselines
from rightlung.audit.report_files import PairedReports, WrittenReport, patient_of
from rightlung.audit.report_gates import report_gates
from rightlung.audit.report_page import make_report_page
from rightlung.audit.task_results import PLAIN, PartResult, part_result
from rightlung.audit.tasks import TaskAnswers, TaskPart
from rightlung.core import OutputError
from rightlung.core.errors import check_known
from rightlung.core.files import folder_lock
from rightlung.core.progress import Progress, no_progress
from rightlung.lexicon import swap_sides
from rightlung.lexicon.labeller import read_report
from rightlung.measuring import Protocol, Targets, find_measure, find_protocol, measure, write_instances
from rightlung.measuring.store import MaskStore
from rightlung.measuring.targets import StudyLabels
from rightlung.measuring.texts import repeat_columns
from rightlung.pages.numbers import number
from rightlung.pages.write import write_page
from rightlung.predictions import IMAGE_QUERY, Batch, Prediction
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.gates import NOT_ASKED
from rightlung.scoring.language import MAX_WORDS, UNKNOWN, r2gen_words, vocabulary_of

RESAMPLES, FEWEST = 1000, 3
_ONLY_WORDS = find_protocol("cased").measures
_MAIN = ("bleu_4", "meteor", "rouge_l", "cider")
MAIN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("r2gen", "whole", "uncased", "cased"), _MAIN),
    "clinical": ("ce_r2gen_f1", "micro_f1_13", "macro_mcc_13", "macro_mcc_10_positives", "sided_f1"),
}
"""The measures to show first, by the name of the protocol."""
WORD_PROTOCOLS = {
    "r2gen": "as R2Gen scores them",
    "whole": "whole texts, cleaned as R2Gen does",
    "uncased": "lower-case words without punctuation",
    "cased": "words and punctuation with their case",
}
"""Protocols of words, and what they do."""
CHECKS: Mapping[str, tuple[str, Callable[[str], str]]] = {
    PLAIN: ("the references themselves", str),
    "swap-sides": ("left and right exchanged", swap_sides),
    "no-positives": ("sentences that assert a finding left out", lambda text: without_positives(text)),
}
"""Changes to the references that a measure should notice, by name: title, and what becomes of a text."""
PER_REPORT = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "meteor", "rouge_l", "cider")

Texts = Mapping[str, str]


@dataclass(frozen=True)
class ReportScores:
    """The output: ``result`` is the content of ``scores.json``."""

    folder: Path
    result: dict[str, Any]
    parts: Sequence[PartResult]
    check: pa.Table

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "scores.html"


@dataclass
class ReportScoring:
    """What is scored, and how."""

    reports: PairedReports
    names: tuple[str, str]
    """Of the generated reports and of the references."""
    protocols: Sequence[str] = tuple(WORD_PROTOCOLS)
    train: Mapping[str, WrittenReport] | None = None
    """Training reports: blind baselines learn from them, and rare words of them are unknown under ``r2gen``."""
    max_words: int = MAX_WORDS
    fewest: int = FEWEST
    """How often a word must occur in the training reports to be known."""
    settings: BootstrapSettings = field(default_factory=lambda: BootstrapSettings(RESAMPLES))
    progress: Progress = no_progress

    def __post_init__(self) -> None:
        for name in self.protocols:
            check_known("protocol of words", name, WORD_PROTOCOLS)

    @property
    def parts(self) -> list[TaskPart]:
        """The parts: words by each protocol, clinical efficacy, and diversity."""
        make = partial(TaskPart, "score-reports", method="report", query="image", needs="reports")
        found = [
            make(name, f"Words: {title}", protocol=self._words(name), main=MAIN[name])
            for name, title in WORD_PROTOCOLS.items()
            if name in self.protocols
        ]
        clinical, diversity = (find_protocol(name) for name in ("clinical", "diversity"))
        found.append(make("clinical", "Clinical efficacy", protocol=clinical, main=MAIN["clinical"]))
        return [*found, make("diversity", "Diversity", protocol=diversity, main=diversity.measures)]

    def _words(self, name: str) -> Protocol:
        protocol = replace(find_protocol(name), measures=_ONLY_WORDS, labels="")
        if name != "r2gen":
            return protocol
        known = self.vocabulary
        cut = f"R2Gen's words, at most {self.max_words}"
        if known is None:
            return replace(protocol, text="given", labels=f"{cut}; no vocabulary")
        listed = hashlib.sha256("\n".join(sorted(known)).encode()).hexdigest()[:10]
        return replace(protocol, text="given", labels=f"{cut}; rare words of references are {UNKNOWN}: {listed}")

    @property
    def vocabulary(self) -> set[str] | None:
        """The words of the training reports that R2Gen's tokenizer would know, None without training reports."""
        if self.train is None:
            return None
        return vocabulary_of((one.text for one in self.train.values()), self.fewest)

    def read_by(self, part: TaskPart) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Return what becomes of a generated text and of a reference before they are measured."""
        if part.name != "r2gen":
            return str, str
        known = self.vocabulary
        # The cleaning takes the brackets off the token for unknown words, which R2Gen's answers may hold.
        bare = UNKNOWN.strip("<>")

        def answer(text: str) -> str:
            words = r2gen_words(text, max_words=self.max_words) if text.strip() else []
            return " ".join(UNKNOWN if known is not None and word == bare else word for word in words)

        return answer, lambda text: " ".join(r2gen_words(text, known, self.max_words))

    def answers(self) -> dict[str, Texts]:
        """Return the generated reports and those of each image-blind baseline, by condition and study."""
        true = self.reports.references
        part = self.parts[0]
        asked, learnt = _asked(true), _asked(true if self.train is None else self.train)
        found: dict[str, dict[str, str]] = {PLAIN: {s: one.text for s, one in self.reports.generated.items()}}
        with MaskStore() as masks:
            nothing = Targets("", {}, masks)
            blind = BlindBaselines(part, learnt, nothing, elsewhere=self.train is not None)
            for one in blind.answers(asked, nothing, asked.queries, self.settings.seed):
                found.setdefault(one.condition, {})[one.study] = one.report or ""
        return dict(found)

    def measured(self, part: TaskPart, answers: Mapping[str, Texts], references: Texts) -> tuple[Protocol, pa.Table]:
        """Measure answers by condition against references."""
        of_answer, of_reference = self.read_by(part)
        cleaned = {study: of_reference(text) for study, text in references.items()}
        with MaskStore() as nothing:
            targets = _targets(cleaned, self.reports.patients, self.names[1], self.settings.seed, nothing)
        protocol = part.protocol.applied_to(targets, **self.settings.as_options())
        if not self.reports.knows_patients:
            protocol = replace(protocol, averaging="intervals by bootstrap over reports (BCa): no patient is known")
        given = (
            _answered(study, condition, of_answer(text))
            for condition, texts in answers.items()
            for study, text in texts.items()
        )
        return protocol, measure([Batch.of(list(given))], targets, protocol)


def without_positives(text: str) -> str:
    """Return a report without the sentences that assert a finding.

    >>> without_positives("Small left effusion. No pneumothorax.")
    'No pneumothorax.'
    """
    kept = [one.text for one in read_report(text) if all(found.polarity != "positive" for found in one.mentions)]
    return " ".join(kept)


def _asked(reports: Mapping[str, WrittenReport]) -> TaskAnswers:
    return TaskAnswers(
        {(study, IMAGE_QUERY): StudyLabels(patient_of(one), {}, one.text) for study, one in reports.items() if one.text}
    )


def _targets(references: Texts, patients: Mapping[str, str], name: str, seed: int, store: MaskStore) -> Targets:
    labels = {study: StudyLabels(patients[study], {}, text) for study, text in references.items()}
    known = json.dumps([[study, patients[study], text] for study, text in sorted(references.items())])
    settings: dict[str, Any] = {"rules": [], "pixels": None, "seed": seed, "subsets": [], "limit": None}
    digests = int.from_bytes(hashlib.sha256(known.encode()).digest(), "big")
    return Targets(name, settings, store, labels=labels, digests=digests)


def _answered(study: str, condition: str, text: str) -> Prediction:
    """Return a report as a prediction; an empty one is a report without sentences."""
    if text.strip():
        return Prediction(study, IMAGE_QUERY, condition, report=text)
    return Prediction(study, IMAGE_QUERY, condition, sentences=())


def score_reports(scoring: ReportScoring, out: str | Path) -> ReportScores:
    """Score reports; write the page, the numbers, a row for each report, and the instances of each part."""
    folder, found, parts = Path(out), [], scoring.parts
    refusal = OutputError(f"{folder}: another run is writing to this folder; choose another --out")
    with folder_lock(folder, refusal):
        answers = scoring.answers()
        references = {study: one.text for study, one in scoring.reports.references.items()}
        for number, part in enumerate(parts):
            scoring.progress(f"scoring: {part.title.lower()}", number, len(parts))
            protocol, table = scoring.measured(part, answers, references)
            done = part_result(part, protocol, table, (), {}, scoring.settings)
            if part.name == "clinical":
                gates = [one for one in report_gates(table, scoring.settings) if one.answer != NOT_ASKED]
                done = replace(done, gates=gates)
            found.append(replace(done, clusters="patients" if scoring.reports.knows_patients else "reports"))
        changed = {name: {s: change(t) for s, t in references.items()} for name, (_, change) in CHECKS.items()}
        words = next((part for part in parts if part.name == "whole"), parts[0])
        check = checked(scoring, [words, *(part for part in parts if part.name == "clinical")], changed, references)
        result = _result(scoring, found, check)
        page = make_report_page(result, found, check)
        further: dict[str, Any] = {
            f"instances-{one.part.name}.parquet": partial(write_instances, table=one.table, protocol=one.protocol)
            for one in found
        }
        further["reports.csv"] = _rows_of_reports(found).encode()
        write_page(page, folder, html="scores.html", json_name="scores.json", data=result, further=further)
    return ReportScores(folder, result, found, check)


def checked(
    scoring: ReportScoring, parts: Iterable[TaskPart], changed: Mapping[str, Texts], references: Texts
) -> pa.Table:
    """Return what each measure gives for the references and for changed references: a row for each measure."""
    rows = []
    for part in parts:
        table = scoring.measured(part, changed, references)[1]
        for name in part.protocol.measures:
            columns = {condition: _columns(table, condition, find_measure(name).columns) for condition in changed}
            rows.append({"measure": name} | {one: find_measure(name).value(some) for one, some in columns.items()})
    return pa.Table.from_pylist(rows)


def _columns(table: pa.Table, condition: str, names: Sequence[str]) -> dict[str, Any]:
    rows = table.filter(pc.equal(table["condition"], condition)).select(list(names)).to_pandas()
    return {name: rows[name].to_numpy() for name in names}


def _rows_of_reports(found: Sequence[PartResult]) -> str:
    """Return a CSV table with a row for each report: its texts, measures by protocol, labels, and sides."""
    import pandas as pd

    rows = pd.DataFrame()
    for one in found:
        table = one.table.filter(pc.equal(one.table["condition"], PLAIN))
        if rows.empty:
            rows = table.select(["study", "patient"]).to_pandas()
        if one.part.name == "clinical":
            rows["generated"], rows["reference"] = (
                table[f"{name}_text"].to_pandas() for name in ("answer", "reference")
            )
            for name in ("labels", "uncertain", "pairs"):
                for which, who in (("called", "generated"), ("true", "reference")):
                    rows[f"{name}_{who}"] = [", ".join(some) for some in table[f"{name}_{which}"].to_pylist()]
            continue
        for name in (name for name in PER_REPORT if name in one.protocol.measures):
            rows[f"{one.part.name}_{name}"] = _each(table, name)
    content = StringIO()
    rows.to_csv(content, index=False, float_format="%.6g")
    return content.getvalue()


def _each(table: pa.Table, name: str, at_once: int = 256) -> list[float]:
    """Return a measure of each row by itself."""
    one = find_measure(name)
    columns = _columns(table, PLAIN, one.columns)
    found: list[float] = []
    for begin in range(0, table.num_rows, at_once):
        some = {key: values[begin : begin + at_once] for key, values in columns.items()}
        found += one.of_counts(some, np.eye(len(some[one.columns[0]]))).tolist()
    return found


def _result(scoring: ReportScoring, found: Sequence[PartResult], check: pa.Table) -> dict[str, Any]:
    reports = scoring.reports
    notes = [*reports.notes]
    unknown = sum(one.patient is None for one in reports.references.values())
    if unknown and reports.knows_patients:
        notes.append(f"{unknown:,} references name no patient; each counts as a patient of its own")
    if scoring.train is not None:
        both = {patient_of(one) for one in scoring.train.values()} & {*reports.patients.values()}
        if both:
            notes.append(
                f"{len(both):,} patients (first: {min(both)!r}) are among the training reports and the references: the "
                "image-blind baselines score too high"
            )
    repeated = repeat_columns([one.text for one in reports.references.values()], [], "")
    distinct, most = (number(100 * float(np.mean(repeated[name])), 1) for name in find_protocol("diversity").measures)
    notes.append(f"{distinct} % of the references are distinct, and {most} % are the most frequent one")
    notes += dict.fromkeys(note for one in found for note in one.notes)
    learnt = "the training reports" if scoring.train is not None else "the references of other patients, in five folds"
    return {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "model": scoring.names[0],
        "source": scoring.names[1],
        "counts": {
            "studies": len(reports.references),
            "patients": len({*reports.patients.values()}),
            "clusters": "patients" if reports.knows_patients else "reports",
            "left_out": len(reports.problems),
        },
        "vocabulary": None if scoring.vocabulary is None else len(scoring.vocabulary),
        "baselines": {name: title for name, title in BASELINES["report"].items() if name != INDEX_CONSTANT}
        | {"learned_from": learnt},
        "parts": {one.part.name: one.as_json() for one in found},
        "check": {row["measure"]: {name: row[name] for name in CHECKS} for row in check.to_pylist()},
        "notes": notes,
        "problems": [str(problem) for problem in reports.problems],
    }

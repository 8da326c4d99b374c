"""What is measured of every model besides its maps of phrases: reports, their truth, sentence maps, and retrieval.

Each becomes a table of instances in the folder of the model. Reports are also written about another patient's image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rightlung.asking import answers
from rightlung.audit.blind import BlindBaselines, baselines_of
from rightlung.audit.sentence_maps import SCORES, written_maps
from rightlung.audit.tasks import TaskAnswers, asked_of, parts_of
from rightlung.core.files import write_whole
from rightlung.core.keyed import text_digest
from rightlung.core.progress import Progress
from rightlung.lexicon.labeller import observations
from rightlung.measuring import Protocol, Targets, find_protocol, measure, write_instances
from rightlung.models.base import Embedder, Reporter
from rightlung.predictions import IMAGE_QUERY, Batch, Prediction
from rightlung.reproduce.fita.truth import scenes_of, truth_table
from rightlung.reproduce.prepared import FOLDER, PreparedStudies
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT
from rightlung.studies import open_source

REPORT, R2GEN, CLINICAL, DIVERSITY, TRUTH = "report", "r2gen", "clinical", "diversity", "truth"
EXCHANGED, TRUTH_EXCHANGED, MAPS = "clinical-exchanged", "truth-exchanged", "sentence-maps"
MAPS_PRIOR = "sentence-maps-prior"
_WORDS = find_protocol("cased").measures
PROTOCOLS: Mapping[str, Protocol] = {
    REPORT: replace(find_protocol("whole"), measures=_WORDS),
    R2GEN: replace(find_protocol("r2gen"), measures=_WORDS),
    CLINICAL: find_protocol("clinical"),
    DIVERSITY: find_protocol("diversity"),
}
EXCHANGE, WRITTEN = "exchange-image", "reports-written.parquet"
MAPPED = 200
"""Of how many studies the maps of written sentences are scored."""
AT_ONCE = 128
ORACLE = "oracle-findings"
SAME_FINDINGS = "oracle: another patient's report with the same findings"


def ask_more(model: object, predictions: Path, prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Ask for reports, and measure what needs the model: one table each, in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, Reporter):
        progress(f"{folder.name}: reports", 0, 3)
        _ask_reports(model, prepared, folder)
        progress(f"{folder.name}: maps of sentences", 1, 3)
        source = open_source(prepared.targets.source)  # what is prepared has no outlines of unreported findings
        studies = (source.study(name) for name in prepared.source.ids[:MAPPED])
        table = written_maps(model, studies, AT_ONCE).table()
        for name, prefix in ((MAPS, ""), (MAPS_PRIOR, "prior_")):
            kept = table.select(["study", "patient", "condition", *(f"{prefix}{one}" for one in SCORES)])
            kept = kept.rename_columns(["study", "patient", "condition", *SCORES])
            write_instances(folder / f"{name}.parquet", kept, prepared.protocol, folder.name)
    if isinstance(model, Embedder) and getattr(model, "compares_texts", True):
        progress(f"{folder.name}: retrieval", 2, 3)
        _retrieval(model, prepared, folder)


def scenes(prepared: PreparedStudies, out: Path) -> dict[str, Any]:
    """Return what the scenes of the studies show, kept in the experiment's folder; nothing for real studies."""
    return scenes_of(prepared.targets.source, prepared.source.ids, out / FOLDER / "scenes.json")


def _ask_reports(model: object, prepared: PreparedStudies, folder: Path) -> None:
    """Keep what the model writes about each image, and about another patient's."""
    asked = answers(
        model, prepared.source, ["none", EXCHANGE], queries=("image",), method="report", batch_size=AT_ONCE
    )  # fmt: skip
    rows = [
        {"study": one.study, "condition": one.condition, "report": one.report, "error": one.error}
        for batch in asked
        for one in batch.predictions()
    ]
    write_whole(folder / WRITTEN, lambda part: pq.write_table(pa.Table.from_pylist(rows), part))


def measure_more(prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Measure the kept reports, which needs no model: words, findings, diversity, and against the scene."""
    if not (folder / WRITTEN).is_file() or (folder / f"{REPORT}.parquet").is_file():
        return
    progress(f"{folder.name}: scoring reports", 0, 1)
    kept, known = pq.read_table(folder / WRITTEN).to_pylist(), scenes(prepared, folder.parents[1])
    for condition, suffix, names in ((EXCHANGE, "-exchanged", (CLINICAL,)), ("none", "", (*PROTOCOLS,)[::-1])):
        rows = [Batch.of([_prediction(one) for one in kept if one["condition"] == condition])]
        for name in names:
            table, protocol = _measured(rows, prepared.targets, PROTOCOLS[name])
            if name == CLINICAL and known:
                truth = truth_table(table, known)
                write_instances(folder / f"{TRUTH}{suffix}.parquet", truth, protocol, folder.name)
            write_instances(folder / f"{name}{suffix}.parquet", table, protocol, folder.name)
    progress(f"{folder.name}: scoring reports", 1, 1)


def _prediction(row: Mapping[str, Any]) -> Prediction:
    """Return a kept report as an answer to the unchanged question."""
    return Prediction(row["study"], IMAGE_QUERY, report=row["report"], error=row["error"])


def _measured(rows: Iterable[Batch], targets: Targets, protocol: Protocol) -> tuple[pa.Table, Protocol]:
    applied = protocol.applied_to(targets)
    return measure(rows, targets, applied), applied


def _retrieval(model: object, prepared: PreparedStudies, folder: Path) -> None:
    rows = answers(
        model, prepared.source, queries=("image", "reports"), method="embed", batch_size=AT_ONCE, boxes=None
    )  # fmt: skip
    table, protocol = _measured(rows, prepared.targets, find_protocol("retrieval"))
    found = table.filter(pc.equal(table["target"], IMAGE_TO_TEXT))
    write_instances(folder / f"{IMAGE_TO_TEXT}.parquet", found, protocol, folder.name)


class BlindRows:
    """Reports that never see the image, learned from other patients of the same studies, and an oracle of findings."""

    def __init__(self, prepared: PreparedStudies, out: Path, settings: BootstrapSettings) -> None:
        (part,) = parts_of(["report"])
        asked = asked_of(part, prepared.targets)
        self.settings, self.titles = settings, dict(baselines_of(part)) | {ORACLE: SAME_FINDINGS}
        self.tables: dict[str, pa.Table] = {}
        if asked is None:
            return
        blind = BlindBaselines(part, asked, prepared.targets, elsewhere=False)
        given = [*blind.answers(asked, prepared.targets, asked.queries), *_oracle(asked)]
        self.titles = {name: title for name, title in self.titles.items() if name in {one.condition for one in given}}
        for name, protocol in PROTOCOLS.items():
            self.tables[name] = _measured([Batch.of(given)], prepared.targets, protocol)[0]
        if known := scenes(prepared, out):
            made = {name: truth_table(self._of(CLINICAL, name), known) for name in self.titles}
            self.tables[TRUTH] = pa.concat_tables(_named(one, name) for name, one in made.items() if one.num_rows)

    def _of(self, task: str, name: str) -> pa.Table:
        return self.tables[task].filter(pc.equal(self.tables[task]["condition"], name))

    def estimate(self, name: str, task: str, measure_name: str) -> Estimate | None:
        """Return a measure of a row; None if it was not measured."""
        if task not in self.tables:
            return None
        return estimate(self.tables[task], measure_name, name, settings=self.settings)


def _named(table: pa.Table, condition: str) -> pa.Table:
    names = pa.array([condition] * table.num_rows, pa.string())
    return table.set_column(table.column_names.index("condition"), "condition", names)


def _oracle(asked: TaskAnswers) -> Iterable[Prediction]:
    """Yield, about each study, the report of another patient whose report has the same positive observations."""
    of: dict[frozenset[str], list[tuple[str, str, str]]] = {}
    labels = {study: one for (study, _), one in asked.queries.items() if one.report}
    found = {study: frozenset(name for name, said in observations(str(one.report)).items() if said == "positive")
             for study, one in labels.items()}  # fmt: skip
    for study, one in labels.items():
        of.setdefault(found[study], []).append((study, one.patient, str(one.report)))
    for study, one in labels.items():
        others = [(text_digest(0, study, other), text) for other, patient, text in of[found[study]]
                  if patient != one.patient]  # fmt: skip
        if others:
            yield Prediction(study, IMAGE_QUERY, ORACLE, report=min(others)[1])

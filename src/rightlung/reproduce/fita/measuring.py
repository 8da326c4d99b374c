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
from rightlung.audit.sentence_maps import SCORES, written_maps
from rightlung.core import InputError
from rightlung.core.files import write_whole
from rightlung.core.progress import Progress
from rightlung.measuring import Protocol, Targets, find_protocol, measure, write_instances
from rightlung.models.base import Embedder, Reporter
from rightlung.predictions import IMAGE_QUERY, Batch, Prediction
from rightlung.reproduce.fita.truth import scenes_of, truth_table
from rightlung.reproduce.prepared import FOLDER, PreparedStudies
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


def first_images(prepared: PreparedStudies) -> list[str]:
    """Return the first image of each exam, whose report counts once; all if the test studies cannot be opened."""
    address = prepared.targets.source
    if address.startswith("phantom"):  # one image each
        return [*prepared.source.ids]
    try:
        source = open_source(address)
        exams = {name: source.study(name).exam or name for name in reversed(prepared.source.ids)}
    except InputError:
        return [*prepared.source.ids]
    firsts = {exam: name for name, exam in exams.items()}
    return [name for name in prepared.source.ids if firsts[exams[name]] == name]


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
    counted, known = {*first_images(prepared)}, scenes(prepared, folder.parents[1])
    kept = [one for one in pq.read_table(folder / WRITTEN).to_pylist() if one["study"] in counted]
    for condition, suffix, names in ((EXCHANGE, "-exchanged", (CLINICAL,)), ("none", "", (*PROTOCOLS,)[::-1])):
        rows = [Batch.of([_prediction(one) for one in kept if one["condition"] == condition])]
        for name in names:
            table, protocol = measured(rows, prepared.targets, PROTOCOLS[name])
            if name == CLINICAL and known:
                truth = truth_table(table, known)
                write_instances(folder / f"{TRUTH}{suffix}.parquet", truth, protocol, folder.name)
            write_instances(folder / f"{name}{suffix}.parquet", table, protocol, folder.name)
    progress(f"{folder.name}: scoring reports", 1, 1)


def _prediction(row: Mapping[str, Any]) -> Prediction:
    """Return a kept report as an answer to the unchanged question."""
    return Prediction(row["study"], IMAGE_QUERY, report=row["report"], error=row["error"])


def measured(rows: Iterable[Batch], targets: Targets, protocol: Protocol) -> tuple[pa.Table, Protocol]:
    """Measure answers under a protocol; also return the protocol as it was applied."""
    applied = protocol.applied_to(targets)
    return measure(rows, targets, applied), applied


def _retrieval(model: object, prepared: PreparedStudies, folder: Path) -> None:
    rows = answers(
        model, prepared.source, queries=("image", "reports"), method="embed", batch_size=AT_ONCE, boxes=None
    )  # fmt: skip
    table, protocol = measured(rows, prepared.targets, find_protocol("retrieval"))
    found = table.filter(pc.equal(table["target"], IMAGE_TO_TEXT))
    write_instances(folder / f"{IMAGE_TO_TEXT}.parquet", found, protocol, folder.name)

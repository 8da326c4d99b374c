"""What is measured of every model besides its maps: the tasks of Table 1 that a source has, and interactive questions.

Regions are asked about by their boxes and, for Table 5, by their names; reports are written with every set of prompts
for Table 6. Each becomes a table of instances in the folder of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.asking.answerer import Answerer, NoAnswer
from rightlung.asking.protocols import calls_of
from rightlung.asking.questions import Question
from rightlung.audit.tasks import parts_of
from rightlung.core import Box, Query, Study
from rightlung.core.files import read_json, write_json, write_whole
from rightlung.core.progress import Progress
from rightlung.lexicon import REGIONS
from rightlung.measuring import BoxSettings, Protocol, Targets, find_protocol, measure, write_instances
from rightlung.measuring.box_settings import processed
from rightlung.models.base import Describer, Grounder, Reporter
from rightlung.models.chex import Chex, ReportSettings
from rightlung.predictions import IMAGE_QUERY, Key, Prediction, open_predictions
from rightlung.predictions.batch import to_table
from rightlung.predictions.prediction import PHRASE_QUERY, box_query, region_query
from rightlung.predictions.schema import MAP_COLUMNS, VERSION_KEY
from rightlung.reproduce.chex.interactive import ask_interactively, some_at_once
from rightlung.reproduce.chex.variants import FINDINGS
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.studies import open_source

TEXT_MEASURES = ("micro_f1_14", "macro_f1_14", "micro_f1_5", "macro_f1_5", "sided_f1", "meteor")
_RE = replace(find_protocol("chex-re"), measures=TEXT_MEASURES)
_RG = replace(_RE, name="chex-rg", queries=("image",), measures=(
    *TEXT_MEASURES, "example_f1_14", "bleu_1", "bleu_4", "rouge_l", "cider",
))  # fmt: skip
(_RC_BOXES,) = parts_of(["region-classification:finding-boxes"])
NMS = BoxSettings(nms=0.25)
"""The paper's for all data sets but NIH (E.2). Boxes are not scaled: none of the data sets is another one's."""
_BOXES = "NMS at 0.25; not scaled"


@dataclass(frozen=True)
class MeasuredTask:
    """A task: its title, its protocol, and the paper's data sets, of which the first is printed next to ours."""

    title: str
    protocol: Protocol
    papers: tuple[str, ...]


TASKS: Mapping[str, MeasuredTask] = {
    "sg": MeasuredTask("SG", replace(find_protocol("chex-sg"), rules=("exact",), box_settings=_BOXES), ("ms-cxr",)),
    "od": MeasuredTask("OD", replace(find_protocol("chex-od"), box_settings=_BOXES), ("vindr", "nih8", "ms-cxr")),
    "rc": MeasuredTask("RC", find_protocol("chex-rc"), ("cig",)),
    "rc-boxes": MeasuredTask("RC of findings", _RC_BOXES.protocol, ("ms-cxr",)),
    "re": MeasuredTask("RE", _RE, ("cig",)),
    "re-boxes": MeasuredTask("RE of findings", replace(_RE, queries=("box",)), ("ms-cxr",)),
    "rg": MeasuredTask("RG", _RG, ("mimic",)),
}
QUESTIONS_AT_ONCE = 512
ANSWERS = "answers"
"""The name of the predictions file with a model's answers, without maps."""
BY_NAME = "by-name"
PROMPT_SETS = {
    f"prompts-{regions}-{findings}": {"regions": regions, "findings": findings}
    for regions, findings in product(("yes", "positive", "no"), repeat=2)
    if (regions, findings) != ("no", "no")
}
"""The settings of Table 6: anatomy prompts, then pathology prompts."""
WHOLE = "chex"
"""The run of which all sets of prompts are measured."""


def report_all_findings(model: object) -> None:
    """Let a model keep the sentences of all findings in its reports by default, as the paper does (Table 6)."""
    if isinstance(model, Chex):
        model.default_report = ReportSettings(findings="yes")


def ask_more(model: object, predictions: Path, prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Keep the answers of a model without their maps, and ask what else needs the model."""
    folder.mkdir(parents=True, exist_ok=True)
    _keep_answers(predictions, folder / f"{ANSWERS}.parquet")
    if "boxes" in Answerer(model).queries:
        _ask(folder / f"{ANSWERS}-boxes.parquet", partial(_at_boxes, model, prepared.targets), prepared)
    if folder.name == WHOLE and isinstance(model, Describer):
        _ask(folder / f"{ANSWERS}-{BY_NAME}.parquet", partial(_by_name, model), prepared)
    if folder.name == WHOLE and isinstance(model, Reporter):
        for number, (name, settings) in enumerate(PROMPT_SETS.items()):
            progress("reports by sets of prompts", number, len(PROMPT_SETS))
            _ask(folder / f"{ANSWERS}-{name}.parquet", partial(_reports, model, settings), prepared)
    if isinstance(model, Grounder) and isinstance(model, Describer):
        _write_interactive(model, prepared, folder, progress)


def measure_more(prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    """Measure the kept answers of a model, one table for each task, unless that is done."""
    wanted = {
        name: (f"{ANSWERS}-boxes" if name.endswith("-boxes") else ANSWERS, task.protocol)
        for name, task in TASKS.items()
    }
    wanted |= {f"{name}-{BY_NAME}": (f"{ANSWERS}-{BY_NAME}", TASKS[name].protocol) for name in ("rc", "re")}
    wanted |= {f"rg-{name}": (f"{ANSWERS}-{name}", _RG) for name in PROMPT_SETS}
    targets, mark = _with_findings(prepared.targets), folder / "tasks.json"
    done = read_json(mark) if mark.is_file() else {}
    for number, (name, (file, protocol)) in enumerate(wanted.items()):
        answers, applied = folder / f"{file}.parquet", protocol.applied_to(targets)
        if not answers.is_file() or done.get(name) == applied.hash:
            continue
        progress(f"{folder.name}: measuring", number, len(wanted))
        batches = open_predictions(answers).batches()
        if protocol.box_settings == _BOXES:
            batches = processed(batches, lambda _: NMS)
        if (table := measure(batches, targets, applied)).num_rows:
            write_instances(folder / f"{name}.parquet", table, applied, folder.name)
        done[name] = applied.hash  # a model that cannot do the task has no table
        write_json(mark, done)


def _keep_answers(predictions: Path, path: Path) -> None:
    """Write a small predictions file: without maps, numbers with four significant digits."""
    parts = [pq.read_table(part) for part in sorted(predictions.glob("*.parquet"))]
    table = pa.concat_tables(parts).drop_columns([*MAP_COLUMNS, "extent", "abstention"])
    for number, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            rows = [_rounded(row) for row in table[field.name].to_pylist()]
            table = table.set_column(number, field, pa.array(rows, field.type))
    write_whole(path, lambda part: pq.write_table(table, part, compression="zstd"))


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _with_findings(targets: Targets) -> Targets:
    """Return the targets with the boxes of `FINDINGS` only, so that all models are measured on the same classes."""
    labels = {
        study: replace(one, boxes={name: boxes for name, boxes in one.boxes.items() if name in FINDINGS})
        for study, one in targets.labels.items()
    }
    return replace(targets, labels=labels)


def _ask(path: Path, asked: Any, prepared: PreparedStudies) -> None:
    rows = [row for some in some_at_once(prepared.source) for row in asked(some)]
    write_whole(path, lambda part: pq.write_table(to_table(rows, {VERSION_KEY: b"1"}), part))


def _write_interactive(model: object, prepared: PreparedStudies, folder: Path, progress: Progress) -> None:
    # The prepared studies lack targets.
    source, limit = open_source(prepared.targets.source), prepared.targets.settings["limit"]
    asked = ask_interactively(model, islice(source, limit), total=limit or len(source), progress=progress)
    bias = {finding: dict(counts) for finding, counts in asked.bias_counts().items()}
    write_json(folder / "interactive.json", {"studies": dict(asked.studies), "bias": bias})
    if asked.rows:
        names = dict.fromkeys(name for row in asked.rows for name in row)
        table = pa.table({name: [row.get(name) for row in asked.rows] for name in names})
        write_whole(folder / "interactive.parquet", lambda part: pq.write_table(table, part))


def _at_boxes(model: object, targets: Targets, studies: list[Study]) -> list[Prediction]:
    """Classify and describe the boxes of phrases, which MS-CXR has; the prepared studies lack them."""
    shown, asked = {study.id: study for study in studies}, []
    for (study, name), phrase in targets.phrases.items():
        index = PHRASE_QUERY.fullmatch(name)
        for place, corners in enumerate(phrase.boxes if study in shown and index is not None else ()):
            key = Key(study, box_query(int(index[1]), place), "none")  # type: ignore[index]  # checked above
            asked.append((shown[study], Question(key, Query(box=Box(*corners)))))
    return _answered(model, asked, (_RC_BOXES.asked_method, "describe"))


def _by_name(model: object, studies: list[Study]) -> list[Prediction]:
    """Classify and describe all regions of studies, asked for by name (Table 5)."""
    pairs = [(study, name) for study in studies for name in study.regions if name in REGIONS]
    asked = [
        (study, Question(Key(study.id, region_query(name), "none"), Query(REGIONS[name].spoken)))
        for study, name in pairs
    ]
    return _answered(model, asked, ("classify", "describe"))


def _reports(model: Any, settings: Mapping[str, str], studies: list[Study]) -> list[Prediction]:
    """Write reports with a set of prompts (Table 6)."""
    chosen = model.report_settings(**settings)
    asked = [(study, Question(Key(study.id, IMAGE_QUERY, "none"), Query())) for study in studies]
    return _answered(SimpleNamespace(report=lambda images: model.report(images, chosen)), asked, ("report",))


def _answered(model: object, asked: list[tuple[Study, Question]], methods: Sequence[str]) -> list[Prediction]:
    """Return the answers of those of a model's methods that apply to the questions, all of one kind."""
    images, questions = [study.image for study, _ in asked], [question for _, question in asked]
    found: list[dict[str, Any]] = [{} for _ in asked]
    for method in methods:
        if not calls_of(model, None, FINDINGS, embeddings=False, method=method):
            continue
        answerer = Answerer(model, QUESTIONS_AT_ONCE, findings=FINDINGS, method=method)
        for fields, answer in zip(found, answerer.answers(questions, images), strict=True):
            fields |= {"error": answer.reason} if isinstance(answer, NoAnswer) else answer
    failed = [{"error": fields["error"]} if "error" in fields else fields for fields in found]
    return [
        Prediction(*question.key, question.query, **fields) for question, fields in zip(questions, failed, strict=True)
    ]

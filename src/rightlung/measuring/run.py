"""Measure answers: one row for each (study, query, condition, target), with the columns of the protocol's measures."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import InputError
from rightlung.core.files import write_whole
from rightlung.explain.peak import peaks, side_at
from rightlung.lexicon import REGIONS
from rightlung.lexicon.wordkeys import side_named, zones_in
from rightlung.measuring.boxes import DETECTIONS, FINDING_BOXES, detections_of
from rightlung.measuring.changes import Changes
from rightlung.measuring.maps import AnswerMap, entropy, to_pixels
from rightlung.measuring.measures import COLUMN_TYPES, ImageRows, MapsAndMasks, Measure, Statistics, find_measure
from rightlung.measuring.phrases import TargetMask
from rightlung.measuring.protocols import Protocol
from rightlung.measuring.retrieval import EMBEDDING
from rightlung.measuring.targets import Targets
from rightlung.predictions import Batch, Key
from rightlung.probes.rules import MOVED_RULES
from rightlung.scoring.text_retrieval import Candidates
from rightlung.scoring.threads import in_threads

PIXELS_AT_ONCE = 1 << 19
"""Number of map pixels that a thread scores at once on the CPU, so that they stay in its cache."""
PIXELS_ON_DEVICE = 1 << 25
"""Number of map pixels scored at once on another device."""

KEPT_SCORES = 50_000
_PEAK = ("peak_x", "peak_y", "share_left")

TEXTS = (
    "study", "query", "condition", "target", "patient", "phrase", "asked", "polarity", "side_named", "side_asked",
    "target_kind", "target_side", "target_size", "peak_side", "reason",
)  # fmt: skip
LISTS = ("findings", "regions", "zones_named")
NUMBERS = (
    "target_area", "abstention", "similarity_global", "similarity_local", "peak_x", "peak_y", "peak_on_side",
    "grid_entropy", "finding_score", "finding_label",
)  # fmt: skip
NO_ANSWER = "no answer: "
"""Begins the reason of a row whose prediction is an error."""
ANSWERED = ("finding_scores", "report", "sentences", "boxes", "image_embedding", "text_embedding", "error")
"""Columns of the predictions file that measures of images and regions use."""
CHANGES = ("moved_mass", "moved_peak", "turned_mass", "turned_peak", "kl_random")
NOT_ROUNDED = ("similarity_global", "similarity_local")
"""Similarities are compared with each other, and rounding would make ties."""


class _Job(NamedTuple):
    """A row to score, with its answer, its target and the patient's midline."""

    row: dict[str, Any]
    answer: AnswerMap
    mask: TargetMask
    midline: float

    @property
    def name(self) -> tuple[bytes, int, float]:
        """All that the scores depend on: equal maps against the same mask are scored once."""
        return self.answer.digest, self.mask.place.offset, self.midline


def measure(
    answers: Iterable[Batch],
    targets: Targets,
    protocol: Protocol,
    *,
    device: Any = "cpu",
    workers: int | None = None,
    candidates: Mapping[str, Candidates] | None = None,
) -> pa.Table:
    """Measure answers against targets and return the instances table; undefined numbers are NaN, never null.

    ``answers`` are batches of predictions in any order. With ``device="cpu"`` maps are scored as arrays by ``workers``
    threads, with anything else (also ``torch.device("cpu")``) as tensors on that device. ``candidates``
    are the texts to retrieve from by condition (``none``: also for the others). Default: the reports of ``answers``.
    """
    scorer = _Scorer(targets, protocol, device, workers)
    image_rows = dict.fromkeys(made for name in protocol.measures if (made := find_measure(name).image_rows))
    schema = _schema(targets, scorer.columns)
    parts, count = [], 0
    with Changes({*REGIONS, *targets.regions}) as changes:
        for batch in answers:
            rows: list[dict[str, Any]] = []
            jobs: list[_Job] = []
            for key, answer, found, to_score in _answers(batch, targets, protocol, scorer.columns, image_rows):
                if answer is not None:
                    changes.add(key, answer, range(count + len(rows), count + len(rows) + len(found)))
                    _, shares = answer.distribution(changes.regions)
                    for row in found:
                        row["grid_entropy"] = np.nan if shares is None else entropy(shares)
                rows += found
                jobs += to_score
            scorer.score(jobs)
            _score_boxes(rows, scorer.measures)
            parts.append(pa.Table.from_pylist(rows, schema))
            count += len(rows)
    table = pa.concat_tables(parts) if parts else schema.empty_table()
    for name in CHANGES:
        column = np.full(count, np.nan)
        column[list(changes.values[name])] = list(changes.values[name].values())
        table = table.append_column(name, pa.array(column))
    return _score_together(_score_texts(table, scorer.measures, protocol.text), scorer.measures, candidates or {})


def _score_together(table: pa.Table, measures: Iterable[Measure], candidates: Mapping[str, Candidates]) -> pa.Table:
    """Fill in the columns that come from all embeddings, which do not stay in the table."""
    for statistics in dict.fromkeys(one.pooled_statistics for one in measures if one.pooled_statistics):
        for name, values in statistics(table, candidates).items():
            if (number := table.schema.get_field_index(name)) >= 0:
                table = table.set_column(number, name, pa.array(values, table.schema.field(number).type))
        table = table.drop_columns([EMBEDDING])
    return table


def _score_boxes(rows: Sequence[dict[str, Any]], measures: Iterable[Measure]) -> None:
    """Fill in the columns that come from boxes; a phrase without boxes has a reason."""
    for statistics, of_phrases in dict.fromkeys((one.box_statistics, one.image_rows is None) for one in measures):
        if statistics is None:
            continue
        some = [row for row in rows if DETECTIONS in row and (row["target_kind"] != FINDING_BOXES) == of_phrases]
        for name, values in statistics([row[DETECTIONS] for row in some]).items() if some else ():
            for row, value in zip(some, values, strict=True):
                row[name] = value
        for row in rows if of_phrases else ():
            if DETECTIONS not in row and not row["reason"]:
                row["reason"] = "no boxes in the answer or in the target"


def _score_texts(table: pa.Table, measures: Iterable[Measure], rule: str) -> pa.Table:
    """Fill in the columns that come from generated texts; a missing program is the reason of its rows."""
    functions = dict.fromkeys(one.text_statistics for one in measures if one.text_statistics)
    if not functions:
        return table
    pairs = list(zip(table["answer_text"].to_pylist(), table["reference_text"].to_pylist(), strict=True))
    conditions, reasons = table["condition"].to_pylist(), table["reason"].to_pylist()
    columns: dict[str, list[Any]] = {}
    for condition in dict.fromkeys(conditions):
        places = [n for n, (answer, _) in enumerate(pairs) if answer is not None and conditions[n] == condition]
        for statistics in functions:
            try:
                found = statistics([pairs[n][0] for n in places], [pairs[n][1] for n in places], rule)
            except InputError as error:
                for n in places:
                    reasons[n] = "; ".join(filter(None, (reasons[n], str(error))))
                continue
            for name, values in found.items():
                column = columns.setdefault(name, [*_empty([name]).values()] * table.num_rows)
                for n, value in zip(places, values, strict=True):
                    column[n] = value
    for name, values in (columns | {"reason": reasons}).items():
        if (number := table.schema.get_field_index(name)) >= 0:
            table = table.set_column(number, name, pa.array(values, table.schema.field(number).type))
    return table


def _empty(columns: Iterable[str]) -> dict[str, Any]:
    return {name: None if name in COLUMN_TYPES else np.nan for name in columns}


def _schema(targets: Targets, scored: Sequence[str]) -> pa.Schema:
    further: dict[str, list[Any]] = {}
    for phrase in targets.phrases.values():
        for name, value in phrase.columns.items():
            further.setdefault(name, []).append(value)
    return pa.schema(
        [
            *((name, pa.string()) for name in TEXTS),
            *((name, pa.list_(pa.string())) for name in LISTS),
            *((name, COLUMN_TYPES.get(name, pa.float64())) for name in (*NUMBERS, *scored)),
            ("scored_pixels", pa.int64()),
            ("abstention_given", pa.bool_()),
            *((name, pa.infer_type(values)) for name, values in further.items()),
        ]
    )


def _answers(
    batch: Batch, targets: Targets, protocol: Protocol, scored: Sequence[str], image_rows: Iterable[ImageRows]
) -> Iterator[tuple[Key, AnswerMap | None, list[dict[str, Any]], list[_Job]]]:
    """Yield the map, the rows and the jobs of every answer that can be measured."""
    asked, boxes, errors, given = (batch.column(name) for name in ("phrase", "boxes", "error", "abstention"))
    similarities = {name: batch.column(name) for name in NOT_ROUNDED}
    boxed = any(find_measure(name).box_statistics for name in protocol.measures)
    abstentions, extents = batch.abstentions.tolist(), batch.extents.tolist()
    for index, key in enumerate(batch.keys):
        labels = targets.labels_of(key) if key.query.partition(":")[0] in protocol.queries else None
        if labels is not None:
            empty = _empty((*NUMBERS, *scored)) | key._asdict() | {"patient": labels.patient}
            answered = {name: batch.columns.column(name)[index].as_py() for name in ANSWERED}
            yield key, None, [empty | row for rows_of in image_rows for row in rows_of(answered, labels)], []
        phrase = targets.phrases.get((key.study, key.query)) if protocol.rules else None
        if phrase is None:
            continue
        values, error = batch.maps[index], errors[index]
        answer = None
        if error is None and (values is not None or boxes[index] is not None):
            answer = AnswerMap(values, tuple(extents[index]), boxes[index])
        words = asked[index] or phrase.text
        row = (
            _empty((*NUMBERS, *scored))
            | key._asdict()
            | phrase.columns
            | {
                **{
                    name: getattr(phrase, name) for name in ("patient", "findings", "polarity", "regions", "side_named")
                },
                "phrase": phrase.text,
                "asked": words,
                "side_asked": side_named(words),
                "zones_named": zones_in(words),
                "abstention": abstentions[index],
                "abstention_given": given[index] is not None or (values is None and boxes[index] == []),
                **{name: np.nan if column[index] is None else column[index] for name, column in similarities.items()},
            }
        )
        rows, jobs = [], []
        # Moved targets are measured under the condition "none" only.
        rules = [rule for rule in protocol.rules if key.condition == "none" or rule not in MOVED_RULES]
        own = [rule for rule in rules if rule in phrase.masks] or rules[:1]
        for rule, mask in ((rule, phrase.masks.get(rule)) for rule in own):
            reason = f"{NO_ANSWER}{error}" if error is not None else "no target" if mask is None else ""
            if not reason and answer is None:
                reason = "neither a map nor boxes"
            rows.append(row | {"target": rule, "reason": reason})
            if mask is not None:
                rows[-1] |= {f"target_{name}": getattr(mask, name) for name in ("kind", "side", "size", "area")}
                rows[-1]["scored_pixels"] = math.prod(mask.place.size)
                if answer is not None:
                    jobs.append(_Job(rows[-1], answer, mask, phrase.midline))
                if boxed and boxes[index] is not None and not reason and phrase.boxes and rule not in MOVED_RULES:
                    rows[-1][DETECTIONS] = detections_of(boxes[index], phrase.boxes)
        yield key, answer, rows, jobs


class _Scorer:
    """Computes the columns of rows, those of one target size together."""

    def __init__(self, targets: Targets, protocol: Protocol, device: Any, workers: int | None) -> None:
        self._store, self._workers = targets.store, workers
        self._device = None if isinstance(device, str) and device == "cpu" else device
        self._groups: dict[Statistics, list[str]] = {}
        for name in protocol.measures:
            if (statistics := find_measure(name).statistics) is not None:
                self._groups.setdefault(statistics, []).append(name)
        self.columns = [name for names in self._groups.values() for name in names]
        self.measures = [find_measure(name) for name in protocol.measures]
        own = [one for one in self.measures if one.image_rows or one.box_statistics]
        needed = dict.fromkeys(column for measure in own for column in measure.columns)
        if any(one.text_statistics for one in own):
            needed |= dict.fromkeys(("answer_text", "reference_text"))
        if any(one.pooled_statistics for one in own):
            needed |= dict.fromkeys(("reference_text", EMBEDDING))
        self.columns += [name for name in needed if name not in (*NUMBERS, *TEXTS)]
        self._known: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def score(self, jobs: Sequence[_Job]) -> None:
        """Score the jobs that are not known yet, and fill in the rows."""
        fresh: dict[tuple[int, int], dict[Any, _Job]] = {}
        for job in jobs:
            if job.name not in self._known:
                fresh.setdefault(job.mask.place.size, {}).setdefault(job.name, job)
        for size, found in fresh.items():
            same = sorted(found.values(), key=lambda job: job.answer.digest)  # equal maps are upsampled once
            step = max(1, (PIXELS_AT_ONCE if self._device is None else PIXELS_ON_DEVICE) // math.prod(size))
            chunks = [same[begin : begin + step] for begin in range(0, len(same), step)]
            workers = self._workers if self._device is None else 1
            for scores in in_threads(lambda chunk: self._scores(chunks[chunk], size), len(chunks), workers):  # noqa: B023
                self._known |= scores
        for job in jobs:
            job.row.update(self._known[job.name])
            left = job.row.pop("share_left")
            left = 0.5 if np.isnan(left) else left  # a map of zeros counts half for either side
            job.row["peak_on_side"] = {"left": left, "right": 1 - left}.get(job.mask.side, np.nan)
        while len(self._known) > KEPT_SCORES:
            self._known.popitem(last=False)

    def _scores(self, jobs: Sequence[_Job], size: tuple[int, int]) -> dict[Any, dict[str, Any]]:
        """Return the scores of jobs by name."""
        number_of: dict[bytes, int] = {}
        numbers = [number_of.setdefault(job.answer.digest, len(number_of)) for job in jobs]
        distinct = [jobs[numbers.index(number)].answer for number in range(len(number_of))]
        maps = to_pixels(distinct, size, self._device)
        if len(distinct) < len(jobs):
            maps = maps[numbers]
        places = [job.mask.place for job in jobs]
        masks = self._store.read(places) if self._device is None else self._store.read_on(places, self._device)
        columns: dict[str, Any] = {"reason": [""] * len(jobs)}
        for statistics, names in self._groups.items():
            scored = statistics(MapsAndMasks(maps, masks, workers=1), names)
            columns |= {name: scored[name].tolist() for name in (*names, "reason") if name in scored}
        found = peaks(maps, [job.midline for job in jobs])
        columns |= {name: values.tolist() for name, values in zip(_PEAK, found, strict=True)}
        known = {}
        for place, job in enumerate(jobs):
            scores = {name: values[place] for name, values in columns.items()}
            scores["peak_side"] = side_at(scores["share_left"])
            if not job.answer.has_peak:
                scores |= {"peak_x": np.nan, "peak_y": np.nan, "peak_side": None}
            known[job.name] = scores
        return known


def write_instances(
    path: str | Path,
    table: pa.Table,
    protocol: Protocol,
    model: str = "",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write an instances table as a Parquet file, atomically, with the protocol in its metadata."""
    if protocol.decimals is not None:
        for number, field in enumerate(table.schema):
            if pa.types.is_float64(field.type):
                values = table.column(number).to_numpy()
                kept = values if field.name in NOT_ROUNDED else np.round(values, protocol.decimals)
                table = table.set_column(number, field.name, pa.array(kept.astype(np.float32)))
    written = table.replace_schema_metadata({**notes_of(protocol, model), **(metadata or {})})
    write_whole(Path(path), lambda part: pq.write_table(written, part, compression="zstd"))


def notes_of(protocol: Protocol, model: str) -> dict[str, str]:
    """Return the metadata of an instances table."""
    return {
        "rightlung.note": NOT_A_MEDICAL_DEVICE,
        "rightlung.protocol": json.dumps(protocol.as_json()),
        "rightlung.model": model,
    }

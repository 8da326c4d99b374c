"""The work of an audit in blocks of studies, so that memory does not grow with their number.

Each block's targets are gathered, then the prior that is learned from all of them answers the same phrases, then each
block is measured. Blocks depend on the predictions only, and their results are put together in their order: the numbers
are the same with any number of processes. What is done stays in ``OUT/.unfinished`` until the audit ends.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rightlung import __version__
from rightlung.audit.gates import CENTRE_COLUMN, have_gates
from rightlung.audit.gathered import Gathered
from rightlung.audit.subgroups import add_persons
from rightlung.core import InputError, Phrase, Polarity, Query
from rightlung.core.files import read_json, write_whole
from rightlung.core.progress import Progress
from rightlung.lexicon.wordkeys import word_key
from rightlung.measuring import Protocol, Targets, gather_targets, measure, write_instances
from rightlung.measuring.answered import Answered, answered
from rightlung.measuring.regions import COUNTS, with_regions
from rightlung.measuring.run import notes_of
from rightlung.measuring.targets import TARGETS, side_told
from rightlung.measuring.workers import Workers, can_be_sent, default_jobs
from rightlung.models.blind.centre import CentrePrior
from rightlung.models.blind.prior import LocationPrior
from rightlung.predictions import Batch, Prediction, Predictions
from rightlung.predictions.blocks import Block, Blocks
from rightlung.results.on_disk import TableOnDisk
from rightlung.scoring.localisation import METRICS
from rightlung.studies import Source

ROWS_PER_BLOCK = 1000
"""Rows of the predictions after which a block ends; it holds all rows of its studies."""
UNFINISHED = ".unfinished"
OF_PRIOR = (
    *METRICS, "peak_on_side", "moved_mass", "turned_mass", "abstention", "grid_entropy", *COUNTS,
)  # fmt: skip
"""Columns of the prior that are added to the model's table as ``prior_…``."""
_KEYS = ("study", "query", "condition", "target", "patient", "target_kind", "reason")


@dataclass(frozen=True)
class _Measuring:
    """What all blocks share while they are measured."""

    folder: Path | None
    protocol: Protocol
    prior: LocationPrior | None
    gathered: Gathered
    model: str
    threads: int | None
    centre: bool
    """Whether the centre prior is measured, too."""


class BlockAudit:
    """Gathers and measures the blocks of predictions; a single block stays in memory."""

    def __init__(
        self, predictions: Predictions, source: Source, folder: Path, jobs: int | None = 1, ray: str | None = None
    ) -> None:
        self.blocks = Blocks(predictions, ROWS_PER_BLOCK)
        self._source, self._model = source, predictions.model or ""
        self._gates = have_gates(predictions.rows_by_condition)
        self._workers = Workers(default_jobs(len(self.blocks)) if jobs is None and ray is None else jobs, ray)
        if self._workers.threads is not None and not can_be_sent(source):
            if jobs is not None or ray is not None:
                raise InputError(
                    f"source {source.address} cannot be sent to other processes; leave --jobs and --ray out"
                )
            self._workers = Workers()
        self._folder = folder / UNFINISHED if len(self.blocks) > 1 else None
        self._targets: Targets | None = None
        if self._folder is not None:
            _open_folder(self._folder, _task(predictions, source))

    def gather(self, progress: Progress) -> Gathered:
        """Gather the targets of all blocks."""
        whole = Gathered(LocationPrior(source=self._source.address))
        if self._folder is None:
            self._targets = gather_targets(
                self._source, self.blocks[0].wanted, progress=partial(progress, "reading studies")
            )
            whole.add(Gathered.of(self._targets))
            return whole
        done, total = 0, len(self.blocks.studies)
        todo = self._workers.each(_gather, (self._source, self._folder), self.blocks)
        for count, found in todo:
            whole.add(found)
            done += count
            progress("reading studies", done, total)
        return whole

    def measure(
        self, gathered: Gathered, protocol: Protocol, prior: LocationPrior | None, progress: Progress
    ) -> pa.Table | TableOnDisk:
        """Measure all blocks; return the instances table with the columns of the prior."""
        if prior is not None:
            for fold in {prior.held_out(patient) for patient in gathered.patients}:
                prior.width(fold)  # once, not in every process
        task = _Measuring(
            self._folder, protocol, prior, gathered, self._model, self._workers.threads, self._gates
        )  # fmt: skip
        if self._folder is None:
            assert self._targets is not None
            progress("scoring", 0, 1)
            table = _measured(task, self.blocks[0].batches, self._targets)
            progress("scoring", 1, 1)
            return table
        done, total = 0, self.blocks._rows.shape[1]
        for rows in self._workers.each(_measure, task, self.blocks):
            done += rows
            progress("scoring", done, total)
        return TableOnDisk(_join(task, len(self.blocks)))

    def sample(self, most: int) -> list[Answered]:
        """Return the first answers to the unchanged question, however many other conditions were asked."""
        found: list[Answered] = []
        for block in self.blocks:
            targets = self._targets or Targets.open(_targets_folder(self._folder, block))
            found += answered(block.batches(), targets, most - len(found))
            if len(found) == most:
                break
        return found

    def finish(self) -> None:
        """Remove what is only needed to continue."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _task(predictions: Predictions, source: Source) -> dict[str, Any]:
    """Return what must be the same for an audit to be continued."""
    parts = [
        [part.name, part.rows, (state := part.path.stat()).st_size, state.st_mtime_ns] for part in predictions.parts
    ]
    ids = hashlib.sha256("\0".join(source.ids).encode("utf-8", "surrogatepass")).hexdigest()
    return {"version": __version__, "source": source.address, "studies": ids, "rows": ROWS_PER_BLOCK, "parts": parts}


def _open_folder(folder: Path, task: dict[str, Any]) -> None:
    """Create the folder, or empty it if it holds the work on another task."""
    about = folder / "task.json"
    if about.exists() and read_json(about) == task:
        return
    shutil.rmtree(folder, ignore_errors=True)
    write_whole(about, json.dumps(task))


def _gather(shared: tuple[Source, Path], block: Block) -> tuple[int, Gathered]:
    """Gather the targets of a block, or open those that are there; return the number of studies and what they tell."""
    source, folder = shared[0], _targets_folder(shared[1], block)
    if not (folder / TARGETS).exists():
        gather_targets(source, block.wanted, folder)
    return len(block.wanted), Gathered.of(Targets.open(folder))


def _targets_folder(folder: Path | None, block: Block) -> Path:
    assert folder is not None
    return folder / f"targets-{block.name}"


def _measure(task: _Measuring, block: Block) -> int:
    """Measure a block and write its part of the table, unless it is there; return its number of rows."""
    assert task.folder is not None
    part = task.folder / f"part-{block.name}.parquet"
    if not part.exists() or _protocol_hash(part) != task.protocol.hash:
        table = _measured(task, block.batches, Targets.open(_targets_folder(task.folder, block)))
        write_instances(part, table, task.protocol, task.model)
    return sum(len(rows) for _, rows in block.rows)


def _protocol_hash(part: Path) -> str | None:
    written = (pq.read_schema(part).metadata or {}).get(b"rightlung.protocol")
    return None if written is None else str(json.loads(written)["hash"])


def _measured(task: _Measuring, batches: Callable[[], Iterator[Batch]], targets: Targets) -> pa.Table:
    """Measure the model's answers and the prior's answers to the same phrases."""
    prior = task.prior
    targets.regions = task.gathered.regions
    targets.add_column("side_told", lambda phrase: side_told(phrase, prior))
    add_persons(targets, task.gathered.attributes)
    targets.add_column("target_extent", lambda phrase: phrase.extent)
    targets.add_column("target_boxes", lambda phrase: len(phrase.boxes))
    table = with_regions(measure(batches(), targets, task.protocol, workers=task.threads), batches(), targets)
    if task.centre:
        there = np.flatnonzero(pc.equal(table["condition"], "none").to_numpy())
        asked = _asked_of_prior(CentrePrior(), table.take(there), targets)
        column = np.full(table.num_rows, np.nan)
        column[there] = measure(asked, targets, task.protocol, workers=task.threads)["mass_inside"].to_numpy()
        table = table.append_column(CENTRE_COLUMN, pa.array(column))
    if prior is None:
        return table
    asked = _asked_of_prior(prior, table, targets)
    prior_table = measure(asked, targets, task.protocol, workers=task.threads)
    plain = table.filter(pc.equal(table["condition"], "none"))
    prior_table = with_regions(prior_table, _asked_of_prior(prior, plain, targets), targets)
    for name in OF_PRIOR:  # the rows are the same, in the same order
        table = table.append_column(f"prior_{name}", prior_table.column(name))
    support: list[int | None] = []
    for row in table.select(["study", "query", "asked"]).to_pylist():
        phrase = targets.phrases[row["study"], row["query"]]
        key = word_key(row["asked"], phrase.findings)
        support.append(prior.support(key, prior.held_out(phrase.patient)) if phrase.masks else None)
    return table.append_column("prior_support", pa.array(support, pa.int64()))


def _asked_of_prior(prior: LocationPrior | CentrePrior, table: pa.Table, targets: Targets) -> Iterator[Batch]:
    """Yield the prior's answers to the same words; the findings are those of the original phrase."""
    for part in table.select(["study", "query", "condition", "asked"]).to_batches(max_chunksize=1000):
        keys = part.to_pylist()
        own = [targets.phrases[one["study"], one["query"]] for one in keys]
        words = [
            Phrase(one["asked"], findings=dict.fromkeys(phrase.findings, Polarity.POSITIVE))
            for one, phrase in zip(keys, own, strict=True)
        ]
        found = prior.ground_blind(words, [phrase.patient for phrase in own])
        yield Batch.of(
            [
                Prediction(one["study"], one["query"], one["condition"], Query(one["asked"]), grounding)
                for one, grounding in zip(keys, found, strict=True)
            ]
        )


def _join(task: _Measuring, count: int) -> Path:
    """Write the parts of the table as one file, a part at a time."""
    assert task.folder is not None
    parts = [task.folder / f"part-{number:05d}.parquet" for number in range(count)]
    schema = pa.unify_schemas([pq.read_schema(part).remove_metadata() for part in parts], promote_options="permissive")
    noted = schema.with_metadata(notes_of(task.protocol, task.model))
    whole = task.folder / "instances.parquet"

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, noted, compression="zstd") as writer:
            for part in parts:
                writer.write_table(pq.read_table(part).cast(noted))

    write_whole(whole, write)
    return whole


def tables_of(table: pa.Table | TableOnDisk) -> dict[str, Any]:
    """Return the model's table and the prior's, which is made of the columns ``prior_…``."""
    own = [name for name in table.column_names if not name.startswith("prior_")]
    if len(own) == len(table.column_names):
        return {"model": table}
    names = {name: name for name in _KEYS} | {name: f"prior_{name}" for name in OF_PRIOR}
    if isinstance(table, TableOnDisk):
        return {"model": table.view({name: name for name in own}), "prior": table.view(names)}
    return {"model": table.select(own), "prior": table.select([*names.values()]).rename_columns([*names])}


def rows_in_pieces(table: pa.Table | TableOnDisk, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of some columns, those of a block together."""
    yield from (
        (part.to_pylist() for part in table.pieces(columns))
        if isinstance(table, TableOnDisk)
        else [table.select(columns).to_pylist()]
    )

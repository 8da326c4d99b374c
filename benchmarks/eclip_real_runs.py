"""What the parts of eclip_real.py share: lines of the table, folds of the data, and trainings that are kept."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import rightlung
from rightlung.models.blind.prior import fold_of
from rightlung.pages.numbers import number, span
from rightlung.reproduce.eclip.variants import SMALL_BATCHES
from rightlung.reproduce.processes import Task, in_processes
from rightlung.results.estimate import BootstrapSettings, Estimate


@dataclass(frozen=True)
class Row:
    """One line of the table: a value and, paired, its difference from what stands beside it."""

    part: str
    model: str
    measure: str
    value: Estimate
    beside: str = ""
    difference: Estimate | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        found = {"part": self.part, "model": self.model, "measure": self.measure, "value": self.value.as_json()}
        return found if self.difference is None else found | {self.beside: self.difference.as_json()}

    def markdown(self) -> str:
        """Return the line of the table."""
        one, more = self.value, ""
        value = span(one, 3, brief=True) if one.has_interval else number(one.value, 3)
        if self.difference is not None:
            more = f"{span(self.difference, 3, signed=True, brief=True)} over {self.beside}"
        return f"| {self.part} | {self.model} | {self.measure} | {one.n} | {value} | {more} |"


@dataclass(frozen=True)
class Benchmark:
    """The settings of a call, and the data that its parts share."""

    given: argparse.Namespace
    columns: dict[str, Any] = field(default_factory=dict)  # values of every query and phrase, by name
    shared: dict[str, Any] = field(default_factory=dict)  # what several parts use

    @property
    def out(self) -> Path:
        """The folder of everything."""
        return Path(self.given.out)

    @cached_property
    def settings(self) -> BootstrapSettings:
        """Those of all intervals."""
        return BootstrapSettings(self.given.resamples)

    @cached_property
    def openi(self) -> Path:
        """The folder of Open-I, with its folds."""
        return written_folds(self.given.openi, self.out / "data" / "openi", self.given.folds, self.given.limit)

    @cached_property
    def nih(self) -> Path:
        """The folder of NIH, with folds of the images with boxes."""
        return written_folds(self.given.nih, self.out / "data" / "nih", self.given.folds, self.given.limit)

    def fold(self, patient: str) -> int:
        """Return the fold of a patient."""
        return fold_of(patient, self.given.folds)

    def folder(self, run: str) -> Path:
        """Return the folder of a training."""
        return self.out / "runs" / run

    def load(self, run: str) -> Any:
        """Return a trained model on the device."""
        return rightlung.load(str(self.folder(run) / "model")).to(self.given.device)

    def phantoms(self, **fields: object) -> str:
        """Return the entry of the recipes' synthetic studies, with further fields."""
        count = self.given.phantoms
        source = f"phantom?count={2 * count}&seed=21"
        return entry(source, cached_studies=count, paired_text="abnormal-first", texts_per_image=2, **fields)

    def changes(self, recipe: str, *changes: str) -> list[str]:
        """Return a recipe with the changes that all have, those of the run, and those of the command line."""
        given, shared = self.given, [f"data.cache_folder={self.out / 'cache'}", f"seed={self.given.seed}"]
        if recipe != "fine-tune":
            shared += [f"data.image_size={given.pixels}", f"model.config.image.size={given.pixels}", *SMALL_BATCHES]
        steps = [] if given.steps is None else [f"schedule={{steps: {given.steps}, warmup_steps: {given.steps // 10}}}"]
        return [recipe, *(part for one in (*shared, *changes, *steps, *given.set) for part in ("--set", one))]

    def train(self, runs: Mapping[str, list[str]]) -> None:
        """Train what is not trained yet."""
        command = [sys.executable, "-m", "rightlung", "train"]
        tasks = [
            Task(name, name, [*command, *arguments, "--out", str(self.folder(name)), "--restart"])
            for name, arguments in runs.items()
            if not (self.folder(name) / "finished.json").is_file()
        ]
        threads = max(1, (os.cpu_count() or 1) // self.given.at_once)
        failed = in_processes(tasks, self.given.at_once, self.out / "logs", threads=threads, say=print)
        if failed:
            sys.exit(f"{len(failed)} trainings failed, the first: {next(iter(failed.items()))}")


def entry(source: object, **fields: object) -> str:
    """Return an entry of ``data.train``."""
    return f'{{source: "{source}", {", ".join(f"{name}: {value}" for name, value in fields.items())}}}'


def written_folds(archive: Path, folder: Path, folds: int, limit: int | None) -> Path:
    """Extract an archive to ``all``, and link its images to ``fold-K`` with the splits ``own`` and ``others``.

    Where some have boxes, only these are in folds, with the boxed findings as their only ones. ``limit`` keeps the
    first rows of each split.
    """
    if (folder / "done").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as files:
        members = {one.name: one for one in files}
        manifest = files.extractfile(members["manifest.jsonl"])
        assert manifest is not None
        by_split: dict[str, list[dict[str, Any]]] = {}
        for row in map(json.loads, manifest):
            by_split.setdefault(row["split"], []).append(row)
        rows = [row for some in by_split.values() for row in some[:limit]]
        files.extractall(folder / "all", [members[row["file"]] for row in rows], filter="data")
    crossed = [row | {"findings": sorted({box["label"] for box in row["boxes"]})} for row in rows if row.get("boxes")]
    for fold in range(folds):
        place = folder / f"fold-{fold}"
        shutil.copytree(folder / "all", place, copy_function=os.link)
        split = [row | {"split": "own" if fold_of(row["patient"], folds) == fold else "others"}
                 for row in crossed or rows]  # fmt: skip
        write_manifest(place, split)
    write_manifest(folder / "all", rows)
    (folder / "done").touch()
    return folder


def write_manifest(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of a manifest."""
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

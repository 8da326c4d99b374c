"""Lay out the page of ChEX: tasks and ablations (Tables 2 to 6), then interactive questions (Figures 4 to 6, 8, 9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from rightlung.core.files import read_json
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Page, Section, Table
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.chex.claims import BOX_OF_A_FINDING, claims_table, compare
from rightlung.reproduce.chex.interactive import (
    BIAS_REGIONS,
    BOTH,
    BOX,
    COARSE,
    FINE,
    MODIFICATIONS,
    NAME,
    NAME_AND_REGION,
    NEGATED,
    NO_HINT,
    OPPOSITE,
    REGION,
)
from rightlung.reproduce.chex.measuring import BY_NAME, PROMPT_SETS, TASKS, WHOLE
from rightlung.reproduce.chex.variants import GENERATORS, TOKENS_AND_TARGETS
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.published import Subject
from rightlung.reproduce.tables import Quantity, model_row
from rightlung.results.aggregates import estimate_mean
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator
from rightlung.results.model import MeasuredModel

SETTINGS = BootstrapSettings(resamples=250)
"""As many resamples as the paper takes (E.2)."""
OTHER_DATA = (
    "The paper's numbers come from other data (the data set is named in the column) and a model of 1,051 million "
    "weights. Compare the direction of effects with them, not the values."
)
DEFAULT = {"regions": "positive", "findings": "yes"}
"""The prompts that the paper's ChEX uses."""
BOXES_AS_PREDICTED = "Boxes are scored as predicted: neither scaled nor suppressed."


@dataclass(frozen=True)
class TaskColumn:
    """A column of a table of tasks: a table of instances, a measure, and the paper's data set."""

    file: str
    measure: str
    subset: str
    title: str


@dataclass(frozen=True)
class ChexTables:
    """Makes the tables from the files of every model."""

    found: Measurements
    folder: Path

    def models(self, variants: Sequence[str] | None = None) -> list[MeasuredModel]:
        """Return the rows of all variants or of some, in the paper's order."""
        rows = {row.variant: row for row in self.found.measured.rows}
        return list(rows.values()) if variants is None else [rows[name] for name in variants if name in rows]

    def estimate(self, model: MeasuredModel, file: str, measure: str) -> Estimate | None:
        """Return a measure of a variant, its mean over seeds; None if it was not measured."""
        paths = self._files(model, file)
        tables = [pq.read_table(path) for path in paths if path.is_file()]
        return estimate_mean(tables, measure, settings=SETTINGS) if len(tables) == len(paths) else None

    def interactive(self, model: MeasuredModel) -> pd.DataFrame:
        """Return the rows of a variant's interactive questions, of all seeds; without any, an empty frame."""
        paths = [path for path in self._files(model, "interactive") if path.is_file()]
        return pd.concat([pq.read_table(path).to_pandas() for path in paths] or [pd.DataFrame()])

    def _files(self, model: MeasuredModel, file: str) -> list[Path]:
        seeds = [one.slug for one in self.found.measured.seeds(model.variant)] or [model.slug]
        return [self.folder / "measures" / slug / f"{file}.parquet" for slug in seeds]

    def table(
        self, name: str, title: str, caption: str, models: Sequence[tuple[str, str, MeasuredModel]],
        columns: Sequence[TaskColumn], number: str | None = None, notes: Sequence[str] = (),
    ) -> Table:  # fmt: skip
        """Return a table; a row is its label, the model in the paper, and the model that was measured."""
        header, lines = [Column("model", "text")], [[Cell(label)] for label, _, _ in models]
        for column in columns:
            header.append(Column(column.title))
            cells = [estimate_cell(self.estimate(model, column.file, column.measure), 100.0, 1) for *_, model in models]
            figures = [
                self.found.published.find(Subject(paper, column.measure, column.subset, "benchmark"), number)
                for _, paper, _ in models
            ]
            for line, cell in zip(lines, cells, strict=True):
                line.append(cell)
            if any(figures):
                header.append(Column(f"paper, {column.subset}", "paper"))
                for line, figure in zip(lines, figures, strict=True):
                    line.append(Cell("–") if figure is None else Cell(figure.printed, f"Table {figure.table}"))
        return Table(name, title, caption, header, lines, notes)


def _task_columns(tasks: Sequence[str], measures: Sequence[str] | None = None) -> list[TaskColumn]:
    return [
        TaskColumn(name, measure, TASKS[name].paper, f"{TASKS[name].title}, {find_measure(measure).title}")
        for name in tasks
        for measure in (TASKS[name].measures if measures is None else measures)
    ]


def task_tables(make: ChexTables) -> Iterator[Table]:
    """Yield the counterparts of Tables 2 to 6."""

    def rows(variants: Sequence[str]) -> list[tuple[str, str, MeasuredModel]]:
        return [(model.label, model.variant, model) for model in make.models(variants)]

    yield make.table(
        "t2", "Table 2: the tasks", "In percent. SG: sentence grounding, OD: detection of findings, RC and RE: "
        "classification and description of regions, given their boxes, RG: reports.",
        rows([WHOLE]), _task_columns(list(TASKS)), "2", [BOXES_AS_PREDICTED],
    )  # fmt: skip
    yield make.table(
        "t3", "Table 3: tokens and targets in training", "In percent, the mean over seeds.", rows(TOKENS_AND_TARGETS),
        _task_columns(list(TASKS)), "3", [BOXES_AS_PREDICTED],
    )  # fmt: skip
    yield make.table(
        "t4", "Table 4: the sentence generator", "In percent.", rows(GENERATORS),
        _task_columns(["re", "rg"], ["micro_f1_14"]), "4",
    )  # fmt: skip
    ways = {"by box": ("re", WHOLE), "by name": (BY_NAME, "chex-by-name")}
    yield from _of_chex(make, "5", "regions asked for by box or by name", "cig", ways, ["micro_f1_14"])
    sets = {
        f"anatomy {used['regions']}, pathology {used['findings']}": (name, WHOLE if used == DEFAULT else name)
        for name, used in PROMPT_SETS.items()
    }
    measures = ("micro_f1_14", "macro_f1_14", "example_f1_14", "sided_f1")
    yield from _of_chex(make, "6", "sets of prompts for reports", "mimic", sets, measures)


def _of_chex(
    make: ChexTables, number: str, title: str, subset: str, rows: Mapping[str, tuple[str, str]], measures: Sequence[str]
) -> Iterator[Table]:
    """Yield a table of ChEX asked in several ways, each with its table of instances and its name in the paper."""
    folder = make.folder / "measures" / WHOLE
    tables = {label: folder / f"{file}.parquet" for label, (file, _) in rows.items()}
    if not all(path.is_file() for path in tables.values()):
        return
    header, lines = [Column("asked", "text")], [[Cell(label)] for label in rows]
    for measure in measures:
        header.append(Column(find_measure(measure).title))
        papers = [
            make.found.published.find(Subject(paper, measure, subset, "benchmark"), number)
            for _, paper in rows.values()
        ]
        header += [Column(f"paper, {subset}", "paper")] if any(papers) else []
        for line, path, paper in zip(lines, tables.values(), papers, strict=True):
            line.append(estimate_cell(estimate_mean([pq.read_table(path)], measure, settings=SETTINGS), 100.0, 1))
            line += [Cell(paper.printed if paper else "–")] if any(papers) else []
    yield Table(f"t{number}", f"Table {number}: {title}", "ChEX, first seed, in percent.", header, lines)


# ------------------------------------------------------------------------------------------------ interactive questions


def interactive_tables(make: ChexTables) -> Iterator[Table]:
    """Yield the numbers of Figures 4b, 5b, 6a, 6b, 8 and 9."""
    hints = {"no hint": NO_HINT, "coarse hint": COARSE, "fine hint": FINE}
    both = "of the finding's box on the other side, in images with one on each; 0 without a hint, as each is asked for."
    one = "of the opposite region, in images with a single box of a finding. Above 0, the finding is nearer."
    for name, title, caption, queries, measure in (
        ("f4", "Figure 4b: hints at one of two sides", f"gIoU with the queried box minus that {both}", hints,
         "relative_other"),
        ("f5", "Figure 5b: hints at a negative region", f"gIoU with the finding's box minus that {one}",
         {"no hint": NO_HINT, "correct hint": COARSE, "opposite hint": OPPOSITE}, "relative_opposite"),
        ("f6a", "Figure 6a: precise prompts and localisation", "gIoU with the finding's box.", hints, "giou"),
        ("f8", "Figure 8: modified prompts", "gIoU with the finding's box.",
         {"name only": NO_HINT, **{name: name for name in (*MODIFICATIONS, NEGATED)}}, "giou"),
    ):  # fmt: skip
        text = f"{caption} Mean over boxes of findings; predicted boxes are weighted by their scores."
        yield from _by_query(make, name, title, text, queries, measure)
    described = {one: one for one in (NAME, BOX, BOTH, REGION, NAME_AND_REGION)}
    for measure, what in (
        ("queried", "Share of descriptions that state the queried finding."),
        ("non_queried", "Number of other findings that a description states or denies."),
        ("non_queried_positive", "Number of other findings that a description states."),
    ):
        words = measure.replace("_", "-", 1).replace("_", ", ")
        title = f"Figure 6b: {words} findings in descriptions"
        yield from _by_query(make, f"f6b-{measure}", title, f"{what} Labelled by rules.", described, measure)
    yield from _bias(make)


def claims_part(make: ChexTables) -> list[Table]:
    """Return the verdicts about ChEX, if it was asked."""
    for model in make.models([WHOLE]):
        rows = make.interactive(model)
        if judged := compare(rows, SETTINGS) if len(rows) else []:
            return [claims_table(model.label, judged)]
    return []


def _by_query(
    make: ChexTables, name: str, title: str, caption: str, queries: Mapping[str, str], measure: str
) -> Iterator[Table]:
    lines = []
    for model in make.models():
        rows = make.interactive(model)
        if measure in rows:
            lines.append([Cell(model.label), *(_mean(rows, query, measure) for query in queries.values())])
    if lines:
        yield Table(name, title, caption, [Column("model", "text"), *map(Column, queries)], lines)


def _mean(rows: pd.DataFrame, query: str, measure: str) -> Cell:
    """Return the mean over boxes of what is first averaged over seeds, with an interval over patients."""
    some = rows[rows["query"] == query].groupby(BOX_OF_A_FINDING)[measure].mean().reset_index()
    some = some[~np.isnan(some[measure].to_numpy(dtype=float))]
    if some.empty:
        return Cell("–")
    return estimate_cell(Estimator(some["patient"].to_numpy(dtype=object), SETTINGS).mean(some[measure].to_numpy()))


def _bias(make: ChexTables) -> Iterator[Table]:
    path = make.folder / "measures" / WHOLE / "interactive.json"
    if not path.is_file():
        return
    lines = [
        [Cell(finding), *(Cell(str(counts.get(name, 0)), value=counts.get(name, 0)) for name in BIAS_REGIONS)]
        for finding, counts in sorted(read_json(path)["bias"].items())
    ]
    yield Table(
        "f9", "Figure 9: regional bias", "Number of images without a finding in which each region has the highest IoU, "
        "among these, with the finding's best box. ChEX, first seed.",
        [Column("finding", "text"), *map(Column, BIAS_REGIONS)], lines,
    )  # fmt: skip


def make_page(found: Measurements) -> Page:
    """Estimate everything and return the page."""
    make = ChexTables(found, found.folder)
    maps = found.tables
    quantities = [
        Quantity(find_measure(name).title, maps.values(name, "exact"), ranked=True)
        for name in ("auroc", "average_precision", "pointing")
    ]
    rows = [model_row(model) for model in found.measured.rows]
    maps_table = maps.table(
        "maps", "Localisation of phrases", "Maps, and boxes as classes of their own, against exact masks; in percent.",
        rows, quantities,
    )  # fmt: skip
    sections = [
        Section("tasks", "Tasks and ablations", [OTHER_DATA, OVER_PATIENTS], parts=list(task_tables(make))),
        Section("claims", "Interactive questions: claims", [_agreeing(make)], parts=claims_part(make)),
        Section("interactive", "Interactive questions", parts=list(interactive_tables(make))),
        Section("maps", "Maps next to the location prior", parts=[maps_table]),
        Section("seeds", "Effect of the training seed", parts=maps.seeds(quantities)),
        Section("paper", "Where the paper contradicts itself", items=list(found.published.remarks)),
        Section("training", "Models and training", parts=found.model_tables()),
        Section("missing", "Missing", items=[*found.absent()]),
        Section("commands", "Commands", code="\n".join(found.commands)),
    ]
    source = found.prepared.targets.source
    lead = f"Tables and figures of {found.published.paper}, measured on {source}. {OTHER_DATA}"
    return Page(found.paper.title, lead, sections, found.facts, found.warning)


def _agreeing(make: ChexTables) -> str:
    path = make.folder / "measures" / WHOLE / "interactive.json"
    counts = read_json(path)["studies"] if path.is_file() else {}
    return (
        f"Studies asked: {counts.get('asked', 0):,}; without a box of the eight findings: "
        f"{counts.get('without', 0):,}; left out because labels of regions and boxes disagree: "
        f"{counts.get('disagree', 0):,} (E.3)."
    )

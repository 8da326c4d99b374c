"""The paper's Tables 2 to 14 as data, and how they are made: our numbers next to the paper's.

A row is one of our models (or the best of several), with the model of the paper that it is the counterpart of; a column
is a task with a measure. Where the paper has several data sets for a task, ours has one and the paper's figures follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.chex.measuring import BY_NAME, PROMPT_SETS, TASKS, TEXT_MEASURES, WHOLE
from rightlung.reproduce.chex.variants import GENERATORS, TOKENS_AND_TARGETS
from rightlung.reproduce.published import Subject
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import Estimate

BY_FINDING = "f1 "
"""Begins the name of a column with the F1 of one observation, as in ``published.yaml``."""
BOXES = "Boxes: non-maximum suppression at an IoU of 0.25, as in the paper, but not scaled."
BEST_OF = "The best model of a kind is chosen for each figure, as in the paper. Tables 7 to 14 have all."
DATA_SETS = "The paper's data sets: MS-CXR (SG, RC and RE of findings), VinDr-CXR (OD), CIG (RC, RE), MIMIC-CXR (RG)."
TEXTS = "Texts are labelled by rules (the paper: CheXbert). METEOR needs Java; without it the value is missing."


@dataclass(frozen=True)
class TableRow:
    """A row: the variants of which the best is shown, and the model in ``published.yaml`` to compare with, if any.

    ``suffix``: of the tables of instances, for another way of asking, which only the first seed was asked in.
    """

    variants: tuple[str, ...]
    paper: str = ""
    label: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: its rows, and the measures of each task."""

    number: str
    title: str
    caption: str
    rows: Sequence[TableRow]
    columns: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[str] = ()
    papers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The paper's data sets for a task, if not the first one of `TASKS`."""
    measures_down: bool = False
    """Whether measures are rows and models columns, with the paper's figures in the same cells."""


def _rows(**papers: str) -> list[TableRow]:
    return [TableRow((name.replace("_", "-"),), paper) for name, paper in papers.items()]


def _same(variants: Sequence[str]) -> list[TableRow]:
    return [TableRow((name,), name) for name in variants]


TYPES: Mapping[str, TableRow] = {
    row.label: row
    for row in (
        TableRow(("detr",), "best-supod", "supervised detection"),
        TableRow(("classifier", "mil-adpd", "loc-adpd"), "best-wsupod", "weakly supervised"),
        TableRow(("transvg",), "best-supvg", "supervised grounding"),
        TableRow(("clip", "clip-cropped", "retrieval"), "best-contrastive", "contrastive"),
        TableRow(("reporter",), "best-generative", "generative"),
        TableRow(("image-blind",), "", "image-blind"),
    )
}
"""Kinds of baselines (Table 2); ours of each kind."""
IN_TABLE_2: tuple[tuple[str, Sequence[str]], ...] = (
    ("sg", ("box_miou", "sentence_map")), ("od", ("map",)), ("rc-boxes", ("finding_auroc",)),
    ("rc", ("finding_auroc_weighted",)), ("re-boxes", ("micro_f1_14", "meteor")), ("re", ("micro_f1_14", "meteor")),
    ("rg", ("micro_f1_14", "macro_f1_14", "example_f1_14", "meteor")),
)  # fmt: skip
_BLIND = {"image_blind": ""}
_REPORTS = _rows(chex=WHOLE, reporter="cvt-212distilgpt2", retrieval="", **_BLIND)
_IN_PERCENT, _IN_PERCENT_OVER_SEEDS = "In percent.", "In percent, the mean over seeds."

TABLES: Mapping[str, PaperTable] = {
    table.number: table
    for table in (
        PaperTable(
            "2", "ChEX and the best baseline of each kind", "In percent. SG: sentence grounding, OD: detection of "
            "findings, RC and RE: classification and description of regions, given their boxes (of findings: of the "
            "boxes of phrases), RG: reports.",
            [TableRow((WHOLE,), WHOLE), *TYPES.values()], IN_TABLE_2, [BEST_OF, BOXES, TEXTS, DATA_SETS],
            measures_down=True,
        ),
        PaperTable("3", "tokens and targets in training", _IN_PERCENT_OVER_SEEDS, _same(TOKENS_AND_TARGETS),
                   IN_TABLE_2, [BOXES, DATA_SETS], measures_down=True),
        PaperTable("4", "the sentence generator", _IN_PERCENT, _same(GENERATORS),
                   [(task, ("micro_f1_14",)) for task in ("re-boxes", "re", "rg")]),
        PaperTable(
            "5", "regions asked for by box or by name",
            "ChEX, in percent; by box: the mean over seeds, by name: the first seed.",
            [TableRow((WHOLE,), WHOLE, "by box"), TableRow((WHOLE,), "chex-by-name", "by name", f"-{BY_NAME}")],
            [("rc", ("finding_auroc_weighted",)), ("re", ("micro_f1_14", "sided_f1"))],
        ),
        PaperTable(
            "6", "sets of prompts for reports", "ChEX, first seed, in percent.",
            [TableRow((WHOLE,), WHOLE if name == "prompts-positive-yes" else name,
                      f"anatomy {used['regions']}, pathology {used['findings']}", f"-{name}")
             for name, used in PROMPT_SETS.items()],
            [("rg", ("micro_f1_14", "macro_f1_14", "example_f1_14", "sided_f1", "meteor"))],
        ),
        PaperTable("7", "sentence grounding", _IN_PERCENT,
                   _rows(chex=WHOLE, clip="chexzero", transvg="transvg", **_BLIND),
                   [("sg", ("box_miou", "sentence_map"))], [BOXES]),
        PaperTable("8", "detection of findings", _IN_PERCENT,
                   _rows(chex=WHOLE, detr="conditional-detr-dc5-r50", classifier="chexnet", mil_adpd="mil-adpd",
                         loc_adpd="loc-adpd", clip="chexzero", **_BLIND),
                   [("od", ("map", "map@30", "map@50"))], [BOXES], {"od": ("vindr", "nih8", "ms-cxr")}),
        PaperTable("9", "classification of regions", _IN_PERCENT,
                   _rows(chex=WHOLE, classifier="chexnet", mil_adpd="", loc_adpd="", clip="chexzero",
                         clip_cropped="chexzero-cropped", **_BLIND),
                   [("rc-boxes", ("finding_auroc",)), ("rc", ("finding_auroc_weighted",))]),
        PaperTable("10", "description of the boxes of findings", _IN_PERCENT,
                   _rows(chex=WHOLE, retrieval="chexzero", **_BLIND), [("re-boxes", TEXT_MEASURES)], [TEXTS]),
        PaperTable("11", "description of regions", _IN_PERCENT, _rows(chex=WHOLE, retrieval="chexzero", **_BLIND),
                   [("re", TEXT_MEASURES)], [TEXTS]),
        PaperTable("12", "reports: clinical efficacy", _IN_PERCENT, _REPORTS,
                   [("rg", ("micro_f1_14", "example_f1_14", "macro_f1_14", "micro_f1_5", "macro_f1_5", "sided_f1"))],
                   [TEXTS]),
        PaperTable("13", "reports: language", "In percent; CIDEr times 100.", _REPORTS,
                   [("rg", ("bleu_1", "bleu_4", "meteor", "rouge_l", "cider"))], [TEXTS]),
        PaperTable("14", "reports: F1 of each finding", _IN_PERCENT, _REPORTS,
                   [("rg", [f"{BY_FINDING}{name}" for name in (*OBSERVATIONS[1:], OBSERVATIONS[0])])], [TEXTS]),
    )
}  # fmt: skip


def only_label(table: pa.Table, name: str) -> pa.Table:
    """Return a table of texts of which only one label is known, so that any F1 over labels is that of the label."""
    for column in ("labels_called", "labels_true"):
        kept = [None if row is None else [one for one in row if one == name] for row in table[column].to_pylist()]
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, pa.array(kept, table.schema.field(column).type))
    return table


@dataclass(frozen=True)
class ChexTables(TaskFiles):
    """Makes the tables from the files of every model."""

    def tables(self, variant: str, task: str) -> list[pa.Table]:
        """Return the tables of a task; after a ``#`` of its name, the only label that they keep."""
        task, _, label = task.partition("#")
        found = super().tables(variant, task)
        return [only_label(table, label) for table in found] if label else found

    def estimate(self, variant: str, task: str, measure: str) -> Estimate | None:
        """Return a measure of a variant, its mean over the seeds that have it; None if it was not measured."""
        if measure.startswith(BY_FINDING):
            return super().estimate(variant, f"{task}#{measure.removeprefix(BY_FINDING)}", "micro_f1_14")
        return super().estimate(variant, task, measure)

    def best(self, row: TableRow, file: str, measure: str) -> tuple[str, Estimate | None]:
        """Return the variant of a row with the highest value, and this value; all measures are better if higher."""
        found = {name: self.estimate(name, f"{file}{row.suffix}", measure) for name in row.variants}
        there = {name: one for name, one in found.items() if one is not None and one.defined}
        if not there:
            return next((name for name, one in found.items() if one is not None), ""), None
        name = max(there, key=lambda one: there[one].value)
        return name, there[name]

    def table(self, of: PaperTable, folded: bool = True) -> Table | None:
        """Return a table with the models that were measured; None if none of its files is there."""
        rows = [row for row in of.rows if any(self._has(row, task) for task, _ in of.columns)]
        if not rows:
            return None
        columns = [self._column(of, rows, task, name) for task, measures in of.columns for name in measures]
        header, lines = [Column("model", "text")], [[Cell(self._label(row))] for row in rows]
        if of.measures_down:
            header, lines = [Column("measure", "text"), *(Column(self._label(row)) for row in rows)], []
        for title, cells, papers in columns:
            if of.measures_down:
                printed = [[own[row] for own in papers.values()] for row in range(len(rows))]
                lines.append([Cell(title), *map(_with_paper, cells, printed)])
                continue
            header += [Column(title), *(Column(f"paper, {subset}", "paper") for subset in papers)]
            for line, *own in zip(lines, cells, *papers.values(), strict=True):
                line += own
        name, title = f"t{of.number}", f"Table {of.number}: {of.title}"
        return Table(name, title, of.caption, header, lines, [*of.notes, "Bold: the highest value."], folded)

    def _column(
        self, of: PaperTable, rows: Sequence[TableRow], task: str, measure: str
    ) -> tuple[str, list[Cell], dict[str, list[Cell]]]:
        """Return a measure of all rows: its title, our values, and the paper's by data set."""
        title = _title(measure) if len(of.columns) == 1 else f"{TASKS[task].title}, {_title(measure)}"
        found = [self.best(row, task, measure) for row in rows]
        highest = max((one.value for _, one in found if one is not None), default=None)
        cells = []
        for row, (name, one) in zip(rows, found, strict=True):
            cell = estimate_cell(one, 100.0, 1, strong=one is not None and one.value == highest)
            model = self.model(name) if len(row.variants) > 1 and one is not None else None
            cells.append(cell if model is None else replace(cell, help=model.label))
        papers = {}
        for subset in of.papers.get(task, TASKS[task].papers[:1]):
            subjects = [Subject(row.paper, measure, subset, "benchmark") for row in rows]
            figures = [self.found.published.find(one, of.number) for one in subjects]
            if any(figures):
                papers[subset] = [
                    Cell("–") if one is None else Cell(one.printed, f"Table {one.table}") for one in figures
                ]
        return title, cells, papers

    def _has(self, row: TableRow, task: str) -> bool:
        return any(self.files(name, f"{task}{row.suffix}") for name in row.variants)

    def _label(self, row: TableRow) -> str:
        model = self.model(row.variants[0])
        return row.label or (row.variants[0] if model is None else model.label)


def _with_paper(cell: Cell, papers: Sequence[Cell]) -> Cell:
    """Return our value with the paper's after the interval."""
    printed = [f"paper {one.text}" for one in papers if one.text != "–"]
    return replace(cell, detail="; ".join(filter(None, (cell.detail, *printed))))


def _title(measure: str) -> str:
    return measure.removeprefix(BY_FINDING) if measure.startswith(BY_FINDING) else find_measure(measure).title

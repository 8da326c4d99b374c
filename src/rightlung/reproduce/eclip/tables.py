"""Tables of eCLIP's variants by measures, with differences and published figures."""

from __future__ import annotations

from collections.abc import Mapping

from rightlung.pages.content import Cell
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.eclip.claims import ACCURACY, AUROC, POINTING, SHORTCUT
from rightlung.reproduce.eclip.files import EclipFiles
from rightlung.reproduce.eclip.measuring import DIRECTIONS
from rightlung.reproduce.measurements import Measurements
from rightlung.reproduce.pair_claims import Place
from rightlung.reproduce.published import Subject
from rightlung.reproduce.task_tables import PRIOR, TaskTables
from rightlung.results.estimate import BootstrapSettings, Estimate

TWELVE: Place = ("12x", "class_accuracy")
PNEUMONIA: Place = ("pneumonia", "class_accuracy")
COLUMNS: Mapping[Place, str] = {
    ACCURACY: "accuracy, 5 classes", TWELVE: "12 classes", PNEUMONIA: "pneumonia", AUROC: "zero-shot AUROC",
    POINTING: "pointing",
}  # fmt: skip
PAPERS = {"5x": "chexpert-5x200", "12x": "cxr-14x100", "pneumonia": "rsna"}
"""The paper's data sets whose figures stand next to ours."""
SETTINGS = BootstrapSettings(resamples=500)


class EclipTables(TaskTables):
    """Makes tables of variants by measures from the files of every model."""

    files: EclipFiles

    def __init__(self, found: Measurements) -> None:
        super().__init__(found, EclipFiles(found, SETTINGS, "percentile"), COLUMNS)

    def _cell(self, place: Place, found: Estimate | None, signed: bool = False, strong: bool = False) -> Cell:
        """Return a share in percent, or a rank."""
        return estimate_cell(found, 1.0 if "rank" in place[1] else 100.0, 1, signed=signed, strong=strong)

    def _best(self, place: Place, values: Mapping[str, Estimate]) -> list[str]:
        trained = {slug: one.value for slug, one in values.items() if slug != PRIOR and one.defined}
        if not trained or place == SHORTCUT:
            return []
        best = (min if "rank" in place[1] else max)(trained.values())
        return [slug for slug, value in trained.items() if value == best]

    def _paper(self, variant: str, place: Place, target: str | None) -> Cell:
        if target is None:
            return Cell("–")
        subset = "open-i" if target == "retrieval" else PAPERS.get(place[0], "")
        if target == "retrieval" and place[0] != DIRECTIONS[0]:
            return Cell("–")
        found = self.found.published.find(Subject(variant, place[1], subset, target))
        return Cell("–") if found is None else Cell(found.printed, table_name(found.table))


def table_name(table: str) -> str:
    """Return the name of a table of the paper."""
    return f"Table {table}" if table.isdigit() else table.partition(", ")[2]

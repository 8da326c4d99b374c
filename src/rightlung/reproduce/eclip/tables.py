"""Tables of eCLIP's variants by measures, with differences and published figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.eclip.claims import ACCURACY, AUROC, POINTING, SHORTCUT, Place
from rightlung.reproduce.eclip.files import EclipFiles
from rightlung.reproduce.eclip.measuring import DIRECTIONS
from rightlung.reproduce.measurements import Measurements
from rightlung.reproduce.published import Subject
from rightlung.results.estimate import BootstrapSettings, Estimate

TWELVE: Place = ("12x", "class_accuracy")
PNEUMONIA: Place = ("pneumonia", "class_accuracy")
COLUMNS: Mapping[Place, str] = {
    ACCURACY: "accuracy, 5 classes", TWELVE: "12 classes", PNEUMONIA: "pneumonia", AUROC: "zero-shot AUROC",
    POINTING: "pointing",
}  # fmt: skip
PAPERS = {"5x": "chexpert-5x200", "12x": "cxr-14x100", "pneumonia": "rsna"}
"""The paper's data sets whose figures stand next to ours."""
PRIOR, PRIOR_LABEL = "prior", "location prior (never sees an image)"
SETTINGS = BootstrapSettings(resamples=500)


class EclipTables:
    """Makes tables of variants by measures from the files of every model."""

    def __init__(self, found: Measurements) -> None:
        self.found = found
        self.files = EclipFiles(found, SETTINGS, "percentile")

    def there(self, variants: Sequence[str]) -> list[str]:
        """Return the variants that were measured."""
        return [name for name in variants if self.files.model(name) is not None]

    def label(self, variant: str) -> str:
        """Return the name of a variant."""
        model = self.files.model(variant)
        return variant if model is None else model.label

    def table(
        self, name: str, title: str, caption: str, rows: Mapping[str, str], columns: Mapping[Place, str] = COLUMNS,
        *, minus: str | Mapping[str, str] | None = None, papers: str | None = None, folded: bool = True,
        references: Mapping[str, Mapping[Place, Estimate]] | None = None,
    ) -> Iterator[Table]:  # fmt: skip
        """Yield a table of variants (with their labels) by measures; nothing if none was measured.

        ``minus``: the variant, or that of each row, from which differences are shown in a second column. ``papers``:
        the kind of published figures to show. ``references``: further rows.
        """
        known = self.there([*rows])
        if not {*known} - {PRIOR}:
            return
        others = minus if isinstance(minus, Mapping) else {} if minus is None else dict.fromkeys(known, minus)
        header = [Column("model", "text")]
        lines = [[Cell(rows[one])] for one in known] + [[Cell(label)] for label in references or ()]
        for place, heading in columns.items():
            values = [self.files.estimate(one, *place) for one in known]
            if not any(values):
                continue
            header.append(Column(heading))
            best = self._best(place, {slug: one for slug, one in zip(known, values, strict=True) if one is not None})
            cells = [self._cell(place, one, strong=slug in best) for slug, one in zip(known, values, strict=True)]
            cells += [self._cell(place, row.get(place)) for row in (references or {}).values()]
            self._append(lines, cells)
            differences = [self._difference(one, others.get(one), place) for one in known]
            if any(cell.text != "–" for cell in differences):
                header.append(Column(f"− {rows.get(minus, minus) if isinstance(minus, str) else 'usual number'}"))
                self._append(lines, differences)
            figures = [self._paper(one, place, papers) for one in known]
            if any(cell.text != "–" for cell in figures):
                header.append(Column(self.found.published.column, "paper"))
                self._append(lines, figures)
        yield Table(name, title, caption, header, lines, ["Bold: the best value of the trained models."], folded)

    @staticmethod
    def _append(lines: Sequence[list[Cell]], cells: Sequence[Cell]) -> None:
        for number, line in enumerate(lines):
            line.append(cells[number] if number < len(cells) else Cell("–"))

    @staticmethod
    def _cell(place: Place, found: Estimate | None, signed: bool = False, strong: bool = False) -> Cell:
        """Return a share in percent, or a rank."""
        return estimate_cell(found, 1.0 if "rank" in place[1] else 100.0, 1, signed=signed, strong=strong)

    @staticmethod
    def _best(place: Place, values: Mapping[str, Estimate]) -> list[str]:
        trained = {slug: one.value for slug, one in values.items() if slug != PRIOR and one.defined}
        if not trained or place == SHORTCUT:
            return []
        best = (min if "rank" in place[1] else max)(trained.values())
        return [slug for slug, value in trained.items() if value == best]

    def _difference(self, variant: str, other: str | None, place: Place) -> Cell:
        if other is None or variant == other or PRIOR in (variant, other):
            return Cell("–")
        return self._cell(place, self.files.difference(variant, other, *place), signed=True)

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

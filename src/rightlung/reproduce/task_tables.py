"""Tables of variants by measures of their task files, with differences and published figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.measurements import Measurements
from rightlung.reproduce.pair_claims import Place
from rightlung.reproduce.task_files import TaskFiles
from rightlung.results.estimate import Estimate

PRIOR, PRIOR_LABEL = "prior", "location prior (never sees an image)"


class TaskTables:
    """Makes tables of variants by measures. A subclass says how values and published figures are shown."""

    def __init__(self, found: Measurements, files: TaskFiles, columns: Mapping[Place, str]) -> None:
        self.found, self.files, self.columns = found, files, columns

    def there(self, variants: Sequence[str]) -> list[str]:
        """Return the variants that were measured."""
        return [name for name in variants if self.files.model(name) is not None]

    def label(self, variant: str) -> str:
        """Return the name of a variant."""
        model = self.files.model(variant)
        return variant if model is None else model.label

    def label_of_other(self, variant: str, rows: Mapping[str, str]) -> str:
        """Return the name of the variant from which differences are shown."""
        return rows.get(variant, variant)

    def table(
        self, name: str, title: str, caption: str, rows: Mapping[str, str], columns: Mapping[Place, str] | None = None,
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
        for place, heading in (self.columns if columns is None else columns).items():
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
                header.append(
                    Column(f"− {self.label_of_other(minus, rows) if isinstance(minus, str) else 'usual number'}")
                )
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

    def _cell(self, place: Place, found: Estimate | None, signed: bool = False, strong: bool = False) -> Cell:
        """Return a share in percent."""
        return estimate_cell(found, 100.0, 1, signed=signed, strong=strong)

    def _best(self, place: Place, values: Mapping[str, Estimate]) -> list[str]:
        trained = {slug: one.value for slug, one in values.items() if slug != PRIOR and one.defined}
        return [slug for slug, value in trained.items() if value == max(trained.values())]

    def _difference(self, variant: str, other: str | None, place: Place) -> Cell:
        if other is None or variant == other or PRIOR in (variant, other):
            return Cell("–")
        return self._cell(place, self.files.difference(variant, other, *place), signed=True)

    def _paper(self, variant: str, place: Place, target: str | None) -> Cell:
        return Cell("–")

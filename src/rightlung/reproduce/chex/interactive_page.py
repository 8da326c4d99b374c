"""Tables and figures of the interactive questions: the counterparts of Figures 4b, 5b, 6, 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from rightlung.core.files import read_json
from rightlung.pages.content import Cell, Column, Figure, Table
from rightlung.pages.figures import DistributionPanel, IntervalPanel, panel_figure, share_figure
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.chex.claims import BOX_OF_A_FINDING, QueryClaim, claims_table, compare
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
from rightlung.reproduce.chex.measuring import WHOLE
from rightlung.reproduce.chex.paper_tables import ChexTables
from rightlung.reproduce.claims import HOLDS
from rightlung.reproduce.task_files import SETTINGS
from rightlung.results.estimate import Comparison, Estimate
from rightlung.results.estimator import Estimator

_OVER_BOXES = "Mean over boxes of findings; predicted boxes are weighted by their scores."


@dataclass(frozen=True)
class QueryFigure:
    """A figure of the paper that compares queries: a measure of the box or sentence found, by query."""

    name: str
    title: str
    caption: str
    queries: Mapping[str, str]
    measure: str
    line: float | None = None


_HINTS = {"no hint": NO_HINT, "coarse hint": COARSE, "fine hint": FINE}
FIGURES = (
    QueryFigure("f4", "Figure 4b: hints at one of two sides", "gIoU with the queried box minus that of the finding's "
        "box on the other side, in images with one on each; 0 without a hint, as each is asked for.", _HINTS,
        "relative_other", 0.0),
    QueryFigure("f5", "Figure 5b: hints at a negative region", "gIoU with the finding's box minus that of the opposite "
        "region, in images with a single box of a finding. Above 0, the finding is nearer.",
        {"no hint": NO_HINT, "correct hint": COARSE, "opposite hint": OPPOSITE}, "relative_opposite", 0.0),
    QueryFigure("f6a", "Figure 6a: precise prompts and localisation", "gIoU with the finding's box.", _HINTS, "giou"),
    QueryFigure("f8", "Figure 8: modified prompts", "gIoU with the finding's box.",
        {"name only": NO_HINT, **{name: name for name in (*MODIFICATIONS, NEGATED)}}, "giou"),
)  # fmt: skip
DESCRIBED = tuple(
    QueryFigure(f"f6b-{measure}", title, f"{what} Labelled by rules.",
        {one: one for one in (NAME, BOX, BOTH, REGION, NAME_AND_REGION)}, measure)
    for measure, title, what in (
        ("queried", "queried finding", "Share of descriptions that state the queried finding."),
        ("non_queried", "other findings", "Number of other findings that a description states or denies."),
        ("non_queried_positive", "other findings, stated", "Number of other findings that a description states."),
    )
)  # fmt: skip


@dataclass(frozen=True)
class InteractivePage:
    """Makes the parts of the page from the rows of the interactive questions."""

    make: ChexTables

    @cached_property
    def rows(self) -> dict[str, pd.DataFrame]:
        """The rows of all seeds by variant."""
        found = {}
        for row in self.make.found.measured.rows:
            paths = self.make.files(row.variant, "interactive")
            if paths:
                columns = [name for name in pq.read_schema(paths[0]).names if name not in ("boxes", "target")]
                found[row.variant] = pd.concat([pq.read_table(path, columns=columns).to_pandas() for path in paths])
        return found

    def tables(self) -> list[Table]:
        """Return the numbers of the figures, of all variants, folded."""
        found = [self._table(one, f"{one.caption} {_OVER_BOXES}") for one in FIGURES]
        found += [self._table(one, one.caption, f"Figure 6b: {one.title}") for one in DESCRIBED]
        return [table for table in found if table.rows]

    def figures(self) -> Iterator[Figure]:
        """Yield the figures of ChEX."""
        rows = self.rows.get(WHOLE)
        if rows is None:
            return
        for one in FIGURES:
            boxes = _by_box(rows, one.measure)
            values = [boxes[query].dropna().tolist() if query in boxes else [] for query in one.queries.values()]
            if any(values):
                panel = DistributionPanel(
                    title="gIoU" if one.line is None else "relative gIoU", values=values, line=one.line
                )
                caption = f"{one.caption} A mark for each box of a finding; box: quartiles, line: 5 to 95 %. ChEX."
                yield panel_figure(f"figure-{one.name}", one.title, caption, list(one.queries), [panel])
        panels = [
            IntervalPanel(title=one.title, series={"ChEX": [_mean(rows, q, one.measure) for q in one.queries.values()]})
            for one in DESCRIBED
            if one.measure in rows
        ]
        if panels:
            caption = "Descriptions by what was asked for, labelled by rules: means over boxes of findings. ChEX."
            yield panel_figure("figure-f6b", "Figure 6b: findings in descriptions", caption,
                               list(DESCRIBED[0].queries), panels)  # fmt: skip
        yield from self._bias()

    def claims(self) -> list[tuple[QueryClaim, Comparison]]:
        """Return the claims about ChEX that can be judged."""
        rows = self.rows.get(WHOLE)
        return [] if rows is None else compare(rows, SETTINGS)

    def claims_tables(self) -> list[Table]:
        """Return the verdicts about ChEX, if it was asked."""
        model, judged = self.make.model(WHOLE), self.claims()
        return [claims_table(model.label, judged)] if model is not None and judged else []

    def asked(self) -> list[str]:
        """Return how many studies ChEX was asked about, and why others were left out; nothing if it was not asked."""
        if not (counts := self._whole("studies")):
            return []
        return [
            f"Studies asked: {counts.get('asked', 0):,}; without a box of the eight findings: "
            f"{counts.get('without', 0):,}; left out because labels of regions and boxes disagree: "
            f"{counts.get('disagree', 0):,} (E.3)."
        ]

    def _table(self, one: QueryFigure, caption: str, title: str = "") -> Table:
        lines = [
            [Cell(row.label), *(estimate_cell(_mean(self.rows[row.variant], query, one.measure))
                                for query in one.queries.values())]
            for row in self.make.found.measured.rows
            if one.measure in self.rows.get(row.variant, ())
        ]  # fmt: skip
        header = [Column("model", "text"), *map(Column, one.queries)]
        return Table(one.name, title or one.title, caption, header, lines, folded=True)

    def _bias(self) -> Iterator[Figure]:
        bias = self._whole("bias")
        if bias:
            caption = (
                "Images without a finding: the region that has the highest IoU, among these, with the finding's best "
                "box; percent of the images of each row. ChEX, first seed."
            )
            counts = [[bias[finding].get(name, 0) for name in BIAS_REGIONS] for finding in sorted(bias)]
            yield share_figure("figure-f9", "Figure 9: regional bias", caption, sorted(bias), BIAS_REGIONS, counts)

    def _whole(self, name: str) -> Mapping[str, Mapping[str, int]]:
        path = next((path.with_suffix(".json") for path in self.make.files(WHOLE, "interactive")), Path())
        found: Mapping[str, Mapping[str, int]] = read_json(path)[name] if path.is_file() else {}
        return found


def _by_box(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure by box of a finding and query, averaged over seeds."""
    if measure not in rows:
        return pd.DataFrame()
    return rows.pivot_table(index=BOX_OF_A_FINDING, columns="query", values=measure, aggfunc="mean")


def _mean(rows: pd.DataFrame, query: str, measure: str) -> Estimate | None:
    """Return the mean over boxes of what is first averaged over seeds, with an interval over patients."""
    some = rows[rows["query"] == query].groupby(BOX_OF_A_FINDING)[measure].mean().reset_index()
    some = some[~np.isnan(some[measure].to_numpy(dtype=float))]
    if some.empty:
        return None
    return Estimator(some["patient"].to_numpy(dtype=object), SETTINGS).mean(some[measure].to_numpy())


def holding(judged: Sequence[tuple[QueryClaim, Comparison]]) -> int:
    """Return how many claims hold."""
    return sum(claim.verdict(found) == HOLDS for claim, found in judged)

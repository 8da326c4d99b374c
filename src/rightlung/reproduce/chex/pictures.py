"""Pictures of ChEX: generated reports (Figures 7, 10 and 11), and what hints do (Figures 4a and 5a)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from rightlung.audit.gallery import pictured
from rightlung.audit.task_gallery import TaskCases
from rightlung.audit.tasks import TaskAnswers, parts_of
from rightlung.core import Box
from rightlung.measuring import BoxSettings
from rightlung.pages.content import Case, Gallery
from rightlung.pages.numbers import number
from rightlung.pages.overlays import Tile
from rightlung.predictions import open_predictions
from rightlung.reproduce.chex.claims import BOX_OF_A_FINDING
from rightlung.reproduce.chex.interactive import COARSE, FINE, NO_HINT, OPPOSITE
from rightlung.reproduce.chex.measuring import ANSWERS, WHOLE
from rightlung.reproduce.chex.paper_tables import ChexTables

REPORTS, EXAMPLES = 3, 2
"""How many reports of each kind, and how many examples of hints, are shown."""


def report_galleries(make: ChexTables) -> list[Gallery]:
    """Return the reports of ChEX with the highest and lowest ROUGE-L, each sentence with its best box."""
    tables, answers = make.files(WHOLE, "rg"), make.files(WHOLE, ANSWERS)
    if not tables or not answers:
        return []
    (part,) = parts_of(["report"])
    cases = TaskCases(part, make.found.prepared.source, TaskAnswers({}), lambda _: BoxSettings())
    return cases.galleries(pq.read_table(tables[0]), open_predictions(answers[0]), "reports", REPORTS)


def hint_galleries(make: ChexTables) -> Iterator[Gallery]:
    """Yield the boxes of ChEX for a finding's name with and without hints, where they make the greatest difference."""
    paths = make.files(WHOLE, "interactive")
    rows = pq.read_table(paths[0]).to_pandas() if paths else pd.DataFrame({"query": []})
    for name, title, measure, queries in (
        ("hints-sides", "Figure 4a: hints at one of two sides", "relative_other", (NO_HINT, COARSE, FINE)),
        ("hints-opposite", "Figure 5a: a correct and a false hint", "relative_opposite", (NO_HINT, COARSE, OPPOSITE)),
    ):
        if measure not in rows:
            continue
        asked = rows[rows["query"].isin(queries)].dropna(subset=[measure])
        wide = asked.pivot_table(index=BOX_OF_A_FINDING, columns="query", values=measure).dropna()
        if wide.empty:
            continue
        effect = (wide[queries[1]] - wide[queries[-1] if OPPOSITE in queries else NO_HINT]).sort_values()
        cases = [_case(make, asked, key, queries, measure) for key in effect.index[::-1][:EXAMPLES]]
        caption = (
            "Green: the finding's box. Orange: predicted boxes, the best with its score. The examples with the "
            "greatest effect, first seed."
        )
        yield Gallery(name, title, caption, cases)


def _case(make: ChexTables, rows: pd.DataFrame, key: Any, queries: Sequence[str], measure: str) -> Case:
    own = rows.set_index(BOX_OF_A_FINDING).loc[[key]].set_index("query")
    _, study, finding, _ = key
    found = [
        (f"{own.loc[query, 'text']} ({number(float(own.loc[query, measure]), signed=True)})", own.loc[query])
        for query in queries
    ]
    other = "box on the other side" if measure == "relative_other" else "opposite region"
    notes = [f"Study {study}. In brackets: gIoU with the finding's box minus that with the {other}"]
    return pictured(str(finding), notes, partial(_tiles, make, study, found))


def _tiles(make: ChexTables, study: str, found: Sequence[tuple[str, Any]]) -> list[tuple[str, Tile]]:
    """Return the image for each query, with the target and the boxes found, of which the best has its score."""
    image, tiles = make.found.prepared.source.study(study).image, []
    for label, row in found:
        boxes = [Box(*one[:4]) for one in row["boxes"]]
        scores = [number(one[4]) if not place else "" for place, one in enumerate(row["boxes"])]
        tiles.append((label, Tile(image, targets=[Box(*row["target"])], predicted=boxes, labels=scores)))
    return tiles

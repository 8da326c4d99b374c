"""What ChEX claims about interactive questions (sections 5.2, 5.3 and A.5), each judged by a paired difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rightlung.pages.content import Cell, Column, Table
from rightlung.pages.numbers import span
from rightlung.reproduce.chex.interactive import (
    BOTH,
    BOX,
    COARSE,
    FINE,
    NAME,
    NAME_AND_REGION,
    NEGATED,
    NO_HINT,
    OPPOSITE,
    REGION,
)
from rightlung.reproduce.claims import FAILS, HOLDS
from rightlung.results.estimate import BootstrapSettings, Comparison
from rightlung.results.estimator import Estimator

if TYPE_CHECKING:
    import pandas as pd

MEASURES = {
    "giou": "gIoU with the finding",
    "relative_other": "gIoU with the finding minus that with the other side",
    "relative_opposite": "gIoU with the finding minus that with the opposite region",
    "queried": "finding that was asked for",
    "non_queried": "other findings in the description",
}
"""The measures of claims, in words."""
BOX_OF_A_FINDING = ["patient", "study", "finding", "place"]


@dataclass(frozen=True)
class QueryClaim:
    """A measure is higher or lower with one query than with another."""

    where: str
    text: str
    measure: str
    first: str
    second: str
    direction: Literal["higher", "lower"] = "higher"

    def verdict(self, found: Comparison) -> str:
        """Return whether the claim holds, or why that cannot be said."""
        if not found.shown:
            return found.verdict
        return HOLDS if (found.value > 0) == (self.direction == "higher") else FAILS


CLAIMS: tuple[QueryClaim, ...] = (
    QueryClaim("5.2, Figure 4b", "A coarse hint steers towards the queried side.", "relative_other", COARSE, NO_HINT),
    QueryClaim("5.2, Figure 4b", "A fine hint steers towards the queried side.", "relative_other", FINE, NO_HINT),
    QueryClaim("5.2, Figure 5b", "The correct hint improves localisation.", "relative_opposite", COARSE, NO_HINT),
    QueryClaim("5.2, Figure 5b", "The opposite hint leads away.", "relative_opposite", OPPOSITE, NO_HINT, "lower"),
    QueryClaim("5.3, Figure 6a", "A coarse hint improves localisation.", "giou", COARSE, NO_HINT),
    QueryClaim("5.3, Figure 6b", "A coarse hint makes descriptions more accurate.", "queried", NAME_AND_REGION, NAME),
    QueryClaim("5.3, Figure 6b", "A box gives more accurate descriptions than a name.", "queried", BOX, NAME),
    QueryClaim("5.3, Figure 6b", "A box gives less specific descriptions than a name.", "non_queried", BOX, NAME),
    QueryClaim("5.3, Figure 6b", "A name and a box are more accurate than a box.", "queried", BOTH, BOX),
    QueryClaim("5.3, Figure 6b", "A name and a box are more specific than a box.", "non_queried", BOTH, BOX, "lower"),
    QueryClaim(
        "5.3, Figure 6b", "A region is less specific than a finding in it.", "non_queried", REGION, NAME_AND_REGION
    ),
    QueryClaim(
        "5.3, Figure 6b", "A name is more specific than a finding in a region.", "non_queried", NAME, NAME_AND_REGION,
        "lower",
    ),
    QueryClaim("A.5, Figure 8", "Negation makes localisation worse.", "giou", NEGATED, NO_HINT, "lower"),
    QueryClaim("A.5, Figure 8", "“Worsened” localises better than “improved”.", "giou", "worsened", "improved"),
)  # fmt: skip


def compare(rows: pd.DataFrame, settings: BootstrapSettings) -> list[tuple[QueryClaim, Comparison]]:
    """Return the claims that can be judged, with paired differences over the boxes of findings.

    ``rows`` are those of `Interactive`, of one model or of several seeds, which are averaged. p-values are adjusted
    (Holm) for all claims.
    """
    measures = [name for name in dict.fromkeys(one.measure for one in CLAIMS) if name in rows]
    boxes = rows.pivot_table(index=BOX_OF_A_FINDING, columns="query", values=measures, aggfunc="mean").astype(float)
    known = [one for one in CLAIMS if {(one.measure, one.first), (one.measure, one.second)} <= {*boxes.columns}]
    estimator = Estimator(boxes.index.get_level_values("patient").to_numpy(), settings)
    firsts = [boxes[one.measure, one.first].to_numpy() for one in known]
    seconds = [boxes[one.measure, one.second].to_numpy() for one in known]
    return list(zip(known, estimator.adjusted(estimator.differences(firsts, seconds)), strict=True)) if known else []


def claims_table(label: str, judged: Sequence[tuple[QueryClaim, Comparison]]) -> Table:
    """Return the table of verdicts."""
    lines = [
        [
            Cell(claim.text, claim.where), Cell(f"{MEASURES[claim.measure]}: {claim.first} − {claim.second}"),
            Cell(span(found, signed=True, brief=True), value=found.as_json()), Cell(claim.verdict(found), strong=True),
        ]
        for claim, found in judged
    ]  # fmt: skip
    columns = [Column("claim", "text"), Column("compared", "text"), Column("difference"), Column("verdict", "text")]
    caption = (
        f"Paired differences of {label} over the boxes of findings, with intervals over patients; judged after "
        "Holm's correction for all of them."
    )
    return Table("claims", "Claims about interactive questions", caption, columns, lines)

"""Verdicts about interactive questions, on numbers made up for the purpose."""

from __future__ import annotations

import pandas as pd
import pytest

from rightlung.reproduce.chex.claims import CLAIMS, claims_table, compare
from rightlung.results.estimate import BootstrapSettings

SETTINGS = BootstrapSettings(resamples=200, flips=2000)


def rows(seeds: int = 1) -> pd.DataFrame:
    """Thirty patients with a box each: hints add 0.3 to relative_other and take 0.1 from giou; seeds cancel out."""
    made = []
    for seed in range(seeds):
        for patient in range(30):
            noise = 0.01 * (patient % 5)
            box = {"patient": f"p{patient}", "study": f"s{patient}", "finding": "edema", "place": 0}
            away = 0.5 * (seed - (seeds - 1) / 2)
            made += [
                box | {"query": "no hint", "relative_other": noise, "giou": 0.2 + away},
                box | {"query": "coarse hint", "relative_other": 0.3 + 2 * noise, "giou": 0.1 + noise / 10 + away},
                box | {"query": "negated", "giou": 0.2 + away + (0.2 if patient % 2 else -0.2)},
            ]
    return pd.DataFrame(made)


@pytest.mark.parametrize("seeds", [1, 2])
def test_claims_hold_fail_or_are_not_shown(seeds: int) -> None:
    judged = compare(rows(seeds), SETTINGS)
    assert {claim.text: claim.verdict(found) for claim, found in judged} == {
        "A coarse hint steers towards the queried side.": "holds",
        "A coarse hint improves localisation.": "does not hold",
        "Negation makes localisation worse.": "no difference shown",
    }
    assert [found.value for _, found in judged] == pytest.approx([0.32, -0.098, 0.0])


def test_what_was_not_asked_is_not_judged() -> None:
    assert compare(rows()[["patient", "study", "finding", "place", "query", "giou"]].iloc[:1], SETTINGS) == []
    table = claims_table("ChEX", compare(rows(), SETTINGS))
    assert [row[3].text for row in table.rows] == ["holds", "does not hold", "no difference shown"]
    assert table.rows[1][1].text == "gIoU with the finding: coarse hint − no hint"
    assert not any("_" in row[1].text for row in table.rows)  # words, not names of columns
    assert len({(claim.measure, claim.first, claim.second) for claim in CLAIMS}) == len(CLAIMS)

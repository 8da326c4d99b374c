"""Ranks of reports and images by their embeddings, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightlung.core import InputError, Report, Study
from rightlung.measuring import Targets, find_protocol, gather_targets, measure
from rightlung.predictions import Batch, Prediction
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings

from .made_up import Spots

REPORTS = ["Normal.", "A nodule.", "normal. ", "An opacity."]
# Cosines with the vectors of the reports (1, 0), (0, 1), (3, 4), (0, −1):
# s0: 0.6, 0.8, 1, −0.8; s1: 0, 1, 0.8, −1; s2: 1, 0, 0.6, 0; s3: 0, 1, 0.8, −1.
IMAGES = [(3.0, 4.0), (0.0, 2.0), (1.0, 0.0), (0.0, 1.0)]
TEXTS = [(1.0, 0.0), (0.0, 1.0), (3.0, 4.0), (0.0, -1.0)]


class Reported(Spots):
    def _build(self, position: int) -> Study:
        study = super()._build(position)
        return replace(study, report=Report(REPORTS[position])) if position < 4 else study


@pytest.fixture
def targets() -> Targets:
    return gather_targets(Reported())


def rows(condition: str, texts: bool = True) -> list[Prediction]:
    found = [Prediction(f"s{n}", "image", condition, image_embedding=one) for n, one in enumerate(IMAGES)]
    return found + [
        Prediction(f"s{n}", "report", condition, text_embedding=one) for n, one in enumerate(TEXTS) if texts
    ]


def test_identical_reports_are_hits_and_directions_are_apart(targets: Targets) -> None:
    protocol = find_protocol("retrieval").applied_to(targets)
    table = measure([Batch.of(rows("none"))], targets, protocol)
    assert "embedding" not in table.column_names
    found = {(row["study"], row["target"]): row for row in table.to_pylist()}
    # The third report says the same as the first, so three are left to choose from. s0: 0.6 after 0.8; s3: −1 is last.
    ranks = [found[f"s{n}", "image-to-text"]["rank"] for n in range(4)]
    assert ranks == [2, 1, 1, 3]
    assert [found[f"s{n}", "image-to-text"]["text_occurs_once"] for n in range(4)] == [0, 1, 0, 1]
    # Report s0 has cosines 0.6, 0, 1, 0 with the images; s1: 0.8, 1, 0, 1 (s3 ties); s2: 1 with s0; s3: all but s2 < 0.
    assert [found[f"s{n}", "text-to-image"]["rank"] for n in range(4)] == [1, 1.5, 1, 3.5]
    assert [found[f"s{n}", "text-to-image"]["recall@1"] for n in range(4)] == [1, 0.5, 1, 0]
    only = table.filter([row["target"] == "text-to-image" for row in table.to_pylist()])
    settings = BootstrapSettings(resamples=100)
    assert estimate(only, "recall@1", settings=settings).value == pytest.approx(2.5 / 4)
    assert estimate(only, "recall@5", settings=settings).value == 1.0
    assert estimate(only, "median_rank", settings=settings).value == pytest.approx(np.median([1, 1.5, 1, 3.5]))
    # Only the reports of s1 and s3 occur once.
    assert estimate(only, "recall@1_once", settings=settings).value == pytest.approx(0.5 / 2)
    assert estimate(only, "median_rank_once", settings=settings).value == pytest.approx((1.5 + 3.5) / 2)


def test_what_a_condition_does_not_change_is_as_without_it(targets: Targets) -> None:
    protocol = find_protocol("retrieval").applied_to(targets)
    changed = [replace(one, condition="exchange-image") for one in rows("none", texts=False)]
    table = measure([Batch.of([*changed, *rows("none")])], targets, protocol)
    ranks = [row["rank"] for row in table.to_pylist() if row["condition"] == "exchange-image"]
    assert ranks == [2, 1, 1, 3]


def test_embeddings_of_two_dimensions_are_refused(targets: Targets) -> None:
    longer = [*rows("none"), Prediction("s0", "report", "swap-sides", text_embedding=(1.0, 0.0, 0.0))]
    with pytest.raises(InputError, match="queries have 3 dimensions and candidates 2"):
        measure([Batch.of(longer)], targets, find_protocol("retrieval").applied_to(targets))

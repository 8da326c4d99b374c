"""Judge batteries, and lay out the sections of an audit's page about them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rightlung.audit.batteries import (
    BATTERIES,
    EXPECTED,
    YARDSTICK,
    BatteryResults,
    TrialResult,
    conditions_of,
    judge_maps,
)
from rightlung.audit.battery_texts import phrases_of, text_trials, texts_of
from rightlung.pages.content import Cell, Column, Section, Table
from rightlung.pages.numbers import NONE, estimate_cell, number
from rightlung.predictions import Predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.measured import Measured
from rightlung.results.on_disk import TableOnDisk

_COLUMNS = (
    Column("battery", "text"),
    Column("condition", "text"),
    Column("expected", "text"),
    Column("questions"),
    Column("patients"),
    Column("as expected, %", help="Share of answers that behave as expected; of reports, F1 of their findings."),
    Column("image-blind prior, %"),
    Column("map change", help="Total variation, 0 to 1; after turning the map back where the image was turned."),
    Column("peak displacement", help="Fraction of the image; after turning the map back where the image was turned."),
)
_OF_TEXTS = {"keep": "should state the same", "mirror": "sides should swap"}


def run_batteries(
    names: Sequence[str],
    measured: Measured,
    predictions: Predictions,
    table: pa.Table | TableOnDisk,
    settings: BootstrapSettings,
) -> BatteryResults | None:
    """Return the results of batteries, None without any; ``table`` has the instances of the model."""
    if not names:
        return None
    trials: list[TrialResult] = []
    if any(BATTERIES[name].text_trials for name in names):
        texts = texts_of(predictions, conditions_of(names))
        trials = text_trials(names, texts, phrases_of(table) if texts else {}, settings)
    return judge_maps(names, measured, trials, settings)


def battery_sections(found: BatteryResults | None) -> list[Section]:
    """Return a section with a sentence for each battery and one with the table; none if no battery was asked for."""
    if found is None:
        return []
    rows = [_row(one) for one in found.trials if one.share.defined]
    caption = (
        f"Maps of phrases that assert a finding. A map stays if it changes by at most {number(found.tolerance)}: half "
        f"the mean change with another patient's sentence ({YARDSTICK})."
    )
    notes = [
        "Should turn with the image: after turning it back, the map is nearer to the original one than before. A model "
        "that points where the textbook says fails. Declining to point counts as moving.",
        "The image-blind prior reads words only: what it passes, a model can pass without the image.",
    ]
    table = [Table("batteries", "Batteries in numbers", caption, _COLUMNS, rows, notes)] if rows else []
    return [
        Section("batteries", "Batteries", verdict=found.verdicts()),
        Section("battery-numbers", "Batteries in numbers", parts=table),
    ]


def _row(one: TrialResult) -> list[Cell]:
    expected = EXPECTED[one.expected] if one.kind == "map" else f"{one.kind}s: {_OF_TEXTS[one.expected]}"
    share = estimate_cell(one.share, 100, 0)
    further = [Cell(NONE) if value is None else estimate_cell(value) for value in (one.change, one.displacement)]
    return [
        Cell(BATTERIES[one.battery].title), Cell(one.condition), Cell(expected), Cell(f"{one.share.n:,}"),
        Cell(f"{one.share.patients:,}"), share, estimate_cell(one.prior, 100, 0), *further,
    ]  # fmt: skip

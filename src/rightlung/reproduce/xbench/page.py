"""Lay out the page of XBench's counterpart: the claims, then maps, sizes, thresholds, and recognition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import estimate_cell, number
from rightlung.reproduce.claims import ClaimView, judge_all
from rightlung.reproduce.measurements import OVER_PATIENTS, Measurements
from rightlung.reproduce.tables import Quantity, model_row
from rightlung.reproduce.xbench.claims import GROUNDING, SIZES, claims, strata
from rightlung.reproduce.xbench.measuring import FIXED, TARGET, THRESHOLDS, ZERO_SHOT, columns_of
from rightlung.reproduce.xbench.variants import OWN
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.model import MeasuredModel
from rightlung.results.recognition import RECOGNITION, Answers, RecognitionAndGrounding

SETTINGS = BootstrapSettings(resamples=250)
NO_FIDELITY = (
    "Only the abstract was known to us, so its models, findings and criteria are not: this judges its three claims on "
    "our models and data, and is not a copy of its tables."
)


def make_page(found: Measurements) -> Page:
    """Estimate everything, judge the claims and return the page."""
    recognition = read_recognition(found)
    found.judged[:] = judge_all(claims(recognition), ClaimView(found.measured, found.estimator))
    rows = [model for model in found.measured.rows if found.measured.asked(model.slug).any()]
    sections = [
        Section("claims", "Claims", parts=[_claims_table(found)]),
        Section("maps", "Models and kinds of maps", [OVER_PATIENTS], parts=[_maps(found, rows)]),
        Section("sizes", "Small, large, focal and diffuse findings", parts=[_sizes(found, rows)]),
        Section("thresholds", "Sensitivity to the threshold", parts=[*_thresholds(found, rows)]),
        Section("recognition", "Recognition against grounding", parts=[*_recognised(recognition)]),
        Section("training", "Models and training", parts=found.model_tables(), folded=True),
        Section("missing", "Missing", items=[*found.absent()]),
        Section("commands", "Commands", code="\n".join(found.commands), folded=True),
    ]
    lead = f"The claims of {found.published.paper}, measured on {found.prepared.targets.source}. {NO_FIDELITY}"
    return Page(found.paper.title, lead, sections, found.facts, found.warning)


def read_recognition(found: Measurements) -> RecognitionAndGrounding | None:
    """Return the zero-shot answers and the grounding of each model with its own maps; of its first seed."""
    models = {}
    for variant in OWN:
        model = next(iter(found.measured.seeds(variant)), None)
        path = None if model is None else Path(model.origin).with_name(ZERO_SHOT)
        if model is None or path is None or not path.is_file():
            continue
        table = pd.read_parquet(path)
        images = table[table.condition == "none"][["patient", "target", "finding_score", "finding_label"]].dropna()
        images.columns = pd.Index(["patient", "finding", "score", "label"])
        phrases = pd.DataFrame({name: found.measured.value(model.slug, name, TARGET) for name in GROUNDING})
        phrases["patient"] = found.measured.patients
        phrases["finding"] = [
            sorted({canonical_finding(name) for name in names or ()}) for names in found.measured.fact("findings")
        ]
        if len(images):
            phrases = phrases.explode("finding").dropna(subset=["finding", "pointing"])
            models[model.label] = Answers(images, phrases.reset_index(drop=True))
    recognition = RecognitionAndGrounding(models, SETTINGS) if models else None
    return recognition if recognition is not None and recognition.findings else None


def _claims_table(found: Measurements) -> Table:
    rows = []
    for judged in found.judged:
        ruling = judged.rulings[TARGET]
        after = [part for part in (ruling.remark, *judged.robustness(TARGET)) if part]
        cells = [Cell(judged.claim.text, judged.claim.where), Cell(judged.verdict(TARGET), strong=True)]
        rows.append([*cells, Cell("", items=[*ruling.lines, *after])])
    columns = [Column(title, "text") for title in ("claim", "verdict", "evidence")]
    caption = "A claim about all models holds if it does for more than half of the comparisons. Criteria are ours."
    return Table("claims", "Verdicts", caption, columns, rows)


def _quantities(found: Measurements, measures: Sequence[str]) -> list[Quantity]:
    return [Quantity(find_measure(name).title, found.tables.values(name, TARGET), ranked=True) for name in measures]


def _maps(found: Measurements, rows: Sequence[MeasuredModel]) -> Table:
    caption = "Maps against exact masks, in percent. Phrases are sentences of reports with a finding that is outlined."
    quantities = _quantities(found, (*GROUNDING, "auroc", "average_precision"))
    return found.tables.table("maps", "Models and kinds of maps", caption, [model_row(one) for one in rows], quantities)


def _sizes(found: Measurements, rows: Sequence[MeasuredModel]) -> Table:
    flags = strata(found.measured)
    quantities = [
        Quantity(f"{find_measure(name).title}, {title}", found.tables.values(name, TARGET, flags[stratum]))
        for name in GROUNDING[:2] for stratum, title in SIZES.items()
    ]  # fmt: skip
    counts = ", ".join(f"{title} {int(flags[stratum].sum()):,}" for stratum, title in SIZES.items())
    caption = f"In percent. Phrases: {counts}. Pointing at a large target is easy: compare with the prior."
    return found.tables.table("sizes", "By size and extent", caption, [model_row(one) for one in rows], quantities)


def _thresholds(found: Measurements, rows: Sequence[MeasuredModel]) -> Iterator[Table]:
    """Yield Dice at the fixed and at the best threshold of each model."""
    lines, keys = [], [*found.measured.keys]
    for model in rows:
        folders = [Path(one.origin).parent for one in found.measured.seeds(model.variant)]
        seeds = [columns for folder in folders if (columns := columns_of(folder, keys))]
        if not seeds:
            continue
        dice = {one: np.mean([seed[f"dice@{one:g}"] for seed in seeds], axis=0) for one in THRESHOLDS}
        best = max(THRESHOLDS, key=lambda one: float(np.nanmean(dice[one])))
        low, high, loss = found.estimator.means([dice[FIXED], dice[best], dice[best] - dice[FIXED]])
        numbers = [estimate_cell(low, 100.0, 1), Cell(number(best, 1), value=best), estimate_cell(high, 100.0, 1)]
        lines.append([Cell(model.label), *numbers, estimate_cell(loss, 100.0, 1, signed=True)])
    if lines:
        titles = (f"Dice at {FIXED:g}", "best threshold", "Dice there", "gain")
        caption = (
            f"Maps scaled to 0–1, thresholds {THRESHOLDS[0]:g} to {THRESHOLDS[-1]:g}, in percent. The best threshold "
            "is chosen on these phrases, so its Dice is an upper bound: a benchmark that reports it flatters."
        )
        header = [Column("model", "text"), *map(Column, titles)]
        yield Table("thresholds", "Fixed and best threshold", caption, header, lines)


def _recognised(recognition: RecognitionAndGrounding | None) -> Iterator[Table | Figure]:
    if recognition is None:
        return
    names = {**RECOGNITION, **{name: find_measure(name).title for name in GROUNDING}}
    whole = ", ".join(recognition.findings)
    lines = [
        [Cell(f"{model}, {finding}"),
         *(estimate_cell(recognition.estimate(model, finding, name)) for name in names)]
        for model in recognition.models for finding in recognition.findings
    ]  # fmt: skip
    pairs = [
        [Cell(f"{RECOGNITION[first]} and {names[second]}"), estimate_cell(recognition.across_models(first, second)),
         estimate_cell(recognition.of_pairs(first, second))]
        for first in RECOGNITION for second in GROUNDING
    ]  # fmt: skip
    caption = (
        f"Spearman's correlation over {len(recognition.models)} models (means over findings; intervals over patients) "
        f"and over all pairs of model and finding (intervals over findings). Findings: {whole}."
    )
    columns = [Column("measures", "text"), Column("over models"), Column("over pairs")]
    yield Table("correlations", "Rank correlation", caption, columns, pairs)
    panels = [
        IntervalPanel(
            title=f"AUC and {names[second]}", line=0.0, limits=(-1.0, 1.0),
            series={"correlation": [recognition.across_findings(model, "auc", second) for model in recognition.models]},
        )
        for second in GROUNDING[:2]
    ]  # fmt: skip
    caption = "Spearman's correlation over findings, for each model; intervals over patients."
    yield panel_figure("within", "Within each model", caption, [*recognition.models], panels)
    columns = [Column("model, finding", "text"), *map(Column, names.values())]
    caption = f"Zero-shot, from prompts; intervals over patients. Called from a score of {FIXED:g} on."
    yield Table("findings", "By model and finding", caption, columns, lines, folded=True)

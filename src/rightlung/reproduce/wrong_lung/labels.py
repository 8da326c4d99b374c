"""How much is owed to the labels: the same models against region boxes and against exact masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rightlung.reproduce.wrong_lung.claims import Judged
from rightlung.reproduce.wrong_lung.judging import FAILS, HOLDS
from rightlung.reproduce.wrong_lung.results import Floats, Model, Results
from rightlung.reproduce.wrong_lung.tables import Column, Measured, Table, grid, model_row, signed_number
from rightlung.reproduce.wrong_lung.variants import VARIANTS

FEWEST_RANKED = 4
"""Variants that are needed for their two orders to be correlated."""


def turned_by_labels(judged: Sequence[Judged]) -> list[str]:
    """Name the claims that hold against the one kind of target and do not against the other."""
    said = []
    for one in judged:
        verdicts = {target: one.verdict(target) for target in one.judgements}
        if set(verdicts.values()) == {HOLDS, FAILS}:
            said.append(f"{one.claim.text} Region boxes: {verdicts['regions']}. Exact masks: {verdicts['exact']}.")
    return said


def held_by_labels(judged: Sequence[Judged]) -> str:
    """Say how many of the paper's claims that are judged against both kinds of target hold against each."""
    both = [one for one in judged if one.of_paper and {"regions", "exact"} <= one.judgements.keys()]
    held = {target: sum(one.verdict(target) == HOLDS for one in both) for target in ("regions", "exact")}
    return (
        f"Of the paper's {len(both)} claims that are judged against both, {held['regions']} hold against region boxes "
        f"and {held['exact']} against exact masks."
        if both
        else ""
    )


def compare_labels(measured: Measured) -> tuple[str, Table | None]:
    """Return how AUROC on region boxes goes with AUROC on exact masks: over the variants, and for every row."""
    results = measured.results
    if not results.rows or not results.has("exact").any():
        return "", None
    variants = {variant.slug for variant in VARIANTS if not variant.ablation}
    models = [
        model
        for model in results.rows
        if model.comparable and model.variant in variants and not np.isnan(_auroc(results, model.slug, "exact")).all()
    ]
    return _figures(measured, models), grid(
        measured,
        "labels",
        "AUROC against region boxes and against exact masks",
        "In percent, over the phrases that have an exact mask; the difference in percentage points.",
        [model_row(model) for model in results.rows],
        [
            Column("region boxes", lambda row: _auroc(results, row.model, "regions")),
            Column("exact masks", lambda row: _auroc(results, row.model, "exact")),
            Column(
                "exact masks minus region boxes",
                lambda row: results.score(row.model, "auroc", "exact") - results.score(row.model, "auroc"),
                signed=True,
            ),
        ],
    )


def _figures(measured: Measured, models: Sequence[Model]) -> str:
    """Say what AUROC is on average over models against both kinds of target, and whether their order is the same."""
    if not models:
        return ""
    columns = {
        target: [_auroc(measured.results, model.slug, target) for model in models] for target in ("regions", "exact")
    }
    means = {
        target: [float(found["estimate"]) for found in measured.estimator.means(listed)]
        for target, listed in columns.items()
    }
    mean = {target: signed_number(100 * float(np.nanmean(values)), 1) for target, values in means.items()}
    said = (
        f"Over {len(models)} variants (comparable ones; no ablations, no models of one's own) AUROC is "
        f"{mean['regions']} % on average against region boxes and {mean['exact']} % against exact masks, on the same "
        "phrases"
    )
    if len(models) >= FEWEST_RANKED:
        found = measured.estimator.rank_correlation(columns["regions"], columns["exact"])
        estimate, low, high = (signed_number(found[name], 2) for name in ("estimate", "low", "high"))
        said += f"; Spearman's rank correlation of the two orders is {estimate} ({low} to {high})"
    return f"{said}."


def _auroc(results: Results, slug: str, target: str) -> Floats:
    """Return AUROC over the phrases that have it against both kinds of target."""
    both = results.score(slug, "auroc", "exact") + results.score(slug, "auroc")
    return np.where(np.isnan(both), np.nan, results.score(slug, "auroc", target))

"""The paper's plots: perturbations (3, 5, 14, 15), correlations (6, 18 to 24), ratings (4, 13, 16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rightlung.judgements.analysis import estimate_of
from rightlung.judgements.judgement import SCALE
from rightlung.judgements.page import ratings_figure
from rightlung.measuring.measures import find_measure
from rightlung.pages.content import Cell, Column, Figure, Table
from rightlung.pages.figures import IntervalPanel, correlation_figure, panel_figure
from rightlung.pages.numbers import estimate_cell
from rightlung.reproduce.tables import TableMaker, references
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS, SUBSET_TITLES, SUBSETS, TARGET_TITLES
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Floats
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel

_SHORT = {
    "Synth w/ Swapped Conditions": "Swapped Conditions",
    "another patient's image (ours)": "another image (ours)",
}
_CAPTION = (
    "Change in percentage points with confidence intervals; left of zero is a loss. Open diamonds are references and "
    "models that are not comparable. An arrow marks values outside the axis. The numbers are in the table below."
)


def change_figures(make: TableMaker, target: str) -> Iterator[Figure]:
    """Yield Figures 3, 5 and 14 for one kind of target and, for region boxes, 15 (average precision)."""
    if not make.measured.rows:
        return
    changes, against = _changes(make, target, "auroc"), TARGET_TITLES[target]
    retrained = make.measured.model("retrained")
    if retrained is not None:
        labels = [f"{one.title}, {SUBSET_TITLES[one.subset]}" for one in PERTURBATIONS]
        found = [changes[retrained.slug, one.name, one.subset] for one in PERTURBATIONS]
        panel = IntervalPanel(
            title=retrained.label, subtitle="each on its subset", line=0.0, scale=100, signed=True,
            series={retrained.label: found},
        )  # fmt: skip
        title = f"Figure 3: effect of each perturbation on Retrained ({against})"
        yield panel_figure(f"figure-3-{target}", title, _CAPTION, labels, [panel], unit="change of AUROC, points")
    for subset in (None, *SUBSETS):
        where = "each on its subset" if subset is None else f"on {SUBSET_TITLES[subset]}"
        title = f"{'Figure 5' if subset is None else 'Figure 14'}: effect of each perturbation on each variant, {where}"
        name = f"figure-5-{target}" if subset is None else f"figure-14-{target}-{subset}"
        yield _change_figure(make, changes, "auroc", name, f"{title} ({against})", subset)
    if target == "regions":
        precision = _changes(make, target, "average_precision")
        for subset in SUBSETS:
            title = f"Figure 15: change of average precision on {SUBSET_TITLES[subset]} ({against})"
            yield _change_figure(make, precision, "average_precision", f"figure-15-{subset}", title, subset)


Changes = Mapping[tuple[str, str, str], Estimate]
"""Estimates by model, perturbation and subset."""


def _changes(make: TableMaker, target: str, measure: str) -> Changes:
    """Return the change of a measure under every perturbation on every subset, estimated together."""
    measured = make.measured
    wanted = [(m.slug, p, s) for m in measured.rows for p in PERTURBATIONS for s in SUBSETS]
    columns = [measured.within(measured.change(slug, p, measure, target), where) for slug, p, where in wanted]
    found = make.estimator.means(columns)
    return {(slug, p.name, s): one for (slug, p, s), one in zip(wanted, found, strict=True)}


def _change_figure(
    make: TableMaker, changes: Changes, measure: str, name: str, title: str, subset: str | None
) -> Figure:
    """Return a figure of all models with a panel per perturbation, on one subset or on each perturbation's own."""
    models = make.measured.rows
    panels = [
        IntervalPanel(
            title=_SHORT.get(one.title, one.title), subtitle=SUBSET_TITLES[where], line=0.0, scale=100, signed=True,
            series={"model": [changes[model.slug, one.name, where] for model in models]},
        )
        for one in PERTURBATIONS
        for where in [subset or one.subset]
    ]  # fmt: skip
    unit = f"change of {find_measure(measure).title}, percentage points"
    return panel_figure(
        name, title, _CAPTION, [model.label for model in models], panels, unit=unit,
        references=references(models), shared=True, folded=subset is not None,
    )  # fmt: skip


def _instance_values(measured: Measured, model: MeasuredModel) -> dict[str, Floats]:
    """Return the per-instance values to correlate (section 4.2.5, B.10)."""
    slug = model.slug
    regions = ("auroc", "average_precision", "iou@5", "iou@10", "iou@30", "precision@10", "pointing")
    values = {
        **{find_measure(name).title: measured.value(slug, name, "regions") for name in regions},
        **{
            f"{find_measure(name).title}, exact": measured.value(slug, name, "exact")
            for name in ("auroc", "average_precision", "pointing")
        },
        "entropy": measured.value(slug, "grid_entropy"),
        "abstention": measured.value(slug, "abstention"),
        "similarity, local": measured.value(slug, "similarity_local"),
        "similarity, global": measured.value(slug, "similarity_global"),
        "KL to a random sentence": measured.value(slug, "kl_random"),
        "abnormal": measured.subset("abnormal").astype(np.float64),
    }
    return {name: column for name, column in values.items() if not np.isnan(column).all()}


def correlation_parts(make: TableMaker) -> Iterator[Figure | Table]:
    """Yield Figures 6 and 18 to 24: correlations of all per-instance values, for the first seed of each variant.

    Figure 6 (+No Attn, or the first model if that is missing) is followed by a table with intervals.
    """
    rows = make.measured.rows
    first = next((model for model in rows if model.variant == "no-attn"), rows[0] if rows else None)
    for model in rows:
        values = _instance_values(make.measured, make.measured.seeds(model.variant)[0])
        found, names = make.estimator.correlations(values), list(values)
        opened = model.variant == "no-attn"
        title = f"{'Figure 6' if opened else 'Figures 18 to 24'}: correlations over instances, {model.label}"
        caption = "Pearson correlations over instances. Bold: the confidence interval excludes zero."
        yield correlation_figure(f"correlations-{model.slug}", title, caption, names, found, folded=not opened)
        if model is first:
            yield _correlation_table(f"correlations-table-{model.slug}", f"{title}, with intervals", names, found)


def _correlation_table(name: str, title: str, names: Sequence[str], found: Mapping[tuple[str, str], Estimate]) -> Table:
    rows = []
    for row, label in enumerate(names[1:], start=1):
        pairs = [found[other, label] for other in names[:row]]
        cells = [estimate_cell(one, 1.0, 2, strong=one.excludes(0.0)) for one in pairs]
        rows.append([Cell(label), *cells, *[Cell("")] * (len(names) - 1 - row)])
    columns = [Column("value", "text"), *(Column(label) for label in names[:-1])]
    return Table(name, title, "Pearson correlations. Bold: the interval excludes zero.", columns, rows, folded=True)


def judgement_figures(result: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield Figures 4 (ratings), 13 (custom prompts), 16 (by finding) and the ratings column of Figure 6."""
    caption = "Mean rating from 1 (worst) to 5 (best), with confidence intervals over patients."
    title = "Figure 4: ratings of each model's maps"
    means = {row["model"]: row["ratings"] for row in result["means"]}
    yield ratings_figure("figure-4", title, caption, means, limits=SCALE)
    if custom := {row["model"]: row["custom"] for row in result["prompts"]}:
        title = "Figure 13: ratings for prompts written by annotators"
        yield ratings_figure("figure-13", title, caption, custom, limits=SCALE)
    if findings := result["findings"][:10]:
        panels = [
            IntervalPanel(
                title=model, limits=SCALE,
                series={model: [estimate_of(group["models"].get(model)) for group in findings]},
            )
            for model in result["models"]
        ]  # fmt: skip
        caption = "Mean intuitiveness, 1 to 5, of the ten most judged findings (number of prompts in brackets)."
        labels = [f"{group['finding']} ({group['prompts']})" for group in findings]
        yield panel_figure("figure-16", "Figure 16: intuitiveness by finding", caption, labels, panels, shared=True)
    for found in result["correlations"]:
        by_measure: dict[str, dict[str, Any]] = {}
        for row in found["values"]:
            by_measure.setdefault(row["measure"], {})[row["rating"]] = row["pearson"]
        title = f"Figure 6, ratings: correlation of each measure with the ratings, {found['model']}"
        caption = "Pearson correlation over judged instances, with confidence intervals."
        name, folded = f"figure-6-ratings-{found['model'].replace(' ', '-')}", found["model"] != "no-attn"
        yield ratings_figure(name, title, caption, by_measure, folded, line=0.0, limits=(-1, 1), signed=True)

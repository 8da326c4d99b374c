"""The tables that the paper does not have: exact targets beside the prior, another image, findings, labels compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rightlung.measuring.measures import find_measure
from rightlung.pages.content import Table
from rightlung.pages.numbers import number
from rightlung.reproduce.claims import FAILS, HOLDS, JudgedClaim
from rightlung.reproduce.tables import ModelRow, Quantity, TableMaker, model_row, stars
from rightlung.reproduce.wrong_lung.paper_tables import changes
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS, SUBSET_TITLES, TARGET_TITLES, VARIANTS
from rightlung.results.estimator import Flags, Floats
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel
from rightlung.results.perturbation import Perturbation

FEW_PATIENTS = 5
FINDINGS_SHOWN = 14
FEWEST_RANKED = 4
"""Variants that are needed for their two orders to be correlated."""
CHOSEN = ("retrained", "word-masking", "no-attn", "abnormal", "thirty-shot", "sided", "prior")
"""The models whose results by finding are shown."""
MINUS = (("prior", "minus the prior's"), ("retrained", "minus Retrained's"))


def own_tables(make: TableMaker) -> Iterator[Table]:
    """Make the tables that the paper does not have."""
    measured = make.measured
    rows = [model_row(model) for model in measured.rows]
    untold = measured.fact("side_named") == "none"
    yield make.table(
        "one-lung-exact", "Pointing on One Lung, against exact masks",
        "Share of phrases about one lung whose peak lies inside the exact mask, in percent, beside the image-blind "
        "prior and Retrained on the same phrases.",
        rows, [Quantity("share", make.values("pointing", "exact", "one-lung"), ranked=True)], minus=MINUS,
    )  # fmt: skip
    for name, title, where, caption in (
        ("side-untold", "The side that no word gives away", untold,
         "over phrases about a finding on one side whose words do not name it: only the image can tell. Chance is 50."),
        ("side-told", "The side that the words name", ~untold, "over phrases whose words name the side."),
    ):  # fmt: skip
        quantity = Quantity("share", partial(_peak_on_side, measured, where), ranked=True)
        caption = f"Share of peaks on the finding's side, in percent, {caption} A peak in the middle counts half."
        yield make.table(name, title, caption, rows, [quantity], minus=MINUS, folded=name == "side-told")
    exchange = PERTURBATIONS[-1]
    yield make.table(
        "exchange", "Another patient's image shown",
        "Change against the target of the phrase's own image, in percentage points. A model that looks loses; one that "
        "only reads keeps what it has.",
        rows, [
            Quantity(
                f"{find_measure(measure).title}, {target}, {SUBSET_TITLES[subset]}",
                partial(changes, measured, exchange, subset, target, "changed", measure), signed=True,
            )
            for measure, target, subset in (
                ("auroc", "regions", "abnormal"), ("auroc", "exact", "abnormal"),
                ("average_precision", "exact", "abnormal"), ("pointing", "exact", "abnormal"),
                ("pointing", "exact", "one-lung"),
            )
        ],
    )  # fmt: skip
    yield from _no_attention(make)
    for measure, target in (("auroc", "regions"), ("pointing", "exact")):
        yield from _by_finding(make, measure, target)


def _peak_on_side(measured: Measured, where: Flags, row: ModelRow) -> Floats:
    return measured.within(measured.peak_on_side(row.model), where)


def _no_attention(make: TableMaker) -> Iterator[Table]:
    """Make the table of No-Attn scores, if any model ever attends to nothing."""
    measured = make.measured
    able = [model for model in measured.rows if np.nansum(measured.value(model.slug, "abstention")) > 0]
    rows = []
    for model in able:
        rows.append(model_row(model))
        if len(seeds := measured.seeds(model.variant)) > 1:
            rows += [model_row(seed, label=f"{seed.label}, seed {seed.seed}") for seed in seeds]

    def score(inside: str | Flags, row: ModelRow) -> Floats:
        return measured.within(measured.value(row.model, "abstention"), inside)

    def change(perturbation: Perturbation, row: ModelRow) -> Floats:
        assert perturbation.condition is not None
        perturbed = measured.value(row.model, "abstention", None, perturbation.condition)
        plain = measured.value(row.model, "abstention", None, perturbation.plain)
        return measured.within(perturbed - plain, perturbation.subset)

    if rows:
        yield make.table(
            "no-attn-scores", "The No-Attn score: attention on nothing",
            "Share of attention that lies on nothing, in percent, and by how many points it rises when words or image "
            "are changed so that what is asked for is most likely not there. Models that never attend to nothing are "
            "left out.",
            rows, [
                Quantity("All", partial(score, "all")),
                Quantity("Abnormal", partial(score, "abnormal")),
                Quantity("not Abnormal", partial(score, ~measured.subset("abnormal"))),
                *(
                    Quantity(f"{found.title}, {SUBSET_TITLES[found.subset]}", partial(change, found), signed=True)
                    for found in PERTURBATIONS
                    if found.condition is not None
                ),
            ],
        )  # fmt: skip


def _by_finding(make: TableMaker, measure: str, target: str) -> Iterator[Table]:
    measured = make.measured
    models = [model for model in measured.rows if model.variant in CHOSEN] or list(measured.rows[: len(CHOSEN)])
    flags: dict[str, Flags] = {}
    for place, findings in enumerate(measured.fact("findings")):
        for finding in findings:
            flags.setdefault(finding, np.zeros(len(measured), dtype=bool))[place] = True
    patients = {name: len(set(measured.patients[inside].tolist())) for name, inside in flags.items()}
    enough = [name for name in flags if patients[name] >= FEW_PATIENTS]
    shown = sorted(enough, key=lambda name: (-patients[name], name))[:FINDINGS_SHOWN]
    if not shown or not models:
        return

    def quantity(model: MeasuredModel) -> Quantity:
        values = measured.value(model.slug, measure, target)
        return Quantity(model.label, lambda row: measured.within(values, flags[row.model]))

    rest = len(flags) - len(shown)
    notes = [*([f"{rest} rarer findings are not shown."] if rest else []), *stars(models)]
    yield make.table(
        f"findings-{measure}", f"By finding: {find_measure(measure).title} against {TARGET_TITLES[target]}",
        "In percent; a phrase counts for each finding it says is there.",
        [ModelRow(f"{name} ({patients[name]:,} {measured.resampled})", name) for name in shown],
        [quantity(model) for model in models], first="finding", notes=notes, folded=measure != "pointing",
    )  # fmt: skip


# ------------------------------------------------------------------ how much depends on the labels


def labels_table(make: TableMaker) -> Iterator[Table]:
    """Make the table of AUROC against region boxes beside exact masks, over the phrases that have both."""
    if not make.measured.has("exact").any() or not make.measured.rows:
        return
    regions, exact = (partial(_auroc, make.measured, target) for target in ("regions", "exact"))
    yield make.table(
        "labels", "AUROC against region boxes and against exact masks",
        "In percent, over the phrases that have an exact mask; the difference in percentage points.",
        [model_row(model) for model in make.measured.rows], [
            Quantity("region boxes", lambda row: regions(row.model)),
            Quantity("exact masks", lambda row: exact(row.model)),
            Quantity("exact masks minus region boxes", lambda row: exact(row.model) - regions(row.model), signed=True),
        ],
    )  # fmt: skip


def _auroc(measured: Measured, target: str, slug: str) -> Floats:
    """Return AUROC over the phrases that have it against both kinds of target."""
    both = measured.value(slug, "auroc", "exact") + measured.value(slug, "auroc", "regions")
    return np.where(np.isnan(both), np.nan, measured.value(slug, "auroc", target))


def labels_compared(make: TableMaker, judged: Sequence[JudgedClaim]) -> list[str]:
    """Say how AUROC and the claims differ between region boxes and exact masks."""
    measured, said = make.measured, []
    variants = {variant.slug for variant in VARIANTS if not variant.ablation}
    models = [model for model in measured.rows if model.comparable and model.variant in variants]
    models = [model for model in models if not np.isnan(_auroc(measured, "exact", model.slug)).all()]
    if models:
        columns = {
            target: [_auroc(measured, target, model.slug) for model in models] for target in ("regions", "exact")
        }
        mean = {
            target: number(100 * float(np.nanmean([one.value for one in make.estimator.means(listed)])), 1)
            for target, listed in columns.items()
        }
        sentence = (
            f"Over {len(models)} comparable variants (no ablations, no models of one's own) AUROC is {mean['regions']} "
            f"% on average against region boxes and {mean['exact']} % against exact masks, on the same phrases"
        )
        if len(models) >= FEWEST_RANKED:
            found = make.estimator.rank_correlation(columns["regions"], columns["exact"])
            value, low, high = (number(one, 2) for one in (found.value, found.low, found.high))
            sentence += f"; Spearman's rank correlation of the two orders is {value} ({low} to {high})"
        said.append(f"{sentence}.")
    both = [one for one in judged if one.of_paper and {"regions", "exact"} <= one.rulings.keys()]
    if both:
        held = {target: sum(one.verdict(target) == HOLDS for one in both) for target in ("regions", "exact")}
        said.append(
            f"Of the paper's {len(both)} claims that are judged against both, {held['regions']} hold against region "
            f"boxes and {held['exact']} against exact masks."
        )
    return said


def labels_decide(judged: Sequence[JudgedClaim]) -> list[str]:
    """Name the claims that hold against one kind of target and do not against the other."""
    said = []
    for one in judged:
        verdicts = {target: one.verdict(target) for target in one.rulings}
        if set(verdicts.values()) == {HOLDS, FAILS}:
            said.append(f"{one.claim.text} Region boxes: {verdicts['regions']}. Exact masks: {verdicts['exact']}.")
    return said

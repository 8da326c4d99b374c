"""Tables that the paper does not have: exact masks, the prior, another image, results by finding and by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rightlung.measuring.measures import find_measure
from rightlung.pages.content import Table
from rightlung.pages.numbers import number, span
from rightlung.reproduce.claims import FAILS, HOLDS, JudgedClaim
from rightlung.reproduce.tables import ModelRow, Quantity, TableMaker, model_row, stars
from rightlung.reproduce.wrong_lung.variants import PERTURBATIONS, SUBSET_TITLES, TARGET_TITLES, VARIANTS
from rightlung.results.estimator import Flags, Floats
from rightlung.results.measured import Measured, Perturbation
from rightlung.results.model import MeasuredModel

FEW_PATIENTS = 5
FINDINGS_SHOWN = 14
FEWEST_RANKED = 4
"""Number of variants needed for a rank correlation."""
CHOSEN = ("retrained", "word-masking", "no-attn", "abnormal", "thirty-shot", "sided", "prior")
"""Models in the tables by finding."""
MINUS = (("prior", "minus the prior's"), ("retrained", "minus Retrained's"))


def extra_tables(make: TableMaker) -> Iterator[Table]:
    """Yield the tables that the paper does not have."""
    measured = make.measured
    rows = [model_row(model) for model in measured.rows]
    not_named = measured.fact("side_named") == "none"
    yield make.table(
        "one-lung-exact", "Pointing on One Lung, against exact masks",
        "Percentage of phrases about one lung for which the peak is inside the exact mask, with paired differences "
        "from the image-blind prior and from Retrained.",
        rows, [Quantity("share", make.values("pointing", "exact", "one-lung"), ranked=True)], minus=MINUS,
    )  # fmt: skip
    for name, title, where, caption in (
        ("side-not-named", "Correct side, not named in the phrase", not_named,
         "for one-sided findings whose side the phrase does not name, so that only the image shows it. Chance is 50."),
        ("side-named", "Correct side, named in the phrase", ~not_named, "for phrases that name the side."),
    ):  # fmt: skip
        quantity = Quantity("share", make.values("peak_on_side", None, where), ranked=True)
        caption = f"Percentage of peaks on the correct side, {caption} A peak in the middle counts half."
        yield make.table(name, title, caption, rows, [quantity], minus=MINUS, folded=name == "side-named")
    exchange = PERTURBATIONS[-1]
    yield make.table(
        "exchange", "Another patient's image",
        "Change in percentage points when the image is replaced by another patient's; the target stays. A model that "
        "uses the image loses; one that only reads the words does not.",
        rows, [
            Quantity(
                f"{find_measure(measure).title}, {target}, {SUBSET_TITLES[subset]}",
                make.changes(exchange, subset, target, measure), signed=True,
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


def _no_attention(make: TableMaker) -> Iterator[Table]:
    """Yield the table of No-Attn scores, if any model has a score above zero."""
    measured = make.measured
    able = [model for model in measured.rows if np.nansum(measured.value(model.slug, "abstention")) > 0]
    rows = []
    for model in able:
        rows.append(model_row(model))
        if len(seeds := measured.seeds(model.variant)) > 1:
            rows += [model_row(seed, label=f"{seed.label}, seed {seed.seed}") for seed in seeds]

    def change(perturbation: Perturbation, row: ModelRow) -> Floats:
        assert perturbation.condition is not None
        perturbed = measured.value(row.model, "abstention", None, perturbation.condition)
        plain = measured.value(row.model, "abstention", None, perturbation.plain)
        return measured.within(perturbed - plain, perturbation.subset)

    if rows:
        yield make.table(
            "no-attn-scores", "No-Attn score (abstention)",
            "Percentage of attention on the no-attention token, and its change in points when the phrase or image is "
            "changed so that the finding is most likely absent. Models whose score is always zero are left out.",
            rows, [
                Quantity("All", make.values("abstention")),
                Quantity("Abnormal", make.values("abstention", None, "abnormal")),
                Quantity("not Abnormal", make.values("abstention", None, ~measured.subset("abnormal"))),
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
    notes = [*([f"{rest} less frequent findings are not shown."] if rest else []), *stars(models)]
    yield make.table(
        f"findings-{measure}", f"By finding: {find_measure(measure).title} against {TARGET_TITLES[target]}",
        "In percent. A phrase that asserts several findings counts for each.",
        [ModelRow(f"{name} ({patients[name]:,} {measured.resampled})", name) for name in shown],
        [quantity(model) for model in models], first="finding", notes=notes, folded=measure != "pointing",
    )  # fmt: skip


def labels_table(make: TableMaker) -> Iterator[Table]:
    """Yield the table of AUROC against region boxes and exact masks, over the phrases that have both."""
    if not make.measured.has("exact").any() or not make.measured.rows:
        return
    regions, exact = (partial(_auroc, make.measured, target) for target in ("regions", "exact"))
    yield make.table(
        "labels", "AUROC against region boxes and against exact masks",
        "In percent, over the phrases with an exact mask; the difference in percentage points.",
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
    """Return sentences on how AUROC and the claims differ between region boxes and exact masks."""
    measured, sentences = make.measured, []
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
            f"Mean AUROC of {len(models)} comparable variants (without ablations and added models) is "
            f"{mean['regions']} % against region boxes and {mean['exact']} % against exact masks, on the same phrases"
        )
        if len(models) >= FEWEST_RANKED:
            found = make.estimator.rank_correlation(columns["regions"], columns["exact"])
            sentence += f". The rank correlation (Spearman) of the two orders is {span(found)}"
        sentences.append(f"{sentence}.")
    both = [one for one in judged if one.of_paper and {"regions", "exact"} <= one.rulings.keys()]
    if both:
        held = {target: sum(one.verdict(target) == HOLDS for one in both) for target in ("regions", "exact")}
        sentences.append(
            f"Of the paper's {len(both)} claims judged against both, {held['regions']} hold against region boxes and "
            f"{held['exact']} against exact masks."
        )
    return sentences


def labels_decide(judged: Sequence[JudgedClaim]) -> list[str]:
    """Return the claims that hold against one kind of target but not against the other."""
    verdicts = [(one.claim.text, {target: one.verdict(target) for target in one.rulings}) for one in judged]
    return [
        f"{text} Region boxes: {found['regions']}. Exact masks: {found['exact']}."
        for text, found in verdicts
        if set(found.values()) == {HOLDS, FAILS}
    ]

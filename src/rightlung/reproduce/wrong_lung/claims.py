"""Each claim of "That's the Wrong Lung!" as a small function of the results, and our own aims for +Sided.

The paper's claims are about other data, so what is judged is their direction: against region boxes, as in the paper,
and against exact masks, which tells how much is owed to the labels. How, is in `judges`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rightlung.audit.summary import metric_name
from rightlung.reproduce.wrong_lung import judges
from rightlung.reproduce.wrong_lung.judges import COMPARED, OTHERS, UNSUPERVISED
from rightlung.reproduce.wrong_lung.judging import FAILS, HOLDS, TURNS, Judgement, Verdict, View
from rightlung.reproduce.wrong_lung.published import published
from rightlung.reproduce.wrong_lung.tables import SUBSET_TITLES, Measured
from rightlung.scoring.statistics import holm

Judge = Callable[[View, str], Judgement]

ALPHA = 0.05
RELEASED = "Said of GLoRIA with its released weights; judged on Retrained."
STRICT = ("precision@5", "precision@10", "iou@5", "iou@10")
BOTH = ("regions", "exact")


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, or that we set out to reach."""

    name: str
    where: str
    text: str
    judge: Judge
    targets: tuple[str, ...] = BOTH
    """What it can be judged against; a claim that needs no target has ``("regions",)`` and is judged once."""
    paper: str = ""
    """The paper's own figures."""
    ours: bool = False
    reading: bool = False
    """Whether it is not the paper's, but follows from its code."""
    stands_in: str = ""
    """Whom the paper says it of, where another model has to stand in for that."""


@dataclass(frozen=True)
class Judged:
    """A claim with what came of it against each kind of target."""

    claim: Claim
    judgements: dict[str, Judgement]
    each_seed: dict[str, tuple[Verdict, ...]]
    """The verdicts with each seed by itself, where there are several."""

    @property
    def of_paper(self) -> bool:
        """Whether it is one of the paper's own claims."""
        return not (self.claim.ours or self.claim.reading)

    def verdict(self, target: str) -> Verdict:
        """Return what came of it: what all seeds agree on, `TURNS` where two contradict each other, else what their
        means say."""
        seeds = set(self.each_seed.get(target, ()))
        if {HOLDS, FAILS} <= seeds:
            return TURNS
        return next(iter(seeds)) if seeds in ({HOLDS}, {FAILS}) else self.judgements[target].verdict

    def with_each_seed(self, target: str) -> bool:
        """Return whether every seed by itself says what the verdict says."""
        return set(self.each_seed.get(target, ())) == {self.verdict(target)}

    def after_holm(self, target: str) -> bool | None:
        """Return whether its verdict survives Holm's adjustment; ``None`` where it does not rest on a test."""
        judgement = self.judgements[target]
        return after_holm(judgement) if judgement.verdict == self.verdict(target) else None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "name": self.claim.name,
            "where": self.claim.where,
            "claim": self.claim.text,
            "paper": self.claim.paper,
            "stands_in": self.claim.stands_in,
            "ours": self.claim.ours,
            "reading": self.claim.reading,
            "judgements": {
                target: {
                    "verdict": self.verdict(target),
                    "verdict_of_means": judgement.verdict,
                    "sentence": judgement.sentence,
                    "after_holm": self.after_holm(target),
                    "each_seed": list(self.each_seed.get(target, ())),
                    "evidence": [
                        {"label": one.label, "verdict": one.verdict, "unit": one.unit, **one.found}
                        for one in judgement.evidence
                    ],
                }
                for target, judgement in self.judgements.items()
            },
        }


def judge_all(measured: Measured) -> list[Judged]:
    """Judge every claim, with the means over seeds and, where there are several, with each."""
    listed = claims()
    whole = View(measured)
    made = {claim.name: {target: claim.judge(whole, target) for target in claim.targets} for claim in listed}
    _test(whole)
    seeds = _each_seed(measured)
    return [
        Judged(
            claim,
            made[claim.name],
            {target: _by_seed(measured, claim, target, seeds) for target in claim.targets} if seeds else {},
        )
        for claim in listed
    ]


def _by_seed(
    measured: Measured, claim: Claim, target: str, seeds: Sequence[Mapping[str, str | None]]
) -> tuple[Verdict, ...]:
    """Return the verdicts of the seeds that all variants have which a claim looks at; none where these are not several.

    What has one seed only, or none, stands beside each.
    """
    found = []
    for models in seeds:
        view = View(measured, {variant: slug for variant, slug in models.items() if slug is not None})
        verdict = claim.judge(view, target).verdict
        looked_at = [models[variant] for variant in view.asked if variant in models]
        if looked_at and None not in looked_at:
            found.append(verdict)
    return tuple(found) if len(found) > 1 else ()


def after_holm(judgement: Judgement) -> bool | None:
    """Return whether all that decides a verdict survives Holm's adjustment; ``None`` where nothing was tested."""
    tested = [one.found.get("p_holm", math.nan) for one in judgement.evidence if one.verdict == judgement.verdict]
    p = [value for value in tested if not math.isnan(value)]
    if judgement.verdict not in (HOLDS, FAILS) or not p:
        return None
    return bool(max(p) < ALPHA) if judgement.verdict == HOLDS else bool(min(p) < ALPHA)


def _test(view: View) -> None:
    """Give every paired difference its p-value, by itself and after Holm's adjustment for all of them."""
    if not view.tested:
        return
    p = view.measured.estimator.p_values([values for _, values in view.tested])
    for (found, _), alone, adjusted in zip(view.tested, p, holm(p).tolist(), strict=True):
        found |= {"p": alone, "p_holm": adjusted}


def _each_seed(measured: Measured) -> list[dict[str, str | None]]:
    """Return, for each seed, the model of each variant that has several, ``None`` where it has not this one."""
    results = measured.results
    several = {row.variant: results.seeds(row.variant) for row in results.rows}
    several = {variant: models for variant, models in several.items() if len(models) > 1}
    seeds = sorted({model.seed for models in several.values() for model in models if model.seed is not None})
    return [
        {
            variant: next((model.slug for model in models if model.seed == seed), None)
            for variant, models in several.items()
        }
        for seed in seeds
    ]


def claims() -> tuple[Claim, ...]:
    """Return all claims, the paper's in its order, then ours."""
    return (*_paper_claims(), *_aims())


def _printed(*figures: tuple[str, str, str], target: str = "regions", table: str | None = None) -> str:
    """Return figures of the paper as text: model, measure, subset."""
    book = published()
    said = []
    for model, measure, subset in figures:
        found = book.find(model, measure, subset, target, table=table)
        if found is not None:
            said.append(f"{book.label(model)} {found.printed} ({SUBSET_TITLES[subset]}, Table {found.table})")
    return "; ".join(said)


def _paper_claims() -> tuple[Claim, ...]:
    chosen = "+30-shot, +Abnormal and +No Attn, in that order, are most affected by"
    return (
        Claim(
            "above-chance", "section 3", "AUROC is well over 50 %, suggesting reasonable localisation.",
            judges.above_chance, paper=_auroc("gloria", "retrained"), stands_in=RELEASED,
        ),
        Claim(
            "harder-subsets", "section 3.4", "The model does worse on One Lung and on MDRB.", judges.harder_subsets,
            paper=_printed(*(("gloria", "auroc", subset) for subset in ("all", "one-lung", "mdrb"))),
            stands_in=RELEASED,
        ),
        Claim(
            "random-boxes", "section 3.4, Figure 3", "Random BBoxes really decreases performance.",
            partial(judges.loses, perturbation="random-boxes"), stands_in=RELEASED,
        ),
        Claim(
            "barely-swap-sides", "section 3.4, Figure 3", "Swapping left and right barely changes performance.",
            partial(judges.barely_changes, perturbation="swap-sides"), stands_in=RELEASED,
        ),
        Claim(
            "barely-shuffle", "section 3.4, Figure 3", "Shuffling the boxes in a report barely changes performance.",
            partial(judges.barely_changes, perturbation="shuffle"), stands_in=RELEASED,
        ),
        Claim(
            "barely-random-sentence", "section 3.4, Figure 3", "A random sentence barely changes performance.",
            partial(judges.barely_changes, perturbation="random-sentence"), stands_in=RELEASED,
        ),
        Claim(
            "thirty-shot-best", "section 4.2.1, Table 3", "+30-shot improves most.",
            partial(judges.beats, better="thirty-shot", worse=OTHERS),
            paper=_auroc("thirty-shot", "word-masking", "retrained"),
        ),
        Claim(
            "word-masking-best", "section 4.2.1, Table 3", "+Word Masking is best of those without supervision.",
            partial(judges.beats, better="word-masking", worse=UNSUPERVISED),
            paper=_auroc("word-masking", "no-attn"),
        ),
        Claim(
            "clinical-masking-worse", "section 4.2.1, Table 3", "+Clinical Masking is slightly worse than Retrained.",
            partial(judges.beats, better="retrained", worse=("clinical-masking",)),
            paper=_auroc("clinical-masking", "retrained"),
        ),
        Claim(
            "no-attn-better", "section 4.2.1, Table 3", "+No Attn is better than Retrained.",
            partial(judges.beats, better="no-attn", worse=("retrained",)), paper=_auroc("no-attn", "retrained"),
        ),
        Claim(
            "rand-sents-worst", "section 4.1, Table 3",
            "Trained on random sentences, a model localises worse than Retrained.",
            partial(judges.beats, better="retrained", worse=("rand-sents",)), paper=_auroc("rand-sents", "retrained"),
        ),
        Claim(
            "uniter-inflated", "sections 2.2 and 4.2.1",
            "UNITER's AUROC is above all others, since it is given the boxes.",
            partial(judges.beats, better="uniter", worse=("thirty-shot", *OTHERS)), paper=_auroc("uniter"),
        ),
        Claim(
            "trimmed-drops", "section 4.2.1, Table 6", "Without the large boxes precision drops.", judges.trimmed_drops,
            targets=("regions",),
            paper=_printed(("retrained", "average_precision", "all"))
            + "; trimmed "
            + _printed(("retrained", "average_precision", "all"), target="trimmed"),
        ),
        Claim(
            "trimmed-same-trend", "section 4.2.1, Table 6", "Without the large boxes the models keep their order.",
            judges.trimmed_trend, targets=("regions",),
        ),
        Claim(
            "judged-no-attn", "section 4.2.2, Figure 4",
            "A radiologist finds the maps of +No Attn the most intuitive and the most precise.",
            judges.needs_judgements, targets=("regions",),
        ),
        Claim(
            "judged-retrained", "section 4.2.2, Figure 4",
            "A radiologist finds Retrained about as precise and as intuitive as GLoRIA, with less recall.",
            judges.needs_judgements, targets=("regions",),
        ),
        Claim(
            "swap-order", "section 4.2.3, Figure 5",
            "+30-shot, +No Attn and +Abnormal, in that order, are most affected by swapping left and right.",
            partial(judges.loses_in_order, perturbation="swap-sides", order=("thirty-shot", "no-attn", "abnormal")),
        ),
        Claim(
            "shuffle-order", "section 4.2.3, Figure 5", f"{chosen} shuffling the boxes.",
            partial(judges.loses_in_order, perturbation="shuffle", order=("thirty-shot", "abnormal", "no-attn")),
        ),
        Claim(
            "random-sentence-order", "section 4.2.3, Figure 5", f"{chosen} a random sentence.",
            partial(
                judges.loses_in_order, perturbation="random-sentence", order=("thirty-shot", "abnormal", "no-attn")
            ),
        ),
        Claim(
            "random-boxes-order", "section 4.2.3, Figure 5",
            "+30-shot, +Word Masking, +Abnormal and +No Attn, in that order, lose most to random boxes.",
            partial(
                judges.loses_in_order, perturbation="random-boxes",
                order=("thirty-shot", "word-masking", "abnormal", "no-attn"),
            ),
        ),
        Claim(
            "uniter-random-boxes", "Figure 5, caption",
            "UNITER loses most to random boxes, since it is given the true ones.",
            partial(judges.loses_in_order, perturbation="random-boxes", order=("uniter",), others=COMPARED),
        ),
        Claim(
            "selection-word-masking", "section 4.2.4, Table 4",
            "+Word Masking selects the right sentence most often (local).",
            judges.selects_best, targets=("regions",),
            paper=_printed(("word-masking", "selection_local", "all"), ("retrained", "selection_local", "all")),
        ),
        Claim(
            "selection-unrelated-localisation", "section 4.2.4",
            "Selecting the right sentence does not go with localising it.", judges.selection_and_localisation,
        ),
        Claim(
            "selection-unrelated-sensitivity", "section 4.2.4",
            "Selecting the right sentence does not go with being sensitive to the words.",
            judges.selection_and_sensitivity,
        ),
        Claim(
            "no-attn-selection", "section 4.2.6, Table 4", "+No Attn slightly harms selection (global).",
            judges.selection_less, targets=("regions",),
            paper=_printed(("no-attn", "selection_global", "all"), ("retrained", "selection_global", "all")),
        ),
        Claim(
            "judged-iou", "section 4.2.5, Figure 6",
            "Of the automatic measures IoU@10 % goes most with the radiologist's judgement of intuitiveness.",
            judges.needs_judgements, targets=("regions",),
        ),
        Claim(
            "abstention-abnormal", "section 4.2.5", "The No-Attn score goes with there being nothing abnormal.",
            judges.abstains_without_abnormality, targets=("regions",),
            paper=_quoted("correlation of abstention and abnormal"),
        ),
        Claim(
            "abstention-iou", "section 4.2.5", "The No-Attn score goes with a low IoU@10 %.",
            judges.abstains_where_wrong, paper=_quoted("correlation of abstention and iou@10"),
        ),
        Claim(
            "synthetic-like-real", "B.3, Table 7", "Synthetic sentences do as well as real ones.",
            judges.synthetic_like_real,
        ),
        Claim(
            "synthetic-thirty-shot", "B.3, Table 7", "+30-shot does better on synthetic sentences.",
            judges.synthetic_jump,
        ),
        Claim(
            "swapped-rand-sents", "B.4, Figure 14",
            "Swapped conditions affect +Rand Sents considerably, though it should not mind the words (Abnormal).",
            partial(judges.considerably_changes, variant="rand-sents", perturbation="synthetic-swapped"),
        ),
        Claim(
            "random-boxes-mdrb", "B.5, Figure 15", "On MDRB random boxes raise the average precision of all models.",
            judges.random_boxes_mdrb,
        ),
        Claim(
            "kl-order", "B.6, Table 8",
            "A random sentence moves the maps of +30-shot and +Abnormal most, those of +Rand Sents not at all.",
            judges.divergence_order, targets=("regions",),
            paper=_printed(*((model, "kl_random", "all") for model in ("thirty-shot", "abnormal", "rand-sents"))),
        ),
        Claim(
            "entropy-uniform", "B.8, Table 10", "The maps' entropy is near its ceiling, ln(cells).",
            judges.near_uniform, targets=("regions",),
            paper=_printed(("retrained", "entropy", "all")) + "; ln(19 × 19) = 5.889",
        ),
        Claim(
            "two-softmaxes", "Eq. 1 and the released code",
            "The released code's two softmaxes flatten the maps: no cell has more than e⁴ ≈ 55 times another's weight.",
            judges.two_softmaxes, targets=("regions",), reading=True,
            stands_in="Not the paper's: it follows from its code, and is not counted among its claims.",
        ),
        Claim(
            "iou-auroc", "B.10, Figures 18 to 24", "IoU generally goes more with AUROC than with average precision.",
            judges.iou_nearer_auroc,
        ),
        Claim(
            "entropy-global", "B.10, Figures 18 to 24", "Entropy usually goes with a high global similarity.",
            partial(judges.entropy_similarity, kind="global", positive=True), targets=("regions",),
        ),
        Claim(
            "entropy-local", "B.10, Figures 18 to 24", "Entropy usually goes with a low local similarity.",
            partial(judges.entropy_similarity, kind="local", positive=False), targets=("regions",),
        ),
        Claim(
            "abnormal-entropy", "B.10, Figure 23", "For +Abnormal, a high entropy goes with poor localisation.",
            judges.entropy_localisation,
        ),
        Claim(
            "strict-word-masking", "B.11, the text",
            "+Word Masking is best, in precision and IoU, when only the top 5 or 10 % are taken.",
            partial(judges.beats, better="word-masking", worse=COMPARED, measures=STRICT), paper=_strict(),
        ),
        Claim(
            "strict-thirty-shot", "B.11, Tables 11 and 12",
            "+30-shot is best when only the top 5 or 10 % are taken: the tables give it what the text gives +Masking.",
            partial(judges.beats, better="thirty-shot", worse=COMPARED, measures=STRICT), paper=_strict(),
        ),
        Claim(
            "lenient-gloria", "B.11, Tables 11 and 12",
            "With the top 30 % GLoRIA is similar or better, in precision and IoU.",
            partial(judges.similar_or_better, measures=("precision@30", "iou@30")), stands_in=RELEASED,
            paper=_thresholds(("gloria", "retrained", "thirty-shot"), ("precision@30", "iou@30")),
        ),
    )  # fmt: skip


def _strict() -> str:
    return _thresholds(("word-masking", "thirty-shot"), STRICT)


def _thresholds(models: tuple[str, ...], measures: tuple[str, ...]) -> str:
    """Return the paper's figures at the top shares, a measure at a time."""
    book = published()
    said = []
    for measure in measures:
        table = "11" if measure.startswith("precision") else "12"
        found = {model: book.find(model, measure, table=table) for model in models}
        figures = ", ".join(f"{book.label(model)} {one.printed}" for model, one in found.items() if one is not None)
        said.append(f"{metric_name(measure)}: {figures} (Table {table})")
    return "; ".join(said)


def _auroc(*models: str) -> str:
    return _printed(*((model, "auroc", "all") for model in models))


def _quoted(what: str) -> str:
    return f"correlation {published().quote(what).value:.2f}".replace("-", "−")


def _aims() -> tuple[Claim, ...]:
    return (
        Claim(
            "sided-pointing", "our aim",
            "+Sided points at least twice as often as Retrained into the exact mask (One Lung).",
            judges.sided_pointing, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-prior", "our aim", "+Sided points better than the image-blind prior (One Lung).", judges.sided_prior,
            targets=("exact",), ours=True,
        ),
        Claim(
            "sided-swap", "our aim", "Swapping left and right costs +Sided at least 40 points of AUROC (One Lung).",
            judges.sided_swap, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-selection", "our aim", "+Sided selects sentences (global) within two points of the best variant: "
            "of the paper's and ours, not of anybody's own models nor of its own ablations.",
            judges.sided_selection, targets=("regions",), ours=True,
        ),
    )  # fmt: skip

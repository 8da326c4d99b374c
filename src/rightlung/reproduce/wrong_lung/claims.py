"""Each claim of "That's the Wrong Lung!" as a small function of the results, and our own aims for +Sided.

The paper's claims are about other data, so what is judged is their direction: against region boxes, as in the paper,
and against exact masks, which shows how much depends on the labels. How each is judged is in `rules`.
"""

from __future__ import annotations

from functools import partial

from rightlung.measuring.measures import find_measure
from rightlung.reproduce.claims import Claim
from rightlung.reproduce.published import Published, Subject
from rightlung.reproduce.wrong_lung import aims, rules
from rightlung.reproduce.wrong_lung.rules import COMPARED, OTHERS, UNSUPERVISED
from rightlung.reproduce.wrong_lung.variants import SUBSET_TITLES

RELEASED = "Said of GLoRIA with its released weights; judged on Retrained."
STRICT = ("precision@5", "precision@10", "iou@5", "iou@10")


def claims(book: Published) -> tuple[Claim, ...]:
    """Return all claims, the paper's in its order, then ours; ``book`` has the paper's figures."""
    printed = _Printed(book)
    parts = (_first_claims, _variant_claims, _selection_claims, _appendix_claims)
    return (*(claim for part in parts for claim in part(printed)), *_aims())


class _Printed:
    """The paper's figures as text."""

    def __init__(self, book: Published) -> None:
        self.book = book

    def figures(self, *wanted: tuple[str, str, str], target: str = "regions", table: str | None = None) -> str:
        """Return figures given by model, measure and subset."""
        said = []
        for model, measure, subset in wanted:
            found = self.book.find(Subject(model, measure, subset, target), table)
            if found is not None:
                said.append(f"{self.book.label(model)} {found.printed} ({SUBSET_TITLES[subset]}, Table {found.table})")
        return "; ".join(said)

    def auroc(self, *models: str) -> str:
        """Return the AUROC of models over all instances."""
        return self.figures(*((model, "auroc", "all") for model in models))

    def thresholds(self, models: tuple[str, ...], measures: tuple[str, ...]) -> str:
        """Return the figures at the top shares, a measure at a time."""
        said = []
        for measure in measures:
            table = "11" if measure.startswith("precision") else "12"
            found = {model: self.book.find(Subject(model, measure), table) for model in models}
            listed = (f"{self.book.label(model)} {one.printed}" for model, one in found.items() if one is not None)
            said.append(f"{find_measure(measure).title}: {', '.join(listed)} (Table {table})")
        return "; ".join(said)

    def quoted(self, what: str) -> str:
        """Return a correlation of the running text."""
        return f"correlation {self.book.quote(what).value:.2f}".replace("-", "−")


def _first_claims(printed: _Printed) -> tuple[Claim, ...]:
    return (
        Claim(
            "above-chance", "section 3", "AUROC is well over 50 %, suggesting reasonable localisation.",
            rules.above_chance, paper=printed.auroc("gloria", "retrained"), stands_in=RELEASED,
        ),
        Claim(
            "harder-subsets", "section 3.4", "The model does worse on One Lung and on MDRB.", rules.harder_subsets,
            paper=printed.figures(*(("gloria", "auroc", subset) for subset in ("all", "one-lung", "mdrb"))),
            stands_in=RELEASED,
        ),
        Claim(
            "random-boxes", "section 3.4, Figure 3", "Random BBoxes really decreases performance.",
            partial(rules.loses, perturbation="random-boxes"), stands_in=RELEASED,
        ),
        Claim(
            "barely-swap-sides", "section 3.4, Figure 3", "Swapping left and right barely changes performance.",
            partial(rules.barely_changes, perturbation="swap-sides"), stands_in=RELEASED,
        ),
        Claim(
            "barely-shuffle", "section 3.4, Figure 3", "Shuffling the boxes in a report barely changes performance.",
            partial(rules.barely_changes, perturbation="shuffle"), stands_in=RELEASED,
        ),
        Claim(
            "barely-random-sentence", "section 3.4, Figure 3", "A random sentence barely changes performance.",
            partial(rules.barely_changes, perturbation="random-sentence"), stands_in=RELEASED,
        ),
    )  # fmt: skip


def _variant_claims(printed: _Printed) -> tuple[Claim, ...]:
    return (
        Claim(
            "thirty-shot-best", "section 4.2.1, Table 3", "+30-shot improves most.",
            partial(rules.beats, better="thirty-shot", worse=OTHERS),
            paper=printed.auroc("thirty-shot", "word-masking", "retrained"),
        ),
        Claim(
            "word-masking-best", "section 4.2.1, Table 3", "+Word Masking is best of those without supervision.",
            partial(rules.beats, better="word-masking", worse=UNSUPERVISED),
            paper=printed.auroc("word-masking", "no-attn"),
        ),
        Claim(
            "clinical-masking-worse", "section 4.2.1, Table 3", "+Clinical Masking is slightly worse than Retrained.",
            partial(rules.beats, better="retrained", worse=("clinical-masking",)),
            paper=printed.auroc("clinical-masking", "retrained"),
        ),
        Claim(
            "no-attn-better", "section 4.2.1, Table 3", "+No Attn is better than Retrained.",
            partial(rules.beats, better="no-attn", worse=("retrained",)), paper=printed.auroc("no-attn", "retrained"),
        ),
        Claim(
            "rand-sents-worst", "section 4.1, Table 3",
            "Trained on random sentences, a model localises worse than Retrained.",
            partial(rules.beats, better="retrained", worse=("rand-sents",)),
            paper=printed.auroc("rand-sents", "retrained"),
        ),
        Claim(
            "uniter-inflated", "sections 2.2 and 4.2.1",
            "UNITER's AUROC is above all others, since it is given the boxes.",
            partial(rules.beats, better="uniter", worse=("thirty-shot", *OTHERS)), paper=printed.auroc("uniter"),
        ),
        Claim(
            "trimmed-drops", "section 4.2.1, Table 6", "Without the large boxes precision drops.", rules.trimmed_drops,
            targets=("regions",),
            paper=printed.figures(("retrained", "average_precision", "all"))
            + "; trimmed "
            + printed.figures(("retrained", "average_precision", "all"), target="trimmed"),
        ),
        Claim(
            "trimmed-same-trend", "section 4.2.1, Table 6", "Without the large boxes the models keep their order.",
            rules.trimmed_trend, targets=("regions",),
        ),
    )  # fmt: skip


def _selection_claims(printed: _Printed) -> tuple[Claim, ...]:
    chosen = "+30-shot, +Abnormal and +No Attn, in that order, are most affected by"
    return (
        Claim(
            "judged-no-attn", "section 4.2.2, Figure 4",
            "A radiologist finds the maps of +No Attn the most intuitive and the most precise.",
            partial(aims.judged_best, variant="no-attn", ratings=("intuitiveness", "precision")), targets=("regions",),
        ),
        Claim(
            "judged-retrained", "section 4.2.2, Figure 4",
            "A radiologist finds Retrained about as precise and as intuitive as GLoRIA, with less recall.",
            aims.judged_like_released, targets=("regions",),
        ),
        Claim(
            "swap-order", "section 4.2.3, Figure 5",
            "+30-shot, +No Attn and +Abnormal, in that order, are most affected by swapping left and right.",
            partial(rules.loses_in_order, perturbation="swap-sides", order=("thirty-shot", "no-attn", "abnormal")),
        ),
        Claim(
            "shuffle-order", "section 4.2.3, Figure 5", f"{chosen} shuffling the boxes.",
            partial(rules.loses_in_order, perturbation="shuffle", order=("thirty-shot", "abnormal", "no-attn")),
        ),
        Claim(
            "random-sentence-order", "section 4.2.3, Figure 5", f"{chosen} a random sentence.",
            partial(
                rules.loses_in_order, perturbation="random-sentence", order=("thirty-shot", "abnormal", "no-attn")
            ),
        ),
        Claim(
            "random-boxes-order", "section 4.2.3, Figure 5",
            "+30-shot, +Word Masking, +Abnormal and +No Attn, in that order, lose most to random boxes.",
            partial(
                rules.loses_in_order, perturbation="random-boxes",
                order=("thirty-shot", "word-masking", "abnormal", "no-attn"),
            ),
        ),
        Claim(
            "uniter-random-boxes", "Figure 5, caption",
            "UNITER loses most to random boxes, since it is given the true ones.",
            partial(rules.loses_in_order, perturbation="random-boxes", order=("uniter",), others=COMPARED),
        ),
        Claim(
            "selection-word-masking", "section 4.2.4, Table 4",
            "+Word Masking selects the right sentence most often (local).",
            rules.selects_best, targets=("regions",),
            paper=printed.figures(("word-masking", "selection_local", "all"), ("retrained", "selection_local", "all")),
        ),
        Claim(
            "selection-unrelated-localisation", "section 4.2.4",
            "Selecting the right sentence does not go with localising it.", rules.selection_and_localisation,
        ),
        Claim(
            "selection-unrelated-sensitivity", "section 4.2.4",
            "Selecting the right sentence does not go with being sensitive to the words.",
            rules.selection_and_sensitivity,
        ),
        Claim(
            "no-attn-selection", "section 4.2.6, Table 4", "+No Attn slightly harms selection (global).",
            rules.selection_less, targets=("regions",),
            paper=printed.figures(("no-attn", "selection_global", "all"), ("retrained", "selection_global", "all")),
        ),
        Claim(
            "judged-iou", "section 4.2.5, Figure 6",
            "Of the automatic measures IoU@10 % goes most with the radiologist's judgement of intuitiveness.",
            aims.judged_iou, targets=("regions",),
        ),
        Claim(
            "abstention-abnormal", "section 4.2.5", "The No-Attn score goes with there being nothing abnormal.",
            rules.abstains_without_abnormality, targets=("regions",),
            paper=printed.quoted("correlation of abstention and abnormal"),
        ),
        Claim(
            "abstention-iou", "section 4.2.5", "The No-Attn score goes with a low IoU@10 %.",
            rules.abstains_where_wrong, paper=printed.quoted("correlation of abstention and iou@10"),
        ),
    )  # fmt: skip


def _appendix_claims(printed: _Printed) -> tuple[Claim, ...]:
    return (
        Claim(
            "synthetic-like-real", "B.3, Table 7", "Synthetic sentences do as well as real ones.",
            rules.synthetic_like_real,
        ),
        Claim(
            "synthetic-thirty-shot", "B.3, Table 7", "+30-shot does better on synthetic sentences.",
            rules.synthetic_jump,
        ),
        Claim(
            "swapped-rand-sents", "B.4, Figure 14",
            "Swapped conditions affect +Rand Sents considerably, though it should not mind the words (Abnormal).",
            partial(rules.considerably_changes, variant="rand-sents", perturbation="synthetic-swapped"),
        ),
        Claim(
            "random-boxes-mdrb", "B.5, Figure 15", "On MDRB random boxes raise the average precision of all models.",
            rules.random_boxes_mdrb,
        ),
        Claim(
            "kl-order", "B.6, Table 8",
            "A random sentence moves the maps of +30-shot and +Abnormal most, those of +Rand Sents not at all.",
            rules.divergence_order, targets=("regions",),
            paper=printed.figures(
                *((model, "kl_random", "all") for model in ("thirty-shot", "abnormal", "rand-sents"))
            ),
        ),
        Claim(
            "entropy-uniform", "B.8, Table 10", "The maps' entropy is near its ceiling, ln(cells).",
            rules.near_uniform, targets=("regions",),
            paper=printed.figures(("retrained", "entropy", "all")) + "; ln(19 × 19) = 5.889",
        ),
        Claim(
            "two-softmaxes", "Eq. 1 and the released code",
            "The released code's two softmaxes flatten the maps: no cell has more than e⁴ ≈ 55 times another's weight.",
            rules.two_softmaxes, targets=("regions",), reading=True,
            stands_in="Not the paper's: it follows from its code, and is not counted among its claims.",
        ),
        Claim(
            "iou-auroc", "B.10, Figures 18 to 24", "IoU generally goes more with AUROC than with average precision.",
            rules.iou_nearer_auroc,
        ),
        Claim(
            "entropy-global", "B.10, Figures 18 to 24", "Entropy usually goes with a high global similarity.",
            partial(rules.entropy_similarity, kind="global", positive=True), targets=("regions",),
        ),
        Claim(
            "entropy-local", "B.10, Figures 18 to 24", "Entropy usually goes with a low local similarity.",
            partial(rules.entropy_similarity, kind="local", positive=False), targets=("regions",),
        ),
        Claim(
            "abnormal-entropy", "B.10, Figure 23", "For +Abnormal, a high entropy goes with poor localisation.",
            rules.entropy_localisation,
        ),
        Claim(
            "strict-word-masking", "B.11, the text",
            "+Word Masking is best, in precision and IoU, when only the top 5 or 10 % are taken.",
            partial(rules.beats, better="word-masking", worse=COMPARED, measures=STRICT),
            paper=printed.thresholds(("word-masking", "thirty-shot"), STRICT),
        ),
        Claim(
            "strict-thirty-shot", "B.11, Tables 11 and 12",
            "+30-shot is best when only the top 5 or 10 % are taken: the tables give it what the text gives +Masking.",
            partial(rules.beats, better="thirty-shot", worse=COMPARED, measures=STRICT),
            paper=printed.thresholds(("word-masking", "thirty-shot"), STRICT),
        ),
        Claim(
            "lenient-gloria", "B.11, Tables 11 and 12",
            "With the top 30 % GLoRIA is similar or better, in precision and IoU.",
            partial(rules.similar_or_better, measures=("precision@30", "iou@30")), stands_in=RELEASED,
            paper=printed.thresholds(("gloria", "retrained", "thirty-shot"), ("precision@30", "iou@30")),
        ),
    )  # fmt: skip


def _aims() -> tuple[Claim, ...]:
    return (
        Claim(
            "sided-pointing", "our aim",
            "+Sided points at least twice as often as Retrained into the exact mask (One Lung).",
            aims.sided_pointing, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-prior", "our aim", "+Sided points better than the image-blind prior (One Lung).", aims.sided_prior,
            targets=("exact",), ours=True,
        ),
        Claim(
            "sided-swap", "our aim", "Swapping left and right costs +Sided at least 40 points of AUROC (One Lung).",
            aims.sided_swap, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-selection", "our aim", "+Sided selects sentences (global) within two points of the best variant: "
            "of the paper's and ours, not of anybody's own models nor of its own ablations.",
            aims.sided_selection, targets=("regions",), ours=True,
        ),
    )  # fmt: skip

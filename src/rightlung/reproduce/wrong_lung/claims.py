"""The claims of "That's the Wrong Lung!" and our own aims for +Sided, each with its criterion.

The paper used other data, so only the direction of each claim is judged: against region boxes, as in the paper, and
against exact masks, which shows how much depends on the labels. The criteria are in `criteria` and `aims`.
"""

from __future__ import annotations

from functools import partial

from rightlung.measuring.measures import find_measure
from rightlung.reproduce.claims import Claim
from rightlung.reproduce.published import Published, Subject
from rightlung.reproduce.wrong_lung import aims, criteria
from rightlung.reproduce.wrong_lung.criteria import COMPARED, OTHERS, UNSUPERVISED
from rightlung.reproduce.wrong_lung.variants import SUBSET_TITLES

RELEASED = "The paper's claim is about GLoRIA with its released weights; judged here on Retrained."
STRICT = ("precision@5", "precision@10", "iou@5", "iou@10")


def claims(book: Published) -> tuple[Claim, ...]:
    """Return all claims: the paper's in its order, then our aims. ``book`` has the published values."""
    printed = _Printed(book)
    parts = (_first_claims, _variant_claims, _selection_claims, _appendix_claims)
    return (*(claim for part in parts for claim in part(printed)), *_aims())


class _Printed:
    """The published values as text."""

    def __init__(self, book: Published) -> None:
        self.book = book

    def figures(self, *wanted: tuple[str, str, str], target: str = "regions", table: str | None = None) -> str:
        """Return published values, each given by model, measure and subset."""
        texts = []
        for model, measure, subset in wanted:
            found = self.book.find(Subject(model, measure, subset, target), table)
            if found is not None:
                texts.append(f"{self.book.label(model)} {found.printed} ({SUBSET_TITLES[subset]}, Table {found.table})")
        return "; ".join(texts)

    def auroc(self, *models: str) -> str:
        """Return the AUROC of models over all instances."""
        return self.figures(*((model, "auroc", "all") for model in models))

    def thresholds(self, models: tuple[str, ...], measures: tuple[str, ...]) -> str:
        """Return the values at the top 5, 10 or 30 %, measure by measure."""
        texts = []
        for measure in measures:
            table = "11" if measure.startswith("precision") else "12"
            found = {model: self.book.find(Subject(model, measure), table) for model in models}
            listed = (f"{self.book.label(model)} {one.printed}" for model, one in found.items() if one is not None)
            texts.append(f"{find_measure(measure).title}: {', '.join(listed)} (Table {table})")
        return "; ".join(texts)

    def quoted(self, what: str) -> str:
        """Return a correlation quoted in the paper's text."""
        return f"correlation {self.book.quote(what).value:.2f}".replace("-", "−")


def _first_claims(printed: _Printed) -> tuple[Claim, ...]:
    return (
        Claim(
            "above-chance", "section 3", "AUROC is well over 50 %, which suggests reasonable localisation.",
            criteria.above_chance, paper=printed.auroc("gloria", "retrained"), stands_in=RELEASED,
        ),
        Claim(
            "harder-subsets", "section 3.4", "The model does worse on One Lung and on MDRB.", criteria.harder_subsets,
            paper=printed.figures(*(("gloria", "auroc", subset) for subset in ("all", "one-lung", "mdrb"))),
            stands_in=RELEASED,
        ),
        Claim(
            "random-boxes", "section 3.4, Figure 3", "Random boxes clearly lower performance.",
            partial(criteria.loses, perturbation="random-boxes"), stands_in=RELEASED,
        ),
        Claim(
            "barely-swap-sides", "section 3.4, Figure 3", "Swapping left and right barely changes performance.",
            partial(criteria.barely_changes, perturbation="swap-sides"), stands_in=RELEASED,
        ),
        Claim(
            "barely-shuffle", "section 3.4, Figure 3", "Shuffling the boxes in a report barely changes performance.",
            partial(criteria.barely_changes, perturbation="shuffle"), stands_in=RELEASED,
        ),
        Claim(
            "barely-random-sentence", "section 3.4, Figure 3", "A random sentence barely changes performance.",
            partial(criteria.barely_changes, perturbation="random-sentence"), stands_in=RELEASED,
        ),
    )  # fmt: skip


def _variant_claims(printed: _Printed) -> tuple[Claim, ...]:
    return (
        Claim(
            "thirty-shot-best", "section 4.2.1, Table 3", "+30-shot improves localisation most.",
            partial(criteria.beats, better="thirty-shot", worse=OTHERS),
            paper=printed.auroc("thirty-shot", "word-masking", "retrained"),
        ),
        Claim(
            "word-masking-best", "section 4.2.1, Table 3", "+Word Masking is the best variant without supervision.",
            partial(criteria.beats, better="word-masking", worse=UNSUPERVISED),
            paper=printed.auroc("word-masking", "no-attn"),
        ),
        Claim(
            "clinical-masking-worse", "section 4.2.1, Table 3", "+Clinical Masking is slightly worse than Retrained.",
            partial(criteria.beats, better="retrained", worse=("clinical-masking",)),
            paper=printed.auroc("clinical-masking", "retrained"),
        ),
        Claim(
            "no-attn-better", "section 4.2.1, Table 3", "+No Attn is better than Retrained.",
            partial(criteria.beats, better="no-attn", worse=("retrained",)),
            paper=printed.auroc("no-attn", "retrained"),
        ),
        Claim(
            "rand-sents-worst", "section 4.1, Table 3",
            "A model trained on random sentences localises worse than Retrained.",
            partial(criteria.beats, better="retrained", worse=("rand-sents",)),
            paper=printed.auroc("rand-sents", "retrained"),
        ),
        Claim(
            "uniter-inflated", "sections 2.2 and 4.2.1",
            "UNITER has the highest AUROC, because it is given the boxes.",
            partial(criteria.beats, better="uniter", worse=("thirty-shot", *OTHERS)), paper=printed.auroc("uniter"),
        ),
        Claim(
            "trimmed-drops", "section 4.2.1, Table 6", "Without the large boxes, average precision drops.",
            criteria.trimmed_drops, targets=("regions",),
            paper=printed.figures(("retrained", "average_precision", "all"))
            + "; trimmed "
            + printed.figures(("retrained", "average_precision", "all"), target="trimmed"),
        ),
        Claim(
            "trimmed-same-trend", "section 4.2.1, Table 6", "Without the large boxes, the models keep their order.",
            criteria.trimmed_trend, targets=("regions",),
        ),
    )  # fmt: skip


def _selection_claims(printed: _Printed) -> tuple[Claim, ...]:
    chosen = "+30-shot, +Abnormal and +No Attn, in that order, are most affected by"
    return (
        Claim(
            "judged-no-attn", "section 4.2.2, Figure 4",
            "A radiologist rates the maps of +No Attn most intuitive and most precise.",
            partial(aims.judged_best, variant="no-attn", ratings=("intuitiveness", "precision")), targets=("regions",),
        ),
        Claim(
            "judged-retrained", "section 4.2.2, Figure 4",
            "A radiologist rates Retrained about as precise and intuitive as GLoRIA, with lower recall.",
            aims.judged_like_released, targets=("regions",),
        ),
        Claim(
            "swap-order", "section 4.2.3, Figure 5",
            "+30-shot, +No Attn and +Abnormal, in that order, are most affected by swapping left and right.",
            partial(criteria.loses_in_order, perturbation="swap-sides", order=("thirty-shot", "no-attn", "abnormal")),
        ),
        Claim(
            "shuffle-order", "section 4.2.3, Figure 5", f"{chosen} shuffling the boxes.",
            partial(criteria.loses_in_order, perturbation="shuffle", order=("thirty-shot", "abnormal", "no-attn")),
        ),
        Claim(
            "random-sentence-order", "section 4.2.3, Figure 5", f"{chosen} a random sentence.",
            partial(
                criteria.loses_in_order, perturbation="random-sentence", order=("thirty-shot", "abnormal", "no-attn")
            ),
        ),
        Claim(
            "random-boxes-order", "section 4.2.3, Figure 5",
            "+30-shot, +Word Masking, +Abnormal and +No Attn, in that order, lose most with random boxes.",
            partial(
                criteria.loses_in_order, perturbation="random-boxes",
                order=("thirty-shot", "word-masking", "abnormal", "no-attn"),
            ),
        ),
        Claim(
            "uniter-random-boxes", "Figure 5, caption",
            "UNITER loses most with random boxes, because it is given the true ones.",
            partial(criteria.loses_in_order, perturbation="random-boxes", order=("uniter",), others=COMPARED),
        ),
        Claim(
            "selection-word-masking", "section 4.2.4, Table 4",
            "+Word Masking selects the right sentence most often (local).",
            criteria.selects_best, targets=("regions",),
            paper=printed.figures(("word-masking", "selection_local", "all"), ("retrained", "selection_local", "all")),
        ),
        Claim(
            "selection-unrelated-localisation", "section 4.2.4",
            "Selection accuracy is not correlated with localisation.", criteria.selection_and_localisation,
        ),
        Claim(
            "selection-unrelated-sensitivity", "section 4.2.4",
            "Selection accuracy is not correlated with sensitivity to the words.",
            criteria.selection_and_sensitivity,
        ),
        Claim(
            "no-attn-selection", "section 4.2.6, Table 4", "+No Attn selects slightly worse than Retrained (global).",
            criteria.selection_less, targets=("regions",),
            paper=printed.figures(("no-attn", "selection_global", "all"), ("retrained", "selection_global", "all")),
        ),
        Claim(
            "judged-iou", "section 4.2.5, Figure 6",
            "IoU@10 % is the automatic measure that correlates most with the radiologist's rating of intuitiveness.",
            aims.judged_iou, targets=("regions",),
        ),
        Claim(
            "abstention-abnormal", "section 4.2.5", "The No-Attn score is higher where nothing is abnormal.",
            criteria.abstains_without_abnormality, targets=("regions",),
            paper=printed.quoted("correlation of abstention and abnormal"),
        ),
        Claim(
            "abstention-iou", "section 4.2.5", "The No-Attn score is higher where IoU@10 % is low.",
            criteria.abstains_where_wrong, paper=printed.quoted("correlation of abstention and iou@10"),
        ),
    )  # fmt: skip


def _appendix_claims(printed: _Printed) -> tuple[Claim, ...]:
    return (
        Claim(
            "synthetic-like-real", "B.3, Table 7", "Models localise synthetic sentences as well as real ones.",
            criteria.synthetic_like_real,
        ),
        Claim(
            "synthetic-thirty-shot", "B.3, Table 7", "+30-shot localises synthetic sentences better than real ones.",
            criteria.synthetic_jump,
        ),
        Claim(
            "swapped-rand-sents", "B.4, Figure 14",
            "Swapped conditions affect +Rand Sents considerably, although it should ignore the words (Abnormal).",
            partial(criteria.considerably_changes, variant="rand-sents", perturbation="synthetic-swapped"),
        ),
        Claim(
            "random-boxes-mdrb", "B.5, Figure 15", "On MDRB, random boxes raise the average precision of all models.",
            criteria.random_boxes_mdrb,
        ),
        Claim(
            "kl-order", "B.6, Table 8",
            "A random sentence changes the maps of +30-shot and +Abnormal most, and those of +Rand Sents not at all.",
            criteria.divergence_order, targets=("regions",),
            paper=printed.figures(
                *((model, "kl_random", "all") for model in ("thirty-shot", "abnormal", "rand-sents"))
            ),
        ),
        Claim(
            "entropy-uniform", "B.8, Table 10", "The entropy of the maps is near its maximum, ln(cells).",
            criteria.near_uniform, targets=("regions",),
            paper=printed.figures(("retrained", "entropy", "all")) + "; ln(19 × 19) = 5.889",
        ),
        Claim(
            "two-softmaxes", "Eq. 1 and the released code",
            "The released code's two softmaxes flatten the maps: no cell has more than e⁴ ≈ 55 times another's weight.",
            criteria.two_softmaxes, targets=("regions",), reading=True,
            stands_in="Not a claim of the paper: it follows from the released code and is not counted.",
        ),
        Claim(
            "iou-auroc", "B.10, Figures 18 to 24", "IoU correlates more with AUROC than with average precision.",
            criteria.iou_nearer_auroc,
        ),
        Claim(
            "entropy-global", "B.10, Figures 18 to 24", "Entropy usually correlates positively with global similarity.",
            partial(criteria.entropy_similarity, kind="global", positive=True), targets=("regions",),
        ),
        Claim(
            "entropy-local", "B.10, Figures 18 to 24", "Entropy usually correlates negatively with local similarity.",
            partial(criteria.entropy_similarity, kind="local", positive=False), targets=("regions",),
        ),
        Claim(
            "abnormal-entropy", "B.10, Figure 23", "For +Abnormal, high entropy means poor localisation.",
            criteria.entropy_localisation,
        ),
        Claim(
            "strict-word-masking", "B.11, the text",
            "+Word Masking has the best precision and IoU of the top 5 and 10 % of pixels.",
            partial(criteria.beats, better="word-masking", worse=COMPARED, measures=STRICT),
            paper=printed.thresholds(("word-masking", "thirty-shot"), STRICT),
        ),
        Claim(
            "strict-thirty-shot", "B.11, Tables 11 and 12",
            "+30-shot has the best precision and IoU of the top 5 and 10 % (so the tables; the text says +Masking).",
            partial(criteria.beats, better="thirty-shot", worse=COMPARED, measures=STRICT),
            paper=printed.thresholds(("word-masking", "thirty-shot"), STRICT),
        ),
        Claim(
            "lenient-gloria", "B.11, Tables 11 and 12",
            "GLoRIA has similar or better precision and IoU of the top 30 %.",
            partial(criteria.similar_or_better, measures=("precision@30", "iou@30")), stands_in=RELEASED,
            paper=printed.thresholds(("gloria", "retrained", "thirty-shot"), ("precision@30", "iou@30")),
        ),
    )  # fmt: skip


def _aims() -> tuple[Claim, ...]:
    return (
        Claim(
            "sided-pointing", "our aim",
            "+Sided's peak is inside the exact mask at least twice as often as Retrained's (One Lung).",
            aims.sided_pointing, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-prior", "our aim",
            "+Sided's peak is inside the exact mask more often than the image-blind prior's (One Lung).",
            aims.sided_prior, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-swap", "our aim", "Swapping left and right costs +Sided at least 40 points of AUROC (One Lung).",
            aims.sided_swap, targets=("exact",), ours=True,
        ),
        Claim(
            "sided-selection", "our aim",
            "+Sided's selection accuracy (global) is within two points of the best other variant (ablations and added "
            "models not counted).",
            aims.sided_selection, targets=("regions",), ours=True,
        ),
    )  # fmt: skip

"""Every kind of rule, by numbers of which it is known whether the claim holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rightlung.reproduce.wrong_lung.claims import claims
from tests.reproduce.made_up import (
    ABNORMAL,
    DRAWN,
    MDRB,
    NAMES_SIDE,
    NOISE,
    ONE_LUNG,
    PUBLISHED,
    Levels,
    judge,
    measured,
    selects,
    verdict,
)

YES, NO, NEITHER, UNKNOWN = "holds", "does not hold", "no difference shown", "cannot be judged"
ALL = [claim.name for claim in claims(PUBLISHED)]


def points(share: float) -> Levels:
    return {"pointing": (share > DRAWN).astype(float)}


def test_every_claim_has_its_own_name_and_says_where_it_stands() -> None:
    listed = claims(PUBLISHED)
    assert len(set(ALL)) == len(listed) >= 30
    assert all(claim.where and claim.text.endswith(".") for claim in listed)
    assert [claim.name for claim in listed if claim.ours] == [
        "sided-pointing", "sided-prior", "sided-swap", "sided-selection"
    ]  # fmt: skip
    assert [claim.name for claim in listed if claim.reading] == ["two-softmaxes"]
    assert sum("released weights" in claim.stands_in for claim in listed) == 7


def test_with_nothing_measured_no_claim_can_be_told() -> None:
    found = judge(ALL, {"other": {}})
    assert list(found) == ALL
    assert {ruling.verdict for one in found.values() for ruling in one.rulings.values()} == {UNKNOWN}


def by(key: str, **levels: float) -> dict[str, Levels]:
    """Models, by variant, that have one thing at a level, and 0.8 of everything else."""
    return {slug.replace("_", "-"): {"level": 0.8, key: level} for slug, level in levels.items()}


def entropies(**means: float) -> dict[str, Levels]:
    return {slug.replace("_", "-"): {"grid_entropy": mean + NOISE[:, 2] / 10} for slug, mean in means.items()}


def moved(**means: float) -> dict[str, Levels]:
    return {slug.replace("_", "-"): {"kl_random": mean + NOISE[:, 3] / 20} for slug, mean in means.items()}


def in_step(sign: int) -> dict[str, Levels]:
    """Models whose selection rises, and whose localisation rises or falls with it."""
    variants = ("retrained", "word-masking", "clinical-masking", "no-attn", "abnormal", "thirty-shot")
    levels = [{"level": 0.65 + sign * 0.04 * place, **selects(0.3 + 0.1 * place)} for place in range(6)]
    return dict(zip(variants, levels, strict=True))


@pytest.mark.parametrize(
    ("claim", "such", "other"),
    [
        ("no-attn-better", by("level", no_attn=0.7, retrained=0.6), by("level", no_attn=0.6, retrained=0.7)),
        ("clinical-masking-worse", by("level", clinical_masking=0.5, retrained=0.6),
         by("level", clinical_masking=0.7, retrained=0.6)),
        ("rand-sents-worst", by("level", rand_sents=0.5, retrained=0.6), by("level", rand_sents=0.7, retrained=0.6)),
        ("word-masking-best", by("level", word_masking=0.7, abnormal=0.6), by("level", word_masking=0.7, abnormal=0.8)),
        ("thirty-shot-best", by("level", thirty_shot=0.7, retrained=0.6), by("level", thirty_shot=0.7, rand_sents=0.8)),
        ("uniter-inflated", by("level", uniter=0.9, thirty_shot=0.7), by("level", uniter=0.6, thirty_shot=0.7)),
        ("random-boxes", by("regions-random", retrained=0.7), by("regions-random", retrained=0.9)),
        ("uniter-random-boxes", by("regions-random", uniter=0.5, thirty_shot=0.6, retrained=0.7),
         by("regions-random", uniter=0.65, thirty_shot=0.6, retrained=0.7)),
        ("swap-order", by("swap-sides", thirty_shot=0.5, no_attn=0.6, abnormal=0.7, retrained=0.8),
         by("swap-sides", thirty_shot=0.5, no_attn=0.7, abnormal=0.6, retrained=0.8)),
        ("swap-order", by("swap-sides", thirty_shot=0.5, no_attn=0.6, abnormal=0.7, retrained=0.8),
         by("swap-sides", thirty_shot=0.5, no_attn=0.6, abnormal=0.7, retrained=0.6)),
        ("random-boxes-mdrb", by("regions-random", retrained=0.9), by("regions-random", retrained=0.9, no_attn=0.7)),
        ("synthetic-like-real", by("synthetic", retrained=0.8), by("synthetic", retrained=0.8, no_attn=0.7)),
        ("synthetic-thirty-shot", by("synthetic", thirty_shot=0.9), by("synthetic", thirty_shot=0.7)),
        ("trimmed-drops", by("trimmed", retrained=0.7), by("trimmed", retrained=0.7, no_attn=0.9)),
        ("entropy-uniform", entropies(retrained=5.85), entropies(retrained=4.0)),
        ("two-softmaxes", entropies(retrained=5.8, retrained_one_softmax=5.0),
         entropies(retrained=5.0, retrained_one_softmax=5.8)),
        ("selection-unrelated-localisation", in_step(-1), in_step(1)),
        ("selection-word-masking", {"word-masking": selects(0.9), "retrained": selects(0.5)},
         {"word-masking": selects(0.5), "retrained": selects(0.9)}),
        ("no-attn-selection", {"no-attn": selects(0.5), "retrained": selects(0.9)},
         {"no-attn": selects(0.9), "retrained": selects(0.5)}),
        ("kl-order", moved(thirty_shot=0.9, abnormal=0.5, rand_sents=0.0),
         moved(thirty_shot=0.9, abnormal=0.5, rand_sents=0.2)),
    ],
)  # fmt: skip
def test_a_claim_holds_with_such_numbers_and_not_with_others(
    claim: str, such: dict[str, Levels], other: dict[str, Levels]
) -> None:
    assert (verdict(claim, such), verdict(claim, other)) == (YES, NO)


def test_no_difference_is_shown_where_there_is_none_and_nothing_is_told_of_what_was_not_measured() -> None:
    same: dict[str, Levels] = {"no-attn": {"noise": "a"}, "retrained": {"noise": "a"}}
    assert verdict("no-attn-better", same) == NEITHER
    (found,) = judge("swap-order", by("swap-sides", thirty_shot=0.5, abnormal=0.6)).values()
    assert (found.verdict("exact"), found.rulings["exact"].remark) == (UNKNOWN, "Not measured: no-attn.")
    (found,) = judge(
        "selection-unrelated-localisation",
        {slug: in_step(1)[slug] for slug in ("retrained", "clinical-masking", "no-attn")},
    ).values()
    assert found.rulings["regions"].remark == "Too few variants for a correlation: 3."
    (found,) = judge("entropy-uniform", {"retrained": {"about": {"grid": None}}}).values()
    assert found.rulings["regions"].remark == "The number of cells of +retrained's map is not known."


def test_the_verdict_rests_on_the_difference_it_prints() -> None:
    models: dict[str, Levels] = {"no-attn": {"level": 0.7}, "retrained": {"level": 0.6}}
    ruling = judge("no-attn-better", models)["no-attn-better"].rulings["regions"]
    columns = [measured(models).value(slug, "auroc", "regions") for slug in models]
    by_hand = float(np.mean(columns[0] - columns[1]))
    (evidence,) = ruling.evidence
    assert evidence.found.value == pytest.approx(by_hand)
    assert ruling.sentence.startswith(f"+no-attn minus +retrained: +{100 * by_hand:.1f} points (+")
    assert evidence.found.as_json()["p"] == pytest.approx(1 / 2001)  # of 2,000 sign flips none is as large
    assert ruling.after_holm is True


def test_claims_about_the_released_gloria_are_judged_on_it_where_it_is_measured() -> None:
    models: dict[str, Levels] = {"retrained": {"level": 0.7}}
    assert verdict("above-chance", models) == YES
    (found,) = judge("above-chance", models | {"gloria": {"level": 0.5}}).values()
    assert found.verdict("regions") == NO
    assert found.rulings["regions"].lines[0].startswith("+gloria, AUROC: ")


@pytest.mark.parametrize(("level", "barely"), [(0.6, True), (0.5, False), (0.68, False)])
def test_barely_is_within_two_points_either_way_and_considerably_is_not(level: float, barely: bool) -> None:
    models: dict[str, Levels] = {
        "retrained": {"level": 0.6, "swap-sides": level},
        "rand-sents": {"level": 0.6, "synthetic-swapped": level},
    }
    assert verdict("barely-swap-sides", models) == (YES if barely else NO)
    assert verdict("swapped-rand-sents", models) == (NO if barely else YES)


def test_swapped_conditions_are_counted_from_the_synthetic_sentence_on_abnormal_phrases() -> None:
    levels = {"noise": None, ("auroc", "synthetic"): 0.75 + DRAWN / 10, ("auroc", "synthetic-swapped"): 0.5 + DRAWN / 5}
    (found,) = judge("swapped-rand-sents", {"rand-sents": levels}).values()
    assert found.rulings["regions"].evidence[0].found.value == pytest.approx(np.mean(DRAWN[ABNORMAL]) / 10 - 0.25)


def test_one_lung_and_mdrb_must_both_be_harder_in_both_measures() -> None:
    def of(lowered: Any, *measures: str) -> str:
        lower = dict.fromkeys(measures, 0.7 - 0.2 * lowered + NOISE[:, 0])
        return verdict("harder-subsets", {"retrained": {"level": 0.7, **lower}})

    both = ("auroc", "average_precision")
    assert of(ONE_LUNG & MDRB, *both) == YES
    assert of(~(ONE_LUNG | MDRB), *both) == NO
    assert of(ONE_LUNG & ~MDRB, *both) == NO
    assert of(ONE_LUNG & MDRB, "auroc") == NEITHER


@pytest.mark.parametrize(("sign", "expected"), [(1, YES), (-1, NO)])
def test_abstention_that_follows_normality(sign: int, expected: str) -> None:
    values = 0.5 - sign * 0.3 * ABNORMAL + NOISE[:, 1]
    (found,) = judge("abstention-abnormal", {"no-attn": {"abstention": values}}).values()
    assert found.verdict("regions") == expected
    by_hand = np.corrcoef(values, ABNORMAL)[0, 1]
    assert found.rulings["regions"].evidence[0].found.value == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("claim", "kind", "claimed"), [("entropy-global", "global", 1.0), ("entropy-local", "local", -1.0)]
)
def test_entropy_goes_with_similarity_in_most_variants(claim: str, kind: str, claimed: float) -> None:
    def of(*signs: float) -> Any:
        levels = [
            {"grid_entropy": 5 + DRAWN, f"similarity_{kind}": sign * claimed * DRAWN + NOISE[:, 0]} for sign in signs
        ]
        models = dict(zip(("retrained", "no-attn", "abnormal"), levels, strict=True))
        return judge(claim, models)[claim].rulings["regions"]

    most = of(1, 1, -1)
    assert (most.verdict, of(1, -1, -1).verdict) == (YES, NO)
    first = next(one for one in most.evidence if one.label == "+retrained")
    assert first.found.value == pytest.approx(np.corrcoef(DRAWN, claimed * DRAWN + NOISE[:, 0])[0, 1])


@pytest.mark.parametrize(("near", "expected"), [("auroc", YES), ("average_precision", NO)])
def test_what_iou_is_nearer_to(near: str, expected: str) -> None:
    levels = {"auroc": NOISE[:, 7], "average_precision": NOISE[:, 8], near: DRAWN + NOISE[:, 9], "iou@10": DRAWN}
    (found,) = judge("iou-auroc", {"retrained": levels}).values()
    assert found.verdict("regions") == expected
    auroc, precision = (np.corrcoef(DRAWN, levels[name])[0, 1] for name in ("auroc", "average_precision"))
    assert found.rulings["regions"].evidence[0].found.value == pytest.approx(auroc - precision)


def test_who_is_best_at_the_top_shares() -> None:
    names = ("strict-thirty-shot", "strict-word-masking", "lenient-gloria")
    strict = ("precision@5", "precision@10", "iou@5", "iou@10")
    found = judge(
        names,
        {
            "thirty-shot": {**dict.fromkeys(strict, 0.7), "precision@30": 0.4, "iou@30": 0.4},
            "word-masking": dict.fromkeys(strict, 0.5),
            "retrained": {"level": 0.3, "precision@30": 0.5, "iou@30": 0.45},
        },
    )
    assert [found[name].verdict("regions") for name in names] == [YES, NO, YES]
    assert len(found[names[0]].rulings["regions"].evidence) == 4 * 2
    assert "+30-shot Finetuned 69.35 (Table 11)" not in found[names[2]].claim.paper
    assert "+30-shot Finetuned 69.35" in found[names[0]].claim.paper
    models: dict[str, Levels] = {
        "thirty-shot": {"level": 0.3, "iou@5": 0.1, "iou@30": 0.5},
        "retrained": {"level": 0.3, "precision@30": 0.9},
    }
    found = judge(names, models)
    assert [found[name].verdict("regions") for name in names] == [NO, UNKNOWN, NO]


def test_our_aims_are_reached_and_missed() -> None:
    aims = ("sided-pointing", "sided-prior", "sided-swap", "sided-selection")
    models: dict[str, Levels] = {
        "sided": {**points(0.9), "level": 0.9, "swap-sides": 0.3, **selects(0.8)},
        "retrained": {**points(0.3), **selects(0.8)},
        "prior": {**points(0.6), "about": {"group": "reference", "seed": None}},
    }
    found = judge(aims, models)
    assert {ruling.verdict for one in found.values() for ruling in one.rulings.values()} == {YES}
    inside = ONE_LUNG & ABNORMAL
    ours, theirs = (100 * np.mean(share > DRAWN[inside]) for share in (0.9, 0.3))
    said = found["sided-pointing"].rulings["exact"].remark
    assert said == f"{ours:.1f} % versus {theirs:.1f} %, {ours / theirs:.1f} times as often."
    swap = found["sided-swap"].rulings["exact"]
    share = np.mean(NAMES_SIDE[inside])  # the others count 0 as the paper averages
    assert f"count 0: −{-100 * share * swap.evidence[0].found.value:.1f} points" in swap.remark
    models["sided"] = {**points(0.4), "level": 0.9, "swap-sides": 0.7, **selects(0.3)}
    found = judge(aims, models)
    assert {ruling.verdict for one in found.values() for ruling in one.rulings.values()} == {NO}


def test_rivals_of_sided_are_comparable_variants_and_not_its_ablations() -> None:
    models: dict[str, Levels] = {"sided": selects(0.8), "retrained": selects(0.8)}
    others = {
        slug: {**selects(1.0), "about": {"group": group}}
        for slug, group in (("sided-without-mirror", "ours"), ("own-mine", "ours"), ("oracle", "reference"))
    }
    (one,) = judge("sided-selection", {**models, **others, "uniter": selects(1.0)}).values()
    assert one.verdict("regions") == YES
    assert "minus that of +retrained, the best other" in one.rulings["regions"].sentence
    assert verdict("sided-selection", {**models, "thirty-shot-exact": selects(1.0)}) == NO


def test_a_variant_that_is_not_comparable_is_no_rival_of_any_claim_and_missing_ones_are_named() -> None:
    masking = {"level": 0.9, "about": {"comparable": False}}
    models: dict[str, Levels] = {"thirty-shot": {"level": 0.7}, "retrained": {}, "word-masking": masking}
    found = judge(("thirty-shot-best", "trimmed-drops"), models)
    assert found["thirty-shot-best"].verdict("regions") == YES
    assert "word-masking *" not in found["trimmed-drops"].rulings["regions"].sentence
    (one,) = judge("trimmed-drops", {"retrained": {"regions": 0.6, "trimmed": 0.5}}).values()
    assert one.verdict("regions") == YES
    assert one.rulings["regions"].remark.startswith("Not measured: thirty-shot, word-masking")


# ------------------------------------------------------------------ radiologists' judgements


def rated(first: str, second: str, rating: str, estimate: float) -> dict[str, Any]:
    sides = {"low": estimate - 0.1, "high": estimate + 0.1, "n": 40, "clusters": 20}
    return {"first": first, "second": second, "rating": rating, "estimate": estimate, **sides}


def test_what_only_a_radiologist_can_say_needs_judgements() -> None:
    found = judge([name for name in ALL if name.startswith("judged-")], {"retrained": {}, "no-attn": {}})
    assert len(found) == 3
    for one in found.values():
        assert one.verdict("regions") == UNKNOWN
        assert "--judgements TABLE --key KEY" in one.rulings["regions"].remark


BEST, LIKE = "judged-no-attn", "judged-retrained"


@pytest.mark.parametrize(
    ("claim", "rows", "expected"),
    [
        (BEST, [("no-attn", "retrained", "precision", 0.4), ("sided", "no-attn", "precision", -0.4)], YES),
        (BEST, [("no-attn", "retrained", "precision", 0.4), ("sided", "no-attn", "precision", 0.4)], NO),
        (BEST, [("no-attn", "retrained", "precision", 0.05)], NEITHER),
        (BEST, [("sided", "retrained", "precision", 0.4)], UNKNOWN),
        (LIKE, [("gloria-released", "retrained", "recall", 0.5), ("retrained", "gloria", "precision", 0.2)], YES),
        (LIKE, [("gloria-released", "retrained", "recall", -0.5), ("retrained", "gloria", "precision", 0.2)], NO),
        (LIKE, [("gloria-released", "retrained", "recall", 0.5), ("retrained", "gloria", "precision", 0.9)], NO),
    ],
)
def test_the_best_is_above_each_other_and_retrained_is_like_the_released_gloria_with_less_recall(
    claim: str, rows: list[tuple[str, str, str, float]], expected: str
) -> None:
    given = [rated(*row) for row in rows]
    given.append(rated("no-attn", "retrained", "recall", -2.0))  # which is not claimed
    (found,) = judge(claim, {"no-attn": {}, "retrained": {}}, {"differences": given, "correlations": []}).values()
    assert found.verdict("regions") == expected


@pytest.mark.parametrize(("auroc", "expected"), [(0.2, YES), (-0.6, NO)])
def test_iou_must_correlate_most_with_intuitiveness(auroc: float, expected: str) -> None:
    def correlation(measure: str, value: float, rating: str = "intuitiveness") -> dict[str, Any]:
        pearson = {"estimate": value, "low": value - 0.1, "high": value + 0.1, "n": 40, "clusters": 20}
        return {"measure": measure, "rating": rating, "pearson": pearson}

    values = [correlation("iou@10 (regions)", 0.4), correlation("auroc (regions)", auroc)]
    values.append(correlation("auroc (regions)", 0.9, "recall"))
    given = {"differences": [], "correlations": [{"model": "no-attn", "values": values}]}
    (found,) = judge("judged-iou", {"no-attn": {}}, given).values()
    assert found.verdict("regions") == expected
    strongest = max(0.4, auroc, key=abs)
    assert (
        f"Strongest of 2 measures: {'iou@10' if strongest == 0.4 else 'auroc'} (regions), {strongest:+.2f}."
        == found.rulings["regions"].remark
    )

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.reproduce.wrong_lung import judges
from rightlung.reproduce.wrong_lung.claims import Judged, after_holm, claims
from rightlung.reproduce.wrong_lung.estimates import Estimator, Sureness
from rightlung.reproduce.wrong_lung.judging import Evidence, Judgement, View, mostly, side, small, together
from rightlung.reproduce.wrong_lung.reading import read_results
from rightlung.reproduce.wrong_lung.tables import Measured
from tests.reproduce.wrong_lung.claiming import DRAWN, ROWS, WOBBLE, Levels, judged, make, wobble
from tests.reproduce.wrong_lung.folders import answer_rows, score_rows, write_instances, write_model


def test_every_claim_has_its_own_name_and_where_it_stands() -> None:
    names = [claim.name for claim in claims()]
    assert len(set(names)) == len(names) >= 30
    assert all(claim.where and claim.text.endswith(".") for claim in claims())
    assert sum(claim.ours for claim in claims()) == 4


def test_with_nothing_measured_no_claim_can_be_told(tmp_path: Path) -> None:
    found = judged(make(tmp_path, {"other": {}}))
    assert {j.verdict for one in found.values() for j in one.judgements.values()} == {"cannot be told"}


@pytest.mark.parametrize(
    ("claim", "better", "worse"),
    [
        ("no-attn-better", "no-attn", "retrained"),
        ("clinical-masking-worse", "retrained", "clinical-masking"),
        ("rand-sents-worst", "retrained", "rand-sents"),
        ("word-masking-best", "word-masking", "abnormal"),
        ("thirty-shot-best", "thirty-shot", "retrained"),
    ],
)
def test_a_comparison_of_variants_flips_with_the_data(tmp_path: Path, claim: str, better: str, worse: str) -> None:
    def verdict(name: str, first: float, second: float) -> str:
        noises = ("a", "a") if name == "same" else ("a", "b")
        levels = [{"level": level, "noise": noise} for level, noise in zip((first, second), noises, strict=True)]
        measured = make(tmp_path / name, dict(zip((better, worse), levels, strict=True)))
        return judged(measured)[claim].judgements["regions"].verdict

    assert verdict("as claimed", 0.7, 0.6) == "holds"
    assert verdict("flipped", 0.6, 0.7) == "does not hold"
    assert verdict("same", 0.6, 0.6) == "no difference shown"


def test_the_verdict_rests_on_the_difference_it_prints(tmp_path: Path) -> None:
    measured = make(tmp_path, {"no-attn": {"level": 0.7}, "retrained": {"level": 0.6}})
    judgement = judged(measured)["no-attn-better"].judgements["regions"]
    results = measured.results
    by_hand = (results.score("no-attn", "auroc") - results.score("retrained", "auroc")).mean()
    (evidence,) = judgement.evidence
    assert evidence.found["estimate"] == pytest.approx(by_hand)
    assert judgement.sentence.startswith(f"+no-attn minus +retrained: +{100 * by_hand:.1f} points (+")
    assert evidence.found["p"] == pytest.approx(1 / 10_001)
    assert after_holm(judgement) is True


def test_labels_can_decide_a_claim(tmp_path: Path) -> None:
    measured = make(tmp_path, {"retrained": {"exact": 0.52, "regions": 0.7}})
    found = judged(measured)["above-chance"].judgements
    assert (found["regions"].verdict, found["exact"].verdict) == ("holds", "does not hold")


@pytest.mark.parametrize(("level", "verdict"), [(0.6, "holds"), (0.5, "does not hold"), (0.68, "does not hold")])
def test_barely_is_within_two_points_either_way(tmp_path: Path, level: float, verdict: str) -> None:
    measured = make(tmp_path, {"retrained": {"level": 0.6, "swap-sides": level}})
    assert judged(measured)["barely-swap-sides"].judgements["regions"].verdict == verdict


def test_one_lung_and_mdrb_must_both_be_harder(tmp_path: Path) -> None:
    hard = [row["one_lung"] or row["mdrb"] for row in ROWS]

    def write(name: str, lowered: list[bool]) -> str:
        write_instances(tmp_path / name, ROWS)
        scores = score_rows(ROWS, lambda c, t, m, i: 0.7 - 0.2 * lowered[i] + wobble("a", c, i))
        write_model(tmp_path / name, "retrained", scores, answer_rows(ROWS, lambda *_: {}))
        results = read_results(tmp_path / name)
        view = View(Measured(results, Estimator(results.instances.clusters, Sureness(resamples=300))))
        return judges.harder_subsets(view, "regions").verdict

    both = [row["one_lung"] and row["mdrb"] for row in ROWS]
    assert write("both", both) == "holds"
    assert write("easier", [not each for each in hard]) == "does not hold"
    assert write("one", [row["one_lung"] and not row["mdrb"] for row in ROWS]) == "does not hold"


def test_the_order_of_losses_counts(tmp_path: Path) -> None:
    def models(losses: Mapping[str, float]) -> dict[str, Levels]:
        return {slug: {"level": 0.8, "swap-sides": 0.8 - loss} for slug, loss in losses.items()}

    losses = {"thirty-shot": 0.3, "no-attn": 0.2, "abnormal": 0.1, "retrained": 0.0}
    assert judged(make(tmp_path / "a", models(losses)))["swap-order"].judgements["exact"].verdict == "holds"
    turned = {**losses, "no-attn": 0.1, "abnormal": 0.2}
    assert judged(make(tmp_path / "b", models(turned)))["swap-order"].judgements["exact"].verdict == "does not hold"
    del losses["no-attn"]
    found = judged(make(tmp_path / "c", models(losses)))["swap-order"].judgements["exact"]
    assert (found.verdict, found.remark) == ("cannot be told", "Not measured: no-attn.")


def test_abstention_that_follows_normality(tmp_path: Path) -> None:
    def answers(sign: float) -> Levels:
        def answer(condition: str, instance: int) -> dict[str, Any]:
            return {"abstention": 0.5 - sign * 0.3 * ROWS[instance]["abnormal"] + wobble("x", condition, instance)}

        return {"answer": answer}

    held = judged(make(tmp_path / "a", {"no-attn": answers(1)}))["abstention-abnormal"].judgements["regions"]
    assert held.verdict == "holds"
    flipped = judged(make(tmp_path / "b", {"no-attn": answers(-1)}))["abstention-abnormal"].judgements["regions"]
    assert flipped.verdict == "does not hold"
    assert flipped.evidence[0].found["estimate"] == pytest.approx(-held.evidence[0].found["estimate"], abs=0.01)


@pytest.mark.parametrize(("entropy", "verdict"), [(5.85, "holds"), (4.0, "does not hold")])
def test_entropy_is_held_against_the_grid(tmp_path: Path, entropy: float, verdict: str) -> None:
    found = judged(make(tmp_path, {"retrained": {"entropy": entropy}}))["entropy-uniform"].judgements["regions"]
    assert found.verdict == verdict
    share = found.evidence[0].found["estimate"]
    assert share == pytest.approx(entropy / math.log(361), abs=0.01)


def test_without_the_grid_entropy_cannot_be_told(tmp_path: Path) -> None:
    found = judged(make(tmp_path, {"retrained": {}}, sees={}))["entropy-uniform"].judgements["regions"]
    assert (found.verdict, found.remark) == ("cannot be told", "The number of cells of +retrained's map is not given.")


def test_a_second_softmax_flattens(tmp_path: Path) -> None:
    models = {"retrained": {"entropy": 5.8}, "retrained-one-softmax": {"entropy": 5.0}}
    assert judged(make(tmp_path, models))["two-softmaxes"].judgements["regions"].verdict == "holds"


def test_selection_that_goes_with_localisation_contradicts_the_paper(tmp_path: Path) -> None:
    variants = ("retrained", "word-masking", "clinical-masking", "no-attn", "abnormal", "thirty-shot")
    together_up = {
        slug: {"level": 0.5 + 0.05 * place, "selects": 0.3 + 0.1 * place} for place, slug in enumerate(variants)
    }
    found = judged(make(tmp_path / "a", together_up))["selection-unrelated-localisation"].judgements["regions"]
    assert found.verdict == "does not hold"
    against = {slug: {"level": 0.8 - 0.05 * place, "selects": 0.3 + 0.1 * place} for place, slug in enumerate(variants)}
    found = judged(make(tmp_path / "b", against))["selection-unrelated-localisation"].judgements["regions"]
    assert found.verdict == "holds"
    few = {slug: together_up[slug] for slug in variants[:3]}
    found = judged(make(tmp_path / "c", few))["selection-unrelated-localisation"].judgements["regions"]
    assert (found.verdict, found.remark) == ("cannot be told", "Too few variants for a correlation: 3.")


def test_our_aims(tmp_path: Path) -> None:
    reached: dict[str, Levels] = {
        "sided": {"points": 0.9, "level": 0.9, "swap-sides": 0.3, "selects": 0.8},
        "retrained": {"points": 0.3, "selects": 0.8},
        "prior": {"points": 0.6, "about": {"group": "reference"}},
    }
    found = judged(make(tmp_path / "a", reached))
    aims = {name: one for name, one in found.items() if one.claim.ours}
    assert [j.verdict for one in aims.values() for j in one.judgements.values()] == ["holds"] * 4
    inside = np.array([row["one_lung"] and row["has_exact"] for row in ROWS])
    shares = [100 * (DRAWN[inside] < share).mean() for share in (0.9, 0.3)]
    assert aims["sided-pointing"].judgements["exact"].remark == (
        f"{shares[0]:.1f} % against {shares[1]:.1f} %, {shares[0] / shares[1]:.1f} times as often."
    )
    lost = aims["sided-swap"].judgements["exact"]
    named = np.array([row["asked_swap_sides"] is not None for row in ROWS])[inside].mean()
    told = re.search(r"counting 0: −(\d+\.\d) points", lost.remark)
    assert told is not None
    assert float(told[1]) == pytest.approx(-100 * named * lost.evidence[0].found["estimate"], abs=0.1)
    assert 0 < named < 1
    missed: dict[str, Levels] = {
        "sided": {"points": 0.4, "level": 0.9, "swap-sides": 0.7, "selects": 0.3},
        "retrained": {"points": 0.3, "selects": 0.8},
        "prior": {"points": 0.6, "about": {"group": "reference"}},
    }
    found = judged(make(tmp_path / "b", missed))
    assert {name: next(iter(one.judgements.values())).verdict for name, one in found.items() if one.claim.ours} == {
        "sided-pointing": "does not hold",
        "sided-prior": "does not hold",
        "sided-swap": "does not hold",
        "sided-selection": "does not hold",
    }


def test_what_is_not_comparable_is_no_rival(tmp_path: Path) -> None:
    models = {"sided": {"selects": 0.8}, "retrained": {"selects": 0.8}, "uniter": {"selects": 1.0}}
    found = judged(make(tmp_path, models))["sided-selection"].judgements["regions"]
    assert found.verdict == "holds"
    assert "retrained" in found.sentence


def test_rivals_of_sided_are_variants_and_not_its_ablations(tmp_path: Path) -> None:
    others: dict[str, Levels] = {
        "sided-without-mirror": {"selects": 1.0, "about": {"group": "ours"}},
        "own-mine": {"selects": 1.0, "about": {"group": "ours"}},
        "oracle": {"selects": 1.0, "about": {"group": "reference"}},
    }
    models: dict[str, Levels] = {"sided": {"selects": 0.8}, "retrained": {"selects": 0.8}}
    one = judged(make(tmp_path / "a", {**models, **others}))["sided-selection"]
    assert one.judgements["regions"].verdict == "holds"
    assert "minus +retrained, the best other" in one.judgements["regions"].sentence
    assert "not of anybody's own models nor of its own ablations" in one.claim.text
    better: dict[str, Levels] = {**models, "thirty-shot-exact": {"selects": 1.0, "about": {"group": "ours"}}}
    assert judged(make(tmp_path / "b", better))["sided-selection"].judgements["regions"].verdict == "does not hold"


def test_a_variant_that_is_not_comparable_is_no_rival_of_any_claim(tmp_path: Path) -> None:
    models: dict[str, Levels] = {
        "thirty-shot": {"level": 0.7},
        "retrained": {"level": 0.6},
        "word-masking": {"level": 0.9, "about": {"comparable": False}},
    }
    found = judged(make(tmp_path, models))
    assert found["thirty-shot-best"].judgements["regions"].verdict == "holds"
    assert "word-masking *" not in found["trimmed-drops"].judgements["regions"].sentence


@pytest.mark.parametrize(("level", "verdict"), [(0.6, "does not hold"), (0.5, "holds"), (0.68, "holds")])
def test_swapped_conditions_that_move_rand_sents(tmp_path: Path, level: float, verdict: str) -> None:
    measured = make(tmp_path, {"rand-sents": {"level": 0.6, "synthetic-swapped": level}})
    judgement = judged(measured)["swapped-rand-sents"].judgements["regions"]
    assert judgement.verdict == verdict
    results = measured.results
    inside = [row["abnormal"] for row in ROWS]
    difference = results.score("rand-sents", "auroc", condition="synthetic-swapped")
    difference = difference - results.score("rand-sents", "auroc", condition="synthetic")
    assert judgement.evidence[0].found["estimate"] == pytest.approx(np.mean(difference[inside]))


def test_uniter_must_lose_more_to_random_boxes_than_everybody(tmp_path: Path) -> None:
    def verdict(name: str, uniter: float) -> str:
        losses = {"uniter": uniter, "thirty-shot": 0.2, "retrained": 0.1}
        models = {slug: {"level": 0.8, "regions-random": 0.8 - loss} for slug, loss in losses.items()}
        return judged(make(tmp_path / name, models))["uniter-random-boxes"].judgements["regions"].verdict

    assert verdict("most", 0.3) == "holds"
    assert verdict("less than one", 0.15) == "does not hold"


def correlated(kind: str, sign: float) -> Callable[[str, int], dict[str, Any]]:
    """Entropies that go with a similarity, or against it."""

    def answer(condition: str, instance: int) -> dict[str, Any]:
        return {"entropy": 5.0 + DRAWN[instance], f"similarity_{kind}": sign * DRAWN[instance] + WOBBLE[instance, 0]}

    return answer


@pytest.mark.parametrize(
    ("claim", "kind", "claimed"), [("entropy-global", "global", 1.0), ("entropy-local", "local", -1.0)]
)
def test_entropy_and_similarity_in_most_variants(tmp_path: Path, claim: str, kind: str, claimed: float) -> None:
    slugs = ("retrained", "no-attn", "abnormal")

    def verdict(name: str, signs: tuple[float, ...]) -> Judgement:
        models = {slug: {"answer": correlated(kind, sign)} for slug, sign in zip(slugs, signs, strict=True)}
        return judged(make(tmp_path / name, models))[claim].judgements["regions"]

    most = verdict("most", (claimed, claimed, -claimed))
    assert most.verdict == "holds"
    assert "more than half" in most.remark
    assert verdict("few", (claimed, -claimed, -claimed)).verdict == "does not hold"
    by_hand = np.corrcoef(DRAWN, claimed * DRAWN + WOBBLE[:, 0])[0, 1]
    first = next(one for one in most.evidence if one.label == "+retrained")
    assert first.found["estimate"] == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.parametrize(("near", "verdict"), [("auroc", "holds"), ("average_precision", "does not hold")])
def test_what_iou_is_nearer_to(tmp_path: Path, near: str, verdict: str) -> None:
    def level(condition: str, target: str, measure: str, instance: int) -> float:
        if measure in ("iou@10", near):
            return float(0.3 + 0.4 * DRAWN[instance] + wobble(measure, condition, instance))
        return float(0.5 + 5 * WOBBLE[instance, 7])

    write_instances(tmp_path, ROWS)
    write_model(tmp_path, "retrained", score_rows(ROWS, level), answer_rows(ROWS, lambda *_: {}))
    results = read_results(tmp_path)
    measured = Measured(results, Estimator(results.instances.clusters, Sureness(resamples=300)))
    judgement = judged(measured)["iou-auroc"].judgements["regions"]
    assert judgement.verdict == verdict
    iou, auroc, precision = (results.score("retrained", name) for name in ("iou@10", "auroc", "average_precision"))
    by_hand = np.corrcoef(iou, auroc)[0, 1] - np.corrcoef(iou, precision)[0, 1]
    assert judgement.evidence[0].found["estimate"] == pytest.approx(by_hand)


def _threshold(
    slug: str, given: Mapping[str, float], condition: str, target: str, measure: str, instance: int
) -> float:
    return given.get(measure, 0.3) + wobble(slug, condition, instance)


def write_thresholds(folder: Path, levels: Mapping[str, Mapping[str, float]]) -> dict[str, Judged]:
    """Models with levels by measure."""
    write_instances(folder, ROWS)
    for order, (slug, given) in enumerate(levels.items()):
        scores = score_rows(ROWS, partial(_threshold, slug, given))
        write_model(folder, slug, scores, answer_rows(ROWS, lambda *_: {}), order=order)
    results = read_results(folder)
    return judged(Measured(results, Estimator(results.instances.clusters, Sureness(resamples=300))))


def test_who_is_best_at_the_top_shares(tmp_path: Path) -> None:
    strict = dict.fromkeys(("precision@5", "precision@10", "iou@5", "iou@10"), 0.7)
    found = write_thresholds(
        tmp_path / "a",
        {
            "thirty-shot": {**strict, "precision@30": 0.4, "iou@30": 0.4},
            "word-masking": {**strict, "iou@5": 0.5, "precision@5": 0.5, "precision@10": 0.5, "iou@10": 0.5},
            "retrained": {"precision@30": 0.5, "iou@30": 0.45},
        },
    )
    assert found["strict-thirty-shot"].judgements["regions"].verdict == "holds"
    assert len(found["strict-thirty-shot"].judgements["regions"].evidence) == 4 * 2
    assert found["strict-word-masking"].judgements["regions"].verdict == "does not hold"
    assert found["lenient-gloria"].judgements["regions"].verdict == "holds"
    found = write_thresholds(
        tmp_path / "b",
        {"thirty-shot": {"iou@5": 0.1, "iou@30": 0.5}, "retrained": {"iou@5": 0.3, "precision@30": 0.9}},
    )
    assert found["strict-thirty-shot"].judgements["regions"].verdict == "does not hold"
    assert found["lenient-gloria"].judgements["regions"].verdict == "does not hold"
    assert "+30-shot Finetuned 69.35 (Table 11)" in found["strict-thirty-shot"].claim.paper


def test_what_only_a_radiologist_can_say_is_listed_and_not_judged(tmp_path: Path) -> None:
    found = judged(make(tmp_path, {"retrained": {}, "no-attn": {}}))
    listed = [one for one in found.values() if one.claim.name.startswith("judged-")]
    assert [one.claim.where.split(",")[0] for one in listed] == ["section 4.2.2"] * 2 + ["section 4.2.5"]
    for one in listed:
        judgement = one.judgements["regions"]
        assert (judgement.verdict, judgement.evidence) == ("cannot be told", ())
        assert "needs a radiologist's judgements" in judgement.remark


def test_of_many_comparisons_those_that_decide_are_told() -> None:
    parts = [Evidence(f"part {place}", {"estimate": 0.1, "low": 0.0, "high": 0.2}, "holds") for place in range(13)]
    parts[12] = Evidence("the one", {"estimate": -0.1, "low": -0.2, "high": -0.05}, "does not hold")
    judgement = together(parts)
    assert judgement.told[0].startswith("the one: −10.0 points")
    assert judgement.told[-1] == "and 3 more comparisons, in results.json"
    assert together(parts[:3]).told == [one.said for one in parts[:3]]


def test_usually_is_more_than_half() -> None:
    def verdict(*given: Any) -> str:
        found = {"estimate": 0.1, "low": 0.0, "high": 0.2}
        return mostly([Evidence("part", found, one) for one in given]).verdict

    yes, no, neither, unknown = "holds", "does not hold", "no difference shown", "cannot be told"
    assert verdict(yes, yes, no) == yes
    assert verdict(yes, no) == neither
    assert verdict(no, no, neither) == no
    assert verdict(unknown, unknown, yes) == unknown
    assert verdict(yes, neither, neither) == neither
    assert verdict() == unknown


def test_sides_and_margins() -> None:
    def interval(low: float, high: float) -> dict[str, Any]:
        return {"estimate": (low + high) / 2, "low": low, "high": high}

    assert side(interval(0.1, 0.3), above=0.0) == "holds"
    assert side(interval(-0.1, 0.3), above=0.0) == "no difference shown"
    assert side(interval(-0.5, -0.3), below=-0.4) == "no difference shown"
    assert side(interval(-0.6, -0.5), below=-0.4) == "holds"
    assert side(interval(math.nan, math.nan), above=0.0) == "cannot be told"
    assert small(interval(-0.01, 0.015)) == "holds"
    assert small(interval(0.01, 0.03)) == "cannot be told"
    assert small(interval(0.03, 0.05)) == "does not hold"


def test_a_claim_of_parts_is_as_weak_as_its_weakest() -> None:
    def part(verdict: Any) -> Evidence:
        return Evidence("part", {"estimate": 0.1, "low": 0.0, "high": 0.2}, verdict)

    assert together([]) == Judgement("cannot be told")
    assert together([part("holds"), part("no difference shown")]).verdict == "no difference shown"
    assert together([part("no difference shown"), part("does not hold")]).verdict == "does not hold"
    assert together([part("holds"), part("cannot be told")]).verdict == "cannot be told"


def test_a_verdict_survives_where_what_decides_it_does() -> None:
    def part(verdict: Any, p: float) -> Evidence:
        return Evidence("part", {"estimate": 0.1, "low": 0.0, "high": 0.2, "p_holm": p}, verdict)

    both = (part("does not hold", 0.01), part("does not hold", 0.3), part("holds", 0.9))
    assert after_holm(Judgement("does not hold", both)) is True
    assert after_holm(Judgement("holds", (part("holds", 0.01), part("holds", 0.3)))) is False
    assert after_holm(Judgement("no difference shown", both)) is None
    untested = Evidence("part", {"estimate": 0.1, "low": 0.0, "high": 0.2}, "holds")
    assert after_holm(Judgement("holds", (untested,))) is None


def test_a_claim_about_all_models_names_those_that_are_not_there(tmp_path: Path) -> None:
    found = judged(make(tmp_path, {"retrained": {"regions": 0.6, "trimmed": 0.5}}))["trimmed-drops"]
    judgement = found.judgements["regions"]
    assert judgement.verdict == "holds"
    assert judgement.remark.startswith("Not measured: thirty-shot, word-masking")

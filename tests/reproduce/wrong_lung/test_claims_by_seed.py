from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rightlung.reproduce.wrong_lung.claims import Judged, claims
from rightlung.reproduce.wrong_lung.judging import Judgement
from rightlung.reproduce.wrong_lung.labels import held_by_labels
from rightlung.reproduce.wrong_lung.report import sureness_words
from tests.reproduce.wrong_lung.claiming import Levels, judged, make


def test_means_over_seeds_are_judged_and_each_seed_too(tmp_path: Path) -> None:
    models: dict[str, Levels] = {
        "no-attn": {"level": 0.65},
        "no-attn-seed2": {"level": 0.5, "about": {"variant": "no-attn", "seed": 2}},
        "no-attn-seed3": {"level": 0.75, "about": {"variant": "no-attn", "seed": 3}},
        "retrained": {"level": 0.6},
    }
    one = judged(make(tmp_path / "turning", models))["no-attn-better"]
    assert one.judgements["regions"].verdict == "holds"
    assert one.each_seed["regions"] == ("holds", "does not hold", "holds")
    mean = one.judgements["regions"].evidence[0].found["estimate"]
    assert mean == pytest.approx((0.65 + 0.5 + 0.75) / 3 - 0.6, abs=0.01)
    assert (one.verdict("regions"), one.after_holm("regions")) == ("turns on the seed", None)
    written = one.as_json()["judgements"]["regions"]
    assert (written["verdict"], written["verdict_of_means"]) == ("turns on the seed", "holds")
    assert sureness_words(one, "regions") == "Seed by seed: holds, does not hold, holds; their means: holds."
    models |= {"no-attn-seed2": {**models["no-attn-seed2"], "level": 0.7}}
    one = judged(make(tmp_path / "agreeing", models))["no-attn-better"]
    assert (one.verdict("regions"), one.after_holm("regions")) == ("holds", True)
    assert sureness_words(one, "regions").endswith("Each of the 3 seeds by itself says so.")


def test_only_seeds_are_counted_that_all_variants_of_a_claim_have(tmp_path: Path) -> None:
    models: dict[str, Levels] = {
        "no-attn": {"level": 0.65},
        "no-attn-seed3": {"level": 0.5, "about": {"variant": "no-attn", "seed": 3}},
        "retrained": {"level": 0.6},
        "retrained-seed2": {"level": 0.6, "about": {"variant": "retrained", "seed": 2}},
        "retrained-seed3": {"level": 0.45, "about": {"variant": "retrained", "seed": 3}},
        "rand-sents": {"level": 0.4},
    }
    found = judged(make(tmp_path / "two", models))
    assert found["no-attn-better"].each_seed["regions"] == ("holds", "holds")  # by number, and seed 2 is not of both
    assert len(found["rand-sents-worst"].each_seed["regions"]) == 3  # what has one seed stands beside each
    assert found["judged-no-attn"].each_seed["regions"] == ()  # which needs no model at all
    del models["retrained-seed3"]
    one = judged(make(tmp_path / "one", models))["no-attn-better"]
    assert (one.each_seed["regions"], sureness_words(one, "regions")[:8]) == ((), "Also aft")  # one in common is none


@pytest.mark.parametrize(
    ("means", "seeds", "verdict"),
    [
        ("no difference shown", ("does not hold", "does not hold"), "does not hold"),
        ("does not hold", ("holds", "holds"), "holds"),
        ("holds", ("no difference shown", "no difference shown"), "holds"),
        ("holds", ("holds", "no difference shown"), "holds"),
        ("no difference shown", ("holds", "cannot be told", "does not hold"), "turns on the seed"),
        ("cannot be told", (), "cannot be told"),
    ],
)
def test_what_all_seeds_agree_on_counts_before_their_means(means: Any, seeds: tuple[Any, ...], verdict: str) -> None:
    one = Judged(claims()[0], {"regions": Judgement(means)}, {"regions": seeds})
    assert one.verdict("regions") == verdict
    assert one.with_each_seed("regions") == (set(seeds) == {verdict})
    assert ("their means" in sureness_words(one, "regions")) == (means != verdict)


def test_claims_that_cannot_be_told_are_not_told_seed_by_seed() -> None:
    one = Judged(claims()[0], {"regions": Judgement("cannot be told")}, {"regions": ("cannot be told",) * 3})
    assert sureness_words(one, "regions") == ""


def test_labels_are_compared_over_the_same_claims() -> None:
    def one(place: int, **verdicts: Any) -> Judged:
        return Judged(claims()[place], {target: Judgement(verdict) for target, verdict in verdicts.items()}, {})

    listed = [
        one(0, regions="holds", exact="does not hold"),
        one(1, regions="holds", exact="holds"),
        one(2, regions="holds"),
        one(-1, regions="holds", exact="holds"),  # our aim
    ]
    said = (
        "Of the paper's 2 claims that are judged against both, 2 hold against region boxes and 1 against exact masks."
    )
    assert held_by_labels(listed) == said
    assert held_by_labels(listed[2:3]) == ""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from rightlung.audit import Audit, Protocol, Sureness, audit
from rightlung.audit.protocol import PhraseSetHash
from rightlung.audit.summary import sentences, span, verdict
from rightlung.core import Heatmap, Phrase, Study
from rightlung.scoring.statistics import bootstrap, paired_difference
from tests.audit.cards import Cards, write_answers

SURE = Sureness(resamples=500, level=0.9, seed=3)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """A grounder that points near the truth, more or less, and abstains at random."""
    folder, rng = tmp_path_factory.mktemp("noisy"), np.random.default_rng(5)
    source = Cards(30)

    def answer(study: Study, phrase: Phrase, text: str) -> Heatmap:
        mask = phrase.mask
        spread = rng.random((64, 64)) * 1.2
        return Heatmap(spread if mask is None else mask.pixels + spread, abstention=float(rng.random()))

    return audit(write_answers(source, folder / "p", answer), source, folder / "out", sureness=SURE, cases=0)


@pytest.fixture(scope="module")
def rows(noisy: Audit) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(noisy.instances).to_pylist()
    return sorted(found, key=lambda row: (row["study"], row["query"], row["condition"]))


def test_the_overall_numbers_are_those_of_the_rows(noisy: Audit, rows: list[dict[str, Any]]) -> None:
    used = [row for row in rows if row["condition"] == "none" and row["target_kind"]]
    values, prior = ([row[name] for row in used] for name in ("pointing", "prior_pointing"))
    patients = [row["patient"] for row in used]
    found = noisy.result["overall"]["pointing"]
    expected = bootstrap(values, clusters=patients, resamples=500, level=0.9, seed=3)
    assert (found["model"]["estimate"], found["model"]["low"], found["model"]["high"]) == pytest.approx(
        (np.mean(values), expected.low, expected.high)
    )
    difference = paired_difference(values, prior, clusters=patients, resamples=500, level=0.9, seed=3)
    assert found["difference"]["p"] == difference.p
    assert found["difference"]["estimate"] == pytest.approx(np.mean(values) - np.mean(prior))
    assert found["model"]["patients"] == len(set(patients)) == 20


def test_groups_hold_the_rows_they_name(noisy: Audit, rows: list[dict[str, Any]]) -> None:
    plain = [row for row in rows if row["condition"] == "none" and row["target_kind"]]
    groups = {name: {one["name"]: one for one in found} for name, found in noisy.result["groups"].items()}
    assert set(groups["finding"]) == {"lung opacity", "cardiomegaly"}
    for size in groups["size"]:
        values = [row["auroc"] for row in plain if row["target_size"] == size]
        assert groups["size"][size]["metrics"]["auroc"]["model"]["estimate"] == pytest.approx(np.mean(values))
        assert groups["size"][size]["phrases"] == len(values)
    left = [row["average_precision"] for row in plain if "left upper lung zone" in row["regions"]]
    found = groups["region"]["left upper lung zone"]["metrics"]["average_precision"]["model"]
    assert found["estimate"] == pytest.approx(np.mean(left))
    assert {name: one["phrases"] for name, one in groups["polarity"].items()} == {"positive": 90, "negative": 30}


def test_small_groups_are_marked_and_many_tests_adjusted(tmp_path: Path, noisy: Audit) -> None:
    source = Cards(4)
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(3)), conditions=("none",))
    few = audit(folder, source, tmp_path / "out", sureness=SURE, cases=0).result["groups"]["finding"]
    assert all(group["few"] for group in few)
    for group in noisy.result["groups"]["finding"]:
        difference = group["metrics"]["average_precision"]["difference"]
        assert not group["few"]
        assert difference["p_adjusted"] >= difference["p"]


def test_conditions_compare_the_same_questions(noisy: Audit, rows: list[dict[str, Any]]) -> None:
    plain = {(row["study"], row["query"]): row for row in rows if row["condition"] == "none"}
    changed = [row for row in rows if row["condition"] == "swap-sides"]
    expected = np.mean([row["auroc"] - plain[row["study"], row["query"]]["auroc"] for row in changed])
    found = noisy.result["conditions"]["swap-sides"]
    assert found["change"]["auroc"]["estimate"] == pytest.approx(expected)
    assert found["questions"] == len(changed) == 30


def test_abstention_as_a_sign_of_absence_is_scikit_learns_auroc(noisy: Audit, rows: list[dict[str, Any]]) -> None:
    plain = [row for row in rows if row["condition"] == "none"]
    expected = roc_auc_score([row["polarity"] == "negative" for row in plain], [row["abstention"] for row in plain])
    assert noisy.result["abstention"]["auroc"]["estimate"] == pytest.approx(expected)


def test_sentences_say_no_difference_where_none_is_shown(noisy: Audit) -> None:
    exchanged = noisy.result["conditions"]["exchange-image"]["change"]["average_precision"]
    assert not exchanged["shown"]  # this grounder was told the truth whatever the image
    assert any("another patient's image, its maps score the same" in said for said in sentences(noisy.result))
    assert verdict(exchanged) == "no difference shown"
    assert span({"estimate": -0.5, "low": float("nan"), "high": float("nan")}) == "−0.50 (no interval)"


def test_the_hash_knows_phrases_and_settings_but_not_where_files_lie(tmp_path: Path, noisy: Audit) -> None:
    source = Cards(30, address="cards elsewhere")
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(3)))
    elsewhere = audit(folder, source, tmp_path / "out", sureness=SURE, cases=0).result
    assert elsewhere["protocol"]["hash"] == noisy.result["protocol"]["hash"]
    other = Cards(30, seed=1)
    folder = write_answers(other, tmp_path / "q", lambda *_: Heatmap(np.eye(3)))
    assert (
        audit(folder, other, tmp_path / "o", sureness=SURE, cases=0).result["protocol"]["hash"]
        != (noisy.result["protocol"]["hash"])
    )
    assert Protocol("a", "x", ()).hash == Protocol("b", "x", ()).hash
    assert Protocol("a", "x", ()).hash != Protocol("a", "x", (), seed=1).hash
    assert len(Protocol("a", "x", ()).hash) == 10


def test_the_phrase_sets_hash_depends_on_every_part_and_on_no_order() -> None:
    def digest(*phrases: tuple[str, str, str, bytes]) -> str:
        found = PhraseSetHash()
        for phrase in phrases:
            found.add(*phrase)
        return found.digest

    one, other = ("a", "phrase:0", "x", b"1"), ("b", "phrase:0", "y", b"2")
    assert digest(one, other) == digest(other, one)
    changed = [("c", *one[1:]), (one[0], "phrase:1", *one[2:]), (*one[:2], "z", b"1"), (*one[:3], b"3")]
    assert len({digest(one, other), *(digest(each, other) for each in changed)}) == 5

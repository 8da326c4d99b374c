from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from rightlung.audit import Audit, Sureness, audit
from rightlung.audit.aggregate import HEADLINE, _adjust
from rightlung.audit.summary import percent, sentences, span, verdict
from rightlung.core import Heatmap, Phrase, Polarity, Study
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
    for group in few:
        for metric in group["metrics"].values():
            assert metric["difference"] is None or not metric["difference"]["shown"]
    for group in noisy.result["groups"]["finding"]:
        difference = group["metrics"]["average_precision"]["difference"]
        assert not group["few"]
        assert difference["p_adjusted"] >= difference["p"]


def test_groups_of_few_patients_do_not_weaken_the_tests_of_the_others() -> None:
    def group(few: bool, p: float) -> dict[str, Any]:
        metrics = {name: {"difference": {"p": p, "shown": True}} for name in HEADLINE}
        return {"few": few, "metrics": metrics}

    groups = [group(False, 0.02), group(False, 0.04), *(group(True, 0.001) for _ in range(30))]
    _adjust(groups, 0.95)
    first, second, *others = (one["metrics"][HEADLINE[0]]["difference"] for one in groups)
    assert first["p_adjusted"] == pytest.approx(0.04)  # twice, of two
    assert first["shown"]
    assert second["shown"]
    assert not any(other["shown"] for other in others)


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
    said = sentences(noisy.result)
    assert any("another patient's image, no difference in average precision is shown" in one for one in said)
    assert not any("score the same" in one for one in said)  # which is more than a test that shows nothing can tell
    assert verdict(exchanged) == "no difference shown"
    assert span({"estimate": -0.5, "low": float("nan"), "high": float("nan")}) == "−0.50 (no interval)"


def test_an_undefined_share_is_a_dash() -> None:
    nothing = {"estimate": float("nan"), "low": float("nan"), "high": float("nan")}
    assert percent(nothing) == "–"
    assert percent({"estimate": None, "low": None, "high": None}) == "–"  # as read back from audit.json
    assert percent({"estimate": 0.5, "low": float("nan"), "high": float("nan")}) == "50 %"


def test_uncertain_phrases_count_as_asserted_in_the_auroc_of_abstention(tmp_path: Path) -> None:
    class Unsure(Cards):
        def _build(self, position: int) -> Study:
            study = super()._build(position)
            heart = replace(study.phrases[2], findings={"cardiomegaly": Polarity.UNCERTAIN})
            return replace(study, phrases=(*study.phrases[:2], heart, study.phrases[3]))

    def answer(study: Study, phrase: Phrase, text: str) -> Heatmap:
        """Abstain most where the heart is unsure: only by counting those is the AUROC not one."""
        return Heatmap(np.eye(4), abstention={"T": 0.9, "N": 0.5}.get(text[0], 0.1))

    source = Unsure(8)
    folder = write_answers(source, tmp_path / "p", answer, conditions=("none",))
    found = audit(folder, source, tmp_path / "out", sureness=SURE, cases=0).result["abstention"]
    truth, values = [0, 0, 0, 1] * 8, [0.1, 0.1, 0.9, 0.5] * 8
    assert found["auroc"]["estimate"] == pytest.approx(roc_auc_score(truth, values))
    assert found["asserted"]["estimate"] == pytest.approx(1.1 / 3)

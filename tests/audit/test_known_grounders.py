from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.audit import audit
from rightlung.core import Heatmap, Phrase, Study
from rightlung.core.files import plain
from rightlung.models.blind import PriorRow, fit_prior
from tests.audit.cards import (
    QUICK, Answer, Cards, audited, image_blind_map, mirrored_map, text_blind_map, true_map, write_answers,
)  # fmt: skip


def found_of(folder: Path, answer: Answer, **options: Any) -> dict[str, Any]:
    return audited(folder, Cards(40), answer, **options).result


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found_of(tmp_path_factory.mktemp("oracle"), true_map)


def test_an_oracle_scores_one_and_beats_the_prior(oracle: dict[str, Any]) -> None:
    for metric in ("auroc", "average_precision", "pointing", "mass_inside"):
        assert oracle["overall"][metric]["model"]["estimate"] == pytest.approx(1.0)
        difference = oracle["overall"][metric]["difference"]
        assert difference["shown"]
        assert difference["low"] > 0
    assert oracle["overall"]["auroc"]["model"]["phrases"] == 120  # three of four phrases have a target
    assert "beats the image-blind prior" in oracle["summary"][0]


def test_an_oracle_knows_the_side_with_and_without_a_word_for_it(oracle: dict[str, Any]) -> None:
    sides = oracle["sides"]
    assert sides["named"]["model"]["estimate"] == 1.0
    assert sides["from_image"]["model"]["estimate"] == 1.0
    assert sides["named"]["prior"]["estimate"] == 1.0  # the words say it
    assert sides["from_image"]["prior"]["estimate"] == pytest.approx(0.5, abs=0.25)  # they do not


def test_an_oracle_follows_swapped_words_and_falls_with_another_image(oracle: dict[str, Any]) -> None:
    swapped, exchanged = (oracle["conditions"][name] for name in ("swap-sides", "exchange-image"))
    assert swapped["questions"] == 40
    assert swapped["follows_words"]["estimate"] == 1.0
    assert swapped["change"]["average_precision"]["high"] < -0.5
    assert exchanged["questions"] == 160
    assert exchanged["change"]["average_precision"]["shown"]
    assert exchanged["change"]["average_precision"]["estimate"] < 0


def test_an_oracle_abstains_where_there_is_nothing(oracle: dict[str, Any]) -> None:
    assert oracle["abstention"]["auroc"]["estimate"] == 1.0
    polarity = {group["name"]: group for group in oracle["groups"]["polarity"]}
    assert polarity["negative"]["abstention"]["estimate"] == 1.0
    assert polarity["negative"]["metrics"] == {}
    assert polarity["positive"]["abstention"]["estimate"] == 0.0


def test_a_mirrored_oracle_is_never_on_the_findings_side(tmp_path: Path) -> None:
    result = found_of(tmp_path, mirrored_map)
    assert result["sides"]["named"]["model"]["estimate"] == 0.0
    assert result["sides"]["from_image"]["model"]["estimate"] == 0.0
    assert "falls behind" in result["summary"][0]


def test_the_prior_as_a_model_shows_no_difference_from_the_prior(tmp_path: Path) -> None:
    source = Cards(40)
    rows = [
        PriorRow(str(study.patient), phrase.text, phrase.findings, phrase.mask)
        for study in source
        for phrase in study.phrases
        if phrase.mask is not None
    ]
    prior = fit_prior(rows)
    patient_of = {study.id: study.patient for study in source}

    def answer(study: Study, phrase: Phrase, text: str) -> Heatmap:
        return prior.map_of(text, phrase.findings, patient_of[study.id])

    result = audited(tmp_path, source, answer, ("none",)).result
    for value in result["overall"].values():
        assert value["difference"]["estimate"] == pytest.approx(0.0, abs=1e-12)
        assert not value["difference"]["shown"]
    assert result["summary"][0].startswith("No difference from the image-blind prior is shown")


def test_a_text_blind_grounder_loses_nothing_when_sides_are_swapped(tmp_path: Path) -> None:
    result = found_of(tmp_path, text_blind_map)
    for metric, change in result["conditions"]["swap-sides"]["change"].items():
        assert change["estimate"] == 0.0, metric
        assert not change["shown"]
    assert result["conditions"]["exchange-image"]["change"]["average_precision"]["shown"]
    moved = result["conditions"]["swap-sides"]["moved"]
    assert moved["moved_mass"]["estimate"] == moved["moved_peak"]["estimate"] == 0.0
    assert "Swapping left and right in the words leaves all 40 maps as they were." in result["summary"]
    assert result["conditions"]["exchange-image"]["moved"]["moved_mass"]["low"] > 0


def test_an_image_blind_grounder_loses_nothing_when_the_image_is_exchanged(tmp_path: Path) -> None:
    result = found_of(tmp_path, image_blind_map)
    for metric, change in result["conditions"]["exchange-image"]["change"].items():
        assert change["estimate"] == 0.0, metric
        assert not change["shown"]
    assert result["conditions"]["swap-sides"]["change"]["auroc"]["shown"]
    assert "The model never abstains." in result["summary"]


def test_a_prior_of_another_source_is_named_and_changes_the_protocol(tmp_path: Path, oracle: dict[str, Any]) -> None:
    result = found_of(tmp_path, true_map, prior_source=Cards(30, seed=9, address="other cards"))
    assert result["protocol"]["prior_source"] == "other cards"
    assert result["protocol"]["hash"] != oracle["protocol"]["hash"]
    assert result["overall"]["auroc"]["prior"]["estimate"] > 0.6


def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    source = Cards(12)
    folder = write_answers(source, tmp_path / "predictions", true_map)
    tables = [pq.read_table(part) for part in sorted(folder.glob("*.parquet"))]
    assert len(tables) == 1
    shuffled = tables[0].take(np.random.default_rng(0).permutation(len(tables[0])))
    (tmp_path / "shuffled").mkdir()
    for number, start in enumerate(range(0, len(shuffled), 17)):
        pq.write_table(shuffled.slice(start, 17), tmp_path / "shuffled" / f"part-{number}.parquet")
    results = [
        audit(where, source, tmp_path / f"out-{number}", settings=QUICK, cases=0).result
        for number, where in enumerate((folder, tmp_path / "shuffled"))
    ]
    for name in ("overall", "sides", "groups", "conditions", "abstention", "protocol"):
        assert plain(results[0][name]) == plain(results[1][name])

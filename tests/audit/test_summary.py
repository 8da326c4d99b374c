from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rightlung.audit import Audit
from rightlung.audit.summary import sentences
from rightlung.core import Heatmap, Phrase, Study
from rightlung.pages.numbers import verdict
from tests.audit.cards import Cards, audited, true_map


def corner_map(study: Study, phrase: Phrase, text: str) -> Heatmap:
    """Follow the word for the side, and point at the top corner there: always wrong, so no score can change."""
    values = np.zeros((8, 8), dtype=np.float32)
    values[0, 7 if "left" in text else 0] = 1.0
    return Heatmap(values)


@pytest.fixture(scope="module")
def corners(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return audited(tmp_path_factory.mktemp("corners"), Cards(30), corner_map)


def test_a_map_that_changes_without_scoring_otherwise_is_said_to_change(corners: Audit) -> None:
    swapped = corners.found.conditions["swap-sides"]
    assert not swapped.change["average_precision"].shown
    assert swapped.follows_words is not None
    assert swapped.follows_words.value == 1.0
    assert swapped.moved["moved_mass"].value == pytest.approx(1.0)
    assert swapped.moved["moved_peak"].value == pytest.approx(7 / 8)  # between the middles of the corner cells
    said = " ".join(corners.result["summary"])
    assert "Swapping left and right in the words changes 100 % (100 to 100 %) of the maps' mass" in said
    assert "no difference in average precision is shown" in said
    page = corners.page.read_text(encoding="utf-8")
    assert "map change" in page
    assert "peak displacement" in page


def test_changes_of_phrases_without_a_target_count_too(corners: Audit) -> None:
    assert corners.found.conditions["exchange-image"].moved["moved_mass"].n == 120


def test_sentences_say_no_difference_where_none_is_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)

    def told_the_truth(study: Study, phrase: Phrase, text: str) -> Heatmap:
        spread = rng.random((64, 64)) * 1.2
        return Heatmap(spread if phrase.mask is None else phrase.mask.pixels + spread)

    found = audited(tmp_path, Cards(30), told_the_truth).found
    change = found.conditions["exchange-image"].change["average_precision"]
    assert verdict(change) == "no difference shown"
    said = sentences(found)
    assert any("another patient's image, no difference in average precision is shown" in one for one in said)
    shown = replace(change, value=-0.5, low=-0.6, high=-0.4, p=0.001, shown=True)
    changed = replace(found.conditions["exchange-image"], change={"average_precision": shown})
    said = sentences(replace(found, conditions={"exchange-image": changed}))
    assert any("another patient's image, average precision changes by −0.50 (−0.60 to −0.40)" in one for one in said)


def test_a_model_that_notices_a_wrong_side_is_said_to_abstain_more(tmp_path: Path) -> None:
    def doubting(study: Study, phrase: Phrase, text: str) -> Heatmap:
        return Heatmap(true_map(study, phrase, phrase.text).values, abstention=0.2 if text == phrase.text else 0.9)

    said = " ".join(audited(tmp_path, Cards(20), doubting).result["summary"])
    assert "Its abstention changes by +0.70 (0.70 to 0.70)." in said
    assert said.count("Its abstention") == 2
    assert "Its abstention shows no difference." in said  # with another image it asks in the same words


def test_nothing_is_said_of_the_abstention_of_a_model_that_never_abstains(tmp_path: Path) -> None:
    said = audited(tmp_path, Cards(20), lambda *asked: Heatmap(true_map(*asked).values)).result["summary"]
    assert "Its abstention" not in " ".join(said)

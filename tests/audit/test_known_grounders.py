from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.audit import audit
from rightlung.core import Heatmap, Phrase, Study
from rightlung.core.files import plain
from tests.audit.cards import QUICK, Answer, Cards, audited, fitted_prior, image_blind_map, text_blind_map, true_map


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return audited(tmp_path_factory.mktemp("oracle"), Cards(40), true_map).result


def test_an_oracle_scores_one_and_beats_the_prior(oracle: dict[str, Any]) -> None:
    for metric in ("auroc", "average_precision", "pointing", "mass_inside"):
        assert oracle["overall"][metric]["model"]["estimate"] == pytest.approx(1.0)
        assert oracle["overall"][metric]["difference"]["shown"]
        assert oracle["overall"][metric]["difference"]["low"] > 0
    assert oracle["overall"]["auroc"]["model"]["phrases"] == 120  # three of four phrases have a target
    assert [one["mark"] for one in oracle["verdict"]] == ["yes"] * 4
    assert oracle["summary"][3].startswith("The model beats the image-blind prior. Average precision: model 1.00")
    named, from_image = (oracle["sides"][name] for name in ("named", "from_image"))
    assert named["model"]["estimate"] == from_image["model"]["estimate"] == 1.0
    assert named["prior"]["estimate"] == 1.0  # the words say it
    assert from_image["prior"]["estimate"] == pytest.approx(0.5, abs=0.25)  # they do not


def test_an_oracle_follows_swapped_words_and_abstains_where_there_is_nothing(oracle: dict[str, Any]) -> None:
    swapped, exchanged = (oracle["conditions"][name] for name in ("swap-sides", "exchange-image"))
    assert (swapped["questions"], exchanged["questions"]) == (40, 160)
    assert swapped["follows_words"]["estimate"] == 1.0
    assert swapped["change"]["average_precision"]["high"] < -0.5
    assert exchanged["change"]["average_precision"]["shown"]
    assert exchanged["change"]["average_precision"]["estimate"] < 0
    assert oracle["abstention"]["auroc"]["estimate"] == 1.0
    polarity = {group["name"]: group for group in oracle["groups"]["polarity"]}
    assert {name: group["abstention"]["estimate"] for name, group in polarity.items()} == {"positive": 0, "negative": 1}
    assert polarity["negative"]["metrics"] == {}


def test_a_mirrored_oracle_is_never_on_the_findings_side(tmp_path: Path) -> None:
    result = audited(tmp_path, Cards(40), lambda *asked: true_map(*asked).mirrored()).result
    assert [result["sides"][name]["model"]["estimate"] for name in ("named", "from_image")] == [0.0, 0.0]
    assert "left and right are exchanged" in result["warnings"][0]
    assert "is worse than the image-blind prior" in result["summary"][4]


def test_the_prior_as_a_model_shows_no_difference_from_the_prior(tmp_path: Path) -> None:
    prior = fitted_prior(Cards(40))

    def answer(study: Study, phrase: Phrase, text: str) -> Heatmap:
        return prior.map_of(text, phrase.findings, study.patient)

    result = audited(tmp_path, Cards(40), answer, ("none",)).result
    for value in result["overall"].values():
        assert value["difference"]["estimate"] == pytest.approx(0.0, abs=1e-12)
        assert not value["difference"]["shown"]
    assert [one["mark"] for one in result["verdict"]] == ["not tested"] * 3 + ["unclear"]
    assert result["summary"][3].startswith("The model shows no difference from the image-blind prior")
    assert "0.00 (0.00 to 0.00; 27 patients): no difference shown." in result["summary"][3]


@pytest.mark.parametrize(
    ("answer", "blind_to", "sees"),
    [(text_blind_map, "swap-sides", "exchange-image"), (image_blind_map, "exchange-image", "swap-sides")],
)
def test_a_blind_grounder_loses_nothing_by_what_it_cannot_see(
    tmp_path: Path, answer: Answer, blind_to: str, sees: str
) -> None:
    result = audited(tmp_path, Cards(40), answer).result
    unseen, seen = (result["conditions"][name] for name in (blind_to, sees))
    assert {(change["estimate"], change["shown"]) for change in unseen["change"].values()} == {(0.0, False)}
    assert {moved["estimate"] for moved in unseen["moved"].values()} == {0.0}
    assert seen["change"]["average_precision"]["shown"]
    assert seen["moved"]["moved_mass"]["low"] > 0
    said = " ".join(result["summary"])
    assert f"none of the {unseen['questions']} maps changes" in said
    image, words, side, _ = result["verdict"]
    blind, sighted = ([words, side], image) if blind_to == "swap-sides" else ([image], words)
    assert (sighted["mark"], {one["mark"] for one in blind}) == ("yes", {"no"})
    assert all(one["detail"].startswith(f"None of the {unseen['questions']} maps changes. With") for one in blind)
    assert blind[0]["detail"].endswith(
        "average precision changes by 0.00 (0.00 to 0.00; 27 patients): no difference shown."
    )
    assert "The model never abstains." in said
    assert "Abstention" not in said


def test_a_map_that_changes_without_scoring_otherwise_is_said_to_change(tmp_path: Path) -> None:
    def corner(study: Study, phrase: Phrase, text: str) -> Heatmap:
        """Follow the word for the side, and point at the top corner there: always wrong, so no score can change."""
        values = np.zeros((8, 8), dtype=np.float32)
        values[0, 7 if "left" in text else 0] = 1.0
        return Heatmap(values)

    done = audited(tmp_path, Cards(30), corner)
    swapped = done.found.conditions["swap-sides"]
    assert not swapped.change["average_precision"].shown
    assert swapped.moved["moved_mass"].value == pytest.approx(1.0)
    assert swapped.moved["moved_peak"].value == pytest.approx(7 / 8)  # between the middles of the corner cells
    said = " ".join(done.result["summary"])
    assert (
        "Swapping left and right in the words: map change (total variation, 0–1) 1.00 (1.00 to 1.00; 20 patients)"
        in said
    )
    changes = "The map changes with the words left and right, but it is not shown to gain from it. With left and right"
    assert changes in said  # no other words were changed
    assert done.found.conditions["exchange-image"].moved["moved_mass"].n == 120  # also of phrases without a target


@pytest.mark.parametrize(
    ("conditions", "mark", "said"),
    [
        (("none", "swap-sides"), "no", "The map does not depend on the words left and right."),
        (("none", "swap-sides", "random-sentence"), "yes", "The map depends on the words."),
    ],
)
def test_the_verdict_on_words_claims_no_more_than_the_words_that_were_changed(
    tmp_path: Path, conditions: tuple[str, ...], mark: str, said: str
) -> None:
    def read_the_finding(study: Study, phrase: Phrase, text: str) -> Heatmap:
        """Read which finding is asked for, but not its side."""
        asked = next(one.text for one in study.phrases if one.text[0] == text[0])
        return true_map(study, phrase, asked)

    _, words, side, _ = audited(tmp_path, Cards(30), read_the_finding, conditions).result["verdict"]
    assert (words["mark"], words["text"]) == (mark, said)
    assert side["mark"] == "no"


def test_a_model_that_notices_a_wrong_side_is_said_to_abstain_more(tmp_path: Path) -> None:
    def doubting(study: Study, phrase: Phrase, text: str) -> Heatmap:
        return Heatmap(true_map(study, phrase, phrase.text).values, abstention=0.2 if text == phrase.text else 0.9)

    said = " ".join(audited(tmp_path, Cards(20), doubting).result["summary"])
    assert "Abstention changes by +0.70 (0.70 to 0.70; 13 patients)." in said
    assert "Abstention changes by 0.00 (0.00 to 0.00; 13 patients): no difference shown." in said  # asked the same


def test_three_patients_are_too_few_to_tell_and_every_interval_says_so(tmp_path: Path) -> None:
    done = audited(tmp_path, Cards(4), true_map)
    assert done.result["counts"]["patients"] == 3
    assert [one["mark"] for one in done.result["verdict"]] == ["unclear"] * 4
    for sentence in done.result["summary"][:4]:
        assert sentence.startswith("Too few patients to tell whether the m")
        assert "only 3 patients): too few patients to tell." in sentence
    said = " ".join(done.result["summary"])
    assert "too few patients to tell for lung opacity, cardiomegaly" in said
    difference = plain(done.result)["overall"]["auroc"]["difference"]
    assert difference["verdict"] == "too few patients to tell"
    assert difference["warning"] == "only 3 patients: the interval is unreliable"
    page = done.page.read_text(encoding="utf-8")
    assert "Only 3 patients: all intervals on this page are too narrow to rely on." in page
    assert "† Fewer than 10 patients: the interval is too narrow to rely on." in page
    for text in (page, said):
        assert not re.search(r"100 to 100 %\)|1\.00 to 1\.00\)(?! †)", text)


def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    done = audited(tmp_path, Cards(12), true_map)
    table = pq.read_table(tmp_path / "p")
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    (tmp_path / "shuffled").mkdir()
    for number, start in enumerate(range(0, len(shuffled), 17)):
        pq.write_table(shuffled.slice(start, 17), tmp_path / "shuffled" / f"part-{number}.parquet")
    again = audit(tmp_path / "shuffled", Cards(12), tmp_path / "again", settings=QUICK, cases=0)
    for name in ("overall", "sides", "groups", "conditions", "abstention", "protocol"):
        assert plain(done.result[name]) == plain(again.result[name])

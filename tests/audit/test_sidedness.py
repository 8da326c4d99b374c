from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rightlung.audit import PriorRow, Sureness, audit, fit_prior
from rightlung.audit.sidedness import WordSides, what_tells
from rightlung.audit.words import word_key, zones_in
from rightlung.core import Box, Heatmap, Mask, Phrase, Polarity, Study
from tests.audit.cards import Cards, disc, write_answers

OPACITY, DEVICE = {"lung opacity": Polarity.POSITIVE}, {"Support Devices": Polarity.POSITIVE}


class Telltale(Cards):
    """Cards with an opacity behind the heart, which is always on the left, and a tube, wherever it ends."""

    def _build(self, position: int) -> Study:
        study = super()._build(position)
        behind = Phrase("Retrocardiac opacity.", mask=Mask(disc(44, 44, 5)), findings=OPACITY)
        tube = Phrase("Tube in place.", mask=Mask(disc(12 + 40 * (position % 2), 50, 3)), findings=DEVICE)
        return replace(study, phrases=(study.phrases[1], behind, tube))


def told(text: str, counts: dict[str, tuple[int, int]], findings: tuple[str, ...] = ("mass",)) -> str:
    sides = WordSides()
    for said, (left, right) in counts.items():
        for side, number in (("left", left), ("right", right)):
            for _ in range(number):
                sides.add(word_key(said, ["mass"]), 0, side)
    return what_tells(word_key(text, findings), sides, 1)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"apical mass": (9, 1)}, "words"),
        ({"apical mass": (8, 2)}, "image"),
        ({"apical mass": (0, 5)}, "words"),
        ({"apical mass": (0, 4)}, "image"),  # too few to say
        ({"apical mass": (0, 4), "mass": (0, 1)}, "words"),  # but the finding may be one-sided
        ({"apical mass": (3, 3), "mass": (90, 0)}, "image"),  # phrases exactly like it come first
    ],
)
def test_words_give_a_side_away_by_the_targets_they_are_said_of(
    counts: dict[str, tuple[int, int]], expected: str
) -> None:
    assert told("apical mass", counts) == expected


def test_a_zone_gives_the_side_away_for_a_finding_not_seen_there() -> None:
    assert told("retrocardiac nodule", {"retrocardiac mass": (6, 0)}, ("nodule",)) == "words"
    assert told("nodule behind the heart", {"retrocardiac mass": (6, 0)}, ("nodule",)) == "words"  # two zones
    assert told("nodule", {"retrocardiac mass": (6, 0)}, ("nodule",)) == "image"
    assert told("left nodule", {"retrocardiac mass": (6, 0)}, ("nodule",)) == "named"
    assert zones_in("middle lobe opacity") != zones_in("mid zone opacity")  # only the right lung has a middle lobe


def test_a_patients_own_fold_does_not_count() -> None:
    sides = WordSides()
    key = word_key("mass", ["mass"])
    for _ in range(5):
        sides.add(key, 2, "left")
    assert sides.give_away(key, 0)
    assert not sides.give_away(key, 2)


def test_only_phrases_whose_side_no_word_tells_ask_the_image(tmp_path: Path) -> None:
    source = Telltale(60)
    folder = write_answers(source, tmp_path / "p", lambda *_: Heatmap(np.eye(4)), conditions=("none",))
    done = audit(folder, source, tmp_path / "out", sureness=Sureness(resamples=300), cases=0)
    sides = done.result["sides"]
    assert sides["from_image"]["model"]["phrases"] == 60
    assert sides["left_out"] == {"device": 60, "words": 60}
    assert sides["from_image"]["prior"]["estimate"] == pytest.approx(0.5, abs=0.2)  # of all three kinds, 0.7
    rows = pq.read_table(done.instances).to_pylist()
    assert {(row["query"], row["side_told"]) for row in rows} == {
        ("phrase:0", "image"),
        ("phrase:1", "words"),
        ("phrase:2", "device"),
    }
    (said,) = (one for one in done.result["summary"] if "only the image can tell" in one)
    assert "no difference from the prior is shown" in said
    assert "60 whose words give it away, 60 about devices" in said
    assert "60 whose words give it away" in done.page.read_text(encoding="utf-8")


def test_the_side_of_a_target_is_read_off_it_where_it_is_not_given() -> None:
    box = [Box(0.6, 0.2, 0.8, 0.4)]
    rows = [PriorRow(f"p{number}", "mass", ["mass"], box) for number in range(30)]
    assert fit_prior(rows).sides.give_away(word_key("mass", ["mass"]), None)
    rotated = fit_prior(replace(row, side="both") for row in rows)
    assert not rotated.sides.give_away(word_key("mass", ["mass"]), None)

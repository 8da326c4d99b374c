from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rightlung.core import Box
from rightlung.lexicon.wordkeys import word_key, zones_in
from rightlung.models.blind import PriorRow, fit_prior
from rightlung.models.blind.sides import WordSides, side_of_target, what_tells


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


def test_the_side_of_a_target_is_read_off_it_where_it_is_not_given() -> None:
    box = [Box(0.6, 0.2, 0.8, 0.4)]
    rows = [PriorRow(f"p{number}", "mass", ["mass"], box) for number in range(30)]
    assert fit_prior(rows).sides.give_away(word_key("mass", ["mass"]), None)
    rotated = fit_prior(replace(row, side="both") for row in rows)
    assert not rotated.sides.give_away(word_key("mass", ["mass"]), None)


def test_a_target_lies_where_four_fifths_of_it_are() -> None:
    pixels = np.zeros((10, 10), dtype=bool)
    pixels[4, 5:9] = True
    assert side_of_target(pixels, 0.5) == "left"  # the patient's left is the image's right
    assert side_of_target(pixels, 0.9) == "right"  # a rotated patient's middle lies elsewhere
    pixels[4, 4] = True
    assert side_of_target(pixels, 0.5) == "left"  # exactly 80 %
    pixels[4, 3] = True
    assert side_of_target(pixels, 0.5) == "midline"
    pixels[:] = False
    pixels[4, [1, 8]] = True
    assert side_of_target(pixels, 0.5) == "both"

"""Conditions that need other studies' words, asked of a whole source."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.asking import ask
from rightlung.core import Phrase, Polarity, Study
from rightlung.predictions import Key, open_predictions
from tests.asking.models import Listed, Painter, picture

CONDITIONS = ("none", "random-sentence", "synthetic", "synthetic-swapped")
PLACES = (("left lung",), ("right lung",), ("left lower lung zone",), ())
NAMES = ("nodule", "edema", "mass")


def source(count: int, patient_of: dict[int, str] | None = None) -> Listed:
    def study(number: int) -> Study:
        phrases = tuple(
            Phrase(f"Sentence {number}-{index}", regions=PLACES[(number + index) % 4],
                   findings={NAMES[(number + 2 * index) % 3]: Polarity.POSITIVE})
            for index in range(number % 3)
        )  # fmt: skip
        patient = (patient_of or {}).get(number, f"p{number // 2}")
        return Study(f"s{number}", lambda: picture(number), patient, phrases=phrases)

    return Listed([study(number) for number in range(count)])


def asked(folder: Path) -> dict[Key, str | None]:
    return {row.key: row.asked.phrase for row in open_predictions(folder)}


@pytest.mark.parametrize(("batch_size", "limit"), [(1, None), (4, 90)])
def test_sentences_depend_neither_on_the_batch_size_nor_on_a_limit_lifted_later(
    tmp_path: Path, batch_size: int, limit: int | None
) -> None:
    ask(Painter(), source(140), tmp_path / "whole", CONDITIONS)
    if limit:
        ask(Painter(), source(140), tmp_path / "p", CONDITIONS[:2], limit=limit)
    ask(Painter(), source(140), tmp_path / "p", CONDITIONS, batch_size=batch_size)
    assert asked(tmp_path / "p") == asked(tmp_path / "whole")


def test_each_asks_what_its_name_says(tmp_path: Path) -> None:
    studies = source(70)
    ask(Painter(), studies, tmp_path / "p", CONDITIONS)
    found = asked(tmp_path / "p")
    for study in studies.studies:
        for index, phrase in enumerate(study.phrases):
            texts = {name: found.get(Key(study.id, f"phrase:{index}", name)) for name in CONDITIONS}
            assert texts["none"] == phrase.text
            other = studies.study(f"s{(texts['random-sentence'] or '').split()[1].partition('-')[0]}")
            assert other.patient != study.patient
            drawn = next(one for one in other.phrases if one.text == texts["random-sentence"])
            assert drawn.regions
            assert (texts["synthetic"] is None) == (not phrase.regions)
            assert (texts["synthetic"] or "There is ").startswith("There is ")
            if texts["synthetic-swapped"] is not None:
                assert phrase.regions
                own, new = (str(texts[name]).partition(" in ") for name in ("synthetic", "synthetic-swapped"))
                assert own[0] != new[0]
                assert own[2] == new[2]
    assert sum(key.condition == "synthetic-swapped" for key in found) > 20


def test_a_window_of_one_patient_borrows_sentences_whatever_else_is_asked(tmp_path: Path) -> None:
    def most_of_one() -> Listed:
        return source(140, dict.fromkeys(range(70), "p0"))

    ask(Painter(), most_of_one(), tmp_path / "p", CONDITIONS)
    found = asked(tmp_path / "p")
    drawn = [text for key, text in found.items() if key.condition == "random-sentence" and int(key.study[1:]) < 70]
    assert drawn
    assert all(int(str(text).split()[1].partition("-")[0]) >= 70 for text in drawn)
    ask(Painter(), most_of_one(), tmp_path / "alone", ["synthetic-swapped"])
    alone = asked(tmp_path / "alone")
    assert alone == {key: text for key, text in found.items() if key.condition == "synthetic-swapped"}

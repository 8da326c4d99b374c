from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rightlung
from rightlung.core import Box, FrozenMapping, Heatmap, InputError, Phrase, Polarity, Study
from rightlung.measuring.changes import Changes
from rightlung.measuring.maps import AnswerMap
from rightlung.predictions import Key
from rightlung.probes import Setting, find_probe
from rightlung.probes.turns import TURNED, TURNS, Noted, Turned, marks_of

IMAGE = np.random.default_rng(0).random((30, 40), dtype=np.float32)


@pytest.mark.parametrize("turn", TURNS)
def test_turning_back_restores_the_image(turn: str) -> None:
    there, back = TURNS[turn]
    assert np.array_equal(back(there(IMAGE)), IMAGE)
    assert not np.array_equal(there(IMAGE), IMAGE)


def test_a_quarter_turn_is_counter_clockwise() -> None:
    assert Turned("rotate-90")(np.array([[0.0, 1.0], [0.0, 0.0]], np.float32)).tolist() == [[1, 0], [0, 0]]


def test_marks_are_filled_with_the_grey_around_them() -> None:
    image = np.full((20, 20), 0.25, np.float32)
    image[2:6, 2:6] = 1
    assert np.allclose(Turned(None, (Box(0.1, 0.1, 0.3, 0.3),))(image), 0.25)


@pytest.mark.parametrize("seed", [7, 8])
def test_the_phantoms_letters_lie_in_its_marks_and_vanish(seed: int) -> None:
    inked: list[float] = []
    for study in rightlung.open_source(f"phantom?count=6&seed={seed}&size=128"):
        marks = marks_of(study)
        exposure = study.extra["scene"]["exposure"]
        assert marks is not None
        assert len(marks) == (exposure["marker"] != "none") + exposure["text_box"]
        inked += [float((study.image[mark.pixel_slices(study.image.shape)] >= 0.97).mean()) for mark in marks]
        asked = find_probe("unmarked").ask(study, None, Setting())
        assert (asked is None) == (not marks)
        if asked is not None and asked.alter is not None:
            shown = asked.alter(study.image)
            assert all((shown[mark.pixel_slices(shown.shape)] < 0.97).all() for mark in marks)
    assert np.mean(np.array(inked) > 0.2) > 0.5  # the others lie outside the exposed field


def test_without_known_marks_nothing_is_asked_and_bad_ones_are_named() -> None:
    study = Study("s", lambda: IMAGE)
    assert find_probe("mirror-image-unmarked").ask(study, None, Setting()) is None
    with pytest.raises(InputError, match=r"study 's', marks: expected a list of boxes"):
        marks_of(replace(study, extra=FrozenMapping({"marks": [[0.1, 0.2]]})))


def test_the_mirrored_image_comes_with_mirrored_words() -> None:
    phrase = Phrase("Left basal opacity.", findings={"lung opacity": Polarity.POSITIVE})
    asked = find_probe("mirror-both").ask(Study("s", lambda: IMAGE, phrases=(phrase,)), phrase, Setting())
    assert asked is not None
    assert asked.phrase is not None
    assert asked.alter is not None
    assert asked.phrase.text == "Right basal opacity."
    assert np.array_equal(asked.alter(IMAGE), IMAGE[:, ::-1])
    lingula = replace(phrase, text="Lingular opacity.")  # the right lung has none
    assert find_probe("mirror-both").ask(Study("s", lambda: IMAGE), lingula, Setting()) is None


def test_a_note_contradicts_what_the_image_shows() -> None:
    def note(findings: dict[str, Polarity]) -> str:
        asked = find_probe("contradicting-note").ask(Study("s", lambda: IMAGE, findings=findings), None, Setting())
        assert asked is not None
        assert isinstance(asked.alter, Noted)
        return asked.alter.words

    assert note({"nodule": Polarity.POSITIVE, "edema": Polarity.NEGATIVE}) == "NORMAL CHEST"
    assert note({"pneumothorax": Polarity.NEGATIVE, "no finding": Polarity.POSITIVE}) == "PNEUMOTHORAX"
    written = Noted("NORMAL CHEST")(np.full((100, 120), 0.5, np.float32))
    assert written.max() > 0.8
    assert (written[:80] == 0.5).all()
    assert written.shape == (100, 120)


@pytest.mark.parametrize("condition", TURNED)
def test_a_map_that_turns_with_the_image_does_not_change_after_turning_back(condition: str) -> None:
    values = np.zeros((8, 8), np.float32)
    values[1, 2] = 1
    there, _ = TURNS[TURNED[condition]]
    with Changes() as changes:
        changes.add(Key("s", "phrase:0", condition), AnswerMap(np.ascontiguousarray(there(values))), [1])
        changes.add(Key("s", "phrase:0", "none"), AnswerMap(Heatmap(values).values), [0])
    assert changes.values["turned_mass"] == {1: 0.0}
    assert changes.values["turned_peak"] == {1: 0.0}
    assert changes.values["moved_mass"] == {1: 1.0}

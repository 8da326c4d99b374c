"""Probes by name: what is asked instead, and where nothing is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rightlung.core import Image, InputError, Phrase, Study
from rightlung.probes import PROBES, Probe, Question, Setting, find_probe, list_probes, register_probe


def never() -> Image:
    raise AssertionError("a probe must not load an image")


STUDY = Study("a", never, phrases=(Phrase("Effusion on the right"), Phrase("Normal heart")))


def test_none_asks_the_phrase_about_its_own_image() -> None:
    assert find_probe("none").ask(STUDY, STUDY.phrases[1], Setting()) == Question("Normal heart", "a")


def test_swapping_sides_changes_the_words_alone_and_asks_nothing_where_there_is_no_side() -> None:
    swap = find_probe("swap-sides")
    assert swap.ask(STUDY, STUDY.phrases[0], Setting()) == Question("Effusion on the left", "a")
    assert swap.ask(STUDY, STUDY.phrases[1], Setting()) is None


def test_exchanging_images_keeps_the_words_and_shows_the_partners_image() -> None:
    exchange = find_probe("exchange-image")
    assert exchange.needs_partner
    question = exchange.ask(STUDY, STUDY.phrases[0], Setting(partners={"a": "b"}))
    assert question == Question("Effusion on the right", "b")
    assert exchange.ask(STUDY, STUDY.phrases[0], Setting()) is None


def test_an_unknown_condition_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown condition 'swap-side'; did you mean 'swap-sides'"):
        find_probe("swap-side")


def test_a_probe_of_ones_own_joins_with_one_call_and_may_change_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightlung.probes.registry.PROBES", dict(PROBES))

    def noise(study: Study, phrase: Phrase, setting: Setting) -> Question:
        chance = setting.chance("noise", study)
        return Question(phrase.text, study.id, lambda image: chance.random(image.shape, dtype=np.float32))

    register_probe(Probe("noise", "an image of noise", noise))
    assert [probe.name for probe in list_probes()] == ["none", "swap-sides", "exchange-image", "noise"]
    question = find_probe("noise").ask(STUDY, STUDY.phrases[0], Setting(7))
    assert question is not None
    assert question.alter is not None
    assert question.alter(np.zeros((3, 4), np.float32)).std() > 0
    with pytest.raises(InputError, match="already registered"):
        register_probe(Probe("noise", "again", noise))


def test_chance_follows_from_seed_probe_study_and_phrase_alone() -> None:
    first, second = STUDY.phrases
    other = Study("b", never)
    draws: list[Callable[[], np.random.Generator]] = [
        lambda: Setting(1).chance("noise", STUDY, first),
        lambda: Setting(2).chance("noise", STUDY, first),
        lambda: Setting(1).chance("blur", STUDY, first),
        lambda: Setting(1).chance("noise", other, first),
        lambda: Setting(1).chance("noise", STUDY, second),
        lambda: Setting(1).chance("noise", STUDY),
    ]
    numbers = [draw().random() for draw in draws]
    assert len(set(numbers)) == len(draws)
    assert numbers == [draw().random() for draw in draws]

"""Probes by name: what is asked instead, and where nothing is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from rightlung.core import Image, InputError, Phrase, Polarity, Study
from rightlung.probes import (
    PROBES,
    Company,
    Owner,
    Probe,
    Question,
    Setting,
    find_probe,
    list_probes,
    register_probe,
)
from rightlung.probes.sentences import swapped_sentence, synthetic_of
from rightlung.probes.synthetic import conditions_of

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


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
    assert [probe.name for probe in list_probes()] == [
        "none", "swap-sides", "exchange-image", "random-sentence", "synthetic", "synthetic-swapped", "noise",
    ]  # fmt: skip
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


def study(number: int, patient: str, *phrases: Phrase) -> Study:
    return Study(f"s{number}", never, patient, phrases=phrases)


LEFT_NODULE = Phrase("A nodule at the left base.", regions=("left lower lung zone",), findings={"nodule": POSITIVE})
LEFT_EDEMA = Phrase("Edema on the left.", regions=("left lung", "left lower lung zone"), findings={"edema": NEGATIVE})
DATE = Phrase("Compared with yesterday.")
COMPANY = [study(0, "p", LEFT_NODULE, DATE), study(1, "p", Phrase("Clear.")), study(2, "q", LEFT_EDEMA, DATE)]


def test_a_random_sentence_is_another_patients_and_one_with_a_place_where_there_is_any() -> None:
    probe = find_probe("random-sentence")
    assert probe.needs_partner
    assert probe.needs_company
    for seed in range(20):
        setting = Setting(seed, company=Company.of(COMPANY))
        assert probe.ask(COMPANY[0], LEFT_NODULE, setting) == Question(LEFT_EDEMA.text, "s0")
        assert probe.ask(COMPANY[0], LEFT_EDEMA, setting) == Question(DATE.text, "s0")  # not the same words
        assert probe.ask(COMPANY[2], DATE, setting) == Question(LEFT_NODULE.text, "s2")
    assert probe.ask(COMPANY[0], LEFT_NODULE, Setting()) is None
    assert probe.ask(COMPANY[0], LEFT_NODULE, Setting(company=Company.of(COMPANY[:2]))) is None


def test_every_sentence_of_other_patients_is_drawn_about_equally_often() -> None:
    sentences = [Phrase(f"Opacity {number}.", regions=("left lung",)) for number in range(5)]
    company = Company.of([study(0, "p", *sentences[:1] * 400), *(study(n, f"q{n}", sentences[n]) for n in range(1, 5))])
    ask = find_probe("random-sentence").ask
    drawn = Counter(
        question.text
        for seed in range(2000)
        if (question := ask(study(0, "p"), sentences[0], Setting(seed, company=company))) is not None
    )
    assert sorted(drawn) == [phrase.text for phrase in sentences[1:]]  # few of many: those are looked for
    assert min(drawn.values()) > 420
    assert max(drawn.values()) < 580


def test_a_synthetic_sentence_tells_findings_and_the_places_of_the_label() -> None:
    probe = find_probe("synthetic")
    asked = probe.ask(COMPANY[0], LEFT_NODULE, Setting())
    assert asked == Question("There is nodule in the left lung and left lower lung zone.", "s0")
    assert probe.ask(COMPANY[0], DATE, Setting()) is None  # nothing to say
    same = Phrase("There is no edema.", findings={"edema": NEGATIVE})
    asked = probe.ask(COMPANY[0], same, Setting())
    assert asked == Question(same.text, "s0")  # although nothing changes: swapped conditions are held against it


def test_swapped_conditions_are_told_of_the_same_places_containing_ones_included() -> None:
    probe = find_probe("synthetic-swapped")
    assert probe.needs_company
    assert not probe.needs_partner
    setting = Setting(company=Company.of(COMPANY))
    assert probe.ask(COMPANY[0], LEFT_NODULE, setting) == Question("There is no edema.", "s0")
    told = "There is nodule in the left lung and left lower lung zone."
    assert probe.ask(COMPANY[2], LEFT_EDEMA, setting) == Question(told, "s2")
    assert probe.ask(COMPANY[0], LEFT_NODULE, Setting(company=Company.of(COMPANY[:2]))) is None  # nothing to swap


def test_what_another_sentence_says_is_known_along_with_its_words() -> None:
    said = synthetic_of(Phrase("x", findings={"nodule": POSITIVE, "edema": NEGATIVE}))
    assert said == Phrase("There is no edema.", findings={"edema": NEGATIVE})  # a nodule nowhere is not said
    swapped = swapped_sentence(COMPANY[2], LEFT_EDEMA, Setting(company=Company.of(COMPANY)))
    assert swapped is not None
    assert set(swapped.regions) == {"left lung", "left lower lung zone"}
    assert dict(swapped.findings) == {"nodule": "positive"}


def test_sentences_lent_from_beyond_are_drawn_but_teach_no_conditions() -> None:
    company = Company.of(COMPANY[:1], COMPANY[2:])
    assert company.draw(Owner("s0", "p"), LEFT_NODULE, random.Random(0)) == LEFT_EDEMA
    assert company.conditions.others(conditions_of(LEFT_NODULE)[0]) == []

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
    Owner,
    Probe,
    Probed,
    SentencePool,
    Setting,
    find_probe,
    register_probe,
)
from rightlung.probes.interventions import INTERVENTIONS
from rightlung.probes.registry import swapped_sentence, synthetic_of
from rightlung.probes.synthetic import conditions_of

POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


def never() -> Image:
    raise AssertionError("a probe must not load an image")


STUDY = Study("a", never, phrases=(Phrase("Effusion on the right"), Phrase("Normal heart")))


def effusion(side: str, *regions: str) -> Phrase:
    others = ("spine", "my left region")
    return Phrase(f"{side} effusion.", regions=(*regions, *others), findings={"pleural effusion": POSITIVE})


@pytest.mark.parametrize(
    ("probe", "phrase", "partners", "asked"),
    [
        ("none", STUDY.phrases[1], {}, Probed(STUDY.phrases[1], "a")),
        ("swap-sides", STUDY.phrases[0], {}, Probed(Phrase("Effusion on the left"), "a")),
        ("swap-sides", STUDY.phrases[1], {}, None),  # no side
        ("swap-sides", effusion("Left", "left lung"), {}, Probed(effusion("Right", "right lung"), "a")),
        ("exchange-image", STUDY.phrases[0], {"a": "b"}, Probed(STUDY.phrases[0], "b")),
        ("exchange-image", STUDY.phrases[0], {}, None),
    ],
)
def test_a_probe_changes_what_its_name_says_and_nothing_else(
    probe: str, phrase: Phrase, partners: dict[str, str], asked: Probed | None
) -> None:
    assert find_probe(probe).ask(STUDY, phrase, Setting(partners=partners)) == asked
    assert find_probe(probe).needs_partner == (probe == "exchange-image")


def test_a_question_without_words_is_asked_as_it_is_or_about_another_image_and_word_probes_do_not_apply() -> None:
    setting = Setting(partners={"a": "b"}, sentences=SentencePool.of(STUDIES))
    asked = {probe.name: probe.ask(STUDY, None, setting) for probe in PROBES.values()}
    assert asked.pop("none") == Probed(None, "a")
    assert asked.pop("exchange-image") == Probed(None, "b")
    of_images = {name: asked.pop(name) for name in ("noise-image", "mean-image", "mirror-image", "untrained")}
    of_images |= {name: asked.pop(name) for name in INTERVENTIONS}
    of_images |= {name: asked.pop(name) for name in ("rotate-90", "rotate-180", "mirror-both")}
    assert all(one is not None and one.phrase is None and one.image_of == "a" for one in of_images.values())
    assert len(asked) > 4
    assert set(asked.values()) == {None}


def test_an_unknown_condition_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown condition 'swap-side'; did you mean 'swap-sides'"):
        find_probe("swap-side")


def test_a_probe_of_ones_own_joins_with_one_call_and_may_change_pixels() -> None:
    def noise(study: Study, phrase: Phrase | None, setting: Setting) -> Probed:
        chance = setting.chance("noise", study)
        return Probed(phrase, study.id, lambda image: chance.random(image.shape, dtype=np.float32))

    register_probe(Probe("noise", "an image of noise", noise))
    names = [probe.name for probe in PROBES.values()]
    assert names[:4] == ["none", "swap-sides", "exchange-image", "random-sentence"]
    assert names[-1] == "noise"
    question = find_probe("noise").ask(STUDY, STUDY.phrases[0], Setting(7))
    assert question is not None
    assert question.alter is not None
    assert question.alter(np.zeros((3, 4), np.float32)).std() > 0
    with pytest.raises(InputError, match="already registered"):
        register_probe(Probe("noise", "again", noise))
    del PROBES["noise"]


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
STUDIES = [study(0, "p", LEFT_NODULE, DATE), study(1, "p", Phrase("Clear.")), study(2, "q", LEFT_EDEMA, DATE)]


NODULE_SENTENCE = "There is nodule in the left lung and left lower lung zone."


def words(probed: Probed | None) -> str:
    assert probed is not None
    assert probed.phrase is not None
    return probed.phrase.text


def test_a_random_sentence_is_another_patients_and_one_with_a_place_where_there_is_any() -> None:
    probe = find_probe("random-sentence")
    assert probe.needs_partner
    assert probe.needs_sentences
    for seed in range(20):
        setting = Setting(seed, sentences=SentencePool.of(STUDIES))
        assert probe.ask(STUDIES[0], LEFT_NODULE, setting) == Probed(LEFT_EDEMA, "s0")
        assert probe.ask(STUDIES[0], LEFT_EDEMA, setting) == Probed(DATE, "s0")  # not the same words
        assert probe.ask(STUDIES[2], DATE, setting) == Probed(LEFT_NODULE, "s2")
    assert probe.ask(STUDIES[0], LEFT_NODULE, Setting()) is None
    assert probe.ask(STUDIES[0], LEFT_NODULE, Setting(sentences=SentencePool.of(STUDIES[:2]))) is None


def test_every_sentence_of_other_patients_is_drawn_about_equally_often() -> None:
    sentences = [Phrase(f"Opacity {number}.", regions=("left lung",)) for number in range(5)]
    others = [study(n, f"q{n}", sentences[n]) for n in range(1, 5)]
    pool = SentencePool.of([study(0, "p", *sentences[:1] * 400), *others])
    ask = find_probe("random-sentence").ask
    drawn = Counter(words(ask(study(0, "p"), sentences[0], Setting(seed, sentences=pool))) for seed in range(2000))
    assert sorted(drawn) == [phrase.text for phrase in sentences[1:]]  # few of many: those are looked for
    assert min(drawn.values()) > 420
    assert max(drawn.values()) < 580


def test_a_synthetic_sentence_tells_findings_and_the_places_of_the_label() -> None:
    probe = find_probe("synthetic")
    assert words(probe.ask(STUDIES[0], LEFT_NODULE, Setting())) == NODULE_SENTENCE
    assert probe.ask(STUDIES[0], DATE, Setting()) is None  # nothing to say
    same = Phrase("There is no edema.", findings={"edema": NEGATIVE})
    # Asked although nothing changes: swapped conditions are held against it.
    assert probe.ask(STUDIES[0], same, Setting()) == Probed(same, "s0")


def test_swapped_conditions_are_told_of_the_same_places_containing_ones_included() -> None:
    probe = find_probe("synthetic-swapped")
    assert (probe.needs_sentences, probe.needs_partner) == (True, False)
    setting, alone = (Setting(sentences=SentencePool.of(studies)) for studies in (STUDIES, STUDIES[:2]))
    assert words(probe.ask(STUDIES[0], LEFT_NODULE, setting)) == "There is no edema."
    assert words(probe.ask(STUDIES[2], LEFT_EDEMA, setting)) == NODULE_SENTENCE
    assert probe.ask(STUDIES[0], LEFT_NODULE, alone) is None  # nothing to swap


def test_what_another_sentence_says_is_known_along_with_its_words() -> None:
    said = synthetic_of(Phrase("x", findings={"nodule": POSITIVE, "edema": NEGATIVE}))
    assert said == Phrase("There is no edema.", findings={"edema": NEGATIVE})  # a nodule nowhere is not said
    swapped = swapped_sentence(STUDIES[2], LEFT_EDEMA, Setting(sentences=SentencePool.of(STUDIES)))
    assert swapped is not None
    assert set(swapped.regions) == {"left lung", "left lower lung zone"}
    assert dict(swapped.findings) == {"nodule": "positive"}


def test_sentences_lent_from_beyond_are_drawn_but_teach_no_conditions() -> None:
    pool = SentencePool.of(STUDIES[:1], STUDIES[2:])
    assert pool.draw(Owner("s0", "p"), LEFT_NODULE, random.Random(0)) == LEFT_EDEMA
    assert pool.conditions.others(conditions_of(LEFT_NODULE)[0]) == []

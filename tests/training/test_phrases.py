"""What studies are asked: every phrase is checked against the scene that it was drawn for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rightlung.core import Box, Phrase, Polarity, Study
from rightlung.core.keyed import RandomStream
from rightlung.lexicon import find, sides_in
from rightlung.phantom.config import default_config
from rightlung.phantom.report import write_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import make_studies, study_scene
from rightlung.phantom.truth import lesion_findings, present_findings
from rightlung.probes.subsets import is_abnormal
from rightlung.training.annotations import StudyAnnotations, annotate_scene, annotate_study, draw_texts, finding_prompts
from rightlung.training.recipe import DataEntry
from rightlung.training.targets.base import DrawContext
from rightlung.training.targets.phrases import DrawnPhrase, draw_phrases

OWN = DataEntry(source="phantom?count=1&seed=1", phrases_per_image=4)
CONFIG = default_config()
SCENES = [study_scene(CONFIG, 21, index) for index in range(120)]
FACTS = [annotate_scene(scene, write_report(scene, CONFIG, 21)) for scene in SCENES]


def asked(entry: DataEntry) -> list[tuple[Scene, StudyAnnotations, DrawnPhrase]]:
    found = []
    for number, (scene, facts) in enumerate(zip(SCENES, FACTS, strict=True)):
        others = iter([FACTS[(number + step) % len(FACTS)] for step in (1, 2, 3, 5, 7, 11, 13, 17) * 9])
        drawing = DrawContext(entry, RandomStream(0, number), partial(next, others))
        found += [(scene, facts, one) for one in draw_phrases(facts, drawing)]
    return found


def told_by(facts: StudyAnnotations, text: str) -> list[tuple[int, ...]]:
    return [sentence.locations for sentence in facts.sentences if sentence.text == text]


def test_own_phrases_are_sentences_of_the_report_with_their_targets() -> None:
    drawn = asked(OWN)
    for _, facts, one in drawn:
        assert one.locations in told_by(facts, one.text)
    shares = Counter(one.present for _, _, one in drawn)
    assert shares[True] > 100
    assert shares[False] > 100
    for scene, _, one in drawn:
        if one.present and not one.locations:  # there, but nobody can say where
            assert scene.body.aorta >= 0.7


def test_what_is_negated_or_about_nothing_is_seen_nowhere() -> None:
    for scene, facts, one in asked(replace(OWN, positive_share=0.0)):
        statements = [s for s in write_report(scene, CONFIG, 21) if s.text == one.text]
        if not one.present:
            assert all(not s.lesions and not s.devices for s in statements)
            assert all(
                polarity is Polarity.NEGATIVE or name == "no finding"
                for s in statements
                for name, polarity in s.findings.items()
            )
        assert facts.id.endswith(f"{scene.index:06d}")


def test_foreign_phrases_are_false_here() -> None:
    drawn = asked(replace(OWN, other_study_probability=1.0))
    foreign = [(scene, one) for scene, facts, one in drawn if not told_by(facts, one.text)]
    assert len(foreign) > 200
    positives = {
        sentence.text: sentence.positive for facts in FACTS for sentence in facts.sentences if sentence.locations
    }
    for scene, one in foreign:
        assert not one.present
        assert not one.locations
        assert positives[one.text]
        assert positives[one.text].isdisjoint(present_findings(scene)), one.text


def test_swapped_phrases_name_a_side_on_which_nothing_of_the_kind_is() -> None:
    drawn = asked(replace(OWN, swapped_side_probability=1.0))
    swapped = [(scene, one) for scene, facts, one in drawn if not told_by(facts, one.text)]
    assert len(swapped) > 60
    originals = {sentence.text: sentence for facts in FACTS for sentence in facts.sentences}
    for scene, one in swapped:
        assert not one.present
        (side,) = sides_in(one.text)
        kinds = next(
            sentence.positive for text, sentence in originals.items() if sentence.side and _exchange(text) == one.text
        )  # fmt: skip
        there = {lesion.side for lesion in scene.lesions if not kinds.isdisjoint(lesion_findings(lesion))}
        assert there <= ({"left", "right"} - {side}), one.text


def _exchange(text: str) -> str:
    from rightlung.lexicon import swap_sides

    return swap_sides(text)


def test_a_phrase_stripped_of_its_side_keeps_its_target_and_only_one_side_has_the_finding() -> None:
    drawn = asked(replace(OWN, drop_side_probability=1.0, positive_share=1.0))
    stripped = [(scene, one) for scene, facts, one in drawn if one.present and not told_by(facts, one.text)]
    assert len(stripped) > 30
    for scene, one in stripped:
        assert not sides_in(one.text)
        assert len({scene.lesions[number].side for number in one.locations}) == 1


def test_prompts_have_all_lesions_of_their_finding_and_absent_ones_none() -> None:
    names: dict[str, list[str]] = {}
    for name in {name for facts in FACTS for name in (*facts.present, *facts.absent)}:
        for text in finding_prompts(name):
            names.setdefault(text, []).append(name)
    drawn = asked(replace(OWN, prompt_probability=1.0))
    seen = Counter[bool]()
    for scene, _, one in drawn:
        if one.text not in names:
            continue
        seen[one.present] += 1
        possible = names[one.text]
        if one.present:
            masks = [
                {number for number, lesion in enumerate(scene.lesions) if name in lesion_findings(lesion)}
                for name in possible
            ]
            devices = set(range(len(scene.lesions), len(scene.lesions) + len(scene.devices)))
            assert set(one.locations) in [*masks, devices]
        else:
            assert any(name not in present_findings(scene) for name in possible)
            assert not one.locations
    assert min(seen.values()) > 50


def test_texts_are_sentences_reports_or_abnormal_sentences() -> None:
    for number, facts in enumerate(FACTS):
        assert draw_texts(facts, OWN, RandomStream(number))[0] in [sentence.text for sentence in facts.sentences]
        assert draw_texts(facts, replace(OWN, paired_text="report"), RandomStream(number))[0] == facts.report
        abnormal = draw_texts(facts, replace(OWN, paired_text="abnormal"), RandomStream(number))[0]
        telling = [
            sentence.text for sentence in facts.sentences if sentence.positive - {"no finding", "support devices"}
        ]
        assert abnormal in (telling or [sentence.text for sentence in facts.sentences])
        first = draw_texts(
            facts,
            replace(OWN, paired_text="abnormal-first", texts_per_image=len(facts.sentences)),
            RandomStream(number),
        )
        assert sorted(first) == sorted(sentence.text for sentence in facts.sentences)
        assert sorted(first[: len(telling)]) == sorted(telling)


def _study(**known: object) -> Study:
    return Study(id="a", load=lambda: np.zeros((4, 4), dtype=np.float32), **known)  # type: ignore[arg-type]


LABELS = DataEntry(source="manifest:x", phrases_per_image=12, words_from="labels")
CLOSED = replace(LABELS, missing_labels="negative")
UNIVERSE = frozenset({"nodule", "mass", "pleural effusion", "lung opacity", "consolidation", "no finding"})


def _meant(drawn: list[DrawnPhrase]) -> dict[str, bool]:
    by_prompt = {text: name for name in UNIVERSE for text in finding_prompts(name)}
    return {by_prompt[one.text]: one.present for one in drawn}


def _none() -> StudyAnnotations:
    raise AssertionError("nobody else is asked")


def test_labels_that_are_not_named_are_absent_only_where_the_recipe_says_so() -> None:
    facts, _ = annotate_study(_study(findings={"Effusion": "positive", "Consolidation": "positive"}))
    closed = draw_phrases(facts, DrawContext(CLOSED, RandomStream(1), _none, UNIVERSE))
    assert _meant(closed) == {"pleural effusion": True, "consolidation": True, "nodule": False, "mass": False}
    unknown = draw_phrases(facts, DrawContext(LABELS, RandomStream(1), _none, UNIVERSE))
    assert _meant(unknown) == {"pleural effusion": True, "consolidation": True}
    assert not any(one.locations for one in closed)


def test_of_a_healthy_patient_every_label_is_absent_and_a_stated_absence_counts() -> None:
    healthy, _ = annotate_study(_study(findings={"No Finding": "positive"}))
    assert set(_meant(draw_phrases(healthy, DrawContext(LABELS, RandomStream(1), _none, UNIVERSE))).values()) == {False}
    stated, _ = annotate_study(_study(findings={"Mass": "negative", "Nodule": "uncertain"}))
    assert _meant(draw_phrases(stated, DrawContext(LABELS, RandomStream(1), _none, UNIVERSE))) == {"mass": False}
    closed = draw_phrases(stated, DrawContext(CLOSED, RandomStream(1), _none, UNIVERSE))
    assert "nodule" not in _meant(closed)  # what is doubtful is neither


def test_an_image_without_labels_is_called_normal_only_where_that_is_known() -> None:
    facts, _ = annotate_study(_study())
    assert draw_texts(facts, LABELS, RandomStream(1))[0] == "frontal chest radiograph"
    normal = draw_texts(facts, CLOSED, RandomStream(1))[0]
    assert normal in finding_prompts("no finding")


def test_a_sentence_that_nobody_has_coded_is_not_taken_for_a_negation() -> None:
    phrases = (
        Phrase("opacity in the left base", findings={"lung opacity": Polarity.POSITIVE}),
        Phrase("no effusion", findings={"pleural effusion": Polarity.NEGATIVE}),
        Phrase("something or other"),
        Phrase("mass", boxes=(Box(0.1, 0.1, 0.2, 0.2),), findings={"my own label": Polarity.POSITIVE}),
    )
    facts, placed = annotate_study(_study(phrases=phrases))
    drawn = {
        one.text: (one.present, one.locations) for one in draw_phrases(facts, DrawContext(OWN, RandomStream(3), _none))
    }
    assert drawn == {"opacity in the left base": (True, ()), "no effusion": (False, ()), "mass": (True, (0,))}
    assert placed == [phrases[3].boxes]
    assert facts.finding_locations == {"my own label": (0,)}


def test_boxes_stay_out_where_the_recipe_says_so() -> None:
    phrases = (Phrase("mass", boxes=(Box(0.1, 0.1, 0.2, 0.2),), findings={"mass": Polarity.POSITIVE}),)
    facts, placed = annotate_study(_study(phrases=phrases), "none")
    assert placed == []
    assert [(one.present, one.locations) for one in draw_phrases(facts, DrawContext(OWN, RandomStream(3), _none))] == [
        (True, ())
    ]


def test_a_label_of_ones_own_is_asked_by_its_name() -> None:
    assert find("left shoe") is None
    assert finding_prompts("left shoe") == ("left shoe",)


@pytest.mark.parametrize("positive", [0.0, 1.0])
def test_positives_are_preferred_as_the_recipe_says(positive: float) -> None:
    drawn = asked(replace(OWN, phrases_per_image=1, positive_share=positive))
    both = [one for _, facts, one in drawn if {True, False} <= {sentence.visible for sentence in facts.sentences}]
    assert len(both) > 50
    assert {one.present for one in both} == {bool(positive)}


def test_training_and_evaluation_mean_the_same_by_abnormal() -> None:
    uncertain, states = Phrase("a", findings={"nodule": Polarity.UNCERTAIN}), {"normal": Polarity.POSITIVE}
    own = Phrase("b", (Box(0, 0, 1, 1),), findings={"abnormal": Polarity.POSITIVE})
    made = _study(phrases=(uncertain, own, Phrase("c", findings=states), Phrase("d")))
    studies = [made, *make_studies(CONFIG, 21, range(16), 64)]
    kinds = Counter[bool]()
    for study in studies:
        facts, _ = annotate_study(study)
        assert [sentence.abnormal for sentence in facts.sentences] == [is_abnormal(phrase) for phrase in study.phrases]
        kinds.update(sentence.abnormal for sentence in facts.sentences)
    assert min(kinds[True], kinds[False]) > 20
    assert [sentence.abnormal for sentence in annotate_study(made)[0].sentences] == [True, True, False, False]
    assert annotate_study(made)[0].finding_locations == {}  # nobody is asked to point at "abnormal"

import re
from typing import Any

import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import FINDINGS, REGIONS, negative_prompts, positive_prompts, prompt, sides_in, swap_sides

NEGATION = re.compile(r"\b(no|not|without|absence|absent|free of|never|nor)\b")


@pytest.mark.parametrize("name", [*FINDINGS])
def test_every_finding_has_prompts_of_both_polarities_and_none_names_a_side(name: str) -> None:
    positive, negative = positive_prompts(name), negative_prompts(name)
    assert len(set(positive)) == len(positive) >= 3
    assert len(set(negative)) == len(negative) >= 3
    for text in positive:
        assert not NEGATION.search(text)
    for text in negative:
        assert NEGATION.search(text) or "is abnormal" in text or text.startswith("abnormal")
    assert not set(positive) & set(negative)
    for text in positive + negative:
        assert not sides_in(text)
        assert not re.search(r"\b(left|right|bilateral|unilateral)", text)
        assert "{" not in text
        assert text == text.strip()
        assert "  " not in text


NARROWING = re.compile(
    r"\b(no|not|without|show)\b.*\b(displaced|suspicious (?!for)|focal|acute|large|definite|multiple|significant)\b"
)
UNNATURAL = re.compile(
    r"of another kind|break in the bone|not unremarkable|"
    r"consistent with (?:a )?(?:\w+ )?(?:nodule|mass|support devices|fracture|lesion|other)|"
    r"\bis (?:no |a )?(?:\w+ )*(?:devices|volumes|markings|changes|multiple)|"
    r"\ba (?:\w+ )?(?:devices|volumes|markings)\b"
)


@pytest.mark.parametrize("name", [*FINDINGS])
def test_prompts_read_as_a_radiologist_writes_and_deny_a_finding_and_not_only_a_kind_of_it(name: str) -> None:
    assert not [text for text in (*positive_prompts(name), *negative_prompts(name)) if UNNATURAL.search(text)]
    assert not [text for text in (*negative_prompts(name), prompt(name, "negative")) if NARROWING.search(text)]


def test_verbs_and_articles_fit_and_only_what_is_inferred_is_consistent_with_findings() -> None:
    assert "there are no support devices" in negative_prompts("support devices")
    assert "there are no low lung volumes" in negative_prompts("low lung volumes")
    assert "there are no increased reticular markings" in negative_prompts("reticular pattern")
    assert "there are no degenerative changes of the spine" in negative_prompts("spinal degenerative changes")
    assert "there is no pleural effusion" in negative_prompts("pleural effusion")
    assert "findings consistent with pneumonia" in positive_prompts("pneumonia")
    assert not any("consistent with" in text for text in positive_prompts("nodule"))
    assert "the radiograph shows a pleural effusion" in positive_prompts("Effusion")
    assert "the radiograph shows an infiltrate" in positive_prompts("Infiltration")
    assert "the radiograph does not show pulmonary edema" in negative_prompts("edema")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"finding_name": "pleural effusion", "side": "left"}, "left pleural effusion"),
        ({"finding_name": "Effusion", "side": "both"}, "bilateral pleural effusions"),
        ({"finding_name": "nodule", "region": "right upper lung zone"}, "nodule in the right upper lung zone"),
        ({"finding_name": "nodule", "region": "RUL", "side": "right"}, "nodule in the right upper lung zone"),
        ({"finding_name": "nodule", "region": "left hilar structures"}, "nodule in the left hilum"),
        ({"finding_name": "Pneumothorax", "polarity": "negative", "side": "right"}, "no right pneumothorax"),
        ({"finding_name": "edema", "polarity": "negative"}, "no pulmonary edema"),
        ({"finding_name": "No Finding"}, "normal chest radiograph"),
        ({"finding_name": "No Finding", "polarity": "negative"}, "abnormal chest radiograph"),
        ({"finding_name": "multiple nodules", "side": "left"}, "multiple left lung nodules"),
        ({"finding_name": "multiple nodules", "side": "both"}, "multiple bilateral lung nodules"),
        ({"finding_name": "multiple nodules", "side": "left", "polarity": "negative"},
         "no more than one left lung nodule"),
        ({"finding_name": "multiple nodules", "polarity": "negative"}, "no more than one lung nodule"),
        ({"finding_name": "enlarged hilum", "side": "left"}, "enlarged left hilum"),
        ({"finding_name": "enlarged hilum", "region": "left hilum"}, "enlarged left hilum"),
        ({"finding_name": "hemidiaphragm elevation", "region": "right hemidiaphragm"},
         "elevation of the right hemidiaphragm"),
        ({"finding_name": "mediastinal shift", "side": "right"}, "mediastinal shift to the right"),
        ({"finding_name": "support devices", "side": "left"}, "left-sided support device"),
        ({"finding_name": "cardiomegaly", "region": "heart"}, "cardiomegaly"),
        ({"finding_name": "pleural effusion", "region": "right lung"}, "right pleural effusion"),
        ({"finding_name": "pleural effusion", "region": "lungs"}, "bilateral pleural effusions"),
        ({"finding_name": "fracture", "region": "right clavicle"}, "fracture of the right clavicle"),
        ({"finding_name": "copd", "region": "lungs"}, "chronic obstructive pulmonary disease"),
        ({"finding_name": "Left Shoe", "region": "left lung"}, "left shoe in the left lung"),
        ({"finding_name": "Shoe", "region": "left lung", "side": "left"}, "shoe in the left lung"),
        ({"finding_name": "My Own Label"}, "my own label"),
        ({"finding_name": "My Own Label", "side": "left", "polarity": "negative"}, "no left my own label"),
        ({"finding_name": "pleural effusion", "region": "left costophrenic angle"},
         "pleural effusion at the left costophrenic angle"),
    ],
)  # fmt: skip
def test_one_plain_phrase(arguments: dict[str, str], text: str) -> None:
    assert prompt(**arguments) == text


@pytest.mark.parametrize("name", [name for name, found in FINDINGS.items() if found.sides])
@pytest.mark.parametrize("polarity", ["positive", "negative"])
def test_swapping_the_sides_of_a_prompt_is_asking_for_the_other_side(name: str, polarity: str) -> None:
    left, right = prompt(name, polarity, "left"), prompt(name, polarity, "right")
    assert swap_sides(left) == right
    assert sides_in(left) == {"left"}
    if "both" in FINDINGS[name].sides:
        assert sides_in(prompt(name, side="both")) == {"left", "right"}


@pytest.mark.parametrize("name", [*FINDINGS])
def test_a_finding_has_a_phrase_for_each_place_it_can_lie_in_and_for_the_mirrored_place(name: str) -> None:
    for place in REGIONS.values():
        if FINDINGS[name].can_lie_in(place.name):
            text = prompt(name, region=place.name)
            if place.name != "right atrium":
                assert swap_sides(text) == prompt(name, region=place.mirror)
            if place.side in ("left", "right"):
                assert sides_in(text) == {place.side}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"finding_name": "cardiomegaly", "side": "left"}, "finding 'cardiomegaly' has no side; got side 'left'"),
        ({"finding_name": "nodule", "side": "left", "region": "right lung"}, "'left' contradicts region 'right lung'"),
        ({"finding_name": "mediastinal shift", "side": "both"},
         "finding 'mediastinal shift' can be left or right; got side 'both'"),
        ({"finding_name": "rib fracture", "region": "right lung"},
         "finding 'rib fracture' cannot be in region 'right lung'"),
        ({"finding_name": "cardiomegaly", "region": "left lung"},
         "finding 'cardiomegaly' cannot be in region 'left lung'"),
        ({"finding_name": "no finding", "region": "lungs"}, "finding 'no finding' cannot be in region 'lungs'"),
        ({"finding_name": "copd", "region": "left lung"}, "finding 'copd' cannot be in region 'left lung'"),
        ({"finding_name": ""}, "a prompt needs the name of a finding"),
        ({"finding_name": " \n"}, "a prompt needs the name of a finding"),
        ({"finding_name": "Left Shoe", "side": "left"}, "label 'left shoe' already names a side; got side 'left'"),
        ({"finding_name": "Left Shoe", "region": "right lung"}, "label 'left shoe' contradicts region 'right lung'"),
        ({"finding_name": None}, "a finding's name must be a string; got None"),
        ({"finding_name": "nodule", "side": 3}, "a side must be a string; got 3"),
        ({"finding_name": "nodule", "region": 3}, "a region's name must be a string; got 3"),
        ({"finding_name": "nodule", "side": "up"}, "unknown side 'up'"),
        ({"finding_name": "nodule", "polarity": "maybe"}, "unknown polarity 'maybe'"),
        ({"finding_name": "nodule", "region": "nose"}, "unknown region 'nose'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_an_error(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        prompt(**arguments)

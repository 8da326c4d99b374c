import re

import pytest

from rightlung.core.errors import InputError
from rightlung.lexicon import FINDINGS, negative_prompts, positive_prompts, prompt, region, sides_in, swap_sides

NEGATION = re.compile(r"\b(no|not|without|absence|absent|free of|never|nor)\b")


@pytest.mark.parametrize("name", [*FINDINGS])
def test_every_finding_has_prompts_of_both_polarities_and_none_names_a_side(name: str) -> None:
    positive, negative = positive_prompts(name), negative_prompts(name)
    assert len(set(positive)) == len(positive) >= 3
    assert len(set(negative)) == len(negative) >= 3
    for text in positive:
        assert not NEGATION.search(text)
    for text in negative:
        assert NEGATION.search(text)
    for text in positive + negative:
        assert not sides_in(text)
        assert not re.search(r"\b(left|right|bilateral|unilateral)", text)
        assert "{" not in text
        assert text == text.strip()
        assert "  " not in text


def test_articles_fit() -> None:
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
        ({"finding_name": "No Finding", "polarity": "negative"}, "not a normal chest radiograph"),
        ({"finding_name": "My Own Label"}, "my own label"),
        ({"finding_name": "My Own Label", "side": "left", "polarity": "negative"}, "no left my own label"),
        ({"finding_name": "pleural effusion", "region": "left costophrenic angle"},
         "pleural effusion at the left costophrenic angle"),
    ],
)  # fmt: skip
def test_one_plain_phrase(arguments: dict[str, str], text: str) -> None:
    assert prompt(**arguments) == text


@pytest.mark.parametrize("name", [name for name, found in FINDINGS.items() if found.sided])
def test_swapping_the_sides_of_a_prompt_is_asking_for_the_other_side(name: str) -> None:
    assert swap_sides(prompt(name, side="left")) == prompt(name, side="right")
    assert swap_sides(prompt(name, region="left lung")) == prompt(name, region=region("left lung").mirror)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"finding_name": "cardiomegaly", "side": "left"}, "finding 'cardiomegaly' has no side; got side 'left'"),
        ({"finding_name": "nodule", "side": "left", "region": "right lung"}, "'left' contradicts region 'right lung'"),
        ({"finding_name": "nodule", "side": "up"}, "unknown side 'up'"),
        ({"finding_name": "nodule", "polarity": "maybe"}, "unknown polarity 'maybe'"),
        ({"finding_name": "nodule", "region": "nose"}, "unknown region 'nose'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_an_error(arguments: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        prompt(**arguments)

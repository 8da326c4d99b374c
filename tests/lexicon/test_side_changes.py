"""Words changed so that the truth is known."""

from __future__ import annotations

import pytest

from rightlung.lexicon import sides_in
from rightlung.lexicon.side_changes import mirrored, with_sides_exchanged, without_side
from rightlung.phantom.config import default_config
from rightlung.phantom.report import write_report
from rightlung.phantom.study import study_scene


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("left lower lobe opacity", "lower lobe opacity"), ("A left upper lobe nodule.", "An upper lobe nodule."),
        ("Small right-sided effusion.", "Small effusion."),
        ("Pleural fluid on the left side, unchanged.", "Pleural fluid, unchanged."),
        ("Opacity on the right lung base.", "Opacity on the lung base."),
        ("CONFLUENT LUL PNEUMONIA.", "CONFLUENT UPPER LOBE PNEUMONIA."), ("Upright film.", None),
        ("Lingular scarring.", None), ("Left.", None),
    ],
)  # fmt: skip
def test_the_side_is_left_out_and_nothing_else(text: str, expected: str | None) -> None:
    assert without_side(text) == expected


def test_no_phantom_sentence_keeps_its_side_when_it_is_left_out() -> None:
    config = default_config()
    changed = 0
    for index in range(60):
        for statement in write_report(study_scene(config, 5, index), config, 5):
            stripped = without_side(statement.text)
            if stripped is not None:
                changed += 1
                assert not sides_in(stripped), stripped
                assert sides_in(statement.text)
    assert changed > 40


def test_sides_are_exchanged_only_where_one_is_named() -> None:
    assert with_sides_exchanged("Left effusion.") == "Right effusion."
    assert with_sides_exchanged("Left effusion, right lung clear.") is None
    assert with_sides_exchanged("Effusion.") is None
    assert with_sides_exchanged("Opacity in the lingula of the left lung.") is None  # which would still name the left


@pytest.mark.parametrize(
    "text",
    [
        "Lingular opacity.", "Left atrial enlargement.", "Middle lobe opacity.", "Right middle lobe collapse.",
        "RML opacity.", "Azygos lobe.", "Minor fissure thickening.", "Fluid in the horizontal fissure.",
        "Situs inversus.", "Dextrocardia.", "L effusion.", "effusions, l > r", "RT effusion.",
        "Right-sided aortic arch.", "The aortic knob is calcified.", "Retrocardiac opacity.",
        "Gastric bubble below the diaphragm.", "The nasogastric tube ends in the stomach.", "NG tube in place.",
        "LV enlargement.",
    ],
)  # fmt: skip
def test_places_of_one_side_are_not_mirrored(text: str) -> None:
    assert mirrored(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Left effusion, right lung clear.", "Right effusion, left lung clear."),
        ("Bilateral effusions.", "Bilateral effusions."),
        ("LLL opacity.", "RLL opacity."),
        ("L-sided effusion.", "R-sided effusion."),
        ("Mid lung opacity, L1 fracture.", "Mid lung opacity, L1 fracture."),
        ("The major fissure is thick on the right.", "The major fissure is thick on the left."),
        ("Cardiomegaly.", "Cardiomegaly."),
    ],
)
def test_what_both_sides_have_is_mirrored(text: str, expected: str) -> None:
    assert mirrored(text) == expected

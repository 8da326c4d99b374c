"""Where a sentence names something clinical."""

from __future__ import annotations

import pytest

from rightlung.lexicon.rules import entity_spans
from rightlung.phantom.config import default_config
from rightlung.phantom.report import write_report
from rightlung.phantom.study import study_scene


def entities(text: str) -> list[str]:
    return [text[begin:end] for begin, end in entity_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Small left pleural effusion at the lung base.", ["pleural effusion", "lung base"]),
        ("No PNEUMOTHORAX.", ["PNEUMOTHORAX"]),
        ("Left lower lobe opacity and right effusion.", ["Left lower lobe", "opacity", "effusion"]),
        ("Left lung opacity.", ["Left lung opacity"]),  # a region and a finding with a word in common are one
        ("ET tube tip above the carina.", ["ET tube", "carina"]),
        ("On the left.", []),
        ("Comparison: none.", []),
        ("", []),
    ],
)
def test_findings_structures_and_regions_are_entities_and_a_side_alone_is_none(text: str, expected: list[str]) -> None:
    assert entities(text) == expected


def test_entities_of_a_report_come_in_order_and_never_overlap() -> None:
    config, found = default_config(), 0
    for index in range(30):
        for statement in write_report(study_scene(config, 5, index), config, 5):
            end_before = 0
            for begin, end in entity_spans(statement.text):
                assert end_before <= begin < end <= len(statement.text)
                end_before = end
                found += 1
            if statement.lesions:
                assert entity_spans(statement.text), statement.text
    assert found > 200

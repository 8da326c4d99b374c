import pytest

from rightlung.studies.report_text import descriptive_sections, descriptive_sentences


def test_findings_come_before_impression_however_they_are_written() -> None:
    sections = {"IMPRESSION": "Two.", " Findings": "One.", "history": "No."}
    assert descriptive_sections(sections) == ["One.", "Two."]


def test_sections_win_over_the_text() -> None:
    assert descriptive_sentences("Something else.", {"findings": "A mass."}) == ["A mass."]
    assert descriptive_sentences("Something else.", {"history": "Cough."}) == ["Something else."]
    assert descriptive_sentences(None, {"history": "Cough."}) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A mass. Heart is large.", ["A mass.", "Heart is large."]),
        ("A mass. . XXXX. 3.", ["A mass.", "XXXX."]),
        ("INDICATION: Cough.\nFINDINGS:\nLUNGS: Clear.\nCOMPARISON: None.", ["Clear."]),
        ("Cough.\nImpression:\nClear.\nRecommendations:\nCT.", ["Clear."]),
        ("Impression: Clear. FINDINGS: A mass.", ["A mass.", "Clear."]),
        ("COMPARISON: None. Clear.", ["None.", "Clear."]),
        ("Seen are the following: Clear.", ["Seen are the following: Clear."]),
        ("REASON FOR EXAM: Cough.\n \n The lungs are clear. No effusion.", ["The lungs are clear.", "No effusion."]),
    ],
)
def test_a_text_is_cut_at_its_headings(text: str, expected: list[str]) -> None:
    assert descriptive_sentences(text, {}) == expected

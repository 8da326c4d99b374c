from __future__ import annotations

import pytest

from rightlung.studies.narrative import telling_sections, telling_sentences


def test_findings_come_before_impression_however_they_are_written() -> None:
    sections = {"IMPRESSION": "Two.", " Findings": "One.", "history": "No."}
    assert telling_sections(sections) == ["One.", "Two."]


def test_sections_win_over_the_text() -> None:
    assert telling_sentences("Something else.", {"findings": "A mass."}) == ["A mass."]
    assert telling_sentences("Something else.", {"history": "Cough."}) == ["Something else."]
    assert telling_sentences(None, {"history": "Cough."}) == []


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["A mass.", ".", "XXXX", "3."], ["A mass.", "XXXX"]),
        (["INDICATION:", "Cough.", "FINDINGS:", "LUNGS:", "Clear.", "COMPARISON:", "None."], ["Clear."]),
        (["Cough.", "Impression:", "Clear.", "Recommendations:", "CT."], ["Clear."]),
        (["COMPARISON:", "None.", "Clear."], ["None.", "Clear."]),
        (["Seen are the following:", "Clear."], ["Seen are the following:", "Clear."]),
    ],
)
def test_a_text_is_cut_at_its_headings(monkeypatch: pytest.MonkeyPatch, pieces: list[str], expected: list[str]) -> None:
    monkeypatch.setattr("rightlung.lexicon.sentences.split_sentences", lambda text: list(pieces))
    assert telling_sentences("stands for the pieces", {}) == expected

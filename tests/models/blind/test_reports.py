"""The language model alone: the most probable report, checked against all reports that it can write."""

from __future__ import annotations

from collections import Counter

import pytest

from rightlung.models.blind.reports import likely_report

REPORTS = ["a b c d e f", "a b c d e f", "x b c d g", "x b c d g", "x b c d g", "x y"]


def test_the_most_probable_report_is_found_not_the_most_probable_first_word() -> None:
    # The first word is x in 4 of 6, then b in 3 of 4; after "b c d" comes g in 3 of 5. But "." ends every report.
    chances = {"x b c d g .": 4 / 6 * 3 / 4 * 3 / 5, "a b c d e f .": 2 / 6 * 2 / 5, "x y .": 4 / 6 * 1 / 4,
               "x b c d e f .": 4 / 6 * 3 / 4 * 2 / 5, "a b c d g .": 2 / 6 * 3 / 5}  # fmt: skip
    assert sum(chances.values()) == pytest.approx(1)
    assert likely_report(REPORTS) == max(chances, key=chances.__getitem__) == "x b c d g ."
    # Greedy search would begin with the most frequent first word, which here leads to the less probable report.
    unlike = ["p one", "p two", "p three", "q", "q"]
    assert Counter(text[0] for text in unlike).most_common(1)[0][0] == "p"
    assert likely_report(unlike) == "q ."


def test_without_reports_there_is_none() -> None:
    assert likely_report([]) is None
    assert likely_report(["Clear."]) == "clear ."

"""Words with their places are the words that rules compare, each where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from rightlung.lexicon.phrase_table import normal_form, word_places, words_of

SENTENCES = [
    line.partition("|")[0].strip()
    for line in Path(__file__).with_name("labelled_sentences.txt").read_text(encoding="utf-8").splitlines()
    if "|" in line
]


def test_words_with_places_are_the_words_of_a_text_each_where_it_stands() -> None:
    assert len(SENTENCES) > 100
    for text in SENTENCES:
        places = word_places(text)
        if "n't" not in text.replace("’", "'"):  # "isn't" is made two words there
            assert [form for form, _, _ in places] == words_of(text), text
        for form, begin, end in places:
            assert begin < end <= len(text)
            assert form == normal_form(text[begin:end].lower())
        ends = [0, *(end for _, _, end in places)]
        assert all(end <= begin for end, (_, begin, _) in zip(ends, places, strict=False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ", []),
        ("S/P biopsy", [("s/p", 0, 3), ("biopsy", 4, 10)]),
        ("Right-sided OPACITIES;", [("right", 0, 5), ("sided", 6, 11), ("opacity", 12, 21), (";", 21, 22)]),
        ("İ effusion", [("i̇", 0, 1), ("effusion", 2, 10)]),  # in lower case it is two characters
    ],
)
def test_places_count_the_characters_of_the_text_as_given(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert word_places(text) == expected

from __future__ import annotations

import pytest

from rightlung.core import InputError
from rightlung.lexicon import rules as module
from rightlung.lexicon.labeller import observations
from rightlung.lexicon.phrase_table import PhraseTable, expand_phrase, normal_form, words_of
from rightlung.lexicon.rules import PARTS, rules


class TestWords:
    @pytest.mark.parametrize(
        ("word", "form"),
        [
            ("effusions", "effusion"), ("opacities", "opacity"), ("masses", "mass"), ("bases", "base"), ("is", "is"),
            ("atelectasis", "atelectasis"), ("hila", "hilum"), ("pneumothoraces", "pneumothorax"), ("oedema", "edema"),
            ("haemorrhage", "hemorrhage"), ("tumours", "tumor"), ("thickness", "thickness"), ("pus", "pus"),
        ],
    )  # fmt: skip
    def test_are_compared_in_singular_and_american_spelling(self, word: str, form: str) -> None:
        assert normal_form(word) == form

    def test_hyphens_and_underscores_divide_words_and_marks_stay(self) -> None:
        assert words_of("Right-sided___effusion (small); s/p CABG.") == [
            "right", "sided", "effusion", "[", "small", "]", ";", "s/p", "cabg",
        ]  # fmt: skip

    def test_a_full_stop_between_two_words_divides_them_and_one_in_a_number_does_not(self) -> None:
        assert words_of("No effusion.edema of 1.5 cm, e.g. mild.") == [
            "no", "effusion", ";", "edema", "of", "1", "5", "cm", ",", "e", "g", "mild",
        ]  # fmt: skip

    def test_short_negations_are_taken_apart(self) -> None:
        assert words_of("isn't, doesn’t") == ["is", "not", ",", "doe", "not"]


class TestPhrases:
    def test_a_choice_in_brackets_gives_each_phrase(self) -> None:
        assert list(expand_phrase("(a|b|) c (d|e)")) == ["a c d", "a c e", "b c d", "b c e", " c d", " c e"]

    @pytest.mark.parametrize(
        ("template", "problem"),
        [("(a", "bracket"), ("a)", "bracket"), ("((a|b) c)", "bracket"), ("(a|)", "can be empty")],
    )
    def test_a_bracket_that_does_not_fit_and_an_empty_phrase_are_errors(self, template: str, problem: str) -> None:
        with pytest.raises(InputError, match=problem):
            PhraseTable[int]().add(template, 1)

    def test_the_longest_phrase_wins_and_none_overlap(self) -> None:
        table: PhraseTable[str] = PhraseTable()
        for phrase in ("heart", "heart failure", "no heart", "failure of"):
            table.add(phrase, phrase)
        assert table.find_all(words_of("heart failure of the heart")) == [(0, 2, "heart failure"), (4, 5, "heart")]
        assert table.find_all(words_of("no heart failure of")) == [(0, 2, "no heart"), (2, 4, "failure of")]

    def test_a_longer_phrase_that_does_not_end_gives_the_shorter(self) -> None:
        table: PhraseTable[int] = PhraseTable()
        table.add("a", 1)
        table.add("a b c d", 2)
        assert table.find_all(["a", "b", "c", "e"]) == [(0, 1, 1)]


class TestParts:
    def test_a_part_left_out_changes_what_is_read(self) -> None:
        text = "The heart is at the upper limits of normal."
        assert observations(text, parts=("base",))["Cardiomegaly"] == "uncertain"
        assert observations(text, parts=PARTS)["Cardiomegaly"] == "negative"

    def test_an_unknown_part_is_an_error(self) -> None:
        with pytest.raises(InputError, match="unknown part of the rules 'third'"):
            rules(("third",))


@pytest.mark.parametrize(
    ("file", "data", "problem"),
    [
        ("mentions.toml", {"base": {"mentions": {"no such finding": ["x"]}}}, "'no such finding' is not a finding"),
        ("mentions.toml", {"base": {"mentions": {"nodule": ["(x"]}}}, "key 'nodule'.*bracket"),
        ("mentions.toml", {"base": {"places": {"elbow": ["x"]}}}, "'elbow': is not a region"),
        ("mentions.toml", {"base": {"observations": {"nodule": "Nodules"}}}, "not an observation"),
        ("mentions.toml", {"base": {"structures": {"heart": {"words": ["x"], "says": {"huge": []}}}}}, "not a state"),
        ("mentions.toml", {"base": {"mention": {}}}, "is not a key of this table"),
        ("cues.toml", {"base": {"negations": ["no"]}}, "is not a key of this table"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_named_with_file_and_key(
    monkeypatch: pytest.MonkeyPatch, file: str, data: dict[str, object], problem: str
) -> None:
    monkeypatch.setattr(module, "read_data", lambda name: data if name == file else {})
    with pytest.raises(InputError, match=problem) as raised:
        rules.__wrapped__(("base",))
    assert file in str(raised.value)

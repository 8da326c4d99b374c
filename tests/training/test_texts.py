"""Words that are hidden in training, and the piece that stands for them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rightlung.core.keyed import RandomStream
from rightlung.lexicon.rules import entity_spans
from rightlung.models.encoders import WordTokenizer, train_tokenizer
from rightlung.training.annotations import mask_entities, mask_words

TEXT = "Small right-sided pleural effusion, and a nodule in the left upper lobe."
WORDS = ["Small", "right-sided", "pleural", "effusion", "and", "a", "nodule", "in", "the", "left", "upper", "lobe"]


def shown(hidden: str, parts: list[str]) -> list[bool]:
    """Which parts of the text are still to be read; everything else must be as it was."""
    pattern, rest = "", TEXT
    for part in parts:
        before, _, rest = rest.partition(part)
        pattern += rf"{re.escape(before)}({re.escape(part)}|\[MASK\])"
    match = re.fullmatch(pattern + re.escape(rest), hidden)
    assert match is not None, hidden
    return [group != "[MASK]" for group in match.groups()]


def test_words_are_hidden_by_their_share_and_the_rest_stays() -> None:
    kept = [shown(mask_words(TEXT, 0.3, RandomStream(number)), WORDS) for number in range(500)]
    by_word = [sum(column) / 500 for column in zip(*kept, strict=True)]
    assert by_word == pytest.approx([0.7] * len(WORDS), abs=0.08)  # four deviations of 500 draws


def test_only_entities_are_hidden_and_each_as_a_whole() -> None:
    entities = [TEXT[begin:end] for begin, end in entity_spans(TEXT)]
    assert entities == ["pleural effusion", "nodule", "left upper lobe"]
    kept = [shown(mask_entities(TEXT, 0.5, RandomStream(number)), entities) for number in range(400)]
    assert {tuple(row) for row in kept} == {
        (a, b, c) for a in (True, False) for b in (True, False) for c in (True, False)
    } - {(False, False, False)}
    # Each by 1/2, less the one draw in eight in which all are and one of three comes back: 1/2 + 1/24 stay.
    by_entity = [sum(column) / 400 for column in zip(*kept, strict=True)]
    assert by_entity == pytest.approx([1 / 2 + 1 / 24] * 3, abs=0.1)


@pytest.mark.parametrize("hide", [mask_words, mask_entities])
def test_one_always_stays(hide: Callable[[str, float, RandomStream], str]) -> None:
    for number in range(30):
        parts = WORDS if hide is mask_words else ["pleural effusion", "nodule", "left upper lobe"]
        assert sum(shown(hide(TEXT, 1.0, RandomStream(number)), parts)) == 1
        assert hide("Effusion.", 1.0, RandomStream(number)) == "Effusion."


def test_nothing_is_hidden_where_there_is_nothing_to_hide() -> None:
    assert mask_words(TEXT, 0.0, RandomStream(1)) == mask_entities(TEXT, 0.0, RandomStream(1)) == TEXT
    assert mask_words("…", 1.0, RandomStream(1)) == "…"
    assert mask_entities("Comparison: none.", 1.0, RandomStream(1)) == "Comparison: none."


def test_the_same_stream_hides_the_same() -> None:
    assert mask_words(TEXT, 0.5, RandomStream(7, "a")) == mask_words(TEXT, 0.5, RandomStream(7, "a"))
    assert len({mask_words(TEXT, 0.5, RandomStream(number)) for number in range(20)}) > 10


def test_every_hidden_word_is_one_word_for_the_encoder() -> None:
    tokenizer = WordTokenizer(train_tokenizer([TEXT] * 3))
    for number in range(20):
        hidden = mask_words(TEXT, 0.5, RandomStream(number))
        tokens = tokenizer.encode([hidden])
        mask = tokenizer.token_id("[MASK]")
        words = [
            word
            for word, piece in zip(tokens.word_index[0].tolist(), tokens.ids[0].tolist(), strict=True)
            if piece == mask
        ]
        assert len(set(words)) == len(words) == hidden.count("[MASK]")

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rightlung.core import InputError
from rightlung.models.encoders import WordTokenizer, train_tokenizer
from rightlung.models.encoders.pretrained import load_tokenizer_file
from rightlung.models.encoders.wordpiece import CONTINUED, train_wordpieces

TEXTS = ["Left pleural effusion.", "No left pneumothorax.", "Small right pleural effusion, unchanged."] * 3


def slowest(words: dict[str, int], size: int, least: int) -> list[str]:
    """The definition: count all pairs anew, merge the most frequent (the first in order among ties), and again."""
    spelled = {word: [word[0], *(CONTINUED + letter for letter in word[1:])] for word in words}
    letters: Counter[str] = Counter()
    for word, pieces in spelled.items():
        for piece in pieces:
            letters[piece] += words[word]
    vocabulary = sorted(letter for letter in letters if letters[letter] >= least)
    while len(vocabulary) < size:
        counts: Counter[tuple[str, str]] = Counter()
        for word, pieces in spelled.items():
            for pair in itertools.pairwise(pieces):
                counts[pair] += words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < least:
            break
        merged = best[0] + best[1].removeprefix(CONTINUED)
        if merged not in vocabulary:
            vocabulary.append(merged)
        for word, pieces in spelled.items():
            joined: list[str] = []
            for piece in pieces:
                if joined and (joined[-1], piece) == best:
                    joined[-1] = merged
                else:
                    joined.append(piece)
            spelled[word] = joined
    return vocabulary


@pytest.mark.parametrize("size", [10, 25, 60, 500])
def test_the_pieces_are_those_of_the_definition(size: int) -> None:
    words = {"banana": 5, "bandana": 3, "ananas": 4, "pleural": 7, "pleura": 6, "effusion": 9, "aaaa": 2, "x": 1}
    assert train_wordpieces(words, size, (), 2) == slowest(words, size, 2)[:size]


def test_the_same_texts_give_the_same_vocabulary_whatever_their_order() -> None:
    assert train_tokenizer(TEXTS) == train_tokenizer(reversed(TEXTS))


def test_frequent_words_become_one_piece_each() -> None:
    vocabulary = json.loads(train_tokenizer(TEXTS))["model"]["vocab"]
    assert {"left", "pleural", "effusion", "pneumothorax"} <= set(vocabulary)
    assert [vocabulary[piece] for piece in ("[PAD]", "[UNK]", "[CLS]", "[MASK]")] == [0, 1, 2, 3]


def test_a_text_begins_with_cls_and_has_no_sep() -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS))
    tokens = tokenizer.encode(["left effusion.", "left"])
    assert tokens.ids[:, 0].tolist() == [2, 2]
    assert tokens.word_index.tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
    assert tokens.word_count.tolist() == [3, 1]
    assert torch.equal(tokens.attention_mask, torch.tensor([[True] * 4, [True, True, False, False]]))


def test_the_pieces_of_a_word_carry_its_number() -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS))
    tokens = tokenizer.encode(["left effusionless right"])
    numbers = tokens.word_index[0].tolist()
    assert numbers[1] == 1
    assert numbers[-1] == 3
    assert numbers.count(2) > 1
    assert tokens.word_count.tolist() == [3]


def test_a_long_text_is_cut_off() -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS), max_length=10)
    tokens = tokenizer.encode(["left " * 2000])
    assert tokens.ids.shape == (1, 10)
    assert tokens.word_count.tolist() == [9]


def test_a_text_without_a_word_is_one_unknown_word() -> None:
    tokens = WordTokenizer(train_tokenizer(TEXTS)).encode(["́"])
    assert tokens.ids.tolist() == [[2, 1]]
    assert tokens.word_count.tolist() == [1]


def test_a_file_that_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(InputError, match="the tokenizer's file cannot be read"):
        WordTokenizer("{}")


def test_a_reading_says_how_far_and_how_much_is_known() -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS), max_length=10)
    reading = tokenizer.reading("left pleural effusion.")
    assert (reading.text, reading.complete, reading.known) == ("left pleural effusion.", True, 1.0)
    long = tokenizer.reading("left " * 50 + "right")
    assert long.text == ("left " * 9).strip()
    assert not long.complete
    assert tokenizer.reading("片側胸水").known == 0.0
    assert tokenizer.reading("zyzzyva left").known == 0.5
    assert tokenizer.reading("☃").known == 0.0


@pytest.mark.parametrize("text", ["left [MASK] effusion", "left[MASK]effusion", "LEFT [MASK], effusion"])
def test_a_hidden_word_is_one_special_piece_and_one_word_wherever_it_stands(text: str) -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS))
    tokens = tokenizer.encode([text])
    vocabulary = json.loads(tokenizer.definition)["model"]["vocab"]
    ids = [vocabulary[piece] for piece in ("[CLS]", "left", "[MASK]", *((",",) if "," in text else ()), "effusion")]
    assert tokens.ids.tolist() == [ids]
    assert tokens.word_index.tolist() == [list(range(len(ids)))]


def test_the_piece_for_a_hidden_word_changes_neither_the_vocabulary_nor_its_file() -> None:
    definition = train_tokenizer(TEXTS)
    tokenizer = WordTokenizer(definition)
    assert tokenizer.definition == definition
    assert len(tokenizer) == len(json.loads(definition)["model"]["vocab"])
    assert tokenizer.token_id("[MASK]") == 3
    again = WordTokenizer(tokenizer.definition)
    assert torch.equal(tokenizer.encode(TEXTS).ids, again.encode(TEXTS).ids)


def test_a_tokenizer_without_that_piece_takes_it_for_ordinary_characters() -> None:
    definition = json.loads(train_tokenizer(TEXTS))
    pieces = [piece for piece in definition["model"]["vocab"] if piece != "[MASK]"]
    definition["model"]["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = WordTokenizer(json.dumps(definition))
    assert tokenizer.token_id("[MASK]") is None
    assert tokenizer.encode(["left [MASK] effusion"]).word_count.tolist() == [5]


def test_a_word_level_vocabulary_holds_the_frequent_words_the_most_frequent_first() -> None:
    texts = ["left lung", "left effusion", "left lung opacity"]
    definition = train_tokenizer(texts, kind="words", min_frequency=2)
    vocabulary = json.loads(definition)["model"]["vocab"]
    assert sorted(vocabulary, key=vocabulary.__getitem__) == [
        "[PAD]",
        "[UNK]",
        "[BOS]",
        "[EOS]",
        "[MASK]",
        "left",
        "lung",
    ]
    tokenizer = WordTokenizer(definition, end_token=True)
    tokens = tokenizer.encode(["Left lung", "left effusion lung"])
    assert tokens.ids.tolist() == [[2, 5, 6, 3, 0], [2, 5, 1, 6, 3]]
    assert tokens.attention_mask.sum(1).tolist() == [4, 5]
    assert tokens.word_count.tolist() == [2, 3]
    assert tokens.word_index.tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 0]]


def test_an_end_token_counts_in_the_length_and_can_be_left_out() -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS, end_token=True), max_length=5, end_token=True)
    cut = tokenizer.encode(["left " * 20]).ids[0].tolist()
    assert len(cut) == 5
    assert cut[-1] == tokenizer.end_id == tokenizer.token_id("[SEP]")
    assert tokenizer.encode(["left"], end_token=False).ids.tolist() == [[tokenizer.start_id, cut[1]]]
    with pytest.raises(InputError, match="no end token; expected one of"):
        WordTokenizer(train_tokenizer(TEXTS), end_token=True)


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
def test_decoding_undoes_encoding_and_stops_at_the_end_token(kind: Any) -> None:
    tokenizer = WordTokenizer(train_tokenizer(TEXTS, kind=kind, end_token=True), end_token=True)
    texts = ["left pleural effusion", "small right pleural effusion"]
    tokens = tokenizer.encode(texts)
    assert tokenizer.decode(tokens.ids) == texts
    after = torch.cat([tokens.ids[1:], tokens.ids[1:]], dim=1)
    assert tokenizer.decode(after) == texts[1:]


def test_a_gpt_2_file_has_one_special_token_for_everything(tmp_path: Path) -> None:
    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary = {**alphabet, "le": 256, "ft": 257, "left": 258, "<|endoftext|>": 259}
    byte_level = Tokenizer(models.BPE(vocabulary, [("l", "e"), ("f", "t"), ("le", "ft")]))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=byte_level, eos_token="<|endoftext|>").save_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    tokenizer = WordTokenizer(load_tokenizer_file(str(tmp_path)), end_token=True)
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.padding_id) == (259, 259, 259)
    tokens = tokenizer.encode(["left Lunge, ä", ""])
    assert tokens.ids[0, :2].tolist() == [259, 258]
    assert tokens.ids[1].tolist() == [259] * tokens.ids.shape[1]
    assert tokens.attention_mask.sum(1).tolist() == [13, 3]
    assert tokenizer.decode(tokens.ids) == ["left Lunge, ä", ""]

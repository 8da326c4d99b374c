"""Words and their pieces. A WordPiece vocabulary is trained on the texts at hand; nothing is downloaded.

As in GLoRIA: ``[CLS]`` and the words, no ``[SEP]``; the pieces of a word belong together and are summed by the encoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.models.base import Reading
from rightlung.models.encoders.wordpiece import train_pieces

PADDING, UNKNOWN, START, MASK = "[PAD]", "[UNK]", "[CLS]", "[MASK]"
SPECIAL = (PADDING, UNKNOWN, START, MASK)
MOST_CHARACTERS = 20_000
_REMEMBERED = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """``n`` texts, padded on the right: ``ids`` (n, length) and ``attention_mask`` (n, length) bool.

    ``word`` (n, length) numbers the words of a text from 1; 0 is what belongs to no word (``[CLS]``, padding).
    ``words`` (n,) is how many there are, at least 1.
    """

    ids: Tensor
    attention_mask: Tensor
    word: Tensor
    words: Tensor

    def to(self, device: torch.device) -> Tokens:
        """Return the tokens on another device."""
        parts = (self.ids, self.attention_mask, self.word, self.words)
        return Tokens(*(part.to(device, non_blocking=True) for part in parts))


def train_tokenizer(texts: Iterable[str], vocabulary: int = 4000, least: int = 2) -> str:
    """Train a WordPiece vocabulary on texts, in lower case, and return it as the JSON of a `tokenizers` file.

    A piece must come at least ``least`` times. The same texts give the same vocabulary.
    """
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text, times in Counter(texts).items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)):
            words[word] += times
    pieces = train_pieces(words, vocabulary, SPECIAL, least)
    return word_pieces(pieces, decoder=decoders.WordPiece(), max_input_chars_per_word=60)


def word_pieces(pieces: Sequence[str], decoder: Any = None, **options: Any) -> str:
    """Return the WordPiece tokenizer of these pieces, in lower case, as the JSON of a `tokenizers` file."""
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token=UNKNOWN, **options))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if decoder is not None:
        tokenizer.decoder = decoder
    return str(tokenizer.to_str())


class WordTokenizer:
    """Texts to `Tokens`; what was seen before is remembered, which training with recurring sentences thrives on."""

    def __init__(self, definition: str, max_length: int = 96) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(definition)
        except Exception as error:  # the library raises a bare Exception
            raise InputError(f"the tokenizer's file cannot be read: {error}") from None
        if self._tokenizer.token_to_id(MASK) is not None:  # a word of its own wherever it stands in a text
            self._tokenizer.add_special_tokens([AddedToken(MASK, normalized=False, special=True)])
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.definition = definition
        self.max_length = max_length
        found = (self.number_of(piece) for piece in (START, UNKNOWN, PADDING))
        special = [number for number in found if number is not None]
        if len(special) < 3:
            raise InputError(f"a tokenizer must have {PADDING}, {UNKNOWN} and {START}")
        self._start, self._unknown, self._padding = special
        self._seen: dict[str, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def number_of(self, piece: str) -> int | None:
        """Return the number of a piece such as ``[MASK]``, None where there is none."""
        number: int | None = self._tokenizer.token_to_id(piece)
        return number

    def encode(self, texts: Sequence[str]) -> Tokens:
        """Take texts apart. A long one is cut off after ``max_length``; one without any word is one unknown word."""
        self._learn(texts)
        parts = [self._seen[text] for text in texts]
        length = max((len(ids) for ids, _ in parts), default=1)
        ids = np.full((len(parts), length), self._padding, dtype=np.int64)
        word = np.zeros((len(parts), length), dtype=np.int64)
        for row, (pieces, numbers) in enumerate(parts):
            ids[row, : len(pieces)] = pieces
            word[row, : len(numbers)] = numbers
        lengths = np.array([len(pieces) for pieces, _ in parts], dtype=np.int64)
        return Tokens(
            torch.from_numpy(ids),
            torch.from_numpy(np.arange(length)[None] < lengths[:, None]),
            torch.from_numpy(word),
            torch.tensor([int(numbers[-1]) for _, numbers in parts], dtype=torch.long),
        )

    def reading(self, text: str) -> Reading:
        """Return how far a text is read, and which share of its words is known.

        A word is known if it is a piece of its own, or made of pieces of three letters and more on average: one that
        has to be spelt out, or has letters never seen, says nothing to the encoder.
        """
        encoding = self._tokenizer.encode(_readable(text), add_special_tokens=False)
        kept = self.max_length - 1
        whole = len(encoding.ids) <= kept and len(text) <= MOST_CHARACTERS
        end = len(text) if whole else encoding.offsets[kept - 1][1] if len(encoding.ids) >= kept else MOST_CHARACTERS
        pieces: dict[int | None, list[str]] = {}
        for word, piece in zip(encoding.word_ids[:kept], encoding.tokens[:kept], strict=True):
            pieces.setdefault(word, []).append(piece)
        words = [parts for parts in pieces.values() if any(letter.isalnum() for part in parts for letter in part)]
        known = sum(
            UNKNOWN not in parts
            and (len(parts) == 1 or sum(len(part.removeprefix("##")) for part in parts) >= 3 * len(parts))
            for parts in words
        )
        return Reading(text[:end], whole, known / len(words) if words else 0.0)

    def _learn(self, texts: Sequence[str]) -> None:
        """Take apart all of these texts that are not known yet, at once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._seen]
        if len(self._seen) + len(new) > _REMEMBERED:
            self._seen.clear()
            new = list(dict.fromkeys(texts))
        encodings = self._tokenizer.encode_batch([_readable(text) for text in new], add_special_tokens=False)
        for text, encoding in zip(new, encodings, strict=True):
            ids, of_word = encoding.ids[: self.max_length - 1], encoding.word_ids[: self.max_length - 1]
            order = {word: number for number, word in enumerate(dict.fromkeys(of_word), start=1)}
            words = [order[word] for word in of_word]
            pieces = [self._start, *(ids or [self._unknown])], [0, *(words or [1])]
            self._seen[text] = np.array(pieces[0], dtype=np.int32), np.array(pieces[1], dtype=np.int32)


def _readable(text: str) -> str:
    """Return a text, not too long, with a question mark for what is no character (half of a pair, a stray byte)."""
    return text[:MOST_CHARACTERS].encode("utf-8", "replace").decode()

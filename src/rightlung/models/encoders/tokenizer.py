"""Tokenizers: WordPiece and word-level vocabularies trained on the texts at hand, and any `tokenizers` file.

A text becomes a start token, its tokens and, where the model wants one, an end token. GLoRIA has no end token and sums
the tokens of each word, for which `Tokens` holds the word index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.models.base import Reading
from rightlung.models.encoders.wordpiece import train_wordpieces

PADDING, UNKNOWN, MASK = "[PAD]", "[UNK]", "[MASK]"
# The names that each special token has in the files we read: ours and BERT's, R2Gen's, RoBERTa's, CLIP's, GPT-2's.
# GPT-2 has a single one, which also pads (the attention mask hides it) and stands for a text without any token.
_PADDINGS = (PADDING, "<pad>", "<|endoftext|>")
_UNKNOWNS = (UNKNOWN, "<unk>", "<|endoftext|>")
_STARTS = ("[CLS]", "[BOS]", "<s>", "<|startoftext|>", "<|endoftext|>")
_ENDS = ("[SEP]", "[EOS]", "</s>", "<|endoftext|>")
MAX_CHARACTERS = 20_000
_CACHE_SIZE = 1_000_000

TokenizerKind = Literal["wordpiece", "words"]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """``n`` texts, padded on the right: ``ids`` (n, length) and ``attention_mask`` (n, length) bool.

    Word pooling also reads ``word_index`` (n, length), the word of each token counted from 1 (0: special tokens and
    padding), and ``word_count`` (n,), at least 1.
    """

    ids: Tensor
    attention_mask: Tensor
    word_index: Tensor
    word_count: Tensor

    def to(self, device: torch.device) -> Tokens:
        """Return the tokens on another device."""
        parts = (self.ids, self.attention_mask, self.word_index, self.word_count)
        return Tokens(*(part.to(device, non_blocking=True) for part in parts))


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int = 4000,
    min_frequency: int = 2,
    kind: TokenizerKind = "wordpiece",
    end_token: bool = False,
) -> str:
    """Train a lower-case vocabulary of at most ``vocab_size`` tokens; return it as the JSON of a `tokenizers` file.

    A token must occur ``min_frequency`` times. The same texts always give the same vocabulary.
    """
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text, times in Counter(texts).items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)):
            words[word] += times
    if kind == "wordpiece":
        special = (PADDING, UNKNOWN, "[CLS]", MASK, *(("[SEP]",) if end_token else ()))
        tokens = train_wordpieces(words, vocab_size, special, min_frequency)
        return word_pieces(tokens, decoder=decoders.WordPiece(), max_input_chars_per_word=60)
    frequent = sorted((word for word in words if words[word] >= min_frequency), key=lambda word: (-words[word], word))
    listed = [PADDING, UNKNOWN, "[BOS]", "[EOS]", MASK, *frequent][:vocab_size]
    return _definition(models.WordLevel({word: token_id for token_id, word in enumerate(listed)}, unk_token=UNKNOWN))


def word_pieces(tokens: Sequence[str], decoder: Any = None, **options: Any) -> str:
    """Return the lower-case WordPiece tokenizer of these tokens as the JSON of a `tokenizers` file."""
    token_ids = {token: token_id for token_id, token in enumerate(tokens)}
    return _definition(models.WordPiece(token_ids, unk_token=UNKNOWN, **options), decoder)


def _definition(model: Any, decoder: Any = None) -> str:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if decoder is not None:
        tokenizer.decoder = decoder
    return str(tokenizer.to_str())


class WordTokenizer:
    """Turn texts into `Tokens` and token ids into texts. Encoded texts are cached: sentences recur in training."""

    def __init__(self, definition: str, max_length: int = 96, end_token: bool = False) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(definition)
        except Exception as error:  # the library raises a bare Exception
            raise InputError(f"the tokenizer's file cannot be read: {error}") from None
        if self._tokenizer.token_to_id(MASK) is not None:  # one token wherever it stands in a text
            self._tokenizer.add_special_tokens([AddedToken(MASK, normalized=False, special=True)])
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.definition = definition
        self.max_length = max_length
        self.padding_id, self.unknown_id = self._special("padding", _PADDINGS), self._special("unknown", _UNKNOWNS)
        self.start_id = self._special("start", _STARTS)
        self.end_id = self._special("end", _ENDS) if end_token else None
        self._max_tokens = max_length - 1 - end_token  # besides the special ones
        self._cache: dict[str, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def _special(self, role: str, names: Sequence[str]) -> int:
        for name in names:
            if (token_id := self.token_id(name)) is not None:
                return token_id
        raise InputError(f"the tokenizer's vocabulary has no {role} token; expected one of {', '.join(names)}")

    def token_id(self, token: str) -> int | None:
        """Return the id of a token such as ``[MASK]``, None if the vocabulary lacks it."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def encode(self, texts: Sequence[str], end_token: bool = True) -> Tokens:
        """Encode texts, cut off at ``max_length``. A text without any token is one unknown word.

        ``end_token=False`` leaves out the end token, for a beginning that a language model continues.
        """
        self._encode_new(texts)
        parts = [self._cache[text] for text in texts]
        ends = [] if self.end_id is None or not end_token else [self.end_id]
        lengths = np.array([len(ids) + len(ends) for ids, _ in parts], dtype=np.int64)
        length = int(lengths.max(initial=1))
        ids = np.full((len(parts), length), self.padding_id, dtype=np.int64)
        word_index = np.zeros((len(parts), length), dtype=np.int64)
        for row, (token_ids, indices) in enumerate(parts):
            ids[row, : lengths[row]] = [*token_ids, *ends]
            word_index[row, : len(indices)] = indices
        return Tokens(
            torch.from_numpy(ids),
            torch.from_numpy(np.arange(length)[None] < lengths[:, None]),
            torch.from_numpy(word_index),
            torch.tensor([int(indices[-1]) for _, indices in parts], dtype=torch.long),
        )

    def start(self, count: int) -> Tokens:
        """Return the start token alone, ``count`` times: where a language model begins to write."""
        one = torch.ones(count, 1, dtype=torch.long)
        return Tokens(one * self.start_id, one.bool(), one * 0, one[:, 0])

    def decode(self, ids: Iterable[Sequence[int]] | Tensor) -> list[str]:
        """Return the texts of token ids, each up to its end token and without special tokens."""
        rows = ids.tolist() if isinstance(ids, Tensor) else [list(row) for row in ids]
        texts = []
        for row in rows:
            inner = row[1:] if row[:1] == [self.start_id] else row
            if self.end_id in inner:
                inner = inner[: inner.index(self.end_id)]
            texts.append(self._tokenizer.decode([one for one in inner if one not in (self.start_id, self.padding_id)]))
        return texts

    def reading(self, text: str) -> Reading:
        """Return how much of a text is read, and the share of its words that the vocabulary knows.

        A known word is one token, or several of at least three letters on average. A word that is spelled letter by
        letter means nothing to the encoder.
        """
        encoding = self._tokenizer.encode(_valid(text), add_special_tokens=False)
        kept = self._max_tokens
        whole = len(encoding.ids) <= kept and len(text) <= MAX_CHARACTERS
        end = len(text) if whole else encoding.offsets[kept - 1][1] if len(encoding.ids) >= kept else MAX_CHARACTERS
        tokens: dict[int | None, list[str]] = {}
        for word, token in zip(encoding.word_ids[:kept], encoding.tokens[:kept], strict=True):
            tokens.setdefault(word, []).append(token)
        words = [parts for parts in tokens.values() if any(letter.isalnum() for part in parts for letter in part)]
        known = sum(
            UNKNOWN not in parts
            and (len(parts) == 1 or sum(len(part.removeprefix("##")) for part in parts) >= 3 * len(parts))
            for parts in words
        )
        read = min(len(encoding.ids), kept)
        return Reading(text[:end], whole, known / len(words) if words else 0.0, read)

    def _encode_new(self, texts: Sequence[str]) -> None:
        """Encode the texts that the cache lacks, in one call; they have a start token and no end token."""
        new = [text for text in dict.fromkeys(texts) if text not in self._cache]
        if len(self._cache) + len(new) > _CACHE_SIZE:
            self._cache.clear()
            new = list(dict.fromkeys(texts))
        encodings = self._tokenizer.encode_batch([_valid(text) for text in new], add_special_tokens=False)
        for text, encoding in zip(new, encodings, strict=True):
            ids, word_ids = encoding.ids[: self._max_tokens], encoding.word_ids[: self._max_tokens]
            order = {word_id: index for index, word_id in enumerate(dict.fromkeys(word_ids), start=1)}
            indices = [order[word_id] for word_id in word_ids]
            self._cache[text] = (
                np.array([self.start_id, *(ids or [self.unknown_id])], dtype=np.int32),
                np.array([0, *(indices or [1])], dtype=np.int32),
            )


def _valid(text: str) -> str:
    """Return at most `MAX_CHARACTERS` of a text, with a question mark for each unpaired surrogate."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()

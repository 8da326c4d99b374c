"""R2Gen's word-level vocabulary: cleaning, a least count, and special tokens of their own.

R2Gen pads, begins and ends with the same token, so that the end of a report is masked out of its loss; here they
differ. Words are those of `rightlung.scoring.language.clean_words`, R2Gen's cleaning to the letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.lexicon.headings import DESCRIPTIVE_SECTIONS
from rightlung.lexicon.sections import report_sections
from rightlung.models.base import Reading
from rightlung.models.encoders.pretrained import load_tokenizer_file
from rightlung.models.encoders.tokenizer import MAX_CHARACTERS, PADDING, UNKNOWN, Tokens, WordTokenizer
from rightlung.scoring.language import clean_words

SPECIAL = (PADDING, UNKNOWN, "[BOS]", "[EOS]")
SIDES = ("left", "right", "bilateral")
"""Always in the vocabulary: a report without them cannot say where."""
ANONYMISED = "xxxx"
"""What Open-i writes in place of names and dates: it is read, but neither learned nor written."""
FULL_STOP = "."


@lru_cache(maxsize=1 << 16)
def cleaned(text: str) -> str:
    """Return R2Gen's words of a text, separated by spaces."""
    return " ".join(clean_words(text[:MAX_CHARACTERS]))


@lru_cache(maxsize=1 << 17)
def described(report: str) -> str:
    """Return findings and impression without their headings; a report without headings as it is.

    >>> described("INDICATION: Cough. FINDINGS: Clear lungs. IMPRESSION: Normal.")
    'Clear lungs. Normal.'
    """
    sections = report_sections(report)
    parts = [text.strip() for name in DESCRIPTIVE_SECTIONS if (text := sections.get(name)) and text.strip()]
    return " ".join(parts) if parts else report


def train_vocabulary(texts: Iterable[str], min_count: int, vocab_size: int) -> str:
    """Return the words that occur ``min_count`` times, most frequent first, as the JSON of a `tokenizers` file."""
    counts: Counter[str] = Counter()
    for text, times in Counter(texts).items():
        for word in cleaned(text).split():
            counts[word] += times
    for name in SPECIAL:
        counts.pop(name.lower(), None)
    frequent = [word for word in counts if counts[word] >= min_count and word not in (*SIDES, FULL_STOP)]
    frequent.sort(key=lambda word: (-counts[word], word))
    words = [*SPECIAL, FULL_STOP, *SIDES, *frequent][:vocab_size]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return str(tokenizer.to_str())


class ReportVocabulary(WordTokenizer):
    """Turns reports into words and back. ``max_length`` counts the start and the end token."""

    def __init__(self, definition: str, max_words: int) -> None:
        super().__init__(definition, max_words + 2, end_token=True)
        if self.end_id is None or len({self.padding_id, self.unknown_id, self.start_id, self.end_id}) < len(SPECIAL):
            raise InputError("the vocabulary needs four different special tokens: padding, unknown, start and end")
        anonymised = self.token_id(ANONYMISED)
        self.anonymised_id = -1 if anonymised is None else anonymised
        self.full_stop_id = self.token_id(FULL_STOP)

    @property
    def never_written(self) -> list[int]:
        """The tokens that no report contains."""
        kept = (self.padding_id, self.unknown_id, self.start_id, self.anonymised_id)
        return [one for one in kept if one >= 0]

    def encode(self, texts: Sequence[str], end_token: bool = True) -> Tokens:
        """Encode texts after R2Gen's cleaning."""
        return super().encode([cleaned(text) for text in texts], end_token)

    def reading(self, text: str) -> Reading:
        """Return how much of a text is read, and the share of its words that the vocabulary has."""
        words = [word for word in cleaned(text).split() if word != FULL_STOP]
        known = sum(self.token_id(word) is not None for word in words)
        complete = len(cleaned(text).split()) <= self.max_length - 2 and len(text) <= MAX_CHARACTERS
        return Reading(text, complete, known / len(words) if words else 0.0)

    def learned(self, tokens: Tokens) -> Tensor:
        """Return which tokens (n, length) a report teaches: no padding, unknown or anonymised words."""
        ids = tokens.ids
        return tokens.attention_mask & (ids != self.unknown_id) & (ids != self.anonymised_id)

    def word(self, token_id: int) -> str:
        """Return the word of a token id."""
        return str(self._tokenizer.id_to_token(token_id))

    def words(self, ids: Iterable[int]) -> list[str]:
        """Return the words of token ids up to the end token, without special tokens."""
        found = []
        for one in ids:
            if one == self.end_id:
                break
            if one not in (self.padding_id, self.start_id):
                found.append(self.word(one))
        return found

    def pieces(self, pretrained: str | None) -> Tensor:
        """Return the tokens of a BERT that spell each word, (words, most pieces), padded with -1.

        Without a pretrained BERT, each word is one token of its own.
        """
        if pretrained is None:
            return torch.arange(len(self))[:, None]
        other = WordTokenizer(load_tokenizer_file(pretrained))
        special = {self.padding_id: other.padding_id, self.unknown_id: other.unknown_id, self.start_id: other.start_id}
        spelled = []
        for number in range(len(self)):
            if number == self.end_id:
                spelled.append([other.token_id("[SEP]") or other.unknown_id])
            elif number in special:
                spelled.append([special[number]])
            else:
                spelled.append(other.encode([self.word(number)]).ids[0, 1:].tolist())
        longest = max(map(len, spelled))
        return torch.tensor([own + [-1] * (longest - len(own)) for own in spelled])


def sentences_of(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return where each sentence of a report begins and ends; a last one without a full stop is left out.

    A report that has no full stop at all is one sentence.

    >>> sentences_of("no effusion . heart size normal . small".split())
    [(0, 3), (3, 7)]
    """
    found, begin = [], 0
    for place, word in enumerate(words):
        if word == FULL_STOP:
            if place > begin:
                found.append((begin, place + 1))
            begin = place + 1
    return found or ([(0, len(words))] if set(words) - {FULL_STOP} else [])


def readable(words: Sequence[str]) -> str:
    """Return the words of a sentence as people write it.

    >>> readable("no pleural effusion .".split())
    'No pleural effusion.'
    """
    text = " ".join(word for word in words if word != FULL_STOP)
    return f"{text[:1].upper()}{text[1:]}."

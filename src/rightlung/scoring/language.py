"""Scores of generated text: BLEU-1 to 4, ROUGE-L and CIDEr, from statistics of each text (METEOR: `scoring.meteor`).

All equal pycocoevalcap, the code behind the published numbers. Corpus BLEU is added up from the statistics of each
text, so that a bootstrap resamples them. A number depends on how texts become words (`TOKEN_RULES`); numbers by
different rules must not be compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import check_known
from rightlung.scoring.statistics.inputs import FloatArray

_COUNTED = [f"bleu_{what}_{n}" for n in range(1, 5) for what in ("matches", "total")]
BLEU_COLUMNS = (*_COUNTED, "answer_words", "reference_words")
MAX_WORDS = 59
"""Words of a text by the rule ``r2gen``: R2Gen cuts Open-i's at 60 tokens with the start token (MIMIC-CXR's at 100)."""
UNKNOWN = "<unk>"

Words = Sequence[str]


def words_and_marks(text: str) -> list[str]:
    """Return the words and punctuation marks of a text in lower case."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def cased_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, case kept; a hyphen or decimal point inside stays in its word.

    Close to NLTK's ``word_tokenize``, which the eCLIP paper's BLEU-2 rests on.

    >>> cased_words("No X-ray change of 2.5 cm, (stable).")
    ['No', 'X-ray', 'change', 'of', '2.5', 'cm', ',', '(', 'stable', ')', '.']
    """
    return re.findall(r"\w+(?:[-'/.]\w+)*|[^\w\s]", text)


def words_without_marks(text: str) -> list[str]:
    """Return the words of a text in lower case without punctuation marks, close to the PTB tokenizer's.

    >>> words_without_marks("No X-ray change of 2.5 cm, (stable).")
    ['no', 'x-ray', 'change', 'of', '2.5', 'cm', 'stable']
    """
    return [word for word in cased_words(text.lower()) if word[0].isalnum() or word[0] == "_"]


def clean_words(text: str) -> list[str]:
    """Return the words of a text as R2Gen cleans it: lower case, " . " between sentences and at the end.

    Enumeration numbers go and hyphens stay, with R2Gen's slips: "T11. " loses its last "1. ", too. White space is
    joined first, as R2Gen does for MIMIC-CXR but not for Open-i; single-spaced text gives the same words by both.

    >>> " ".join(clean_words("1. Heart size normal. 2. No effusion/pneumothorax; X-ray at T11. Stable."))
    'heart size normal . no effusionpneumothorax x-ray at t1stable .'
    """
    text = re.sub(r"\.{2,}", ".", re.sub(r"\s+", " ", text)).replace("1. ", "")
    for pattern in (". {}. ", " {}. "):
        for number in range(2, 6):
            text = text.replace(pattern.format(number), ". ")
    parts = (part.strip() for part in text.strip().lower().split(". "))
    sentences = (re.sub(r"""[]"'/\\.,?;*!%^&_+():<=>@[{}]""", "", part) for part in parts)
    return (" . ".join(sentences) + " .").split()


def r2gen_words(text: str, vocabulary: Collection[str] | None = None, max_words: int = MAX_WORDS) -> list[str]:
    """Return the words that R2Gen's tokenizer gives back: the first ``max_words``, rare ones as ``<unk>``.

    ``vocabulary`` is that of the training reports (`vocabulary_of`); without one, no word is replaced.
    """
    words = clean_words(text)[:max_words]
    return words if vocabulary is None else [word if word in vocabulary else UNKNOWN for word in words]


def vocabulary_of(reports: Iterable[str], at_least: int = 3) -> set[str]:
    """Return the words that occur at least so often in training reports (R2Gen: 3 on Open-i, 10 on MIMIC-CXR)."""
    counts = Counter(chain.from_iterable(map(clean_words, reports)))
    return {word for word, count in counts.items() if count >= at_least}


TOKEN_RULES: dict[str, Callable[[str], list[str]]] = {
    "cased": cased_words,
    "marks": words_and_marks,
    "r2gen": r2gen_words,
    "whole": clean_words,
    "uncased": words_without_marks,
    "given": str.split,
}
"""How a text becomes words: words and marks, with case and in lower case; as R2Gen does, cut to
`MAX_WORDS`; the same for the whole text; lower-case words without marks; the words as given, between spaces."""


def token_rule(name: str) -> Callable[[str], list[str]]:
    """Return a rule of `TOKEN_RULES` by its name."""
    check_known("token rule", name, TOKEN_RULES)
    return TOKEN_RULES[name]


def bleu_statistics(answer: Words, reference: Words) -> dict[str, float]:
    """Return clipped n-gram matches, totals and both lengths."""
    found = {"answer_words": float(len(answer)), "reference_words": float(len(reference))}
    for n in range(1, 5):
        said, known = ngrams(answer, n), ngrams(reference, n)
        found |= {f"bleu_matches_{n}": float((said & known).total()), f"bleu_total_{n}": float(said.total())}
    return found


def ngrams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    """Return the n-grams of a text with their counts."""
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


def corpus_bleu(columns: Mapping[str, NDArray[Any]], counts: FloatArray, order: int) -> FloatArray:
    """Return BLEU of n-grams up to ``order``, ``(resamples,)``: 0 if an n has no match, NaN without instances."""
    sums, drawn = column_sums(columns, (*_COUNTED[: 2 * order], "answer_words", "reference_words"), counts)
    matches, totals, (answer, reference) = sums[:, :-2:2], sums[:, 1:-2:2], sums[:, -2:].T
    precisions = np.where(matches > 0, matches, 1.0) / np.maximum(totals, 1.0)
    brevity = np.minimum(0.0, 1.0 - reference / np.maximum(answer, 1.0))
    bleu = np.where((matches > 0).all(axis=1), np.exp(brevity + np.log(precisions).mean(axis=1)), 0.0)
    return np.where(drawn > 0, bleu, np.nan)


def sentence_bleu(answer: Words, reference: Words, order: int = 2) -> float:
    """Return the BLEU of one text: equal weights for 1 to ``order`` words, no smoothing, brevity penalty.

    Without a match of any of these lengths it is 0, as is that of an answer shorter than ``order`` words.
    """
    found = bleu_statistics(answer, reference)
    columns = {name: np.array([value]) for name, value in found.items()}
    return float(corpus_bleu(columns, np.ones((1, 1)), order)[0])


def mean_sentence_bleu(candidates: Sequence[Words], references: Sequence[Words], order: int = 2) -> FloatArray:
    """Return the mean of `sentence_bleu` of each candidate over all references, ``(candidates,)``."""
    from scipy.sparse import csc_matrix

    lengths = np.array([len(words) for words in references], np.float64)
    logarithms = np.zeros((len(candidates), len(references)))
    for n in range(1, order + 1):
        known = [ngrams(words, n) for words in references]
        place = {gram: at for at, gram in enumerate(dict.fromkeys(chain.from_iterable(known)))}
        entries = [(row, place[gram], count) for row, counts in enumerate(known) for gram, count in counts.items()]
        rows, columns, counts = zip(*entries, strict=True) if entries else ((), (), ())
        matrix = csc_matrix((counts, (rows, columns)), shape=(len(references), max(len(place), 1)), dtype=np.float64)
        for candidate, words in enumerate(candidates):
            said = ngrams(words, n)
            shared = {place[gram]: count for gram, count in said.items() if gram in place}
            matches = np.minimum(matrix[:, list(shared)].toarray(), list(shared.values())).sum(axis=1)
            with np.errstate(divide="ignore"):
                logarithms[candidate] += np.log(matches / max(said.total(), 1)) / order
    said_lengths = np.array([max(len(words), 1) for words in candidates], np.float64)[:, None]
    means: FloatArray = np.exp(logarithms + np.minimum(0.0, 1.0 - lengths / said_lengths)).mean(axis=1)
    return means


def copied_share(answer: Words, sources: Sequence[Words], n: int = 4) -> float:
    """Return the share of an answer's n-grams that occur in one of the sources; NaN without any n-gram.

    >>> copied_share("the lungs are clear today".split(), ["the lungs are clear .".split()])
    0.5
    """
    said, known = ngrams(answer, n), set(chain.from_iterable(ngrams(words, n) for words in sources))
    return sum(count for gram, count in said.items() if gram in known) / said.total() if said else math.nan


def greedy_match(answer: FloatArray, reference: FloatArray) -> tuple[float, float, float]:
    """Return precision, recall and F1 of BERTScore (Zhang et al. 2020) from token embeddings ``(tokens, dimension)``.

    Each token is matched with the most similar one of the other text by cosine; tokens weigh the same (no idf), and
    special tokens must not be among them. NaN if a text has no token.
    """
    if not len(answer) or not len(reference):
        return math.nan, math.nan, math.nan
    one, other = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (answer, reference))
    cosines = one @ other.T
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    return precision, recall, 2 * precision * recall / (precision + recall)


ROUGE_BETA, CIDER_SIGMA = 1.2, 6.0


def rouge_l(answers: Sequence[Words], references: Sequence[Words]) -> FloatArray:
    """Return ROUGE-L (beta 1.2) of each text, ``(n,)``; the published number is their mean."""
    found = np.zeros(len(answers))
    for place, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        said, true = answer or ("",), reference or ("",)  # two texts without words are equal
        shared = _longest_common(said, true)
        precision, recall = shared / len(said), shared / len(true)
        if shared:
            found[place] = (1 + ROUGE_BETA**2) * precision * recall / (recall + ROUGE_BETA**2 * precision)
    return found


def _longest_common(one: Words, other: Words) -> int:
    """Return the length of the longest common subsequence, a row of its table in one integer (Hyyrö 2004)."""
    places: defaultdict[str, int] = defaultdict(int)
    for place, word in enumerate(one):
        places[word] |= 1 << place
    full = row = (1 << len(one)) - 1
    for word in other:
        hits = row & places.get(word, 0)
        row = ((row + hits) | (row - hits)) & full
    return len(one) - row.bit_count()


def cider(answers: Sequence[Words], references: Sequence[Words]) -> FloatArray:
    """Return CIDEr of each text (CIDEr-D, as published numbers are), ``(n,)``, 0 to 10; their mean is published.

    Rare n-grams count more: their frequencies are those of all ``references``, also when a bootstrap averages some.
    """
    weights, known = _weighted(tuple(map(tuple, references)))
    most = math.log(len(references)) if references else 0.0
    found = np.zeros(len(answers))
    for place, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        for n, (counts, squared) in enumerate(known[place], start=1):
            said = ngrams(answer, n)
            lengths = squared * sum([(count * weights.get(gram, most)) ** 2 for gram, count in said.items()])
            both = [gram for gram in said if gram in counts]
            if lengths:
                shared = sum([min(said[gram], counts[gram]) * counts[gram] * weights[gram] ** 2 for gram in both])
                found[place] += shared / math.sqrt(lengths)
        # Lengths are counted in pairs of words, as in the published code.
        longer = max(len(answer) - 1, 0) - max(len(reference) - 1, 0)
        found[place] *= 10 / 4 * math.exp(-(longer**2) / (2 * CIDER_SIGMA**2))
    return found


@lru_cache(maxsize=2)
def _weighted(
    references: tuple[tuple[str, ...], ...],
) -> tuple[dict[tuple[str, ...], float], list[list[tuple[Counter[tuple[str, ...]], float]]]]:
    """Return the weight of each n-gram of references and, of each text and n, its n-grams and their squared length.

    Many answers are scored against the same references: those of a model and of each baseline.
    """
    counts = [[ngrams(words, n) for n in range(1, 5)] for words in references]
    texts_with = Counter(chain.from_iterable(chain.from_iterable(counts)))
    weights = {gram: math.log(len(references) / count) for gram, count in texts_with.items()}
    return weights, [
        [(some, sum([(count * weights[gram]) ** 2 for gram, count in some.items()])) for some in of_text]
        for of_text in counts
    ]


def column_sums(
    columns: Mapping[str, NDArray[Any]], names: Sequence[str], counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of columns over the drawn texts, (rows, columns), and how many texts were drawn, (rows,)."""
    values = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
    there = ~np.isnan(values).any(axis=1)
    return counts[:, there] @ values[there], counts[:, there].sum(axis=1)

"""Image-blind baselines of report generation, learned from other patients' reports (papers: Pino 2020, Boag 2019).

The most frequent report is a weak one: it is short, and BLEU punishes that. A report chosen for its BLEU-4, or a few
frequent sentences glued together for it, score higher than most published systems on Open-i.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain

from rightlung.core.keyed import text_generator
from rightlung.lexicon.sentences import split_sentences
from rightlung.models.blind.constants import most_typical
from rightlung.models.blind.prior import FOLDS, fold_of
from rightlung.scoring.language import clean_words, ngrams

MOST_REPORTS = 5000
"""Of more reports than this, the first are learned from."""
SENTENCES, MOST_SENTENCES = 100, 8
"""How many of the most frequent sentences are tried, and how many are glued together at most."""
CONTEXT = 3
"""From how many words before a language model knows the next one."""


class CorpusBleu:
    """Corpus BLEU-4 of one text that is given as the answer to every reference, by R2Gen's words of the whole text.

    The clipped matches of all references with a text are looked up: of each n-gram, how many references have it once,
    twice, and so on.
    """

    def __init__(self, references: Iterable[str]) -> None:
        self._at_least: Counter[tuple[tuple[str, ...], int]] = Counter()
        self._references = self._length = 0
        for words in map(clean_words, references):
            for n in range(1, 5):
                counts = ngrams(words, n)
                self._at_least.update((gram, number) for gram, most in counts.items() for number in range(1, most + 1))
            self._references += 1
            self._length += len(words)

    def of(self, text: str) -> float:
        """Return BLEU-4 of a text, 0 if an n has no match."""
        return self.of_words(clean_words(text))

    def of_words(self, words: Sequence[str]) -> float:
        """Return BLEU-4 of the words of a text."""
        known = self._at_least
        logarithm = 0.0
        for n in range(1, 5):
            counts = ngrams(words, n)
            matches = sum([known.get((gram, 1), 0) for gram in counts])
            for gram, most in counts.items():
                if most > 1:
                    matches += sum(known.get((gram, number), 0) for number in range(2, most + 1))
            if not matches:
                return 0.0
            logarithm += math.log(matches / (self._references * (len(words) - n + 1))) / 4
        return math.exp(logarithm + min(0.0, 1 - self._length / (self._references * len(words))))


def best_report(reports: Sequence[str]) -> str | None:
    """Return the report with the highest BLEU-4 against all of them, None without any."""
    return _best_of(tuple(reports))


@lru_cache(maxsize=FOLDS)
def _best_of(reports: tuple[str, ...]) -> str | None:
    return max(dict.fromkeys(reports), key=CorpusBleu(reports).of, default=None)


def assembled_report(reports: Sequence[str]) -> str | None:
    """Return sentences of the reports, glued together for BLEU-4 against all of them, None without any.

    The search starts from nothing and from the best report, and puts in, takes out or exchanges one sentence at a time.
    """
    score = CorpusBleu(reports)
    spelt: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for sentence in chain.from_iterable(map(split_sentences, reports)):
        key = " ".join(clean_words(sentence))
        spelt.setdefault(key, sentence if sentence.endswith(".") else f"{sentence}.")
        counts[key] += 1
    words = {sentence: key.split() for key, sentence in spelt.items()}

    def value(some: tuple[str, ...]) -> float:
        return score.of_words([*chain.from_iterable(words[one] for one in some)])

    pool = [spelt[key] for key, _ in counts.most_common(SENTENCES)]
    best = (" ".join(clean_words(one)) for one in split_sentences(best_report(reports) or ""))
    starts = [(), tuple(spelt[key] for key in best)[:MOST_SENTENCES]]
    found = (_climbed(start, pool, value) for start in starts)
    return max(map(" ".join, found), key=score.of, default="") or None


def _climbed(start: tuple[str, ...], pool: Sequence[str], score: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
    """Return sentences that no single insertion, removal or exchange makes better."""
    best, value = start, score(start) if start else -1.0
    while True:
        places = range(len(best) + 1)
        changed = [(*best[:at], *best[at + 1 :]) for at in places[:-1]] if len(best) > 1 else []
        changed += [(*best[:at], one, *best[at + 1 :]) for at in places[:-1] for one in pool]
        if len(best) < MOST_SENTENCES:
            changed += [(*best[:at], one, *best[at:]) for at in places for one in pool]
        values = [score(some) for some in changed]
        if not values or max(values) <= value:
            return best
        value = max(values)
        best = changed[values.index(value)]


def likely_report(reports: Sequence[str]) -> str | None:
    """Return the most probable report of a language model alone, by R2Gen's words; None without any.

    The probability of a word, or of the end, given the `CONTEXT` words before is its relative frequency. The search for
    the best path is exact, so it has no beams.
    """
    follows: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words in map(clean_words, reports):
        padded = [*[""] * CONTEXT, *words, ""]
        for at in range(CONTEXT, len(padded)):
            follows[tuple(padded[at - CONTEXT : at])][padded[at]] += 1
    paths: list[tuple[float, int, tuple[str, ...], tuple[str, ...]]] = [(0.0, 0, (), ("",) * CONTEXT)]
    seen: set[tuple[str, ...]] = set()
    pushed = 0
    while paths and follows:
        cost, _, said, context = heappop(paths)
        if said and not context[-1]:
            return " ".join(said).strip()
        if context in seen:
            continue
        seen.add(context)
        total = follows[context].total()
        for word, count in follows[context].items():
            pushed += 1
            heappush(paths, (cost - math.log(count / total), pushed, (*said, word), (*context[1:], word)))
    return None


MADE: dict[str, Callable[[Sequence[str]], str | None]] = {
    "blind-frequent": most_typical,
    "blind-best": best_report,
    "blind-assembled": assembled_report,
    "blind-language": likely_report,
}
"""Constants by the name of their baseline."""
RANDOM = "blind-random-report"


@dataclass
class BlindReports:
    """Reports that answer about a patient with what was learned from others: constants, and a random report."""

    folds: int = FOLDS
    _reports: list[tuple[int, str]] = field(default_factory=list)
    _made: dict[tuple[str, int | None], str | None] = field(default_factory=dict)

    def add(self, patient: str, report: str) -> None:
        """Learn from one report."""
        if len(self._reports) < MOST_REPORTS:
            self._reports.append((fold_of(patient, self.folds), report))
            self._made = {}

    def text(self, name: str, patient: str | None, study: str, seed: int = 0) -> str | None:
        """Return the report of a baseline about a study; None as the patient: learned from other studies only."""
        held_out = None if patient is None else fold_of(patient, self.folds)
        others = [report for fold, report in self._reports if fold != held_out]
        if name == RANDOM:
            return others[int(text_generator(seed, name, study, "").integers(len(others)))] if others else None
        if (name, held_out) not in self._made:
            self._made[name, held_out] = MADE[name](others)
        return self._made[name, held_out]

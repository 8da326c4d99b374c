"""Train a WordPiece vocabulary: merge the most frequent pair of neighbouring tokens, and repeat.

The trainer of `tokenizers` breaks ties by the order of a hash map: two runs number their tokens differently, and the
weights of one do not fit the other. This trainer always gives the same vocabulary for the same texts.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

CONTINUED = "##"


def train_wordpieces(words: Mapping[str, int], size: int, special: Sequence[str], min_frequency: int = 2) -> list[str]:
    """Return at most ``size`` tokens, the special ones first, learned from the counts of words.

    Every character that occurs ``min_frequency`` times is a token, at the start of a word and within it.
    """
    spelled = {word: [word[0], *(CONTINUED + letter for letter in word[1:])] for word in sorted(words)}
    letters: Counter[str] = Counter()
    for word, tokens in spelled.items():
        for token in tokens:
            letters[token] += words[word]
    alphabet = sorted(letter for letter, count in letters.items() if count >= min_frequency)
    vocabulary = [*special, *alphabet][:size]
    known = set(vocabulary)
    counts: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for word, tokens in spelled.items():
        for pair in itertools.pairwise(tokens):
            counts[pair] += words[word]
            places[pair].add(word)
    queue = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(queue)
    while queue and len(vocabulary) < size:
        count, pair = heapq.heappop(queue)
        if -count != counts[pair]:  # outdated: another merge has changed the count
            continue
        if -count < min_frequency:
            break
        merged = pair[0] + pair[1].removeprefix(CONTINUED)
        if merged not in known:
            vocabulary.append(merged)
            known.add(merged)
        for word in sorted(places[pair]):
            before = list(itertools.pairwise(spelled[word]))
            spelled[word] = _merge(spelled[word], pair, merged)
            after = list(itertools.pairwise(spelled[word]))
            for gone in before:
                counts[gone] -= words[word]
                places[gone].discard(word)
            for come in after:
                counts[come] += words[word]
                places[come].add(word)
            for changed in {*before, *after}:
                if counts[changed] > 0:
                    heapq.heappush(queue, (-counts[changed], changed))
    return vocabulary


def _merge(tokens: Sequence[str], pair: tuple[str, str], merged: str) -> list[str]:
    """Return the tokens with a pair merged wherever it occurs."""
    new: list[str] = []
    position = 0
    while position < len(tokens):
        found = tuple(tokens[position : position + 2]) == pair
        new.append(merged if found else tokens[position])
        position += 2 if found else 1
    return new

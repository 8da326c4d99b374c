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
            for changed in _merge(spelled, word, pair, merged, words[word], counts, places):
                heapq.heappush(queue, (-counts[changed], changed))
    return vocabulary


def _merge(
    spelled: dict[str, list[str]],
    word: str,
    pair: tuple[str, str],
    merged: str,
    times: int,
    counts: Counter[tuple[str, str]],
    places: defaultdict[tuple[str, str], set[str]],
) -> set[tuple[str, str]]:
    """Merge a pair wherever it occurs in a word, and return the pairs whose counts have changed."""
    old = spelled[word]
    new: list[str] = []
    position = 0
    while position < len(old):
        if position + 1 < len(old) and (old[position], old[position + 1]) == pair:
            new.append(merged)
            position += 2
        else:
            new.append(old[position])
            position += 1
    spelled[word] = new
    before, after = (list(itertools.pairwise(tokens)) for tokens in (old, new))
    for gone in before:
        counts[gone] -= times
    for come in after:
        counts[come] += times
        places[come].add(word)
    for gone in set(before) - set(after):
        places[gone].discard(word)
    return {changed for changed in (*before, *after) if counts[changed] > 0}

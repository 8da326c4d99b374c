"""Train a WordPiece vocabulary: the most frequent pairs of neighbouring pieces become pieces, again and again.

The trainer of `tokenizers` breaks ties by the order of a hash map, so that two runs number their pieces differently and
weights trained by one do not fit the other. This one gives the same vocabulary for the same texts, always.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

CONTINUED = "##"


def train_pieces(words: Mapping[str, int], size: int, special: Sequence[str], least: int = 2) -> list[str]:
    """Return at most ``size`` pieces, the special ones first, learned from words and how often each comes.

    Every character that comes at least ``least`` times is a piece of its own, at a word's beginning and within.
    """
    spelled = {word: [word[0], *(CONTINUED + letter for letter in word[1:])] for word in sorted(words)}
    letters: Counter[str] = Counter()
    for word, pieces in spelled.items():
        for piece in pieces:
            letters[piece] += words[word]
    alphabet = sorted(letter for letter, count in letters.items() if count >= least)
    vocabulary = [*special, *alphabet][:size]
    known = set(vocabulary)
    counts: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for word, pieces in spelled.items():
        for pair in itertools.pairwise(pieces):
            counts[pair] += words[word]
            places[pair].add(word)
    queue = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(queue)
    while queue and len(vocabulary) < size:
        count, pair = heapq.heappop(queue)
        if -count != counts[pair]:  # an entry from before another merge changed it
            continue
        if -count < least:
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
    """Put a pair together wherever it stands in a word, and return the pairs whose counts have changed."""
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
    before, after = (list(itertools.pairwise(pieces)) for pieces in (old, new))
    for gone in before:
        counts[gone] -= times
    for come in after:
        counts[come] += times
        places[come].add(word)
    for gone in set(before) - set(after):
        places[gone].discard(word)
    return {changed for changed in (*before, *after) if counts[changed] > 0}

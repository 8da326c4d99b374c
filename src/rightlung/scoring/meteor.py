"""METEOR 1.5 of generated text, from what the program of pycocoevalcap counts in each text. It needs Java.

Corpus METEOR is added up from the statistics of each text, so that a bootstrap resamples them.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import InputError
from rightlung.scoring.language import Words, column_sums
from rightlung.scoring.statistics.inputs import FloatArray
from rightlung.scoring.threads import usable_cores

METEOR_COLUMNS = (
    "meteor_answer_matches", "meteor_answer_weight", "meteor_reference_matches", "meteor_reference_weight",
    "meteor_chunks", "meteor_matched_words",
)  # fmt: skip
# Parameters of METEOR 1.5 for English (Denkowski & Lavie 2014, Table 1); matches: exact, stem, synonym, paraphrase.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_MATCH_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])


def meteor_statistics(answers: Sequence[Words], references: Sequence[Words]) -> dict[str, FloatArray]:
    """Return what METEOR 1.5 counts in each text, ``(n,)`` by name of `METEOR_COLUMNS`; add up for a corpus.

    The alignment is done by the METEOR of pycocoevalcap, which needs Java. It is started once for all calls; for
    many texts, several times.
    """
    make = _program()
    if shutil.which("java") is None:
        raise InputError("METEOR needs Java: install a Java runtime (version 8 or newer) so that 'java' is on the PATH")
    pairs = [(said, true) for (said,), (true,) in zip(*_as_texts(answers, references), strict=True)]
    keys = [hashlib.blake2b("\n".join(pair).encode(), digest_size=16).digest() for pair in pairs]
    if len(_KNOWN) > MOST_KNOWN:
        _KNOWN.clear()
    missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in _KNOWN}
    workers = 1 if len(missing) < PAIRS_AT_ONCE else min(MOST_METEORS, usable_cores())
    try:
        with ThreadPoolExecutor(workers) as pool:
            parts = [[*missing.items()][number::workers] for number in range(workers)]
            texts = [[pair for _, pair in some] for some in parts]
            for some, found in zip(parts, pool.map(_asked, _meteors(make, workers), texts), strict=True):
                _KNOWN.update((key, numbers) for (key, _), numbers in zip(some, found, strict=True))
    except BaseException as error:  # a question may lack its answer, which would be taken for that of the next one
        _stop_meteor()
        if isinstance(error, OSError):
            raise InputError(f"METEOR has stopped: {error}") from None
        raise
    return _meteor_columns(np.array([_KNOWN[key] for key in keys], np.float64).reshape(-1, 23))


MOST_METEORS, PAIRS_AT_ONCE = 4, 1000
"""The most processes of METEOR, and from how many pairs on there is more than one."""
MOST_KNOWN = 200_000
_KNOWN: dict[bytes, FloatArray] = {}
"""What METEOR has counted in pairs of texts, by their hash: protocols and baselines repeat many."""
_RUNNING: list[Any] = []


def _asked(scorer: Any, pairs: Sequence[tuple[str, str]]) -> list[FloatArray]:
    """Return METEOR's 23 numbers of each pair of texts."""
    found = []
    with scorer.lock:
        for said, true in pairs:
            numbers = scorer._stat(said, [true]).split()
            if len(numbers) != 23:
                raise InputError(f"METEOR gave no statistics for the text {said[:60]!r}")
            found.append(np.array(numbers, np.float64))
    return found


def _meteors(make: Callable[[], Any], count: int) -> list[Any]:
    """Return running METEORs, which take seconds to start and then answer line by line."""
    if not _RUNNING:
        atexit.register(_stop_meteor)
    while len(_RUNNING) < count:
        _RUNNING.append(make())
    return _RUNNING[:count]


def _stop_meteor() -> None:
    """Stop METEOR, if it runs."""
    atexit.unregister(_stop_meteor)
    while _RUNNING:
        process = _RUNNING.pop().meteor_p
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):  # what was not read is lost
                pipe.close()


def _meteor_columns(numbers: FloatArray) -> dict[str, FloatArray]:
    """Weigh the jar's 23 numbers: lengths, function words, four kinds of match, chunks, matched words."""
    lengths, functions, chunks, matched = numbers[:, 0:2], numbers[:, 2:4], numbers[:, 20], numbers[:, 21:]
    kinds = numbers[:, 4:20].reshape(-1, 4, 4)  # kind × (answer, reference: content), (answer, reference: function)
    content, function = (np.einsum("nkw,k->nw", kinds[:, :, part], _MATCH_WEIGHTS) for part in (slice(2), slice(2, 4)))
    matches = _DELTA * content + (1 - _DELTA) * function
    weights = _DELTA * (lengths - functions) + (1 - _DELTA) * functions
    # METEOR does not punish the single chunk of a text that matches entirely.
    whole = (matched == lengths).all(axis=1) & (chunks == 1)
    columns = (matches[:, 0], weights[:, 0], matches[:, 1], weights[:, 1], np.where(whole, 0, chunks), matched.mean(1))
    return dict(zip(METEOR_COLUMNS, columns, strict=True))


def corpus_meteor(columns: Mapping[str, NDArray[Any]], counts: FloatArray) -> FloatArray:
    """Return corpus METEOR, ``(resamples,)``; of one text, its own METEOR."""
    sums, drawn = column_sums(columns, METEOR_COLUMNS, counts)
    answer, answer_weight, reference, reference_weight, chunks, matched = sums.T
    precision, recall = answer / np.maximum(answer_weight, 1e-12), reference / np.maximum(reference_weight, 1e-12)
    mean = precision * recall / np.maximum(_ALPHA * precision + (1 - _ALPHA) * recall, 1e-12)
    penalty = _GAMMA * (chunks / np.maximum(matched, 1e-12)) ** _BETA
    return np.where(drawn > 0, np.where(matched > 0, mean * (1 - penalty), 0.0), np.nan)


def _as_texts(*texts: Sequence[Words]) -> list[list[list[str]]]:
    """Return each text as pycocoevalcap takes it; METEOR's own separator must not occur in it."""
    return [[[" ".join(words).replace("|||", "|")] for words in some] for some in texts]


def _program() -> Any:
    try:
        from pycocoevalcap.meteor.meteor import Meteor
    except ImportError:
        raise InputError("METEOR needs pycocoevalcap: pip install 'rightlung[language]'") from None
    return Meteor

"""Retrieval of reports by images and of images by reports, next to answers that never see the image.

Reports repeat: "no acute findings" has many authors. So candidates are **distinct** texts (`TextPool`); an image with
the same text as the query's is a hit and never a wrong answer; and texts that occur once are also scored alone, because
only these cannot be guessed by their frequency. Every score has one value for each query, in the order of the images,
so that models can be compared query by query (`rightlung.results.estimator.Estimator`, with the patients as clusters).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError, check_known
from rightlung.scoring.retrieval import KS, Floats, retrieve

IMAGE_TO_TEXT, TEXT_TO_IMAGE = "image-to-text", "text-to-image"
CORRECTED, FREQUENT, CHANCE = "image-to-text, prior-corrected", "frequent texts first", "uniform chance"
IMAGES_BY_CHANCE = "uniform chance, text-to-image"

_NO_WORD = re.compile(r"[\W_]+")


def without_case_and_spaces(text: str) -> str:
    """Return a text in lower case with single spaces."""
    return " ".join(text.casefold().split())


NORMALISATIONS: Mapping[str, Callable[[str], str]] = {
    "exact": str,
    "case-and-spaces": without_case_and_spaces,
    "words": lambda text: " ".join(_NO_WORD.sub(" ", text.casefold()).split()),
}
"""What identical texts may differ in: nothing; case and spaces; or also punctuation."""


@dataclass(frozen=True)
class TextPool:
    """The distinct texts that are candidates, in the wording that came first, and how often each occurs.

    >>> pool = TextPool.of(["No change.", "A nodule.", "no  change."], name="val")
    >>> pool.texts, pool.counts.tolist(), pool.places(["NO CHANGE.", "A mass."]).tolist()
    (('No change.', 'A nodule.'), [2.0, 1.0], [0, -1])
    """

    name: str
    texts: tuple[str, ...]
    counts: Floats = field(repr=False)
    normalisation: str = "case-and-spaces"

    @classmethod
    def of(cls, texts: Sequence[str], name: str = "all", normalisation: str = "case-and-spaces") -> TextPool:
        """Return the pool of all distinct texts among these."""
        check_known("normalisation", normalisation, NORMALISATIONS)
        same = NORMALISATIONS[normalisation]
        counts = Counter(map(same, texts))
        first: dict[str, str] = {}
        for text in texts:
            first.setdefault(same(text), text)
        return cls(name, tuple(first.values()), np.array([counts[one] for one in first], np.float64), normalisation)

    def places(self, texts: Sequence[str]) -> NDArray[np.intp]:
        """Return the place of each text in the pool, −1 where the pool lacks it."""
        same = NORMALISATIONS[self.normalisation]
        known = {same(text): place for place, text in enumerate(self.texts)}
        return np.array([known.get(same(text), -1) for text in texts], np.intp)

    def log_frequency(self, training_texts: Sequence[str], smoothing: float = 1.0) -> Floats:
        """Return the log of each text's share among training texts, with ``smoothing`` more of each."""
        places = self.places(training_texts)
        counts = np.bincount(places[places >= 0], minlength=len(self.texts)) + smoothing
        shares: Floats = np.log(counts / (len(training_texts) + smoothing * len(self.texts)))
        return shares


@dataclass(frozen=True, eq=False)
class Candidates:
    """The texts that an image's query can find: a pool, their embeddings and what is added to their cosines.

    ``embeddings`` are (texts of the pool, dimension), ``bonus`` (texts of the pool,), such as that of a
    `PriorCorrection`.
    """

    pool: TextPool
    embeddings: Floats = field(repr=False)
    bonus: Floats | None = field(default=None, repr=False)

    def rank(self, images: ArrayLike, texts: Sequence[str], ks: Sequence[int] = KS) -> dict[str, Floats]:
        """Return ``rank`` and ``recall@k`` of each image's own text, by the cosine of embeddings."""
        groups = self.pool.places(texts), np.arange(len(self.pool.texts))
        return retrieve(images, self.embeddings, groups, ks, bonus=self.bonus)

    def with_vectors(self, vectors: Mapping[int, ArrayLike]) -> Candidates:
        """Return the candidates with other embeddings at some places of the pool."""
        known = dict(enumerate(self.embeddings)) | {place: np.asarray(one) for place, one in vectors.items()}
        return replace(self, embeddings=stacked([known[place] for place in sorted(known)]))

    @classmethod
    def some(cls, pool: TextPool, vectors: Mapping[int, ArrayLike]) -> Candidates:
        """Return the candidates at those places of a pool whose embeddings are known."""
        places = sorted(vectors)
        own = replace(pool, texts=tuple(pool.texts[place] for place in places), counts=pool.counts[places])
        return cls(own, stacked([vectors[place] for place in places]))


def rank_images(
    texts: tuple[ArrayLike, Sequence[str]],
    images: tuple[ArrayLike, Sequence[str]],
    pool: TextPool,
    ks: Sequence[int] = KS,
) -> dict[str, Floats]:
    """Return ``rank`` and ``recall@k`` of each text's own image among all; images with the same text are hits.

    ``texts`` and ``images`` are their embeddings (n, dimension) and the texts themselves.
    """
    return retrieve(texts[0], images[0], (pool.places(texts[1]), pool.places(images[1])), ks)


def stacked(vectors: Sequence[ArrayLike]) -> Floats:
    """Return vectors as a table (n, dimension); they must have one dimension."""
    if len(sizes := {len(np.asarray(one)) for one in vectors}) > 1:
        raise InputError(f"images and texts must have embeddings of one dimension; got {sorted(sizes)}")
    return np.array([np.asarray(one, np.float64) for one in vectors], np.float64)


@dataclass(frozen=True)
class Retrieved:
    """Ranks and recalls of all queries."""

    name: str
    pool: str
    candidates: int
    columns: Mapping[str, Floats] = field(repr=False)
    """``rank`` and ``recall@k``, (queries,); NaN for a query whose answer is not among the candidates."""
    once: NDArray[np.bool_] = field(repr=False)
    """Whether the query's text occurs once in the pool, (queries,)."""

    def column(self, name: str, once: bool = False) -> Floats:
        """Return the values of all queries; with ``once``, NaN for those whose text occurs more often."""
        check_known("column", name, self.columns)
        return np.where(self.once, self.columns[name], np.nan) if once else self.columns[name]

    def as_json(self) -> dict[str, object]:
        """Return recall at each k and the median rank, of all queries and of those whose text occurs once."""
        found: dict[str, object] = {"pool": self.pool, "candidates": self.candidates}
        for title, once in (("all", False), ("once", True)):
            columns = {name: self.column(name, once) for name in self.columns}
            there = {name: values[~np.isnan(values)] for name, values in columns.items()}
            numbers: dict[str, float | int] = {"queries": len(there["rank"])}
            if len(there["rank"]):
                numbers |= {name: float(values.mean()) for name, values in there.items() if name != "rank"}
                numbers["median_rank"] = float(np.median(there["rank"]))
            found[title] = numbers
        return found


@dataclass(frozen=True)
class PriorCorrection:
    """The weight of a text's log frequency beside its cosine (see `fit_prior`)."""

    weight: float

    def bonus(self, log_frequency: ArrayLike) -> Floats:
        """Return what to add to the cosine of each text, (texts,)."""
        added: Floats = self.weight * np.asarray(log_frequency, np.float64)
        return added


WEIGHTS = (0.0, *np.geomspace(1e-3, 1.0, 61).tolist())


def fit_prior(
    images: ArrayLike, pool_embeddings: ArrayLike, places: ArrayLike, log_frequency: ArrayLike, k: int = KS[-1]
) -> PriorCorrection:
    """Choose the weight of log p̂(t) with the best recall at ``k`` of images (n, dimension), given their texts' places.

    A contrastive loss learns log p(t | image) / p(t), so it unlearns how frequent texts are; this adds it again. Fit on
    training patients that the embeddings were **not** trained on: memorised pairs need no prior, and its weight becomes
    too small. Of equally good weights, the smallest is taken.
    """
    vectors, known = np.asarray(images), np.asarray(pool_embeddings)
    own, logs = np.asarray(places, np.intp), np.asarray(log_frequency, np.float64)
    if not len(own) or (own < 0).any():
        raise InputError("to fit the prior correction, the pool must hold the text of every image, and one at least")
    groups = own, np.arange(len(known))
    recalls = [retrieve(vectors, known, groups, (k,), bonus=one * logs)[f"recall@{k}"].mean() for one in WEIGHTS]
    return PriorCorrection(WEIGHTS[int(np.argmax(recalls))])


def score(
    images: ArrayLike,
    texts: Sequence[str],
    pool: TextPool,
    pool_embeddings: ArrayLike,
    *,
    training_texts: Sequence[str] | None = None,
    correction: PriorCorrection | None = None,
    ks: Sequence[int] = KS,
) -> dict[str, Retrieved]:
    """Score images (n, dimension) and their own ``texts`` (n) both ways, and answers that never see the image.

    ``pool_embeddings`` (texts of the pool, dimension) belong to the pool, which holds all own texts. An image's query
    has all texts of the pool as candidates. A text's query has all of ``images``; those with the same text are hits.
    `FREQUENT` answers every image with the most frequent training texts (default: those of the pool), `CHANCE` with the
    pool in random order, and `IMAGES_BY_CHANCE` every text with the images in random order. With a ``correction``,
    `CORRECTED` adds the training texts' log frequency to the cosines.
    """
    places = pool.places(texts)
    vectors, known = np.asarray(images), np.asarray(pool_embeddings)
    if len(vectors) != len(texts) or len(known) != len(pool.texts):
        raise InputError(
            f"got {len(vectors)} images for {len(texts)} texts, and {len(known)} embeddings for the {len(pool.texts)} "
            f"texts of pool {pool.name!r}"
        )
    if (places < 0).any():
        missing = texts[int(np.argmax(places < 0))]
        raise InputError(f"pool {pool.name!r} lacks the text {missing[:60]!r} of a query")
    if len(pool.texts) <= max(ks):
        raise InputError(
            f"pool {pool.name!r} has {len(pool.texts)} distinct texts; recall at {max(ks)} needs more of them"
        )
    training = [text for text, n in zip(pool.texts, pool.counts, strict=True) for _ in range(int(n))]
    logs = pool.log_frequency(training if training_texts is None else training_texts)
    once = pool.counts[places] == 1

    def of(name: str, columns: Mapping[str, Floats], candidates: int = len(pool.texts)) -> Retrieved:
        return Retrieved(name, pool.name, candidates, columns, once)

    own, every, constant = Candidates(pool, known), np.ones((len(places), 1)), np.ones((len(pool.texts), 1))
    blind = Candidates(pool, constant)
    both = rank_images((known[places], texts), (vectors, texts), pool, ks)
    found = {
        IMAGE_TO_TEXT: of(IMAGE_TO_TEXT, own.rank(vectors, texts, ks)),
        TEXT_TO_IMAGE: of(TEXT_TO_IMAGE, both, len(vectors)),
        FREQUENT: of(FREQUENT, replace(blind, bonus=logs).rank(every, texts, ks)),
        CHANCE: of(CHANCE, blind.rank(every, texts, ks)),
        IMAGES_BY_CHANCE: of(IMAGES_BY_CHANCE, rank_images((every, texts), (every, texts), pool, ks), len(vectors)),
    }
    if correction is not None:
        corrected = replace(own, bonus=correction.bonus(logs))
        found[CORRECTED] = of(CORRECTED, corrected.rank(vectors, texts, ks))
    return found

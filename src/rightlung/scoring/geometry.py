"""The geometry of image and text embeddings: modality gap, alignment, uniformity, with their levels of chance.

They describe an embedding and are no merit by themselves. All move with the temperature and with training, and an
encoder that returns one constant vector has a perfect gap and a perfect alignment. So `Geometry` holds the temperature,
and the values of random unit vectors and of a constant encoder stand next to the model's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError
from rightlung.scoring.retrieval import Floats, unit_vectors

ROWS_AT_ONCE = 2048
SHARPNESS = 2.0
"""t of the uniformity e^(−t‖a−b‖²) (Wang and Isola, ICML 2020)."""


@dataclass(frozen=True)
class Levels:
    """Gap, alignment and uniformity (of images, of texts, and of both pooled)."""

    gap: float
    """‖mean of images − mean of texts‖ (Liang et al., NeurIPS 2022), 0 to 2."""
    alignment: float
    """Mean of ‖image − its text‖², 0 (the same) to 4; lower is closer."""
    uniformity_images: float
    """log of the mean of e^(−2‖a−b‖²) over pairs of different images, −8 to 0; lower is more evenly spread."""
    uniformity_texts: float
    uniformity_pooled: float
    """The same over pairs of images and texts together."""


@dataclass(frozen=True)
class Geometry(Levels):
    """The values of a model, and what to read them against."""

    pairs: int = 0
    dimension: int = 0
    temperature: float | None = None
    """By which the model divides cosines, if known."""
    chance: Mapping[str, Levels] = field(default_factory=dict)
    """``random``: as many independent random unit vectors of this dimension; ``constant``: one constant vector."""

    def as_json(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        return asdict(self)


def geometry(images: ArrayLike, texts: ArrayLike, temperature: float | None = None) -> Geometry:
    """Return the geometry of pairs of embeddings, (n, dimension) each; they are divided by their lengths.

    Give each distinct text once where texts repeat: identical ones are at distance 0 and raise the uniformity.
    """
    first, second = _pairs(images, texts)
    pairs, dimension = first.shape
    chance = {"random": random_levels(pairs, dimension), "constant": Levels(0.0, 0.0, 0.0, 0.0, 0.0)}
    values = modality_gap(first, second), alignment(first, second), uniformity(first), uniformity(second)
    pooled = uniformity(np.concatenate([first, second]))
    return Geometry(*values, pooled, pairs, dimension, temperature, chance)


def modality_gap(images: ArrayLike, texts: ArrayLike) -> float:
    """Return the distance of the mean image from the mean text; the numbers of both may differ.

    >>> modality_gap([[1, 0], [0, 1]], [[-1, 0], [0, -1]]).__round__(4)
    1.4142
    """
    first, second = unit_vectors(images), unit_vectors(texts)
    _check(first, second)
    return float(np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)))


def alignment(images: ArrayLike, texts: ArrayLike) -> float:
    """Return the mean squared distance of each image from its own text.

    >>> alignment([[1, 0], [0, 1]], [[1, 0], [1, 0]])
    1.0
    """
    return float(squared_distances(images, texts).mean())


def squared_distances(images: ArrayLike, texts: ArrayLike) -> Floats:
    """Return the squared distance of each image from its own text, (n,): what alignment averages."""
    first, second = _pairs(images, texts)
    found: Floats = ((first - second) ** 2).sum(axis=1)
    return found


def uniformity(vectors: ArrayLike) -> float:
    """Return the log of the mean of e^(−2‖a−b‖²) over all pairs of different vectors.

    >>> uniformity([[1, 0], [0, 1], [-1, 0]]) == math.log((2 * math.exp(-4) + math.exp(-8)) / 3)
    True
    """
    unit = unit_vectors(vectors)
    if len(unit) < 2:
        raise InputError(f"uniformity needs at least two vectors; got {len(unit)}")
    total = 0.0
    for begin in range(0, len(unit), ROWS_AT_ONCE):
        rows = unit[begin : begin + ROWS_AT_ONCE]
        # ‖a−b‖² = 2 − 2 cos; the pairs above the diagonal, each once.
        values = np.exp(-2 * SHARPNESS * (1 - np.minimum(rows @ unit[begin:].T, 1.0)))
        total += float(np.triu(values, 1).sum())
    return math.log(total / (len(unit) * (len(unit) - 1) / 2))


def random_levels(pairs: int, dimension: int) -> Levels:
    """Return the expected levels of independent random unit vectors.

    For the cosine c of two of them, E e^(κc) = ₀F₁(; d/2; κ²/4), so the uniformity is −4 + log ₀F₁(; d/2; 4). The gap
    is the root of its expected square, 2/n.
    """
    from scipy.special import hyp0f1

    even = -2 * SHARPNESS + math.log(float(hyp0f1(dimension / 2, SHARPNESS**2)))
    return Levels(math.sqrt(2 / pairs), 2.0, even, even, even)


def umap_map(vectors: ArrayLike, seed: int = 0, neighbours: int = 15) -> Floats:
    """Return points (n, 2) of a UMAP by cosine; needs ``pip install 'rightlung[retrieval]'``.

    The same seed gives the same map. A map shows neighbourhoods; its distances and gaps prove nothing.
    """
    unit = unit_vectors(vectors)
    if len(unit) <= neighbours:
        raise InputError(f"a UMAP with {neighbours} neighbours needs more vectors than that; got {len(unit)}")
    try:
        import umap
    except ImportError:
        raise InputError("UMAP is not installed: pip install 'rightlung[retrieval]'") from None
    found = umap.UMAP(n_neighbors=neighbours, metric="cosine", random_state=seed, n_jobs=1).fit_transform(unit)
    return np.asarray(found, np.float64)


def _pairs(images: ArrayLike, texts: ArrayLike) -> tuple[Floats, Floats]:
    first, second = unit_vectors(images), unit_vectors(texts)
    _check(first, second)
    if len(first) != len(second):
        raise InputError(f"images and texts must be pairs; got {len(first)} and {len(second)}")
    return first, second


def _check(first: Floats, second: Floats) -> None:
    if not len(first) or not len(second) or first.shape[1] != second.shape[1]:
        raise InputError(f"expected images and texts of one dimension; got the shapes {first.shape}, {second.shape}")

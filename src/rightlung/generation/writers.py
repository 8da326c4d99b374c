"""Writers without a language model, and the snippets that a language model is given (eCLIP supp. D, step 2).

A writer turns the retrieved reports of one image into a text. All are deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import InputError
from rightlung.lexicon.labeller import LabelledSentence, read_report

VOTE_SHARE = 0.5
"""The share of the retrieved reports that must say something for the writer ``vote`` to say it."""
_DECIMALS = 5


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The reports nearest to an image, nearest first: texts, unit embeddings ``(k, dimension)``, cosines ``(k,)``."""

    texts: tuple[str, ...]
    embeddings: NDArray[np.float32]
    cosines: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError("no report was retrieved: the index holds none of another patient")


def choose_snippets(retrieved: Retrieved, clusters: int = 5) -> list[int]:
    """Return the places of the texts nearest to the centres of K-means clusters, nearest to the image first.

    Equal texts are one point that weighs as often as it occurs. With no more distinct texts (or embeddings) than
    clusters, each is a cluster of its own.
    """
    counts = Counter(retrieved.texts)
    places = [retrieved.texts.index(text) for text in counts]
    points = retrieved.embeddings[places].astype(np.float64)
    # Texts that differ only in words that the model does not know have one embedding.
    _, firsts = np.unique(points.round(_DECIMALS), axis=0, return_index=True)
    if len(firsts) <= clusters:
        return sorted(places[first] for first in firsts)
    from sklearn.cluster import KMeans

    found = KMeans(clusters, n_init=10, random_state=0).fit(points, sample_weight=list(counts.values()))
    distances = np.linalg.norm(points - found.cluster_centers_[found.labels_], axis=1)
    own = (np.flatnonzero(found.labels_ == label) for label in range(clusters))
    return sorted(places[members[distances[members].argmin()]] for members in own if len(members))


def nearest(retrieved: Retrieved) -> str:
    """Return the nearest report."""
    return retrieved.texts[0]


def medoid(retrieved: Retrieved) -> str:
    """Return the retrieved report with the highest mean cosine with all retrieved ones."""
    means = retrieved.embeddings.astype(np.float64) @ retrieved.embeddings.mean(axis=0)
    return retrieved.texts[int(means.round(_DECIMALS).argmax())]


def vote(retrieved: Retrieved, share: float = VOTE_SHARE) -> str:
    """Return sentences of the retrieved reports for what at least a ``share`` of them says, most votes first.

    A finding is kept as present or as absent (uncertain is present). A sentence may be used if all it says is kept.
    Without any such sentence, the report is the medoid.
    """
    reports = [[(one, _claims(one)) for one in read_report(text)] for text in retrieved.texts]
    votes = Counter(claim for report in reports for claim in set().union(*(claims for _, claims in report)))
    least = share * len(reports)
    # With a share below one half, both sides of a finding may be kept: the one with more votes stays.
    kept = {
        (name, present): count
        for (name, present), count in votes.items()
        if count >= least and (count, present) > (votes[name, not present], not present)
    }
    order = {claim: rank for rank, (claim, _) in enumerate(sorted(kept.items(), key=lambda one: (-one[1], one[0])))}
    usable = [(one.text, claims) for report in reports for one, claims in report if claims and claims <= kept.keys()]
    said: set[tuple[str, bool]] = set()
    sentences = []
    for claim in order:
        found = next((text for text, claims in usable if claim in claims), None)
        if claim not in said and found is not None:
            said |= next(claims for text, claims in usable if text == found)
            sentences.append(found)
    return " ".join(sentences) or medoid(retrieved)


def _claims(sentence: LabelledSentence) -> set[tuple[str, bool]]:
    return {(finding, polarity != "negative") for finding, polarity in sentence.findings.items()}


WRITERS: Mapping[str, Callable[[Retrieved], str] | None] = {
    "language-model": None,
    "nearest": nearest,
    "medoid": medoid,
    "vote": vote,
    "constant": None,
}
"""Writers by name. The language model needs a prompt, the constant report nothing that was retrieved."""

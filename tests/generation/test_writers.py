"""Snippets and writers without a language model, on embeddings and texts whose answer is known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.generation.writers import Retrieved, choose_snippets, medoid, nearest, vote


def retrieved(texts: list[str], angles: list[float]) -> Retrieved:
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return Retrieved(tuple(texts), vectors, vectors[:, 0])


def test_each_cluster_gives_the_text_nearest_to_its_centre() -> None:
    # Two groups of three; the middle of each is nearest to its centre. "a" weighs nothing more than the others.
    given = retrieved(list("abcdef"), [0.0, 0.1, 0.21, 1.0, 1.1, 1.21])
    assert choose_snippets(given, 2) == [1, 4]
    assert choose_snippets(given, 6) == list(range(6))


def test_a_text_that_occurs_often_draws_its_centre() -> None:
    given = retrieved(["a", "b", "c", "c", "c", "c", "z"], [0.0, 0.1, 0.21, 0.21, 0.21, 0.21, 1.4])
    assert choose_snippets(given, 2) == [2, 6]


def test_fewer_distinct_texts_or_embeddings_than_clusters_are_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_snippets(retrieved(["a"] * 20, [0.0] * 20)) == [0]
        assert choose_snippets(retrieved(list("aabba"), [0.0, 0.0, 0.3, 0.3, 0.0])) == [0, 2]
        assert choose_snippets(retrieved(list("abcdefgh"), [0.0] * 4 + [0.5] * 4)) == [0, 4]


def test_the_nearest_and_the_medoid() -> None:
    given = retrieved(list("abc"), [0.0, 0.4, 0.5])
    assert (nearest(given), medoid(given)) == ("a", "b")  # mean angle 0.3: nearest is 0.4
    with pytest.raises(InputError, match="no report was retrieved"):
        Retrieved((), np.zeros((0, 2), np.float32), np.zeros(0, np.float32))


def test_the_vote_says_what_most_reports_say_in_their_words() -> None:
    texts = [
        "Small left effusion. No pneumothorax.",
        "Left pleural effusion. Cardiomegaly.",
        "Large effusion. No pneumothorax. Edema is seen.",
        "The heart is enlarged. No pneumothorax.",
    ]
    given = retrieved(texts, [0.0, 0.1, 0.2, 0.3])
    # Effusion and no pneumothorax in three of four, cardiomegaly in two, edema in one.
    said = vote(given, 0.5)
    assert set(said.split(". ")) == {"Small left effusion", "No pneumothorax", "Cardiomegaly."}
    assert set(vote(given, 0.75).split(". ")) == {"Small left effusion", "No pneumothorax."}


def test_a_vote_keeps_the_side_with_more_votes_and_falls_back_to_the_medoid() -> None:
    given = retrieved(["No effusion.", "No pleural effusion.", "Left effusion."], [0.0, 0.1, 0.2])
    assert vote(given, 0.3) == "No effusion."
    assert vote(retrieved(["Film is rotated.", "A portable film.", "Rotated."], [0.0, 0.1, 0.2])) == "A portable film."

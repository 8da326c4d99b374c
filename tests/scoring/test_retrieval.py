from __future__ import annotations

import numpy as np
import pytest
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_reciprocal_rank

from rightlung.core import InputError
from rightlung.scoring.retrieval import median_rank, ranks, recall_at, retrieve


def test_ranks_and_recall_equal_those_of_torchmetrics_without_ties() -> None:
    import torch

    chance = np.random.default_rng(0)
    similarity, relevant = chance.permutation(200).reshape(10, 20) / 200, chance.random((10, 20)) < 0.15
    relevant[:, 3] = True
    found = ranks(similarity, relevant)
    for row in range(10):
        given = torch.from_numpy(similarity[row]), torch.from_numpy(relevant[row])
        assert 1 / found[row] == pytest.approx(float(retrieval_reciprocal_rank(*given)))
        for k in (1, 5, 10):
            assert recall_at(similarity, relevant, k)[row] == float(retrieval_hit_rate(*given, top_k=k))


def test_equal_similarities_have_the_rank_of_a_guess() -> None:
    assert ranks(np.zeros((3, 9)), np.eye(3, 9, dtype=bool)).tolist() == [5.0] * 3


def test_tied_candidates_are_in_random_order() -> None:
    assert recall_at(np.zeros((1, 9)), np.eye(1, 9, dtype=bool), 3).tolist() == pytest.approx([3 / 9])
    # One irrelevant candidate is above; of the five that tie, two are relevant. The first three hold two of the five:
    # both irrelevant with a chance of 3/5 times 2/4.
    similarity, relevant = [[0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.1]], [[False, True, True, False, False, False, True]]
    assert recall_at(similarity, relevant, 3).tolist() == pytest.approx([1 - 3 / 5 * 2 / 4])
    assert recall_at(similarity, relevant, 1).tolist() == [0.0]
    assert recall_at(similarity, relevant, 5).tolist() == [1.0]


def test_retrieval_by_cosine_equals_a_hand_calculation(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = [[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]], [[0.1, 0.0], [1.0, 0.9], [0.0, 1.0]]
    # Cosines of the first image: 1, 0.74, 0; of the second: 0, 0.67, 1; of the third: 0.71, 1.00, 0.71.
    groups = [0, 1, 1]  # the second and third say the same
    for at_once in (1, 1024):
        monkeypatch.setattr("rightlung.scoring.retrieval.QUERIES_AT_ONCE", at_once)
        found = retrieve(images, texts, (groups, groups), ks=(1, 2))
        assert found["rank"].tolist() == [1.0, 1.0, 1.0]
        found = retrieve(images, texts, ([2, 1, 0], [0, 1, 2]), ks=(1, 2))
        assert found["rank"].tolist() == [3.0, 2.0, 2.5]  # the first and the last text tie for the third image
        assert found["recall@1"].tolist() == [0.0, 0.0, 0.0]
        assert found["recall@2"].tolist() == [0.0, 1.0, 0.5]


def test_the_median_rank_of_drawn_queries_is_numpys() -> None:
    chance = np.random.default_rng(0)
    found, counts = chance.integers(1, 30, 11).astype(float), chance.integers(0, 4, (20, 11)).astype(float)
    expected = [np.median(np.repeat(found, row.astype(int))) for row in counts]
    assert median_rank(found, counts).tolist() == expected
    assert np.isnan(median_rank(np.array([np.nan]), np.ones((1, 1)))).all()
    assert np.isnan(median_rank(found, np.zeros((1, 11)))).all()


def test_a_query_without_a_relevant_candidate_counts_nowhere() -> None:
    tables = [[0.1, 0.2], [0.1, 0.2]], [[False, False], [False, True]]
    assert np.isnan(ranks(*tables)[0])
    found = recall_at(*tables, 1)
    assert np.isnan(found[0])
    assert found[1] == 1.0


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(InputError, match="of one shape"):
        ranks(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(InputError, match="finite"):
        ranks([[np.nan, 1.0]], [[True, False]])
    with pytest.raises(InputError, match="at least 1"):
        recall_at([[1.0]], [[True]], 0)

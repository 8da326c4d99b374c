from __future__ import annotations

import numpy as np
import pytest
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_reciprocal_rank

from rightlung.core import InputError
from rightlung.scoring.retrieval import ranks, recall_at


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
            assert recall_at(found, k)[row] == float(retrieval_hit_rate(*given, top_k=k))


def test_equal_similarities_have_the_rank_of_a_guess() -> None:
    assert ranks(np.zeros((3, 9)), np.eye(3, 9, dtype=bool)).tolist() == [5.0] * 3


def test_a_query_without_a_relevant_candidate_counts_nowhere() -> None:
    found = ranks([[0.1, 0.2], [0.1, 0.2]], [[False, False], [False, True]])
    assert np.isnan(found[0])
    assert np.isnan(recall_at(found, 1)[0])
    assert np.nanmean(recall_at(found, 1)) == 1.0


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(InputError, match="of one shape"):
        ranks(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(InputError, match="finite"):
        ranks([[np.nan, 1.0]], [[True, False]])
    with pytest.raises(InputError, match="at least 1"):
        recall_at([1.0], 0)

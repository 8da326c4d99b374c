"""Retrieval among pools of texts, against hand calculations."""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.scoring import text_retrieval as retrieval
from rightlung.scoring.nearest import nearest
from rightlung.scoring.text_retrieval import TextPool, fit_prior, score

# "normal" three times, the others once each.
TEXTS = ["Normal.", "Nodule.", "normal. ", "Effusion.", "NORMAL."]
POOL = TextPool.of(TEXTS)
# The embeddings of the pool's three texts are the axes. The second image is nearest to the wrong text.
IMAGES = [[1, 0.1, 0], [0, 0.5, 1], [1, 0, 0.2], [0, 0.2, 1], [0.1, 1, 0]]


def test_a_pool_holds_distinct_texts_and_their_counts() -> None:
    assert POOL.texts == ("Normal.", "Nodule.", "Effusion.")
    assert POOL.counts.tolist() == [3, 1, 1]
    assert TextPool.of(TEXTS, normalisation="exact").counts.tolist() == [1] * 5
    assert TextPool.of(["No edema.", "no edema"], normalisation="words").counts.tolist() == [2]
    shares = POOL.log_frequency(["normal.", "Nodule.", "normal.", "A text that the pool lacks."])
    assert np.exp(shares).tolist() == pytest.approx([3 / 7, 2 / 7, 1 / 7])  # one more of each: 4 texts + 3
    with pytest.raises(InputError, match="normalisation"):
        TextPool.of(TEXTS, normalisation="case")


def test_identical_texts_are_hits_in_both_directions_and_blind_answers_are_exact() -> None:
    found = score(IMAGES, TEXTS, POOL, np.eye(3), ks=(1, 2))
    # Images 0, 2, 3 find their own text first, 1 second. The last one says "normal", which is its second text.
    assert found[retrieval.IMAGE_TO_TEXT].columns["rank"].tolist() == [1, 2, 1, 1, 2]
    assert found[retrieval.IMAGE_TO_TEXT].columns["recall@1"].tolist() == [1, 0, 1, 1, 0]
    # Cosine of "normal" with images 0 and 2 is highest; "Nodule." has 0.995 with image 4 and 0.447 with its own.
    assert found[retrieval.TEXT_TO_IMAGE].columns["rank"].tolist() == [1, 2, 1, 1, 1]
    assert found[retrieval.FREQUENT].columns["rank"].tolist() == [1, 2.5, 1, 2.5, 1]
    assert found[retrieval.FREQUENT].columns["recall@2"].tolist() == [1, 0.5, 1, 0.5, 1]
    assert found[retrieval.CHANCE].columns["recall@1"].tolist() == pytest.approx([1 / 3] * 5)
    # Three of five images say "normal": the first is one of them with a chance of 3/5.
    assert found[retrieval.IMAGES_BY_CHANCE].columns["recall@1"].tolist() == pytest.approx([0.6, 0.2, 0.6, 0.2, 0.6])
    numbers = found[retrieval.IMAGE_TO_TEXT].as_json()
    assert numbers["all"] == {"queries": 5, "recall@1": 0.6, "recall@2": 1.0, "median_rank": 1.0}
    assert numbers["once"] == {"queries": 2, "recall@1": 0.5, "recall@2": 1.0, "median_rank": 1.5}
    assert np.isnan(found[retrieval.IMAGE_TO_TEXT].column("rank", once=True)[[0, 2, 4]]).all()


def test_training_texts_order_the_blind_answer() -> None:
    found = score(IMAGES, TEXTS, POOL, np.eye(3), training_texts=["nodule.", "nodule.", "normal."], ks=(1,))
    assert found[retrieval.FREQUENT].columns["rank"].tolist() == [2, 1, 2, 3, 2]


def test_the_prior_correction_is_the_weight_with_the_best_recall() -> None:
    chance = np.random.default_rng(0)
    texts = chance.normal(size=(60, 5))
    logs = np.log(np.array([20, 10, 5] + [1] * 57) / 92)
    places = chance.choice(60, 400, p=np.exp(logs))
    images = texts[places] + chance.normal(scale=2.0, size=(400, 5))  # a poor model
    found = fit_prior(images, texts, places, logs, 3)
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (images, texts)]

    def recall(weight: float) -> float:
        order = np.argsort(-(unit[0] @ unit[1].T + weight * logs), axis=1)[:, :3]
        return float((order == places[:, None]).any(axis=1).mean())

    assert recall(found.weight) == max(map(recall, retrieval.WEIGHTS)) > max(recall(0.0), recall(100.0))
    assert fit_prior(texts[places], texts, places, logs, 1).weight == 0  # a perfect model needs none
    with pytest.raises(InputError, match="text of every image"):
        fit_prior(images[:2], texts, [0, -1], logs)


def test_the_prior_correction_adds_log_frequency_to_the_cosines() -> None:
    correction = retrieval.PriorCorrection(10.0)
    found = score(IMAGES, TEXTS, POOL, np.eye(3), correction=correction, ks=(1,))
    # log(4/8) − log(2/8) = 0.69: ten times that outweighs any cosine, so "normal" always comes first.
    assert found[retrieval.CORRECTED].columns["recall@1"].tolist() == [1, 0, 1, 0, 1]
    assert 10 * math.log(2) > 2


def test_small_pools_and_unknown_texts_are_refused() -> None:
    with pytest.raises(InputError, match=r"pool 'val' has 3 distinct texts; recall at 10 needs more"):
        score(IMAGES, TEXTS, TextPool.of(TEXTS, "val"), np.eye(3))
    with pytest.raises(InputError, match=r"lacks the text 'Edema\.'"):
        score(IMAGES[:1], ["Edema."], POOL, np.eye(3), ks=(1,))
    with pytest.raises(InputError, match="2 embeddings for the 3 texts"):
        score(IMAGES, TEXTS, POOL, np.eye(2), ks=(1,))
    with pytest.raises(InputError, match="finite"):
        score(np.full((5, 3), np.nan), TEXTS, POOL, np.eye(3), ks=(1,))


def test_faiss_returns_what_the_matrix_product_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its generated bindings
        pytest.importorskip("faiss")
    chance = np.random.default_rng(0)
    candidates = chance.normal(size=(600, 24))
    candidates[100:300] = candidates[5]  # more ties than are asked for at first
    candidates[400] = candidates[401] * 3  # of the same direction
    queries = np.concatenate([chance.normal(size=(30, 24)), candidates[[5, 401]]])
    products = _cosines(queries, candidates).round(9).tolist()
    expected = [[n for _, n in sorted((-cosine, n) for n, cosine in enumerate(row))[:7]] for row in products]
    for backend in ("matrix", "faiss"):
        ids, cosines = nearest(queries, candidates, 7, backend)
        assert ids.tolist() == expected
        assert cosines[30] == pytest.approx(np.ones(7))
    assert expected[30] == [5, 100, 101, 102, 103, 104, 105]
    assert expected[31][:2] == [400, 401]
    assert (nearest(queries, candidates, 600, "faiss")[0] == nearest(queries, candidates, 600)[0]).all()
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'rightlung\[retrieval\]'"):
        nearest(queries, candidates, 7, "faiss")
    with pytest.raises(InputError, match="601 nearest of 600"):
        nearest(queries, candidates, 601)


def _cosines(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    lengths = np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(candidates, axis=1))
    return np.asarray(queries @ candidates.T / lengths)

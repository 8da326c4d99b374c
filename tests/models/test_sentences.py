"""Near-duplicates and contradictions among the sentences of a report."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rightlung.core import Box, Sentence
from rightlung.models.sentences import choose_sentences, contradict, judge_sentences


def chosen(*candidates: tuple[str, float, list[float]], **settings: Any) -> list[str]:
    """Return the texts kept of candidates given by text, score and embedding of unit length."""
    sentences = [Sentence(text, score=score) for text, score, _ in candidates]
    embeddings = torch.tensor([embedding for *_, embedding in candidates])
    return [one.text for one in choose_sentences(sentences, embeddings, **settings)]


def test_of_near_duplicates_the_one_with_the_higher_score_is_kept() -> None:
    candidates = [
        ("there is a small left effusion.", 0.4, [1.0, 0.0]),
        ("a small left effusion is seen.", 0.7, [0.96, 0.28]),  # cosine 0.96 with the first, 0.28 with the third
        ("the heart is enlarged.", 0.5, [0.0, 1.0]),
    ]
    kept = ["a small left effusion is seen.", "the heart is enlarged."]
    assert chosen(*candidates) == kept
    assert chosen(*candidates, similarity=0.97) == [*kept, "there is a small left effusion."]


def test_sentences_about_different_findings_are_no_duplicates_however_alike() -> None:
    """Negations resemble each other, whatever they negate."""
    candidates = [
        ("no evidence of pneumothorax is seen.", 0.6, [1.0, 0.0]),
        ("no evidence of pleural effusion is seen.", 0.5, [0.99, 0.14107]),
        ("no pneumothorax.", 0.4, [0.98, 0.19900]),
    ]
    assert chosen(*candidates) == [candidates[0][0], candidates[1][0]]


def test_a_sentence_that_was_left_out_does_not_remove_others() -> None:
    """The second resembles both others, which do not resemble each other."""
    first, second, third = [1.0, 0.0], [0.92388, 0.38268], [0.70711, 0.70711]
    assert chosen(("one", 0.9, first), ("two", 0.8, second), ("three", 0.7, third)) == ["one", "three"]


def test_of_contradictions_the_one_with_the_higher_score_is_kept() -> None:
    one, other = [1.0, 0.0], [0.0, 1.0]
    assert chosen(("no pleural effusion.", 0.3, one), ("a left pleural effusion.", 0.6, other)) == [
        "a left pleural effusion."
    ]
    assert chosen(("no pleural effusion.", 0.7, one), ("a left pleural effusion.", 0.6, other)) == [
        "no pleural effusion."
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("there is a left pleural effusion.", "no left pleural effusion.", True),
        ("there is a left pleural effusion.", "no right pleural effusion.", False),
        ("no pneumothorax.", "a small pneumothorax on the right.", True),
        ("no pneumothorax.", "the heart is enlarged.", False),
        ("no pneumothorax.", "no pneumothorax is seen.", False),
        ("the heart is enlarged.", "the lungs are clear.", False),
    ],
)
def test_sentences_contradict_each_other_on_the_same_side(one: str, other: str, expected: bool) -> None:
    assert contradict(one, other) is contradict(other, one) is expected


def test_the_same_finding_at_the_same_place_is_told_once() -> None:
    place, near, elsewhere = Box(0.2, 0.2, 0.4, 0.4), Box(0.2, 0.2, 0.4, 0.43), Box(0.6, 0.2, 0.8, 0.4)
    told = [
        ("a nodule in the right upper lobe.", place, "kept"),
        ("a nodule in the right lower lung zone.", near, "duplicate"),  # IoU 0.87
        ("a nodule and a pneumothorax on the right.", near, "kept"),  # it also states something else
        ("a nodule.", elsewhere, "kept"),
        ("a nodule.", Box(0.2, 0.2, 0.4, 0.5), "duplicate"),  # IoU 0.67 with the first, 0.77 with the third
        ("the heart is seen.", place, "kept"),  # no finding
    ]
    sentences = [Sentence(text, (box,), 1 - place / 10) for place, (text, box, _) in enumerate(told)]
    judged = judge_sentences(sentences, torch.eye(len(told)))
    assert judged == [choice for *_, choice in told]
    assert judge_sentences([sentences[0], sentences[4]], torch.eye(2)) == ["kept", "kept"]


def test_at_most_so_many_sentences_are_kept() -> None:
    candidates = [(f"sentence {k}", k / 20, [float(j == k) for j in range(12)]) for k in range(12)]
    assert chosen(*candidates) == [f"sentence {k}" for k in range(11, 1, -1)]
    assert chosen(*candidates, max_sentences=1) == ["sentence 11"]

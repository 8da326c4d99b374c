"""What is written is read back, to the last bit."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rightlung.core import Box, Extent, Grounding, Heatmap, InputError, Query, ScoredBox, Sentence
from rightlung.predictions import (
    SCHEMA,
    Batch,
    Prediction,
    PredictionWriter,
    check_predictions,
    open_predictions,
    phrase_query,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: bool(text.strip())
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
fractions = st.floats(0, 1, allow_subnormal=False)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    x0, x1 = sorted((draw(fractions), draw(fractions)))
    y0, y1 = sorted((draw(fractions), draw(fractions)))
    return Box.clipped(x0, y0, x1, y1) or Box(0, 0, 1, 1)


@st.composite
def heatmaps(draw: st.DrawFn) -> Heatmap:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    values = draw(arrays.arrays(np.float32, shape, elements=st.floats(0, None, allow_infinity=False, width=32)))
    corners = [draw(st.floats(-5, 0.25)), draw(st.floats(-5, 0.25)), draw(st.floats(0.5, 5)), draw(st.floats(0.5, 5))]
    return Heatmap(values, Extent(*corners), draw(fractions))


groundings = st.builds(
    Grounding,
    st.none() | heatmaps(),
    st.none() | st.lists(st.builds(ScoredBox, boxes(), numbers, st.none() | st.text("ab ", max_size=3)), max_size=3),
)
sentences = st.builds(
    Sentence, texts, st.lists(boxes(), max_size=2).map(tuple), st.none() | numbers, st.none() | st.just("") | texts
)


embeddings = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=4).map(tuple)


@st.composite
def predictions(draw: st.DrawFn) -> Prediction:
    names = texts.filter(lambda text: not text.startswith("phrase:"))
    query = draw(st.integers(0, 99).map(phrase_query) | names)
    asked = Query(draw(st.none() | texts), draw(st.none() | boxes()))
    if draw(st.booleans()):
        return Prediction.failed(draw(texts), query, draw(texts), asked, draw(texts))
    answers: dict[str, Any] = {
        "grounding": draw(st.none() | groundings),
        "similarity_global": draw(st.none() | numbers),
        "similarity_local": draw(st.none() | numbers),
        "sentences": draw(st.none() | st.lists(sentences, max_size=2).map(tuple)),
        "finding_scores": draw(st.none() | st.dictionaries(texts, numbers, max_size=3)),
        "report": draw(st.none() | texts),
        **{f"{what}_embedding": draw(st.none() | embeddings) for what in ("image", "text")},
    }
    if all(answer is None for answer in answers.values()):
        answers["similarity_global"] = 0.0
    return Prediction(draw(texts), query, draw(texts), asked, **answers)


def bits(prediction: Prediction) -> str:
    """Show a value so that numbers that differ in one bit, or in the sign of zero, differ."""
    heatmap = prediction.grounding.heatmap if prediction.grounding else None
    return repr(prediction) + (heatmap.values.tobytes().hex() if heatmap else "")


@settings(max_examples=60, deadline=None)
@given(st.lists(predictions(), min_size=1, max_size=6, unique_by=lambda prediction: prediction.key))
@example([Prediction("a", "image", grounding=Grounding(), sentences=(), finding_scores={})])  # empty is not null
def test_what_is_written_is_read_back_bit_for_bit(given_predictions: list[Prediction]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with PredictionWriter(folder, source="phantom", model="m", rows_per_part=2) as writer:
            for prediction in given_predictions:
                writer.write(prediction)
        assert check_predictions(folder) == []
        read = list(open_predictions(folder))
    assert read == given_predictions
    assert [bits(prediction) for prediction in read] == [bits(prediction) for prediction in given_predictions]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"study": " "}, "study must be a text"),
        ({"study": "a\ud800"}, "cannot be written as UTF-8"),
        ({"query": "phrase:01"}, "index into the study's phrases"),
        ({"similarity_global": float("nan")}, "similarity_global must be finite"),
        ({"similarity_global": None}, "needs an error that says why"),
        ({"error": "out of memory"}, "a row with an error must hold no answer"),
        ({"finding_scores": {"edema": float("inf")}}, "score of finding 'edema' must be finite"),
        ({"report": " "}, "report must be a text with at least one character"),
        ({"image_embedding": []}, "image_embedding must be a list of at least one finite number"),
        ({"text_embedding": [0.5, float("nan")]}, "text_embedding must be a list of at least one finite number"),
        ({"text_embedding": [[0.5]]}, "text_embedding must be a list of at least one finite number"),
        ({"image_embedding": ["x"]}, "image_embedding must be a list of numbers"),
    ],
)
def test_a_prediction_that_no_file_could_hold_is_refused_where_it_is_made(
    changed: dict[str, object], message: str
) -> None:
    values: dict[str, object] = {"study": "a", "query": "phrase:0", "similarity_global": 0.5, **changed}
    with pytest.raises(InputError, match=message):
        Prediction(**values)  # type: ignore[arg-type]


def test_a_failure_always_has_a_reason_that_can_be_written() -> None:
    assert Prediction.failed("a", "image", "none", Query(), "").error == "no reason given"
    assert Prediction.failed("a", "image", "none", Query(), "file \udcff").error == "file \\udcff"


@settings(max_examples=20, deadline=None)
@given(st.lists(predictions(), max_size=4, unique_by=lambda prediction: prediction.key))
def test_a_batch_in_memory_holds_what_it_was_made_of(rows: list[Prediction]) -> None:
    batch = Batch.of(rows)
    assert len(batch) == len(rows)
    assert batch.columns.schema.names == SCHEMA.names
    assert [bits(row) for row in batch.predictions()] == [bits(row) for row in rows]

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from rightlung.core import (
    Box,
    Grounding,
    Heatmap,
    Image,
    InputError,
    Mask,
    Phrase,
    Polarity,
    Query,
    Report,
    ScoredBox,
    Sentence,
    Study,
)


def flat() -> Image:
    return np.zeros((2, 3), dtype=np.float32)


def test_the_image_loads_on_first_use_only_once_and_leaves_the_loaders_own_array_as_it_was() -> None:
    calls, loaded = [], flat()
    study = Study("a", lambda: calls.append(1) or loaded)  # type: ignore[func-returns-value]
    assert not calls
    assert study.image.shape == (2, 3)
    assert study.image is study.image
    assert len(calls) == 1
    with pytest.raises(ValueError, match="read-only"):
        study.image[0, 0] = 1
    assert loaded.flags.writeable


@pytest.mark.parametrize(
    ("image", "named"),
    [
        (np.zeros((2, 2)), "float64"),
        (np.zeros((2, 2, 3), np.float32), r"\(2, 2, 3\)"),
        (np.full((2, 2), 1.5, np.float32), "1.5"),
        (np.full((2, 2), np.nan, np.float32), "nan"),
        ("image", "str"),
    ],
)
def test_an_image_of_the_wrong_kind_names_the_study(image: object, named: str) -> None:
    with pytest.raises(InputError, match=f"'a'.*{named}"):
        _ = Study("a", lambda: image).image  # type: ignore[arg-type,return-value]


def test_a_study_pickles_without_its_pixels() -> None:
    study = Study("a", flat, patient="p", findings={"mass": "positive"}, extra={"k": [1]})  # type: ignore[dict-item]
    _ = study.image
    again = pickle.loads(pickle.dumps(study))
    assert "_image" not in again.__dict__
    assert again.findings == {"mass": Polarity.POSITIVE}
    assert again.image.shape == (2, 3)


def test_findings_compare_with_plain_words_and_cannot_change() -> None:
    study = Study("a", flat, findings={"mass": Polarity.NEGATIVE})
    assert study.findings["mass"] == "negative"
    with pytest.raises(TypeError):
        study.findings["mass"] = "positive"  # type: ignore[index]


@pytest.mark.parametrize(
    "wrong",
    [
        {"boxes": [(0, 0, 1, 1)]}, {"mask": np.ones((2, 2))}, {"regions": [""]}, {"regions": "lung"}, {"boxes": None},
        {"boxes": Box(0, 0, 1, 1)}, {"findings": ["mass"]},
        {"locations": ["left lung"], "findings": {"mass": "positive"}},
        {"locations": {"mass": "left lung"}, "findings": {"mass": "positive"}},
        {"locations": {"mass": ["left lung"]}},
    ],
)  # fmt: skip
def test_a_phrase_refuses_what_is_not_a_noun(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Phrase("a mass", **wrong)  # type: ignore[arg-type]


def test_phrases_are_values() -> None:
    one = Phrase("a mass", [Box(0, 0, 1, 1)], Mask([[1]]), ["left lung"], {"mass": Polarity.POSITIVE})  # type: ignore[arg-type]
    two = Phrase("a mass", (Box(0, 0, 1, 1),), Mask([[1]]), ("left lung",), {"mass": Polarity.POSITIVE})
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (Query(), "image"),
        (Query("mass"), "phrase"),
        (Query(box=Box(0, 0, 1, 1)), "box"),
        (Query("mass", Box(0, 0, 1, 1)), "phrase+box"),
    ],
)
def test_a_query_is_one_of_four_kinds(query: Query, kind: str) -> None:
    assert query.kind == kind


def test_abstention_comes_from_the_map_and_a_grounding_without_anything_abstains() -> None:
    assert Grounding(Heatmap([[1.0]], abstention=0.75)).abstention == 0.75
    assert Grounding().abstention == 1.0
    assert Grounding(boxes=[]).abstention == 1.0
    assert Grounding(boxes=[ScoredBox(Box(0, 0, 1, 1), 0.5)]).abstention == 0.0


def test_a_grounding_tells_no_boxes_found_from_none_looked_for() -> None:
    assert not Grounding(Heatmap([[1.0]])).has_boxes
    assert Grounding(Heatmap([[1.0]])).boxes == ()
    assert Grounding(Heatmap([[1.0]]), []).has_boxes
    assert Grounding(Heatmap([[1.0]]), []) != Grounding(Heatmap([[1.0]]))
    assert Grounding().has_boxes  # with no map, boxes are the answer


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *[(partial(Phrase, text), "text") for text in ("", "   ", None, 3)],  # type: ignore[arg-type]
        (partial(Phrase, "a mass", findings={"mass": "positiv"}), r"'mass'.*did you mean 'positive'"),  # type: ignore[dict-item]
        (partial(ScoredBox, Box(0, 0, 1, 1), float("nan")), "box score"),
        (partial(ScoredBox, Box(0, 0, 1, 1), 0.5, label=7), "label"),  # type: ignore[arg-type]
        (partial(Sentence, "Clear.", score=float("inf")), "sentence score"),
        (partial(Sentence, "Clear.", prompt=7), "prompt"),  # type: ignore[arg-type]
        (partial(Report, "x", {"findings": None}), "findings"),  # type: ignore[dict-item]
        (partial(Report, "x", sentences=("clear",)), "sentences"),  # type: ignore[arg-type]
    ],
)
def test_what_a_phrase_a_box_a_sentence_or_a_report_cannot_hold_is_named(
    make: Callable[[], object], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        make()


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""}, {"load": 3}, {"age": "old"}, {"age": -5}, {"regions": {"left lung": (0, 0, 1, 1)}},
        {"regions": None}, {"phrases": ["left lung"]}, {"phrases": "left lung"}, {"report": "clear"},
        {"gaze": [[1.0]]}, {"patient": 3}, {"split": ["val"]}, {"extra": [1]},
        {"region_findings": {"left lung": ["mass"]}}, {"region_findings": {"left lung": {"mass": "maybe"}}},
    ],
)  # fmt: skip
def test_a_study_names_its_wrong_field(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Study(**{"id": "a", "load": flat, **wrong})  # type: ignore[arg-type]


def test_a_region_has_the_sentences_that_speak_of_it_and_findings_of_its_own() -> None:
    phrases = (Phrase("a", regions=("left lung", "spine")), Phrase("b"), Phrase("c", regions=("left lung",) * 2))
    study = Study("a", flat, phrases=phrases, region_findings={"left lung": {"mass": "negative"}})  # type: ignore[dict-item]
    assert study.region_sentences == {"left lung": (0, 2), "spine": (0,)}
    assert study.region_findings == {"left lung": {"mass": Polarity.NEGATIVE}}


def test_words_without_their_target_keep_what_they_say() -> None:
    located = {"findings": {"mass": Polarity.POSITIVE}, "locations": {"mass": ("left lung",)}}
    said = Phrase("a mass", (Box(0, 0, 1, 1),), Mask(np.ones((2, 2), bool)), ("left lung",), **located)  # type: ignore[arg-type]
    assert said.without_target() == Phrase("a mass", regions=("left lung",), **located)  # type: ignore[arg-type]

from __future__ import annotations

import pickle

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


def test_the_image_loads_on_first_use_and_only_once() -> None:
    calls = []

    def load() -> np.ndarray:
        calls.append(1)
        return np.full((2, 3), 0.5, dtype=np.float32)

    study = Study("a", load)
    assert not calls
    assert study.image.shape == (2, 3)
    assert study.image is study.image
    assert len(calls) == 1
    with pytest.raises(ValueError, match="read-only"):
        study.image[0, 0] = 1


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


def test_an_unknown_polarity_suggests_the_nearest_and_names_the_finding() -> None:
    with pytest.raises(InputError, match=r"'mass'.*did you mean 'positive'"):
        Phrase("a mass", findings={"mass": "positiv"})  # type: ignore[dict-item]


@pytest.mark.parametrize("text", ["", "   ", None, 3])
def test_a_phrase_needs_words(text: object) -> None:
    with pytest.raises(InputError, match="text"):
        Phrase(text)  # type: ignore[arg-type]


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


def test_scores_must_be_finite_numbers() -> None:
    with pytest.raises(InputError, match="box score"):
        ScoredBox(Box(0, 0, 1, 1), float("nan"))
    with pytest.raises(InputError, match="sentence score"):
        Sentence("Clear.", score=float("inf"))


def test_a_report_holds_texts_and_sentences() -> None:
    with pytest.raises(InputError, match="findings"):
        Report("x", {"findings": None})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="sentences"):
        Report("x", sentences=("clear",))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="label"):
        ScoredBox(Box(0, 0, 1, 1), 0.5, label=7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="prompt"):
        Sentence("Clear.", prompt=7)  # type: ignore[arg-type]


def test_reading_an_image_leaves_the_loaders_own_array_as_it_was() -> None:
    loaded = np.zeros((2, 2), dtype=np.float32)
    _ = Study("a", lambda: loaded).image
    assert loaded.flags.writeable


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

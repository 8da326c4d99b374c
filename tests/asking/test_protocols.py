"""Every protocol of a model is called for the questions that it can answer, and what it says stands in the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rightlung
from rightlung.asking import Answerer, NoAnswer, Question, answers, ask, questions
from rightlung.core import (
    Box,
    Grounding,
    Heatmap,
    Image,
    InputError,
    Phrase,
    Polarity,
    Query,
    Report,
    ScoredBox,
    Sentence,
    Study,
)
from rightlung.explain import boxes_of
from rightlung.lexicon import prompt
from rightlung.models.base import Similarities
from rightlung.predictions import Key, Prediction
from tests.asking.models import Listed, Painter, cells_of, listed, picture, rows_of

LEFT, RIGHT = Box(0.5, 0.0, 1.0, 1.0), Box(0.0, 0.0, 0.5, 1.0)
POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE
Floats = np.ndarray[Any, np.dtype[np.float32]]


class MeanClassifier:
    """Scores each finding by the mean pixel and the length of its name."""

    def classify(self, images: Sequence[Image], findings: Sequence[str]) -> Floats:
        return np.array([[image.mean() * len(name) for name in findings] for image in images], np.float32)


class BoxClassifier(MeanClassifier):
    """Scores what is in a box, too."""

    findings = ("edema", "mass")

    def classify(self, images: Sequence[Image], findings: Sequence[str], boxes: Sequence[Box] | None = None) -> Floats:
        parts = images if boxes is None else [cut(image, box) for image, box in zip(images, boxes, strict=True)]
        return super().classify(parts, findings)


class Teller:
    """Describes by repeating what is asked; says nothing of the right."""

    def describe(self, images: Sequence[Image], queries: Sequence[Query]) -> list[str]:
        return [
            "" if query.box == RIGHT else f"{query.phrase or 'box'}: {image.mean():.3f}"
            for image, query in zip(images, queries, strict=True)
        ]


class Writer:
    """Writes a report of the mean pixel, in one sentence with a box."""

    def report(self, images: Sequence[Image]) -> list[Report]:
        texts = [f"Mean {image.mean():.3f}." for image in images]
        return [Report(text, sentences=(Sentence(text, (LEFT,), 0.5),)) for text in texts]


class Encoder:
    """Two numbers for an image, three for a text."""

    def encode_image(self, images: Sequence[Image]) -> Floats:
        return np.array([[image.mean(), image.max()] for image in images], np.float32)

    def encode_text(self, texts: Sequence[str]) -> Floats:
        return np.array([[len(text), text.count("e"), 1] for text in texts], np.float32)


class Finder:
    """Finds every finding on the left, the surer the brighter the image."""

    def detect(self, images: Sequence[Image], findings: Sequence[str]) -> list[list[ScoredBox]]:
        return [[ScoredBox(LEFT, float(image.mean()), name) for name in findings] for image in images]


class Blind:
    """Points to a cell that depends on what it is told; notes all of it."""

    def __init__(self) -> None:
        self.told: list[tuple[Phrase, str | None]] = []

    def ground_blind(self, phrases: Sequence[Phrase], patients: Sequence[str | None]) -> list[Grounding]:
        self.told += zip(phrases, patients, strict=True)
        return [
            Grounding(Heatmap([[len(phrase.text), len(patient or "")]]))
            for phrase, patient in self.told[-len(phrases) :]
        ]


class Everything(BoxClassifier, Teller, Writer, Encoder, Painter):
    """All of them at once."""


def cut(image: Image, box: Box) -> Image:
    return image[:, : image.shape[1] // 2] if box == RIGHT else image[:, image.shape[1] // 2 :]


def regional(count: int = 6) -> Listed:
    def study(number: int) -> Study:
        phrase = Phrase("Left effusion", (LEFT,), regions=("left lung",), findings={"pleural effusion": POSITIVE})
        other = Phrase(f"No mass {number}", findings={"mass": NEGATIVE})
        return Study(
            f"s{number}", lambda: picture(number), f"p{number}" if number else None, phrases=(phrase, other),
            regions={"left lung": LEFT, "right lung": RIGHT},
        )  # fmt: skip

    return Listed([study(number) for number in range(count)])


def asked(model: object, tmp_path: Path, **options: Any) -> dict[Key, Prediction]:
    assert ask(model, regional(), tmp_path / "p", **options).complete
    return rows_of(tmp_path / "p")


def partners(**options: Any) -> dict[str, str]:
    found = questions(regional(), ["exchange-image"], queries=["image"], **options)
    return {question.key.study: str(question.image_of) for question in found}


def test_a_classifier_is_asked_about_whole_images_for_chexperts_findings(tmp_path: Path) -> None:
    rows = asked(MeanClassifier(), tmp_path)
    assert set(rows) == {Key(f"s{number}", "image", "none") for number in range(6)}
    row = rows[Key("s3", "image", "none")]
    scores = row.finding_scores or {}
    assert (row.asked, len(scores), "no finding" in scores) == (Query(), 13, False)
    assert scores["pleural effusion"] == pytest.approx(16 * picture(3).mean())


def test_the_findings_are_those_given_else_those_that_the_model_lists(tmp_path: Path) -> None:
    assert Answerer(BoxClassifier()).findings == ("edema", "mass")
    rows = asked(MeanClassifier(), tmp_path, findings=["scoliosis"])
    assert {tuple(row.finding_scores or ()) for row in rows.values()} == {("scoliosis",)}
    with pytest.raises(InputError, match="other findings"):
        ask(MeanClassifier(), regional(), tmp_path / "p", findings=["edema"])


LISTED = "findings must be a list of different names"


@pytest.mark.parametrize(
    ("model", "source", "options", "message"),
    [
        *((MeanClassifier(), regional(), {"findings": wrong}, LISTED) for wrong in ("edema", [], ["edema", "edema"])),
        (Painter(), regional(), {"queries": ["regions"]}, "Painter cannot answer regions; it answers phrases"),
        (Painter(), regional(), {"queries": ["region"]}, "unknown query 'region'; did you mean 'regions'"),
        (Painter(), regional(), {"queries": "phrases"}, "queries must be a list of at least one name"),
        (BoxClassifier(), listed(1), {"queries": ["regions"]}, "none of the 1 studies of list has a region to ask"),
        (Encoder(), regional(), {}, "Encoder only provides embeddings; pass embeddings=True"),
    ],
)
def test_what_a_model_cannot_answer_is_refused(
    tmp_path: Path, model: object, source: Listed, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ask(model, source, tmp_path / "p", **options)


def test_exchanging_images_changes_the_scores_of_whole_images_and_word_probes_do_not_apply(tmp_path: Path) -> None:
    rows = asked(MeanClassifier(), tmp_path, conditions=["none", "exchange-image", "swap-sides", "synthetic"])
    whose = partners()
    assert set(rows) == {Key(study, "image", name) for study in whose for name in ("none", "exchange-image")}
    for study, partner in whose.items():
        assert study != partner
        shown = rows[Key(study, "image", "exchange-image")].finding_scores
        assert shown == rows[Key(partner, "image", "none")].finding_scores
        assert shown != rows[Key(study, "image", "none")].finding_scores


def test_a_classifier_with_boxes_scores_regions_and_a_box_stays_when_the_image_is_exchanged(tmp_path: Path) -> None:
    rows = asked(BoxClassifier(), tmp_path, conditions=["none", "exchange-image"], batch_size=3)
    assert {key.query for key in rows} == {"image", "region:left lung", "region:right lung"}
    for study, partner in partners().items():
        for condition, shown in (("none", study), ("exchange-image", partner)):
            row = rows[Key(study, "region:right lung", condition)]
            assert row.asked == Query(box=RIGHT)
            expected = 4 * cut(picture(int(shown[1:])), RIGHT).mean()
            assert (row.finding_scores or {})["mass"] == pytest.approx(expected)


def test_a_describer_tells_phrases_and_boxes_and_nothing_is_an_answer(tmp_path: Path) -> None:
    rows = asked(Teller(), tmp_path, conditions=["none", "swap-sides"])
    mean = f"{picture(2).mean():.3f}"
    for query, condition, told in (
        ("phrase:0", "swap-sides", (Sentence(f"Right effusion: {mean}", prompt="Right effusion"),)),
        ("region:left lung", "none", (Sentence(f"box: {mean}", (LEFT,)),)),
        ("region:right lung", "none", ()),
    ):
        assert rows[Key("s2", query, condition)].sentences == told
    assert not any(key.query == "image" for key in rows)


def test_a_phrase_with_a_box_is_asked_of_a_describer_through_a_question_of_ones_own() -> None:
    question = Question(Key("s", "impression"), Query("nodule", LEFT))
    (answer,) = Answerer(Teller()).answers([question], [picture(0)])
    sentence = Sentence(f"nodule: {picture(0).mean():.3f}", (LEFT,), prompt="nodule")
    assert answer == {"sentences": (sentence,)}
    (refused,) = Answerer(Painter()).answers([question], [picture(0)])
    assert refused == NoAnswer("Painter cannot answer a query of kind 'phrase+box'")


def test_a_report_is_kept_with_its_sentences_and_an_empty_one_is_no_answer(tmp_path: Path) -> None:
    text = f"Mean {picture(1).mean():.3f}."
    row = asked(Writer(), tmp_path)[Key("s1", "image", "none")]
    assert (row.report, row.sentences) == (text, (Sentence(text, (LEFT,), 0.5),))

    class Silent:
        def report(self, images: Sequence[Image]) -> list[Report]:
            return [Report("  ") for _ in images]

    (answer,) = Answerer(Silent()).answers([Question(Key("s", "image"), Query())], [picture(0)])
    assert isinstance(answer, NoAnswer)
    assert "a report must be a text" in answer.reason


def test_a_detector_labels_boxes_of_the_findings_asked_for(tmp_path: Path) -> None:
    rows = asked(Finder(), tmp_path, findings=["mass", "nodule"])
    assert {key.query for key in rows} == {"image"}
    expected = [ScoredBox(LEFT, float(picture(1).mean()), name) for name in ("mass", "nodule")]
    assert rows[Key("s1", "image", "none")].grounding == Grounding(boxes=expected)


def test_a_grounder_detects_by_the_prompts_of_findings_on_demand(tmp_path: Path) -> None:
    model = Painter()
    rows = asked(model, tmp_path, queries=["image"], method="detect", findings=["mass", "nodule"])
    found = rows[Key("s1", "image", "none")].grounding
    assert found is not None
    expected = [
        ScoredBox(box.box, box.score, name)
        for name in ("mass", "nodule")
        for box in boxes_of(Painter.heatmap(picture(1), prompt(name)))
    ]
    assert [*found.boxes] == expected
    assert found.heatmap is None


def test_one_method_is_called_alone_for_the_queries_that_are_wanted(tmp_path: Path) -> None:
    wanted = {("s1", "box:0.0"), ("s2", "image"), ("s3", "region:left lung")}
    rows = asked(Everything(), tmp_path, queries=["boxes", "regions"], method="describe", only=wanted)
    assert {(key.study, key.query) for key in rows} == {("s1", "box:0.0"), ("s3", "region:left lung")}
    row = rows[Key("s1", "box:0.0", "none")]
    assert row.asked == Query(box=LEFT)
    assert row.finding_scores is None
    assert row.sentences == (Sentence(f"box: {picture(1).mean():.3f}", (LEFT,)),)
    with pytest.raises(InputError, match="another method of the model"):
        ask(Everything(), regional(), tmp_path / "p", queries=["boxes"], method="classify")
    with pytest.raises(InputError, match="Writer has no method detect"):
        Answerer(Writer(), method="detect")


def test_embeddings_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    rows = asked(Encoder(), tmp_path, embeddings=True)
    image = rows[Key("s4", "image", "none")]
    assert image.image_embedding == (float(picture(4).mean()), float(picture(4).max()))
    assert image.text_embedding is None
    phrase = rows[Key("s4", "phrase:0", "none")]
    assert (phrase.text_embedding, phrase.image_embedding) == ((13.0, 2.0, 1.0), None)
    with pytest.raises(InputError, match="another choice of embeddings"):
        ask(Everything(), regional(), tmp_path / "p", model_name="Encoder")


def test_a_blind_grounder_is_told_words_findings_and_patient_and_never_shown_an_image(tmp_path: Path) -> None:
    model, source = Blind(), regional()
    for one in source.studies:
        object.__setattr__(one, "load", lambda: pytest.fail("an image was loaded"))
    summary = ask(model, source, tmp_path / "p", ["none", "swap-sides", "exchange-image", "random-sentence"])
    assert summary.complete
    assert all(phrase.boxes == () and phrase.mask is None for phrase, _ in model.told)
    first = Phrase("Left effusion", regions=("left lung",), findings={"pleural effusion": POSITIVE})
    swapped = Phrase("Right effusion", regions=("right lung",), findings={"pleural effusion": POSITIVE})
    assert {(first, "p1"), (swapped, "p1"), (first, "study s0")} <= set(model.told)
    rows = rows_of(tmp_path / "p")
    for study, partner in partners().items():
        exchanged = rows[Key(study, "phrase:0", "exchange-image")]
        assert exchanged.grounding == rows[Key(study, "phrase:0", "none")].grounding, partner
    drawn = rows[Key("s1", "phrase:1", "random-sentence")].asked.phrase
    labels = {phrase.findings for phrase, patient in model.told if patient == "p1" and phrase.text == drawn}
    assert labels == {first.findings if drawn == first.text else Phrase("x", findings={"mass": NEGATIVE}).findings}


def test_the_same_words_of_two_patients_are_two_questions_to_a_blind_grounder_alone() -> None:
    same = Phrase("Effusion")
    both = [Question(Key(f"s{n}", "phrase:0"), Query("Effusion"), same, f"p{n}") for n in (0, 1, 0)]
    model = Blind()
    assert len(Answerer(model).answers(both, [None] * 3)) == 3
    assert model.told == [(same, "p0"), (same, "p1")]
    painter, image = Painter(), picture(0)
    found = Answerer(painter).answers(both, [image] * 3)
    assert [texts for _, texts in painter.calls] == [["Effusion"]]
    assert found[0] == found[1] == found[2]


def test_an_image_is_compared_with_its_own_texts_only() -> None:
    class Relative:
        """Depends on the other texts of a call, as no model should."""

        def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
            assert len(images) == 1
            return Similarities(np.array([[len(text) / len("".join(texts)) for text in texts]], np.float32))

    asked_of = [Question(Key("s", text), Query(text)) for text in ("a", "bcd", "ef")]
    one, two = picture(1), picture(2)
    found = Answerer(Relative()).answers(asked_of, [one, one, two])
    assert [answer["similarity_global"] for answer in found if isinstance(answer, dict)] == [0.25, 0.75, 1.0]


def test_a_model_that_can_do_everything_is_asked_everything_or_what_is_chosen(tmp_path: Path) -> None:
    rows = asked(Everything(), tmp_path, embeddings=True, batch_size=5)
    assert {key.query for key in rows} == {
        "phrase:0", "phrase:1", "image", "region:left lung", "region:right lung",
    }  # fmt: skip
    phrase, image, region = (rows[Key("s1", name, "none")] for name in ("phrase:0", "image", "region:left lung"))
    heatmap = Painter.heatmap(picture(1), "Left effusion")
    assert phrase.grounding == Grounding(heatmap, boxes_of(heatmap))
    assert None not in (phrase.similarity_global, phrase.sentences, phrase.text_embedding)
    assert (phrase.finding_scores, phrase.report) == (None, None)
    assert None not in (image.finding_scores, image.report, image.image_embedding)
    assert image.grounding is None
    assert None not in (region.finding_scores, region.sentences)
    chosen = Everything()
    ask(chosen, regional(), tmp_path / "q", queries=["image"], embeddings=True)
    assert rows_of(tmp_path / "q") == {key: row for key, row in rows.items() if key.query == "image"}
    assert chosen.calls == []
    ask(chosen, regional(), tmp_path / "q", embeddings=True)  # going on with more kinds of queries
    assert rows_of(tmp_path / "q") == rows


def test_rows_in_memory_are_those_of_the_file(tmp_path: Path) -> None:
    rows = asked(Everything(), tmp_path, conditions=["none", "exchange-image"])
    batches = list(answers(Everything(), regional(), ["none", "exchange-image"]))
    assert {row.key: row for batch in batches for row in batch.predictions()} == rows
    assert sum(map(len, batches)) == len(rows)


def test_questions_can_be_had_without_a_model() -> None:
    found = {question.key: question for question in questions(regional(), ["none", "swap-sides"], limit=2)}
    assert set(found) == {
        Key(study, query, condition)
        for study in ("s0", "s1")
        for query, condition in (("phrase:0", "none"), ("phrase:0", "swap-sides"), ("phrase:1", "none"))
    }
    swapped = found[Key("s0", "phrase:0", "swap-sides")]
    assert swapped.phrase == Phrase("Right effusion", regions=("right lung",), findings={"pleural effusion": POSITIVE})
    assert (swapped.query, swapped.patient, swapped.image_of) == (Query("Right effusion"), "study s0", "s0")


@pytest.mark.parametrize(
    ("method", "given", "expected"),
    [
        ("ground", [], "ground returned 0 answers for 1 questions"),
        ("ground", ["a map"], "ground must return Grounding values; got str"),
        ("describe", [None], "describe must return str values; got NoneType"),
        ("report", ["text"], "report must return Report values; got str"),
        ("detect", [[ScoredBox(LEFT, 0.5)]], f"with the label of a finding; got {ScoredBox(LEFT, 0.5)!r}"),
        ("classify", np.zeros((1, 2)), r"classify must return scores of shape (1, 13); got (1, 2)"),
        ("classify", np.full((1, 13), np.inf), "score of finding 'enlarged cardiomediastinum' must be finite; got inf"),
        ("classify", np.full((1, 13), np.nan), "all findings; it stands for a finding that the model does not know"),
    ],
)
def test_what_a_model_must_not_return_becomes_a_reason(tmp_path: Path, method: str, given: Any, expected: str) -> None:
    model = type("Model", (), {method: lambda *asked: given})()
    source = Listed([Study("a", lambda: picture(0), phrases=(Phrase("x"),))])
    with pytest.raises(InputError) as caught:
        ask(model, source, tmp_path / "p")
    assert str(caught.value).startswith("none of the 1 questions has an answer; first error: study 'a', ")
    assert str(caught.value).endswith(expected)


def test_another_batch_size_asks_the_same_and_changes_maps_by_rounding_only(tmp_path: Path) -> None:
    model, source = rightlung.load("starter"), rightlung.open_source("phantom?count=3&seed=3&size=96")
    for batch_size in (1, 8):
        ask(model, source, tmp_path / str(batch_size), queries=["phrases"], batch_size=batch_size)
    one, eight = rows_of(tmp_path / "1"), rows_of(tmp_path / "8")
    assert one.keys() == eight.keys()
    for key, row in one.items():
        assert row.asked == eight[key].asked
        np.testing.assert_allclose(cells_of(row), cells_of(eight[key]), rtol=0, atol=2e-6)


def test_maps_of_the_starter_are_those_of_calling_it_in_a_plain_loop(tmp_path: Path) -> None:
    model, conditions = rightlung.load("starter"), ("none", "swap-sides", "exchange-image")
    source = rightlung.open_source("phantom?count=6&seed=3&size=96")
    ask(model, source, tmp_path / "p", conditions, queries=["phrases"], batch_size=8)
    rows = rows_of(tmp_path / "p")
    studies = {study.id: study for study in source}
    by_image: Mapping[str, list[Question]] = {study: [] for study in studies}
    for question in questions(source, conditions):
        by_image[str(question.image_of)].append(question)
    pairs = [(question, studies[image].image) for image, group in by_image.items() for question in group]
    assert len(pairs) == len(rows) > 20
    for begin in range(0, len(pairs), 8):
        some = pairs[begin : begin + 8]
        found = model.ground([image for _, image in some], [question.query.phrase for question, _ in some])
        for (question, _), grounding in zip(some, found, strict=True):
            assert rows[question.key].grounding == Grounding(grounding.heatmap, boxes_of(grounding.heatmap))

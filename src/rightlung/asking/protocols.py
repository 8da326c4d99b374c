"""Calls of the model protocols for many questions at once. Each returns fields of the answers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rightlung.asking.questions import Question
from rightlung.core import Box, Grounding, InputError, Phrase, Query, Report, ScoredBox, Sentence
from rightlung.core.checks import check_text
from rightlung.core.errors import check_known
from rightlung.core.study import QueryKind
from rightlung.explain.boxes import BoxRule, boxes_of
from rightlung.lexicon import prompt
from rightlung.models import base
from rightlung.models.inputs import pairs_by_image

Regions = Mapping[str, Box]
"""Region boxes of an image by name."""


class ImageQuestion(NamedTuple):
    """A question with the image to show (None if the model needs none) and the image's regions."""

    question: Question
    image: Any
    regions: Regions

    @property
    def query(self) -> Query:
        """The query."""
        return self.question.query

    @property
    def text(self) -> str:
        """The words of the query."""
        return self.query.phrase or ""


Answer = dict[str, Any]
"""The answer to one question: fields of a `Prediction` by name."""

Call = Callable[[Sequence[ImageQuestion]], list[Answer]]

METHODS = ("ground", "similarity", "classify", "classify-multiclass", "detect", "describe", "report", "embed")
"""Methods of which one can be called alone.

``classify-multiclass`` takes it that exactly one finding is there, if the model's ``classify`` has the parameter
``multiclass``; other models answer as with ``classify``.
"""


def calls_of(
    model: Any, boxes: BoxRule | None, findings: Sequence[str], embeddings: bool, method: str | None = None
) -> list[tuple[Call, set[QueryKind]]]:
    """Return the calls that a model implements (or that of one ``method``), each with the kinds of query it answers."""
    if method is not None:
        check_known("method", method, METHODS)
    grounds = isinstance(model, base.Grounder | base.RegionGrounder | base.BlindGrounder)
    compares, classifies = getattr(model, "compares_texts", True), isinstance(model, base.FindingClassifier)
    matches = isinstance(model, base.Matcher) and compares
    # A grounder is asked for a prompt of each finding, but only on demand: that is a question for each of them.
    detects = isinstance(model, base.Detector) or (method == "detect" and isinstance(model, base.Grounder))
    by_regions = not matches and isinstance(model, base.RegionGrounder)
    # What a text finds is classified on demand, too: nobody expects findings of every phrase.
    by_text = method == "classify" and classifies and _takes(model.classify, "queries")
    multiclass = method == "classify-multiclass" and classifies
    one_of = partial(_classify, model, findings, multiclass=True)
    embeds = isinstance(model, base.Embedder) and compares and (embeddings or method == "embed")
    described: set[QueryKind] = {"phrase", "box", "phrase+box"}
    calls: list[tuple[str, bool, Call, set[QueryKind]]] = [
        ("ground", grounds, partial(_ground, model, boxes), {"phrase"}),
        ("similarity", matches, partial(_compare, model), {"phrase"}),
        ("similarity", by_regions, partial(_compare_regions, model), {"phrase"}),
        ("classify", classifies and _takes(model.classify, "boxes"), partial(_classify, model, findings), {"box"}),
        ("classify", by_text, partial(_classify, model, findings), {"phrase", "phrase+box"}),
        ("classify", classifies, partial(_classify, model, findings), {"image"}),
        ("classify-multiclass", multiclass and _takes(model.classify, "boxes"), one_of, {"box"}),
        ("classify-multiclass", multiclass, one_of, {"image"}),
        ("detect", detects, partial(_detect, model, findings, boxes), {"image"}),
        ("describe", isinstance(model, base.Describer), partial(_describe, model), described),
        ("report", isinstance(model, base.Reporter), partial(_report, model), {"image"}),
        ("embed", embeds, partial(_embed, model), {"image", "phrase"}),
    ]
    return [(call, kinds) for name, applies, call, kinds in calls if applies and method in (None, name)]


def _ground(model: Any, rule: BoxRule | None, some: Sequence[ImageQuestion]) -> list[Answer]:
    # A model under test gets the words only: the source's findings and regions would give the answer away.
    images, texts = [one.image for one in some], [one.text for one in some]
    if isinstance(model, base.Grounder):
        found = model.ground(images, texts)
    elif isinstance(model, base.RegionGrounder):
        found = model.ground_regions(images, texts, [one.regions for one in some])
    else:
        phrases = [one.question.phrase or Phrase(one.text) for one in some]
        found = model.ground_blind(phrases, [one.question.patient for one in some])
    groundings = _checked(found, some, Grounding, "ground")
    for place, one in enumerate(groundings):
        if rule is not None and one.heatmap is not None and not one.has_boxes:
            groundings[place] = Grounding(one.heatmap, boxes_of(one.heatmap, rule))
    return [{"grounding": one} for one in groundings]


def _compare(model: base.Matcher, some: Sequence[ImageQuestion]) -> list[Answer]:
    found: list[Answer] = [{} for _ in some]
    # Each image with its own texts only, so that answers do not depend on the batch.
    for places in pairs_by_image([one.image for one in some]):
        compared = model.similarity([some[places[0]].image], [some[place].text for place in places])
        for column, place in enumerate(places):
            found[place]["similarity_global"] = float(compared.global_similarity[0, column])
            if compared.local_similarity is not None:
                found[place]["similarity_local"] = float(compared.local_similarity[0, column])
    return found


def _compare_regions(model: base.RegionGrounder, some: Sequence[ImageQuestion]) -> list[Answer]:
    images, texts, regions = ([getattr(one, name) for one in some] for name in ("image", "text", "regions"))
    similar = model.similarity_regions(images, texts, regions)
    # Without regions the model does not see the image.
    return [{"similarity_global": float(value)} if given else {} for value, given in zip(similar, regions, strict=True)]


def _classify(
    model: base.FindingClassifier, findings: Sequence[str], some: Sequence[ImageQuestion], multiclass: bool = False
) -> list[Answer]:
    """Classify whole images, or what one box or text asks for in each; all questions are of one kind."""
    images, queries = [one.image for one in some], [one.query for one in some]
    given: dict[str, Any] = {"multiclass": True} if multiclass and _takes(model.classify, "multiclass") else {}
    if queries[0].phrase is not None:
        given["queries"] = queries
    elif queries[0].box is not None:
        given["boxes"] = [query.box for query in queries]
    scores = np.asarray(model.classify(images, findings, **given))
    if scores.shape != (len(some), len(findings)):
        expected = (len(some), len(findings))
        raise InputError(f"classify must return scores of shape {expected}; got {scores.shape}")
    if np.isnan(scores).all(axis=1).any():
        raise InputError("classify returned NaN for all findings; it stands for a finding that the model does not know")
    return [
        {"finding_scores": {name: score for name, score in zip(findings, row, strict=True) if not math.isnan(score)}}
        for row in scores.tolist()
    ]


def _detect(model: Any, findings: Sequence[str], rule: BoxRule | None, some: Sequence[ImageQuestion]) -> list[Answer]:
    if not isinstance(model, base.Detector):
        return [_detect_by_prompts(model, findings, rule, one) for one in some]
    detected = _checked(model.detect([one.image for one in some], findings), some, list, "detect")
    for box in (box for boxes in detected for box in boxes):
        if not isinstance(box, ScoredBox) or box.label not in findings:
            raise InputError(f"detect must return ScoredBox values with the label of a finding; got {box!r}")
    return [{"grounding": Grounding(boxes=boxes)} for boxes in detected]


def _detect_by_prompts(model: Any, findings: Sequence[str], rule: BoxRule | None, one: ImageQuestion) -> Answer:
    asked = [
        ImageQuestion(replace(one.question, query=Query(prompt(name))), one.image, one.regions) for name in findings
    ]
    found = [answer["grounding"].boxes for answer in _ground(model, rule, asked)]
    labelled = [replace(box, label=name) for name, boxes in zip(findings, found, strict=True) for box in boxes]
    return {"grounding": Grounding(boxes=labelled)}


def _describe(model: base.Describer, some: Sequence[ImageQuestion]) -> list[Answer]:
    queries = [one.query for one in some]
    texts = _checked(model.describe([one.image for one in some], queries), some, str, "describe")
    found: list[Answer] = [{"sentences": ()} for _ in some]
    for fields, text, query in zip(found, texts, queries, strict=True):
        if text.strip():
            fields["sentences"] = (Sentence(text, () if query.box is None else (query.box,), prompt=query.phrase),)
    return found


def _report(model: base.Reporter, some: Sequence[ImageQuestion]) -> list[Answer]:
    found: list[Answer] = []
    # A model that retrieves reports must know the patient, whose own report is no answer.
    given: dict[str, Any] = {}
    if _takes(model.report, "patients"):
        given["patients"] = [one.question.patient for one in some]
    for report in _checked(model.report([one.image for one in some], **given), some, Report, "report"):
        text = report.text.strip() or " ".join(sentence.text for sentence in report.sentences)
        found.append({"report": check_text(text, "a report")})
        if report.sentences:
            found[-1]["sentences"] = report.sentences
    return found


def _embed(model: base.Embedder, some: Sequence[ImageQuestion]) -> list[Answer]:
    """Embed the words of a phrase, or the image of a question without words."""
    texts, images = [one.text for one in some if one.text], [one.image for one in some if not one.text]
    of_texts = iter(_checked(model.encode_text(texts), texts, np.ndarray, "encode_text") if texts else ())
    of_images = iter(_checked(model.encode_image(images), images, np.ndarray, "encode_image") if images else ())
    return [{"text_embedding": next(of_texts)} if one.text else {"image_embedding": next(of_images)} for one in some]


def _checked(found: Any, asked: Sequence[Any], kind: type, method: str) -> list[Any]:
    """Return a model's answers if there is one of the right type per question."""
    values = list(found)
    if len(values) != len(asked):
        raise InputError(f"{method} returned {len(values)} answers for {len(asked)} questions")
    for value in values:
        if not isinstance(value, kind):
            raise InputError(f"{method} must return {kind.__name__} values; got {type(value).__name__}")
    return values


def _takes(method: Callable[..., Any], parameter: str) -> bool:
    """Whether a method has an optional parameter."""
    try:
        return parameter in inspect.signature(method).parameters
    except (TypeError, ValueError):  # a function without a signature
        return False

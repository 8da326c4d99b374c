"""The questions of a reader study, with the answers' meanings ("That's the Wrong Lung!", section A.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rightlung.app.requests import AnswerRequest, CustomQuestion
from rightlung.core import InputError


@cache
def standard_questions() -> list[dict[str, Any]]:
    """Return recall, precision and intuitiveness with their anchors as JSON values."""
    found = yaml.safe_load((Path(__file__).parent / "questions.yaml").read_text(encoding="utf-8"))
    return [_question(one["name"], one["text"], one["labels"], one["anchors"]) for one in found]


def custom_questions(given: list[CustomQuestion]) -> list[dict[str, Any]]:
    """Return questions of one's own, named q1, q2…, as JSON values."""
    return [_question(f"q{place}", one.text, one.choices) for place, one in enumerate(given, 1)]


def _question(
    name: str, text: str, labels: Sequence[str] | None, anchors: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Return a question; those with anchors are required, and one without labels asks for a text."""
    known = anchors or {}
    choices = None
    if labels is not None:
        choices = [{"value": one, "label": label, "anchor": known.get(one)} for one, label in enumerate(labels, 1)]
    return {"name": name, "text": text, "required": anchors is not None, "choices": choices}


def check_custom_answers(request: AnswerRequest, questions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the answers to the questions of one's own; one to an unknown question is an error."""
    known = {one["name"]: one for one in questions}
    for name, answer in request.answers.items():
        if name not in known:
            raise InputError(f"answers.{name}: this study has no such question")
        choices = known[name]["choices"]
        if choices is None and not isinstance(answer, str):
            raise InputError(f"answers.{name}: expected a text; got {answer!r}")
        if choices is not None and (isinstance(answer, str) or not 1 <= answer <= len(choices)):
            raise InputError(f"answers.{name}: expected a whole number from 1 to {len(choices)}; got {answer!r}")
    return dict(request.answers)

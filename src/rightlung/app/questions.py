"""The questions of a reader study, with the answers' meanings ("That's the Wrong Lung!", section A.7)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rightlung.app.requests import AnswerRequest, CustomQuestion
from rightlung.core import InputError


@cache
def standard_questions() -> list[dict[str, Any]]:
    """Return recall, precision and intuitiveness with their anchors as JSON values."""
    found = []
    for one in yaml.safe_load((Path(__file__).parent / "questions.yaml").read_text(encoding="utf-8")):
        choices = [
            {"value": value, "label": label, "anchor": one["anchors"].get(value)}
            for value, label in enumerate(one["labels"], 1)
        ]
        found.append({"name": one["name"], "text": one["text"], "required": True, "choices": choices})
    return found


def custom_questions(given: list[CustomQuestion]) -> list[dict[str, Any]]:
    """Return questions of one's own, named q1, q2…, as JSON values."""
    found = []
    for place, one in enumerate(given, 1):
        choices = None
        if one.choices is not None:
            choices = [{"value": value, "label": label, "anchor": None} for value, label in enumerate(one.choices, 1)]
        found.append({"name": f"q{place}", "text": one.text, "required": False, "choices": choices})
    return found


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

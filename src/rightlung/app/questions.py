"""The questions of a reader study, with the answers' meanings ("That's the Wrong Lung!", section A.7)."""

from __future__ import annotations

from typing import Any

from rightlung.app.requests import AnswerRequest, CustomQuestion
from rightlung.core import InputError

_BINS = ("0–20 %", "20–40 %", "40–60 %", "60–80 %", "80–100 %")
QUESTIONS: tuple[tuple[str, str, tuple[str, ...], dict[int, str]], ...] = (
    (
        "recall",
        "The heatmap includes what percentage of the region of interest from the prompt?",
        _BINS,
        {
            1: "The heatmap is focused on entirely the wrong part of the image, does not highlight any part of the "
            "image strongly, or has very minimal intensity on the region of interest.",
            3: "The heatmap comes close to covering the region of interest, or does cover the region of interest but "
            "with not too much intensity.",
            5: "The prompt refers to a region that is within a high-intensity part of the heatmap.",
        },
    ),
    (
        "precision",
        "What percentage of the heatmap represents an area of interest?",
        _BINS,
        {
            1: "This heatmap is all over the place or highlights a large portion of the image.",
            3: "The focus includes the relevant region(s) but also other irrelevant regions (either adjacent or "
            "elsewhere in the image).",
            5: "The heatmap is very targeted to only the parts of the image most relevant to the prompt.",
        },
    ),
    (
        "intuitiveness",
        "Rate how intuitive the heatmap is (1 is the worst, 5 the best).",
        ("1", "2", "3", "4", "5"),
        {
            1: "The heatmap is completely unhelpful, counterintuitive, or misleading.",
            2: "The heatmap might have something in common with an intuitive one, but very little.",
            3: "The heatmap does show a region of interest, but has some stray parts or does not catch all relevant "
            "regions.",
            4: "The heatmap is reasonably intuitive and contains mostly (though not exclusively) the regions I would "
            "expect.",
            5: "The heatmap is almost exactly what you might draw to represent the region of interest.",
        },
    ),
)
"""Name, question, labels of the five choices, and the anchors of some of them."""


def standard_questions() -> list[dict[str, Any]]:
    """Return recall, precision and intuitiveness as JSON values."""
    return [
        {"name": name, "text": text, "required": True, "choices": [
            {"value": value, "label": label, "anchor": anchors.get(value)} for value, label in enumerate(labels, 1)
        ]}
        for name, text, labels, anchors in QUESTIONS
    ]  # fmt: skip


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

"""Asking: model × source × probes → predictions, through every protocol that the model implements."""

from rightlung.asking.answerer import GIVE_UP_AFTER, Answerer, NoAnswer
from rightlung.asking.fingerprint import code_fingerprint
from rightlung.asking.folder import Failed, Summary
from rightlung.asking.questions import QUERIES, Question, questions
from rightlung.asking.run import answers, ask, load_image

__all__ = [
    "GIVE_UP_AFTER", "QUERIES", "Answerer", "Failed", "NoAnswer", "Question", "Summary", "answers", "ask",
    "code_fingerprint", "load_image", "questions",
]  # fmt: skip

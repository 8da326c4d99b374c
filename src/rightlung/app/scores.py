"""The score of an answer, and the sentence that says what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rightlung.core import Grounding
from rightlung.lexicon.labeller import read_sentence
from rightlung.models.calibration import SIMILARITY, Calibration, scores_of

RANKING = "A ranking only: a higher score means a better match, but it is not a probability; nothing was calibrated."


def score_json(
    answer: Mapping[str, Any], grounding: Grounding, text: str, source: str, known: Calibration | None
) -> dict[str, Any]:
    """Return the score; with its probability only for images and phrases like those that it was calibrated on.

    ``source`` is the address of the image's source; empty for a changed image.
    """
    scores = scores_of(answer, grounding)
    name = SIMILARITY if known is None else known.score
    value = scores.get(name)
    if value is None:
        value, name = max((one.score for one in grounding.boxes), default=None), "score of the best box"
    found = {"value": None if value is None else round(value, 5), "name": name, "calibrated": False}
    unknown = found | {"probability": None, "statement": RANKING}
    if known is None or value is None:
        return unknown
    kind, said = _kind(known.data), read_sentence(text).findings.values()
    data, others = ("phantoms", "on real images") if kind == "phantom" else (known.data, "on other images")
    if _kind(source) != kind:
        here = "on a changed image" if _kind(source) == "" else others
        return unknown | {"statement": f"A ranking only: calibrated on {data}; {here} it is only a ranking."}
    if not said or any(one != "positive" for one in said):
        here = "a phrase that says nothing else than that a finding is there"
        return unknown | {"statement": f"A ranking only: calibrated on {data} for {here}."}
    probability = min(max(round(known.probability(value), 2), 0.01), 0.99)  # the page and the sentence say the same
    there = f"of phrases given this score there, {100 * probability:.0f} % were true"
    statement = f"Calibrated on {data}, with phrases of which half are true: {there}; {others} it is only a ranking."
    return found | {"calibrated": True, "probability": probability, "statement": statement}


def _kind(address: str) -> str:
    return address.partition("?")[0].partition(":")[0]

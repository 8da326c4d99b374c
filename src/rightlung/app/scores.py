"""The score of an answer, and the sentence that says what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rightlung.core import Grounding
from rightlung.lexicon.labeller import read_sentence
from rightlung.models.calibration import SIMILARITY, Calibration, scores_of
from rightlung.models.calibration_file import (
    RANKING,
    NamedCalibration,
    calibrated_sentence,
    ranking_sentence,
    same_kind,
)


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
    said, phantoms = read_sentence(text).findings.values(), same_kind("phantom", known.data)
    data, others = ("phantoms", "on real images") if phantoms else (known.data, "on other images")
    if not same_kind(source, known.data):
        here = others if source else "on a changed image"
        return unknown | {"statement": f"A ranking only: calibrated on {data}; {here} it is only a ranking."}
    if not said or any(one != "positive" for one in said):
        here = "a phrase that says nothing else than that a finding is there"
        return unknown | {"statement": f"A ranking only: calibrated on {data} for {here}."}
    probability = min(max(round(known.probability(value), 2), 0.01), 0.99)  # the page and the sentence say the same
    there = f"of phrases given this score there, {100 * probability:.0f} % were true"
    statement = f"Calibrated on {data}, with phrases of which half are true: {there}; {others} it is only a ranking."
    return found | {"calibrated": True, "probability": probability, "statement": statement}


def findings_json(
    scores: Mapping[str, float], source: str, known: Mapping[str, NamedCalibration], whole: bool
) -> dict[str, Any]:
    """Return scores of findings, highest first, read by the calibration that belongs to the source of a whole image."""
    ordered = sorted(scores, key=lambda name: -scores[name])
    found: list[dict[str, Any]] = [{"name": name, "score": round(scores[name], 5)} for name in ordered]
    fitted = {title: one.classify for title, one in known.items() if one.classify is not None}
    for title, one in fitted.items():
        if whole and same_kind(source, one.data):
            for row in found:
                of_finding = one.findings.get(row["name"])
                row |= {"probability": None} if of_finding is None else of_finding.reading(scores[row["name"]])
            return {"findings": found, "calibrated": True, "statement": calibrated_sentence(title, one.data)}
    hint = "" if whole or not fitted else " Nothing was calibrated for boxes."
    return {"findings": found, "calibrated": False, "statement": ranking_sentence(known, "classify", hint)}

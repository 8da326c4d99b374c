"""``rightlung classify``: a model's scores of findings in an image, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.asking import Answerer, NoAnswer, Question
from rightlung.cli.calibrate import shown
from rightlung.cli.frontal import read_radiograph
from rightlung.cli.output import finish, say, say_table
from rightlung.cli.predict import load_model
from rightlung.core import InputError, Query
from rightlung.models.calibration_file import calibrated_sentence, calibrations_of, chosen_calibration, ranking_sentence
from rightlung.models.registry import abilities
from rightlung.predictions import Key

CHOOSE = " If the image is like those, choose it with --calibration NAME."


def run(
    image: Path,
    model_name: str,
    more: Sequence[str],
    calibration: str | None,
    anyway: bool,
    device: str | None,
    json: bool,
) -> None:
    """Print the findings of an image by score; with a calibration, their probabilities and what the thresholds say."""
    known = None if calibration is None else chosen_calibration(model_name, calibration).classify
    if calibration is not None and known is None:
        raise InputError(f"model {model_name!r}: the calibration {calibration!r} has no findings, only phrases")
    pixels, model = read_radiograph(image, anyway), load_model(model_name, device)
    if "classify" not in abilities(model):
        raise InputError(f"model {model_name!r} cannot classify findings; 'rightlung models' lists what each can do")
    own = Answerer(model, method="classify").findings
    names = dict.fromkeys([*own, *more, *(known.findings if known else ())])
    answerer = Answerer(model, method="classify", findings=[*names])
    answer = answerer.answers([Question(Key(image.name, "image", "none"), Query())], [pixels])[0]
    if isinstance(answer, NoAnswer):
        raise InputError(f"{image}: the model gave no answer: {answer.reason}")
    scores = answer["finding_scores"]
    rows: list[dict[str, Any]] = [
        {"name": one, "score": scores[one]} for one in sorted(scores, key=lambda n: -scores[n])
    ]
    for row in rows if known else ():
        fitted = known.findings.get(row["name"]) if known else None
        row |= {"probability": None} if fitted is None else fitted.reading(row["score"])
    sentence = (
        ranking_sentence(calibrations_of(model_name), "classify", CHOOSE)
        if known is None
        else calibrated_sentence(str(calibration), known.data)
    )

    def tell() -> None:
        if known is None:
            say_table(["finding", "score"], [[row["name"], f"{row['score']:.3f}"] for row in rows])
        else:
            header = ["finding", "score", "probability", "reading", "sensitivity", "specificity"]
            say_table(header, [_cells(row) for row in rows], header[3:4])
            say(f"\npresent: at the threshold ({known.rule}), with its sensitivity and specificity on other patients")
            say(f"excluded: below the threshold that keeps {known.keep:.0%} of the patients with the finding")
            if known.missing_labels == "negative":
                say("labels that an image lacked were read as negative, which they may not be")
        say(f"\n{sentence}\n{NOT_A_MEDICAL_DEVICE}")

    result = {"image": str(image), "model": model_name, "calibration": calibration, "findings": rows}
    finish(json, result | {"scores": sentence, "note": NOT_A_MEDICAL_DEVICE}, tell)


def _cells(row: dict[str, Any]) -> list[str]:
    start = [row["name"], f"{row['score']:.3f}"]
    if row["probability"] is None:
        return [*start, "", "only a ranking", "", ""]
    said = "present" if row["present"] else "excluded" if row["excluded"] else "not present, not excluded"
    return [*start, f"{row['probability']:.2f}", said, shown(row["sensitivity"], 2), shown(row["specificity"], 2)]

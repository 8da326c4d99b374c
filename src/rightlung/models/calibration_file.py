"""``calibration.json`` of a model's folder: calibrations by name, and the sentence that says what a score is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rightlung.core import InputError
from rightlung.core.errors import check_known
from rightlung.core.files import read_json, write_json
from rightlung.core.settings import plain_settings, read_settings
from rightlung.models.calibration import Calibration
from rightlung.models.finding_calibration import ClassifierCalibration
from rightlung.models.folder import CALIBRATION_FILE, WEIGHTS_FILE, read_config
from rightlung.models.registry import find_folder, split_changes

Part = Literal["ground", "classify"]
RANKING = (
    "This score is only a ranking: a higher score means a better match, but it is not a probability; nothing was "
    "calibrated."
)


@dataclass(frozen=True)
class NamedCalibration:
    """What was calibrated on the data behind one name."""

    ground: Calibration | None = None
    classify: ClassifierCalibration | None = None


@dataclass(frozen=True)
class Calibrations:
    """The content of ``calibration.json``."""

    weights: str
    """SHA-256 of the model's weights."""
    calibrations: Mapping[str, NamedCalibration] = field(default_factory=dict)


def weights_of(name: str) -> str | None:
    """Return the SHA-256 of the weights of a model's folder; None if the model is no folder."""
    folder = find_folder(split_changes(name)[0])
    return None if folder is None else read_config(folder.path, links_within=folder.links_within).files[WEIGHTS_FILE]


def calibrations_of(name: str) -> Mapping[str, NamedCalibration]:
    """Return the calibrations of a model; none if it has none, or is asked with a changed configuration."""
    plain, changes = split_changes(name)
    folder = None if changes else find_folder(plain)
    if folder is None or not (path := folder.path / CALIBRATION_FILE).exists():
        return {}
    found = read_settings(Calibrations, read_json(path), str(path))
    if found.weights != weights_of(str(plain)):
        raise InputError(f"{path}, field 'weights': not those in {WEIGHTS_FILE}; run rightlung calibrate again")
    return found.calibrations


def chosen_calibration(name: str, chosen: str) -> NamedCalibration:
    """Return the calibration of a model by its own name."""
    known = calibrations_of(name)
    if not known:
        raise InputError(f"model {name!r} has no {CALIBRATION_FILE}: its scores are only a ranking")
    check_known("calibration", chosen, known)
    return known[chosen]


def add_calibration(path: Path, weights: str, name: str, parts: Mapping[str, Any]) -> None:
    """Write calibrations into a file beside what it has of the same weights; other parts of the name are kept."""
    known: Mapping[str, NamedCalibration] = {}
    if path.exists():
        before = read_settings(Calibrations, read_json(path), str(path))
        known = before.calibrations if before.weights == weights else {}
    new = replace(known.get(name, NamedCalibration()), **parts)
    write_json(path, plain_settings(Calibrations(weights, {**known, name: new})))


def same_kind(address: str, data: str) -> bool:
    """Whether a study's source is of the kind that was calibrated on: phantoms, or the same data set."""
    first, second = (one.partition("?")[0] for one in (address, data))
    return first == second or first.partition(":")[0] == second.partition(":")[0] == "phantom"


def ranking_sentence(known: Mapping[str, NamedCalibration], part: Part, hint: str = "") -> str:
    """Return the sentence about scores of images that belong to no calibration."""
    listed = ", ".join(f"{title} ({getattr(one, part).data})" for title, one in known.items() if getattr(one, part))
    if not listed:
        return RANKING
    return f"This score is only a ranking. Calibrated on {listed}; elsewhere only a ranking.{hint}"


def calibrated_sentence(title: str, data: str) -> str:
    """Return the sentence about probabilities."""
    return f"Calibrated on {title} ({data}); elsewhere only a ranking."

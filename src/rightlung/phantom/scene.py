"""The scene: all facts about a synthetic patient, from which image, report and ground truth are made.

Sides are the patient's. Positions inside a lung are ``(across, down)``: across from the mediastinum (0) to the chest
wall (1), down from the apex (0) to the diaphragm (1). The same position means the same anatomy in either lung, for any
body size and any depth of inspiration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rightlung.phantom.config import Part

Side = Literal["left", "right", "both", "none"]
View = Literal["PA", "AP"]
Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Body:
    """A patient's build. Lengths are relative to an average adult (1.0)."""

    sex: Literal["F", "M"]
    age: int  # years
    height: float  # of the thorax, 0.85 to 1.15
    width: float  # of the thorax, 0.85 to 1.2
    fat: float  # soft tissue around it, 0 (lean) to 1 (obese)
    breasts: float  # 0 (none) to 1
    heart: float  # cardiothoracic ratio without any finding, 0.40 to 0.50
    aorta: float  # prominence and unfolding of the aortic knob, 0 to 1 (grows with age)
    seed: int  # of variations that no report mentions: vessels, rib shape, texture


@dataclass(frozen=True, slots=True)
class Exposure:
    """How the image was taken."""

    view: View
    portable: bool  # an AP view at the bedside
    inspiration: float  # 0 (expiration) to 1 (deep); 0.7 is an ordinary good breath
    rotation: float  # degrees, positive when the patient's left turns towards the detector
    tilt: float  # degrees of rotation within the image, -4 to 4
    zoom: float  # 0.9 (wide field) to 1.2 (tight)
    shift: tuple[float, float]  # of the image's centre, fractions of its size
    dose: float  # relative photons, 0.4 (noisy) to 2
    contrast: float  # of the display curve, 0.7 to 1.4
    brightness: float  # of the display curve, -0.15 to 0.15
    collimated: tuple[float, float, float, float]  # black borders left, top, right, bottom, in fractions, often 0
    grid_lines: bool
    marker: Literal["L", "R", "none"]  # the letter is on the side that it names
    text_box: bool  # burned-in text in a corner
    seed: int  # of the noise


@dataclass(frozen=True, slots=True)
class Lesion:
    """One lesion, with everything that determines its image, its words and its mask."""

    finding: str  # the lexicon's canonical name
    side: Side
    region: str  # the Chest ImaGenome region where it mainly is
    place: Place  # its centre within its lung; (0.5, 0.5) for lesions outside the lungs
    size: float  # largest diameter in centimetres; 0 for what fills a space
    severity: float  # 0 (barely visible) to 1 (most severe)
    form: str = ""  # "plate-like", "lobar", "tension", "loculated", "spiculated"…, see `sampling`
    seed: int = 0  # of its outline and texture


@dataclass(frozen=True, slots=True)
class Device:
    """A tube, line or implant."""

    kind: str  # see `config.DEVICE_ORDER`
    side: Side  # the side where it enters or lies
    tip: str  # location of its tip: "trachea", "right main bronchus", "superior vena cava", "stomach"…; "" for none
    depth: float  # for an endotracheal tube, centimetres above the carina; else 0 to 1 along its path
    well_placed: bool
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """One synthetic study."""

    seed: int
    index: int
    body: Body
    exposure: Exposure
    lesions: tuple[Lesion, ...] = ()
    devices: tuple[Device, ...] = ()
    prior: bool = False  # whether the report may refer to an earlier image ("unchanged")
    part: Part = "all"  # which wordings and regions are used, see `docs/phantom.md`

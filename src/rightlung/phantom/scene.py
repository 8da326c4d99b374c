"""What a made-up patient is: the facts that the picture, the report and the truth are all made from.

A scene is small, plain and immutable; it is drawn from a seed by `sampling`, painted by `render` and told by `report`.
Everything that can be known about a study follows from its scene, so that nothing has to be annotated afterwards.

Sides are the patient's. Places inside a lung are ``(across, down)``: across from the mediastinum (0) to the chest wall
(1), down from the apex (0) to the diaphragm (1), so that the same place means the same anatomy in either lung, in a
small patient and in a large one, in a deep breath and in a shallow one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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
    seed: int  # of everything that varies but is not told: vessels, rib shape, texture


@dataclass(frozen=True, slots=True)
class Exposure:
    """How the picture was taken."""

    view: View
    portable: bool  # an AP view at the bedside
    inspiration: float  # 0 (expiration) to 1 (deep); 0.7 is an ordinary good breath
    rotation: float  # degrees, positive when the patient's left turns towards the detector
    tilt: float  # degrees of rotation within the picture, -4 to 4
    zoom: float  # 0.9 (collimated wide) to 1.2 (tight)
    shift: tuple[float, float]  # of the picture's middle, fractions of its size
    dose: float  # relative photons, 0.4 (noisy) to 2
    contrast: float  # of the display curve, 0.7 to 1.4
    brightness: float  # of the display curve, -0.15 to 0.15
    collimated: tuple[float, float, float, float]  # black borders left, top, right, bottom, fractions, often 0
    grid_lines: bool
    marker: Literal["L", "R", "none"]  # the letter placed on the side it names
    text_box: bool  # burnt-in text in a corner
    seed: int  # of the noise


@dataclass(frozen=True, slots=True)
class Lesion:
    """One finding, with all that its picture, its words and its mask depend on."""

    finding: str  # the lexicon's canonical name
    side: Side
    region: str  # the Chest ImaGenome region in which it mainly lies
    place: Place  # its middle, within its lung (for what lies in none: (0.5, 0.5))
    size: float  # largest extent in centimetres; for what fills a space, 0
    severity: float  # 0 (barely there) to 1 (as bad as it gets)
    form: str = ""  # "plate-like", "lobar", "tension", "loculated", "spiculated"…, see `sampling`
    seed: int = 0  # of its outline and texture


@dataclass(frozen=True, slots=True)
class Device:
    """A tube, line or implant."""

    kind: str  # "endotracheal tube", "nasogastric tube", "central venous line", "chest tube", "pacemaker",
    # "ECG leads", "sternal wires"
    side: Side  # the side it comes in from, or lies on
    tip: str  # where its tip lies: "trachea", "right main bronchus", "superior vena cava", "stomach"…; "" for none
    depth: float  # for an endotracheal tube, centimetres above the carina; else 0 to 1 along its way
    well_placed: bool
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """One made-up study."""

    seed: int
    index: int
    body: Body
    exposure: Exposure
    lesions: tuple[Lesion, ...] = ()
    devices: tuple[Device, ...] = ()
    prior: bool = field(default=False)  # whether an earlier picture is said to exist ("unchanged")

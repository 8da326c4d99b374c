"""How findings deform the anatomy around them, and with it every outline, mask and region box."""

from __future__ import annotations

from dataclasses import dataclass

from rightlung.core.errors import unknown_name
from rightlung.phantom.config import FINDING_ORDER
from rightlung.phantom.scene import Scene

SIGN = {"right": -1.0, "left": 1.0, "both": 0.0, "none": 0.0}
"""Direction of a side in the image: the patient's right is on the image's left."""


@dataclass(slots=True)
class Deformation:
    """The deformed shape of one patient's chest; lengths in centimetres."""

    heart: float  # cardiothoracic ratio
    widened: float = 0.0  # of the upper mediastinum, on each side
    shift: float = 0.0  # of the mediastinum, towards the patient's left
    right_dome: float = 0.0  # of the right diaphragm, downwards
    left_dome: float = 0.0
    flat: float = 0.0  # share by which the domes are flattened
    vessels: float = 1.0  # calibre of the vessels
    cephalised: float = 0.0  # how much upper vessels outweigh lower ones
    lucent: float = 0.0  # share of lung tissue that is lost
    curve: float = 0.0  # lateral excursion of the spine
    right_behind: float = 1.0  # share of the air behind heart and dome that fluid has not displaced
    left_behind: float = 1.0

    def move_dome(self, side: str, distance: float) -> None:
        """Lower the diaphragm of one side, or both."""
        self.right_dome += distance if side != "left" else 0.0
        self.left_dome += distance if side != "right" else 0.0


def deformation_of(scene: Scene) -> Deformation:
    """Return the sum of the effects of a scene's findings; an unknown finding is an error."""
    found = Deformation(heart=scene.body.heart)
    if scene.exposure.view == "AP":
        # The heart is farther from the detector and appears larger, but a normal heart is still read as normal.
        found.heart = max(found.heart, min(found.heart * 1.08, 0.51))
    for lesion in scene.lesions:
        severity, toward = lesion.severity, SIGN[lesion.side]
        match lesion.finding:
            case "cardiomegaly":
                found.heart = max(found.heart, 0.53 + 0.17 * severity)
            case "enlarged cardiomediastinum":
                found.widened += 0.7 + 2.1 * severity
            case "pneumothorax" if lesion.form == "tension":
                found.shift -= toward * (1.0 + 2.4 * severity)
                found.move_dome(lesion.side, 1.0 + 1.2 * severity)
            case "pleural effusion":
                found.shift -= toward * 6.0 * max(0.0, severity - 0.6)
                if lesion.form != "loculated":
                    # Fluid collects behind the dome before it becomes visible.
                    dry = max(0.0, 1.0 - 2.5 * severity)
                    found.right_behind *= dry if lesion.side != "left" else 1.0
                    found.left_behind *= dry if lesion.side != "right" else 1.0
            case "atelectasis" if lesion.form == "lobar":
                found.shift += toward * (0.5 + 1.6 * severity)
                found.move_dome(lesion.side, -0.6 - 1.8 * severity)
            case "emphysema":
                found.move_dome(lesion.side, 0.4 + 1.4 * severity)
                found.flat = max(found.flat, 0.25 + 0.6 * severity)
                found.heart -= 0.06 * severity
                found.vessels *= 1.0 - 0.35 * severity
                found.lucent = max(found.lucent, 0.1 + 0.3 * severity)
            case "edema":
                found.vessels *= 1.0 + 0.35 * severity
                found.cephalised += 0.3 + 0.5 * severity
            case "low lung volumes":
                found.move_dome("both", -0.8 - 1.8 * severity)  # in addition to the shallow breath
            case "scoliosis":
                found.curve += (0.7 + 2.2 * severity) * (-1.0 if lesion.form == "dextro" else 1.0)
            case name if name not in FINDING_ORDER:
                raise unknown_name("finding", name, FINDING_ORDER)
    found.heart = min(found.heart, 0.74)
    return found

"""Everything that a report says besides the lesions: absences, devices, technique, advice, communication.

Absences are sampled before looking at the findings; those that are not completely true are then dropped, never
shortened. So the rest reveals nothing about findings that it does not negate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rightlung.core.keyed import RandomStream
from rightlung.core.study import Polarity
from rightlung.phantom.config import FINDING_ORDER, Part
from rightlung.phantom.scene import Device, Scene
from rightlung.phantom.words.bank import Negative, in_part, negatives, statements
from rightlung.phantom.words.lesions import Draft
from rightlung.phantom.words.templates import expand, polish

LUNG_KINDS = frozenset(FINDING_ORDER) - {
    "cardiomegaly", "enlarged cardiomediastinum", "hiatal hernia", "scoliosis", "rib fracture",
}  # fmt: skip
"""Findings that a lung called clear must not have."""

_CLEAR_SIDE = (
    "(the|) {side} lung is (clear|unremarkable|well aerated and clear)",
    "(the|) {side} lung (appears|remains) clear",
    "no (focal|) abnormality in the {side} lung",
)
_CAVA = ("superior vena cava", "SVC", "mid SVC", "lower SVC", "distal superior vena cava")
_AS_BEFORE = (", unchanged", ", unchanged in position", ", stable", ", as before", ", in unchanged position")
_URGENT = frozenset({"pneumothorax", "pleural effusion", "consolidation", "pneumonia", "edema", "cardiomegaly"})


def choose_negatives(stream: RandomStream, lavishness: float, summary: bool) -> list[Negative]:
    """Return the absences that this report would state if they were true, none of them negated twice.

    A summary contains only urgent ones. The choice is random, so it reveals nothing about the findings.
    """
    chosen: list[Negative] = []
    denied: set[str] = set()
    for negative in stream.shuffled(negatives()):
        if negative.block == "global" or not stream.chance(min(negative.share * lavishness, 1.0)):
            continue
        if not denied & negative.scope and (not summary or _URGENT.issuperset(negative.negates)):
            chosen.append(negative)
            denied |= negative.scope
    return chosen


def choose_global(stream: RandomStream) -> Negative | None:
    """Return the summary that this report would give if it were true: nothing acute, nothing at all, or None."""
    summaries = (negative for negative in negatives() if negative.block == "global")
    return next((negative for negative in summaries if stream.chance(negative.share)), None)


def is_true(negative: Negative, present: Collection[str]) -> bool:
    """Whether nothing is present that the sentence negates."""
    return not negative.forbidding & set(present)


def absence_sentence(negative: Negative, stream: RandomStream, part: Part) -> Draft:
    """Return the sentence for an absence."""
    findings = {name: Polarity.POSITIVE if name == "no finding" else Polarity.NEGATIVE for name in negative.negates}
    text = polish(expand(stream.choice(in_part(negative.texts, part)), stream, {}))
    return Draft(text, negative.regions, findings, (), (), negative.forbidding)


def clear_side(scene: Scene, stream: RandomStream) -> Draft | None:
    """Return "the right lung is clear" for a random side, if it is true."""
    side = stream.choice(("left", "right"))
    template = stream.choice(_CLEAR_SIDE)
    if any(lesion.finding in LUNG_KINDS and lesion.side in (side, "both") for lesion in scene.lesions):
        return None
    text = polish(expand(template, stream, {"side": side}))
    return Draft(text, (f"{side} lung",), {"lung opacity": Polarity.NEGATIVE}, (), (), LUNG_KINDS)


def device_sentence(index: int, device: Device, stream: RandomStream, compared: bool) -> Draft:
    """Return the sentence for a device and the position of its tip."""
    entry = statements()["devices"][device.kind]
    placed = "good" if device.well_placed else "bad"
    if placed == "bad" and device.kind == "endotracheal tube":
        placed = "bronchus" if device.tip == "right main bronchus" else "low"
    tip = stream.choice(_CAVA) if device.tip == "superior vena cava" else device.tip
    if tip in ("apex", "base", "brachiocephalic vein"):
        tip = f"{device.side} {tip}"
    several = " and " in tip
    slots = {
        "kind": stream.choice(entry["names"]),
        "side": device.side,
        "a_side": f"a/an {device.side}",
        "tip": tip,
        "leads": "leads" if several else stream.choice(("lead", "a lead", "a single lead")),
        "leads_end": stream.choice(("leads terminate", "leads end") if several else ("lead terminates", "lead ends")),
        "cm": f"{max(device.depth, 0.5):.1f}" if stream.chance(0.7) or device.depth < 1 else f"{device.depth:.0f}",
    }
    text = expand(stream.choice(entry[placed]), stream, slots)
    if compared:
        text += stream.choice(_AS_BEFORE)
    regions = tuple(entry["regions"]) or ((f"{device.side} lung",) if device.side in ("left", "right") else ())
    if device.kind == "central venous line":
        regions = {"right atrium": ("right atrium",), "cavoatrial junction": ("cavoatrial junction",)}.get(
            device.tip, ("svc",) if device.tip == "superior vena cava" else ("upper mediastinum",)
        )
    findings = {"support devices": Polarity.POSITIVE}
    return Draft(polish(text), regions, findings, (), (index,), frozenset(findings))


def aorta_sentence(scene: Scene, stream: RandomStream) -> Draft | None:
    """Return the sentence for a tortuous aorta, which depends on age and belongs to the body."""
    entry = statements()["body"]["aorta"]
    said = stream.chance(entry["share"])
    text = polish(expand(stream.choice(entry["texts"]), stream, {}))
    if scene.body.aorta < 0.7 or not said:
        return None
    return Draft(text, tuple(entry["regions"]), {entry["finding"]: Polarity.POSITIVE})


def general_sentence(kind: str, stream: RandomStream, names: Mapping[str, str]) -> Draft:
    """Return a sentence without a location."""
    return Draft(polish(expand(stream.choice(statements()["nowhere"][kind]), stream, names)))

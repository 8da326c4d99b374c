"""Sample a scene (patient, findings, devices, exposure) from a configuration, a seed and an index.

``docs/phantom.md`` lists the findings. To keep image and report plain, lesions of one kind never share a region (except
adjacent rib fractures), one side never has two pneumothoraces or two lobar collapses, and an effusion next to a
pneumothorax is small and free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from rightlung.core.errors import InputError
from rightlung.core.keyed import RandomStream, key_uniform
from rightlung.lexicon import REGIONS
from rightlung.phantom.config import DEVICE_ORDER, FINDING_ORDER, OLD_AGE, YOUNG_AGE, PhantomConfig
from rightlung.phantom.scene import Body, Device, Exposure, Lesion, Place, Scene, Side

LARGE_EFFUSION = 0.5
ALVEOLAR_EDEMA = 0.55
_MOST_TRIES = 12
_MARKERS: dict[Literal["L", "R", "none"], float] = {"L": 0.45, "R": 0.4, "none": 0.15}
_BAND = {"upper": (0.08, 0.32), "mid": (0.36, 0.64), "lower": (0.69, 0.92), "apical": (0.03, 0.12)}
_RIBS = {"upper": (3, 4), "mid": (5, 7), "lower": (8, 10)}


def sample_scene(config: PhantomConfig, seed: int, index: int) -> Scene:
    """Sample study ``index`` of a seed; deterministic, in any order and batch."""
    for name, value in (("seed", seed), ("index", index)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{name} must be an integer of at least 0; got {value!r}")
    key = (seed, index)
    body = _sample_body(config, RandomStream(*key, "body"))
    portable = key_uniform(*key, "portable") < config.portable
    old, young = body.age >= OLD_AGE, body.age < YOUNG_AGE
    holds = {"portable": portable, "old": old, "young": young, "female": body.sex == "F"}
    circumstances = {name for name in holds if holds[name]}
    present = _sample_presence(config, key, circumstances)
    lesions: list[Lesion] = []
    for finding in (name for name in FINDING_ORDER if name in present):
        lesions.extend(_sample_kind(config, RandomStream(*key, "lesion", finding), finding, lesions))
    known = circumstances | present if present else circumstances | {"normal"}
    devices = _sample_devices(config, key, known, lesions)
    exposure = _sample_exposure(config, RandomStream(*key, "exposure"), portable, lesions)
    prior = key_uniform(*key, "prior") < config.prior
    return Scene(seed, index, body, exposure, tuple(lesions), tuple(devices), prior, config.part)


def _sample_body(config: PhantomConfig, stream: RandomStream) -> Body:
    sex: Literal["F", "M"] = "F" if stream.chance(config.female) else "M"
    age = round(min(max(stream.normal(config.age_mean, config.age_std), 18.0), 96.0))
    fat = min(max(stream.normal(0.45, 0.26), 0.0), 1.0)
    height = stream.normal(0.97 if sex == "F" else 1.02, 0.065)
    width = stream.normal(0.97 if sex == "F" else 1.02, 0.05) + 0.12 * (fat - 0.4)
    breasts = min(max(stream.normal(0.5 + 0.4 * (fat - 0.4), 0.2), 0.05), 1.0) if sex == "F" else 0.0
    return Body(
        sex=sex,
        age=age,
        height=min(max(height, 0.85), 1.15),
        width=min(max(width, 0.85), 1.2),
        fat=fat,
        breasts=breasts,
        heart=min(max(stream.normal(0.445, 0.028), 0.40), 0.50),
        aorta=min(max((age - 35) / 60 + stream.normal(0.0, 0.15), 0.0), 1.0),
        seed=stream.seed(),
    )


def _sample_presence(config: PhantomConfig, key: tuple[int, int], circumstances: set[str]) -> set[str]:
    """Return the findings of the patient: none in a normal study, at least one in any other."""
    likelihoods = config.likelihoods
    if key_uniform(*key, "normal") < likelihoods["normal"].probability(circumstances):
        return set()
    for attempt in range(_MOST_TRIES):
        present: set[str] = set()
        for finding in FINDING_ORDER:
            probability = likelihoods[finding].probability(circumstances | present)
            if key_uniform(*key, "presence", finding, attempt) < probability:
                present.add(finding)
        if present:
            return present
    if config.normal >= 1.0:
        return set()
    return {RandomStream(*key, "presence").weighted(config.prevalence)}


def _zone(region: str) -> str:
    """Return upper, mid, lower, apical…: the second word of a sided region's name."""
    return region.split()[1]


def _sample_kind(config: PhantomConfig, stream: RandomStream, finding: str, earlier: list[Lesion]) -> list[Lesion]:
    """Return the lesions of one kind, consistent with the earlier ones."""
    count = 1 + stream.weighted(list(enumerate(config.counts.get(finding, (1.0,)))))
    both = finding in config.bilateral
    if both:
        share = config.bilateral[finding]
        if finding == "pleural effusion" and any(lesion.finding == "edema" for lesion in earlier):
            share = min(1.6 * share, 1.0)
        count = 2 if stream.chance(share) else 1
    lesions: list[Lesion] = []
    taken: set[str] = set()
    earlier_sides = {(lesion.finding, lesion.side) for lesion in earlier}
    for _ in range(count):
        weights = config.region_weights(finding, first=not lesions)
        free = {name: share for name, share in weights.items() if name not in taken and share > 0.0}
        if not free:
            break
        region = stream.weighted(free)
        lesion = _sample_lesion(config, stream, finding, region)
        # A region holds one lesion of its kind; if each side has at most one, so does the whole side.
        taken |= {name for name in config.regions[finding] if REGIONS[name].side == lesion.side} if both else {region}
        if finding == "pleural effusion" and ("pneumothorax", lesion.side) in earlier_sides:
            region, severity = f"{lesion.side} costophrenic angle", min(lesion.severity, 0.45)
            lesion = replace(lesion, form="", severity=severity, region=region, place=(0.8, 0.93))
        elif finding == "atelectasis" and any(other.form == "lobar" and other.side == lesion.side for other in lesions):
            if _zone(region) == "upper":
                continue
            lesion = replace(lesion, form="plate-like")
        lesions.append(lesion)
    return _neighbouring_ribs(lesions) if finding == "rib fracture" else lesions


def _sample_lesion(config: PhantomConfig, stream: RandomStream, finding: str, region: str) -> Lesion:
    severity = stream.triangular(*cast("tuple[float, float, float]", config.severity[finding]))
    low, high = config.sizes.get(finding, (0.0, 0.0))
    # Size and severity correlate loosely: a large opacity may be faint.
    size = low + (high - low) * min(max(severity + stream.normal(0.0, 0.15), 0.0), 1.0)
    side: Side = REGIONS[region].side
    form = stream.weighted(config.forms[finding]) if finding in config.forms else ""
    place: Place = (0.5, 0.5)
    draw_across, draw_down = stream.random(), stream.random()
    if side in ("left", "right"):
        zone = _zone(region)
        top, bottom = _BAND.get(zone, (0.1, 0.9))
        place = (0.15 + 0.7 * draw_across, top + (bottom - top) * draw_down)
        if finding == "pleural effusion":
            place = (0.8, 0.93)
            if severity >= LARGE_EFFUSION:
                region, place = f"{side} lower lung zone", (0.6, 0.8)
        elif finding == "pneumothorax":
            if form == "tension":
                region, severity, place = f"{side} lung", 0.7 + 0.3 * severity, (0.85, 0.4)
            elif zone == "apical":
                form, place = "apical", (0.5, 0.05)
            else:
                form, place = "lateral", (0.94, 0.3 + 0.4 * draw_down)
        elif finding == "pleural thickening":
            form = "apical" if zone == "apical" else "lateral"
            place = (0.5, 0.03) if zone == "apical" else (0.96, place[1])
        elif finding == "rib fracture":
            first, last = _RIBS[zone]
            form = f"rib {first + int(draw_down * (last - first + 1))}"
            place = (0.75 + 0.22 * draw_across, place[1])
        elif finding == "atelectasis":
            # Plates are low, and the left lung has no middle lobe to collapse.
            form = "lobar" if zone == "upper" else "plate-like" if region == "left mid lung zone" else form
    elif finding == "edema":
        form = "alveolar" if severity >= ALVEOLAR_EDEMA else "interstitial"
    return Lesion(finding, side, region, place, round(size, 2), severity, form, stream.seed())


def _neighbouring_ribs(lesions: list[Lesion]) -> list[Lesion]:
    """Return the fractures on adjacent ribs of one side: ribs break in a row."""
    first = lesions[0]
    rib = min(int(first.form.removeprefix("rib ")), 11 - len(lesions))
    broken = []
    for number, lesion in enumerate(lesions, rib):
        zone, low, high = next((name, *ends) for name, ends in _RIBS.items() if ends[0] <= number <= ends[1])
        top, bottom = _BAND[zone]
        down = top + (bottom - top) * (number - low + 0.5) / (high - low + 1)
        region, place = f"{first.side} {zone} lung zone", (first.place[0], down)
        broken.append(replace(lesion, side=first.side, region=region, form=f"rib {number}", place=place))
    return broken


def _sample_devices(
    config: PhantomConfig, key: tuple[int, int], known: set[str], lesions: list[Lesion]
) -> list[Device]:
    devices: list[Device] = []
    for kind in DEVICE_ORDER:
        probability = config.likelihoods[kind].probability(known | {device.kind for device in devices})
        if key_uniform(*key, "presence", kind) < probability:
            devices.append(_sample_device(kind, RandomStream(*key, "device", kind), lesions))
    return devices


def _sample_device(kind: str, stream: RandomStream, lesions: list[Lesion]) -> Device:
    well_placed = stream.chance(0.88)
    side: Side = "none"
    tip, depth = "", stream.uniform(0.3, 0.9)
    if kind == "endotracheal tube":
        if well_placed:
            tip, depth = "trachea", stream.uniform(3.0, 6.5)
        elif stream.chance(0.5):
            tip, depth = "right main bronchus", stream.uniform(-2.0, -0.5)
        else:
            tip, depth = "trachea", stream.uniform(0.5, 1.8)
    elif kind == "nasogastric tube":
        tip = "stomach" if well_placed else "esophagus"
        depth = stream.uniform(0.8, 1.0) if well_placed else stream.uniform(0.4, 0.65)
    elif kind == "central venous line":
        side = "right" if stream.chance(0.7) else "left"
        sites = {"superior vena cava": 0.7, "cavoatrial junction": 0.3}
        tip = stream.weighted(sites) if well_placed else stream.choice(("right atrium", "brachiocephalic vein"))
    elif kind == "chest tube":
        wanted = [lesion.side for lesion in lesions if lesion.finding in ("pneumothorax", "pleural effusion")]
        side = wanted[0] if wanted else stream.choice(("left", "right"))
        tip = stream.choice(("apex", "base"))
    elif kind == "pacemaker":
        side = "left" if stream.chance(0.88) else "right"
        tip, well_placed = stream.choice(("right ventricle", "right atrium and right ventricle")), True
    else:
        well_placed = True
    return Device(kind, side, tip, depth, well_placed, stream.seed())


def _sample_exposure(config: PhantomConfig, stream: RandomStream, portable: bool, lesions: list[Lesion]) -> Exposure:
    volumes = next((lesion.severity for lesion in lesions if lesion.finding == "low lung volumes"), None)
    breath = stream.normal(0.72, 0.13)
    inspiration = min(max(breath, 0.46), 1.0) if volumes is None else 0.42 - 0.4 * volumes
    if any(lesion.finding == "emphysema" for lesion in lesions):
        inspiration = min(inspiration + 0.12, 1.0)
    upright_ap = stream.chance(config.upright_ap)
    wobble = 1.6 if portable else 1.0
    borders = [stream.uniform(0.01, 0.07) if stream.chance(0.12) else 0.0 for _ in range(4)]
    return Exposure(
        view="AP" if portable or upright_ap else "PA",
        portable=portable,
        inspiration=inspiration,
        rotation=min(max(stream.normal(0.0, 3.2 * wobble), -12.0), 12.0),
        tilt=min(max(stream.normal(0.0, 1.3 * wobble), -4.0), 4.0),
        zoom=min(max(stream.normal(1.045, 0.055), 0.9), 1.2),
        shift=(stream.normal(0.0, 0.02 * wobble), stream.normal(0.01, 0.018 * wobble)),
        dose=min(max(stream.normal(0.9 if portable else 1.2, 0.25), 0.4), 2.0),
        contrast=min(max(stream.normal(1.08, 0.13), 0.7), 1.4),
        brightness=min(max(stream.normal(0.0, 0.05), -0.15), 0.15),
        collimated=(borders[0], borders[1], borders[2], borders[3]),
        grid_lines=stream.chance(0.02),
        marker=stream.weighted(_MARKERS),
        text_box=stream.chance(0.15),
        seed=stream.seed(),
    )

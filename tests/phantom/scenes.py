"""Scenes made by hand, in which only what a test is about varies."""

from __future__ import annotations

from dataclasses import replace

from rightlung.phantom.scene import Body, Device, Exposure, Lesion, Scene, Side

BODY = Body(sex="M", age=50, height=1.0, width=1.0, fat=0.3, breasts=0.0, heart=0.44, aorta=0.3, seed=11)
EXPOSURE = Exposure(
    view="PA", portable=False, inspiration=0.7, rotation=0.0, tilt=0.0, zoom=1.0, shift=(0.0, 0.0), dose=1.5,
    contrast=1.0, brightness=0.0, collimated=(0.0, 0.0, 0.0, 0.0), grid_lines=False, marker="none", text_box=False,
    seed=5,
)  # fmt: skip
NORMAL = Scene(seed=1, index=0, body=BODY, exposure=EXPOSURE)


def lesion(
    finding: str,
    side: Side = "right",
    place: tuple[float, float] = (0.5, 0.5),
    size: float = 0.0,
    severity: float = 0.7,
    form: str = "",
    region: str = "",
) -> Lesion:
    """Return a finding, by default in the middle of the right lung."""
    return Lesion(finding, side, region or f"{side} mid lung zone", place, size, severity, form, seed=3)


def with_lesions(*lesions: Lesion) -> Scene:
    """Return the normal patient with findings."""
    return replace(NORMAL, lesions=lesions)


def with_devices(*devices: Device) -> Scene:
    """Return the normal patient with devices."""
    return replace(NORMAL, devices=devices)


def varied(count: int) -> list[Scene]:
    """Return patients who differ in build, position and exposure."""
    scenes = []
    for index in range(count):
        share = index / max(count - 1, 1)
        woman = index % 2 == 0
        body = Body(
            sex="F" if woman else "M", age=25 + 5 * index, height=0.9 + 0.2 * share, width=1.1 - 0.2 * share,
            fat=0.8 * share, breasts=0.7 if woman else 0.0, heart=0.42 + 0.06 * share, aorta=share, seed=100 + index,
        )  # fmt: skip
        exposure = replace(
            EXPOSURE, view="AP" if index % 3 == 2 else "PA", portable=index % 3 == 2, inspiration=0.9 - 0.4 * share,
            rotation=8.0 * (share - 0.5), tilt=6.0 * (share - 0.5), zoom=0.92 + 0.15 * share,
            shift=(0.02 * share, -0.01), seed=index,
        )  # fmt: skip
        scenes.append(Scene(seed=2, index=index, body=body, exposure=exposure))
    return scenes

"""Test cards: pictures with two dark fields for lungs and a bright spot or two, whose place is known to the pixel.

They are not radiographs and prove nothing about a model; they are what the demonstration's arithmetic is shown on.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, Mask, OutputError

SIDE = 160
LUNGS = {"right": (0.30, 0.52), "left": (0.70, 0.52)}  # the patient's right lung is on the image's left
RADII = (0.15, 0.33)


@functools.cache
def lung(side: str) -> NDArray[np.bool_]:
    """Return the pixels of the patient's ``left`` or ``right`` lung field."""
    (x, y), (radius_x, radius_y) = LUNGS[side], RADII
    rows, columns = (np.indices((SIDE, SIDE)) + 0.5) / SIDE
    inside: NDArray[np.bool_] = ((columns - x) / radius_x) ** 2 + ((rows - y) / radius_y) ** 2 < 1
    return inside


def draw_card(generator: np.random.Generator) -> tuple[Image, dict[str, Mask]]:
    """Draw a card with a spot in one lung or, in a third of the cards, one in each; return the spots' masks by side."""
    sides = ["left", "right"] if generator.random() < 1 / 3 else [str(generator.choice(["left", "right"]))]
    rows, columns = (np.indices((SIDE, SIDE)) + 0.5) / SIDE
    picture = 0.55 + 0.1 * rows
    for side in LUNGS:
        picture[lung(side)] = 0.18 + 0.05 * generator.random()
    masks = {}
    for side in sides:
        angle, reach = generator.uniform(0, 2 * np.pi), generator.uniform(0, 0.7)
        x = LUNGS[side][0] + RADII[0] * reach * np.cos(angle)
        y = LUNGS[side][1] + RADII[1] * reach * np.sin(angle)
        distance = np.hypot(columns - x, rows - y) / generator.uniform(0.04, 0.08)
        spot = (distance < 1) & lung(side)
        picture = np.where(spot, picture + 0.3 * (1 - distance**2), picture)
        masks[side] = Mask(spot)
    noisy = picture + generator.normal(0, 0.02, picture.shape)
    return noisy.clip(0, 1).astype(np.float32), masks


def write_cards(folder: Path, count: int, seed: int) -> None:
    """Write ``count`` cards of ``count / 2`` made-up patients as a manifest folder."""
    import PIL.Image

    generator = np.random.default_rng(seed)
    try:
        for name in ("images", "masks"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        with (folder / "manifest.jsonl").open("w", encoding="utf-8") as manifest:
            for index in range(count):
                image, masks = draw_card(generator)
                name = f"card-{index:04d}"
                PIL.Image.fromarray((image * 255).round().astype(np.uint8)).save(folder / "images" / f"{name}.png")
                phrases = []
                for side, mask in masks.items():
                    file = f"masks/{name}-{side}.png"
                    PIL.Image.fromarray(mask.pixels).save(folder / file)
                    box = mask.box()
                    phrases.append(
                        {
                            "text": f"Opacity in the {side} lung.",
                            "mask": file,
                            "boxes": [list(box.as_tuple())] if box else [],
                            "regions": [f"{side} lung"],
                            "findings": {"lung opacity": "positive"},
                        }
                    )
                row = {
                    "id": name,
                    "file": f"images/{name}.png",
                    "patient": f"patient-{index // 2:04d}",
                    "phrases": phrases,
                }
                manifest.write(json.dumps(row) + "\n")
    except OSError as error:
        raise OutputError(f"{folder}: the test cards cannot be written ({error.strerror or error})") from error

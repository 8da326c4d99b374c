"""``shapes?count=N&seed=S&size=128``: drawn scenes with captions, the general-domain data of XBench's control.

A scene is a few shapes on a textured ground; its caption says what lies where. No word of a radiology report occurs
except for places, so a CLIP trained on it has the same architecture, texts of the same kind, and no chest X-ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, InputError, Mask, Phrase, Report, Study
from rightlung.core.keyed import key_number
from rightlung.studies.sources import Address, Source

SHAPES = ("circle", "square", "triangle", "ring", "cross", "diamond", "striped square", "bar")
SHADES = {"bright": 0.95, "grey": 0.6, "dark": 0.08}
SIZES = {"small": 0.08, "medium-sized": 0.13, "large": 0.19}
"""Half the width, as a fraction of the image."""
_ACROSS, _DOWN = {"left": 0.25, "middle": 0.5, "right": 0.75}, {"upper": 0.25, "central": 0.5, "lower": 0.75}
MOST = 1_000_000


class ShapesSource(Source):
    """Scenes of a seed."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        address.check_parameters(("count", "seed", "size"))
        count, seed = address.whole_number("count", 1), address.whole_number("seed")
        if address.path or count is None or seed is None or count > MOST:
            raise InputError(f"address {address}: write shapes?count=500&seed=7, with at most {MOST:,} scenes")
        self.count, self.seed = count, seed
        self.size = address.whole_number("size", 32) or 128

    @cached_property
    def ids(self) -> Sequence[str]:
        """The ids of all scenes, in order."""
        return [f"shapes-{self.seed}-{number:06d}" for number in range(self.count)]

    def patients(self) -> Iterator[str | None]:
        """Yield the patient of each scene, without drawing anything: there is one scene of each."""
        return iter(self.ids)

    def _build(self, position: int) -> Study:
        name = self.ids[position]
        phrases, load = scene(key_number("shapes", self.seed, position), self.size)
        text = " ".join(f"{phrase.text[0].upper()}{phrase.text[1:]}." for phrase in phrases)
        return Study(name, load, patient=name, view="PA", report=Report(text, {"findings": text}), phrases=phrases,
                     source=self.address)  # fmt: skip


def scene(seed: int, size: int) -> tuple[tuple[Phrase, ...], partial[Image]]:
    """Return the phrases of a random scene, each with the mask of its shape, and the function that draws it."""
    chance = np.random.default_rng(seed)
    places = chance.permutation([(across, down) for across in _ACROSS for down in _DOWN])[: 1 + chance.integers(3)]
    phrases, drawn = [], []
    for across, down in places.tolist():
        shape, shade, extent = (str(chance.choice([*known])) for known in (SHAPES, SHADES, SIZES))
        centre = np.array([_ACROSS[across], _DOWN[down]]) + chance.uniform(-0.04, 0.04, 2)
        pixels = outline(shape, centre, SIZES[extent], size)
        phrases.append(Phrase(f"a {extent} {shade} {shape} at the {down} {across}", mask=Mask(pixels)))
        drawn.append((pixels, SHADES[shade]))
    return tuple(phrases), partial(_draw, drawn, seed, size)


def outline(shape: str, centre: NDArray[np.float64], half: float, size: int) -> NDArray[np.bool_]:
    """Return the pixels of a shape, (size, size)."""
    line = (np.arange(size) + 0.5) / size
    x, y = (line[None] - centre[0]) / half, (line[:, None] - centre[1]) / half
    radius, inside = np.hypot(x, y), np.maximum(abs(x), abs(y)) <= 1
    found: NDArray[np.bool_] = {
        "circle": radius <= 1,
        "square": inside,
        "triangle": inside & (2 * abs(x) <= 1 + y),
        "ring": (radius <= 1) & (radius >= 0.6),
        "cross": inside & (np.minimum(abs(x), abs(y)) <= 0.3),
        "diamond": abs(x) + abs(y) <= 1,
        "striped square": inside & (np.floor(4 * x) % 2 == 0),
        "bar": inside & (abs(y) <= 0.35) & (x == x),
    }[shape]
    return np.broadcast_to(found, (size, size)).copy()


def _draw(drawn: Sequence[tuple[NDArray[np.bool_], float]], seed: int, size: int) -> Image:
    chance = np.random.default_rng([seed, 1])
    top, bottom, tilt = (float(value) for value in chance.uniform((0.2, 0.2, -0.1), (0.45, 0.45, 0.1)))
    image = np.add.outer(np.linspace(top, bottom, size), np.linspace(0.0, tilt, size))
    image += 0.03 * chance.standard_normal((size, size))
    for pixels, shade in drawn:
        image[pixels] = shade + 0.03 * chance.standard_normal(int(pixels.sum()))
    drawing: Image = image.clip(0, 1).astype(np.float32)
    return drawing

"""Measure whether images are recognised as frontal chest radiographs (`rightlung.models.anatomy.frontal.check`).

    python benchmarks/frontal.py 'manifest:/data/nih.tar?split=val' 'manifest:/data/openi.tar' --count 800

Each source, and phantom studies, are shown as they are, turned, mirrored, inverted, as thumbnails, cropped to one
lung, and with an arrow. Images that are no chest radiographs are made on the spot: noise, gradients, text, shapes,
clouds, photographs (of scikit-learn and matplotlib) and other kinds of DICOM images (of pydicom). Prints how often each
kind is said.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFilter
from scipy.ndimage import gaussian_filter

from rightlung.core import Image
from rightlung.core.plotting import font
from rightlung.lexicon import FINDINGS, positive_prompts
from rightlung.models.anatomy.frontal import check
from rightlung.studies import open_source

CHANGES: dict[str, Callable[[Image], Image]] = {
    "as it is": lambda image: image,
    "a quarter turn": lambda image: np.rot90(image),
    "a quarter turn back": lambda image: np.rot90(image, 3),
    "upside down (half a turn)": lambda image: np.rot90(image, 2),
    "upside down (flipped)": lambda image: image[::-1],
    "mirrored": lambda image: image[:, ::-1],
    "inverted": lambda image: 1 - image,
    "64 pixels": lambda image: _small(image, 64),
    "one lung only": lambda image: image[:, : image.shape[1] // 2],
    "with a burned-in arrow and text": lambda image: _marked(image),
}


def _small(image: Image, side: int) -> Image:
    picture = Pillow.fromarray((image * 255).astype(np.uint8))
    picture.thumbnail((10 * side, side))
    return _scaled(np.asarray(picture, dtype=np.float64), 255.0)


def _marked(image: Image) -> Image:
    """Draw an arrow into the lung and a white label over a corner, as on teaching files."""
    picture = Pillow.fromarray((image * 255).astype(np.uint8))
    pen, (height, width) = ImageDraw.Draw(picture), image.shape
    pen.line((0.05 * width, 0.3 * height, 0.28 * width, 0.42 * height), 255, max(2, width // 60))
    pen.polygon([(int(x * width), int(y * height)) for x, y in ((0.31, 0.44), (0.25, 0.45), (0.28, 0.38))], 255)
    pen.rectangle((0.55 * width, 0.02 * height, 0.98 * width, 0.12 * height), 255)
    pen.text((0.57 * width, 0.03 * height), "CASE 12: AP ERECT", 0, font(max(8, height // 18)))
    return _scaled(np.asarray(picture), 255.0)


def _scaled(values: NDArray[Any], top: float | None = None) -> Image:
    """Return values between 0 and ``top``, by default their range, as an image."""
    low, high = (0.0, top) if top else (float(values.min()), float(values.max()))
    scaled: Image = ((values - low) / max(high - low, 1e-9)).astype(np.float32)
    return scaled


def _photographs() -> list[Image]:
    from matplotlib import get_data_path
    from sklearn.datasets import load_sample_images

    pictures = [Pillow.fromarray(one) for one in load_sample_images().images]
    pictures.append(Pillow.open(Path(get_data_path(), "sample_data", "grace_hopper.jpg")))
    return [_scaled(np.asarray(one.convert("L")), 255.0) for one in pictures]


def _scans() -> list[Image]:
    """Slices and other images of pydicom: CT, MR, ultrasound, a hand; what is installed."""
    from pydicom import dcmread
    from pydicom.data import get_testdata_file

    found: list[Image] = []
    names = ("CT_small.dcm", "MR_small.dcm", "RG3_UNCR.dcm", "MR-SIEMENS-DICOM-WithOverlays.dcm", "693_UNCR.dcm",
             "US1_UNCR.dcm", "emri_small.dcm", "examples_palette.dcm", "JPEG2000.dcm", "liver_1frame.dcm")  # fmt: skip
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pixels = dcmread(str(get_testdata_file(name, download=False))).pixel_array.astype(np.float64)
        except (OSError, ValueError, AttributeError, RuntimeError, TypeError, NotImplementedError):
            continue
        pixels = pixels if pixels.ndim == 2 else pixels[0] if pixels.shape[-1] != 3 else pixels.mean(-1)
        if min(pixels.shape) >= 64:
            found.append(_scaled(np.clip(pixels, *np.quantile(pixels, [0.01, 0.99]))))
    return found


def not_radiographs(count: int, seed: int = 0) -> Iterator[tuple[str, Image]]:
    """Yield kinds and images that are no chest radiographs, ``count`` of each kind that is made."""
    numbers, draw = np.random.default_rng(seed), random.Random(seed)
    rows, columns = np.mgrid[0:256, 0:256] / 255
    sentences = [one for name in FINDINGS for one in positive_prompts(name)]
    photographs = _photographs()
    for _ in range(count):
        yield "noise", numbers.random((256, 256)).astype(np.float32)
        yield "smooth noise", _scaled(gaussian_filter(numbers.normal(size=(256, 256)), draw.uniform(1, 24)))
        a, b, c = numbers.normal(size=3)
        yield "gradient", _scaled(a * columns + b * rows + c * np.hypot(rows - 0.5, columns - 0.5))
        paper = draw.choice((0, 255))
        page = Pillow.new("L", (256, 300), paper)
        pen = ImageDraw.Draw(page)
        for line in range(4, 290, 14):
            pen.text((6, line), draw.choice(sentences), 255 - paper, font(11))
        yield "text", _scaled(np.asarray(page.filter(ImageFilter.GaussianBlur(draw.uniform(0, 2)))), 255.0)
        drawing = Pillow.new("L", (256, 256), draw.randrange(60))
        pen = ImageDraw.Draw(drawing)
        for _ in range(draw.randrange(3, 12)):
            x, y = draw.randrange(256), draw.randrange(256)
            shape = draw.choice((pen.ellipse, pen.rectangle))
            shape((x, y, x + draw.randrange(10, 140), y + draw.randrange(10, 140)), draw.randrange(256))
        blurred = np.asarray(drawing.filter(ImageFilter.GaussianBlur(draw.uniform(1, 9))), dtype=np.float64)
        yield "shapes", _scaled(blurred + numbers.normal(size=blurred.shape) * 3)
        spectrum = np.fft.rfft2(numbers.normal(size=(256, 256)))
        frequency = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.rfftfreq(256)[None]).clip(1 / 256)
        yield "clouds", _scaled(np.fft.irfft2(spectrum / frequency ** draw.uniform(1, 2.5)))
        photograph = draw.choice(photographs)
        side = draw.randrange(150, min(photograph.shape))
        top, left = (draw.randrange(length - side) for length in photograph.shape)
        yield "photograph", photograph[top : top + side, left : left + side]
    yield from (("CT, MR, ultrasound, hand", one) for one in _scans())


def _line(name: str, kinds: Counter[str]) -> str:
    total = sum(kinds.values())
    return f"| {name} | {total} | {', '.join(f'{kind} {count / total:.1%}' for kind, count in kinds.most_common())} |"


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--count", type=int, default=800, help="images of each source as they are; an eighth changed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| images | n | said |\n| --- | ---: | --- |")
    for address in ("phantom?count=400&seed=31", *args.sources):
        source = open_source(address)
        chosen = random.Random(args.seed).sample(range(len(source)), min(args.count, len(source)))
        said = {name: Counter[str]() for name in CHANGES}
        for number, position in enumerate(chosen):
            image = source[position].image
            for name, change in CHANGES.items() if number % 8 == 0 else [next(iter(CHANGES.items()))]:
                said[name][check(np.ascontiguousarray(change(image))).kind] += 1
        for name, kinds in said.items():
            print(_line(f"{address.partition(':')[2].rpartition('/')[2] or 'phantom'}, {name}", kinds), flush=True)
    made: dict[str, Counter[str]] = {}
    for name, image in not_radiographs(40, args.seed):
        made.setdefault(name, Counter())[check(image).kind] += 1
    for name, kinds in made.items():
        print(_line(name, kinds))


if __name__ == "__main__":
    main()

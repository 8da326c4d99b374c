"""What gives the phantom away? A classifier learns to tell it from real radiographs; simple statistics are compared.

The classifier sees all of an image, or images from which some information was removed; the pictures show where it
looks. The real images are NIH's split ``train`` (see ``phantom_and_nih.py``), with a quarter of the patients held out.

    python benchmarks/phantom_or_real.py --nih nih.tar --out results

``--quick`` runs at a small scale in less than a minute; without ``--nih``, other phantoms take the place of the real
images.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from phantom_and_nih import (  # type: ignore[import-not-found]  # next to this script
    ChangedSource,
    Images,
    Run,
    inner_address,
    load_images,
    model_config,
    register_once,
    train_classifier,
)
from PIL import Image as PillowImage
from torch.nn.functional import avg_pool2d, interpolate

from rightlung import open_source
from rightlung.core import Image, Phrase, Polarity, Study
from rightlung.models.preprocessing import letterbox
from rightlung.scoring import recognition
from rightlung.studies.sources import Address, Source

FloatArray = NDArray[np.float64]

GEOMETRY_ONLY = dict.fromkeys(("brightness", "contrast", "gamma", "noise", "blur", "cutout"), 0.0)


def views(side: int) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Return functions by name that remove information from images (n, side, side) uint8."""

    def coarse(batch: torch.Tensor) -> torch.Tensor:
        small = avg_pool2d(batch[:, None].float(), 8)
        return interpolate(small, (side, side), mode="bilinear", align_corners=False)[:, 0].round().to(torch.uint8)

    def fine(batch: torch.Tensor) -> torch.Tensor:
        pixels = batch[:, None].float()
        smooth = avg_pool2d(pixels, 9, 1, 4, count_include_pad=False)
        return ((pixels - smooth)[:, 0] * 2 + 128).clamp(0, 255).round().to(torch.uint8)

    def middle(batch: torch.Tensor) -> torch.Tensor:
        edge = side // 5
        cut = batch[:, None, edge : side - edge, edge : side - edge].float()
        return interpolate(cut, (side, side), mode="bilinear", align_corners=False)[:, 0].round().to(torch.uint8)

    def equalised(batch: torch.Tensor) -> torch.Tensor:
        flat = batch.flatten(1).float()
        flat = flat + torch.rand(flat.shape, device=flat.device, generator=torch.Generator(flat.device).manual_seed(0))
        ranks = flat.argsort(dim=1).argsort(dim=1).float()
        return (ranks * (256.0 / flat.shape[1])).to(torch.uint8).view(batch.shape)

    return {
        "all": lambda batch: batch,
        "coarse structure only": coarse,
        "fine texture only": fine,
        "middle only": middle,
        "histogram equalised": equalised,
    }


def open_view(address: Address) -> Source:
    """Open ``view:ADDRESS?of=NAME&pixels=SIZE&phantom=0|1``: squares with less information and a label ``phantom``."""
    inner = open_source(inner_address(address, ("of", "pixels", "phantom")))
    side, name = int(address.parameters["pixels"]), address.parameters["of"]
    change = partial(_seen, side=side, name=name, phantom=address.parameters["phantom"] == "1")
    changed: Source = ChangedSource(str(address), inner, change)
    return changed


def _seen(study: Study, side: int, name: str, phantom: bool) -> Study:
    polarity = Polarity.POSITIVE if phantom else Polarity.NEGATIVE
    load = partial(_changed, study, side, name)
    return replace(study, load=load, findings={"phantom": polarity}, phrases=(), regions={}, report=None, gaze=None)


def _changed(study: Study, side: int, name: str) -> Image:
    square = (letterbox(study.image, side)[0] * 255).round().to(torch.uint8)
    pixels: Image = (views(side)[name](square[None])[0].float() / 255).numpy()
    return pixels


register_once("view", open_view)


def statistics_of(images: torch.Tensor) -> dict[str, FloatArray]:
    """Return simple statistics of images (n, h, w) uint8 by name; spectra in eight bands from coarse to fine."""
    side = images.shape[-1]
    frequency = torch.hypot(torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)[None]).to(images.device)
    edges = torch.logspace(math.log10(1.0 / side), math.log10(0.5), 9).tolist()
    edge = max(1, side // 20)
    parts: dict[str, list[torch.Tensor]] = {}
    for batch in torch.split(images, 256):
        pixels = batch.float() / 255
        power = torch.fft.rfft2(pixels - pixels.mean(dim=(1, 2), keepdim=True)).abs() ** 2 / side**2
        inner = pixels[:, edge:-edge, edge:-edge]
        outer = (pixels.sum(dim=(1, 2)) - inner.sum(dim=(1, 2))) / (side**2 - inner[0].numel())
        numbers = {
            "mean": pixels.mean(dim=(1, 2)),
            "standard deviation": pixels.std(dim=(1, 2)),
            "black pixels": (pixels < 0.02).float().mean(dim=(1, 2)),
            "white pixels": (pixels > 0.98).float().mean(dim=(1, 2)),
            "brightness of the border": outer,
            "brightness of the upper corners": torch.cat(
                [pixels[:, : side // 8, : side // 8], pixels[:, : side // 8, -side // 8 :]], 2
            ).mean(dim=(1, 2)),
            "brightness of the lower edge": pixels[:, -side // 8 :].mean(dim=(1, 2)),
            "difference of the halves": (pixels - pixels.flip(2)).abs().mean(dim=(1, 2)),
        }
        for band, (low, high) in enumerate(pairwise(edges)):
            within = (frequency >= low) & (frequency < high)
            numbers[f"log power, band {band}"] = torch.log10(power[:, within].mean(dim=1) + 1e-12)
        for name, value in numbers.items():
            parts.setdefault(name, []).append(value.cpu())
    return {name: torch.cat(value).double().numpy() for name, value in parts.items()}


def compare_statistics(phantom: torch.Tensor, real: torch.Tensor) -> dict[str, Any]:
    """Return the AUROC of each statistic for phantom against real (above 0.5: higher), and the histograms' distance."""
    first, second = statistics_of(phantom), statistics_of(real)
    table = {}
    for name in first:
        truth = np.concatenate([np.ones(len(first[name])), np.zeros(len(second[name]))])
        auroc = recognition.auroc(np.concatenate([first[name], second[name]]), truth)
        table[name] = {
            "auroc": auroc,
            "phantom": [float(first[name].mean()), float(first[name].std())],
            "real": [float(second[name].mean()), float(second[name].std())],
        }
    histograms = [torch.bincount(part.flatten().long() // 4, minlength=64).double() for part in (phantom, real)]
    shares = [(histogram / histogram.sum()).cpu().numpy() for histogram in histograms]
    distance = 0.5 * float(np.abs(shares[0] - shares[1]).sum())
    return {"numbers": table, "histogram_distance": distance, "histograms": {"phantom": shares[0], "real": shares[1]}}


def discriminate(run: Run, arguments: argparse.Namespace, sources: dict[str, str]) -> None:
    """Train a classifier to tell phantom from real, with all or part of the information; see where it looks."""
    size = arguments.size
    phantom, real = (load_images(sources[name], size) for name in ("phantom", "real"))
    statistics = compare_statistics(torch.from_numpy(phantom.squares), torch.from_numpy(real.squares))
    run.note("statistics", statistics)
    telling = sorted(statistics["numbers"].items(), key=lambda item: -abs(item[1]["auroc"] - 0.5))
    run.log(f"histograms differ by {statistics['histogram_distance']:.3f} (0 to 1); the most telling statistics:")
    for name, numbers in telling[:6]:
        run.log(
            f"    {name}: AUROC {numbers['auroc']:.3f}, {numbers['phantom'][0]:.3f} against {numbers['real'][0]:.3f}"
        )

    found: dict[str, Any] = {}
    for name in views(size):
        view = f"&of={name.replace(' ', '%20')}&pixels={size}&phantom="
        parts = {
            (kind, part): f"view:patients:{sources[kind]}&part={part}{view}{int(kind == 'phantom')}"
            for kind in ("phantom", "real")
            for part in ("learn", "held-out")
        }
        out, config = run.folder / name.replace(" ", "-"), model_config(["phantom"], size, arguments.width)
        model, facts = train_classifier(
            out, arguments.device, model={"kind": "classifier", "config": config},
            findings=["phantom"], entries=[{"source": parts[kind, "learn"]} for kind in ("phantom", "real")], size=size,
            schedule={"steps": arguments.steps, "warmup_steps": arguments.steps // 10}, batch_size=arguments.batch,
            optimizer={"learning_rate": 1e-3}, ema=min(0.98, 1 - 5 / arguments.steps), augmentation=GEOMETRY_ONLY,
            workers=arguments.workers, checkpoint_every=arguments.steps,
        )  # fmt: skip
        tested: list[Images] = [load_images(parts[kind, "held-out"], size) for kind in ("phantom", "real")]
        scores = np.concatenate([model.classify(images.pixels())[:, 0] for images in tested])
        truth = np.concatenate([np.ones(len(tested[0])), np.zeros(len(tested[1]))])
        auroc = recognition.auroc(scores, truth)
        found[name] = {"auroc": auroc, "steps": facts["steps"], "final_loss": facts["loss"]}
        run.log(f"phantom or real, {name}: AUROC {auroc:.4f} after {facts['steps']} steps")
        phrase = Phrase("phantom", findings={"phantom": Polarity.POSITIVE})
        shown = tested[0].pixels(slice(128))
        groundings = model.ground(shown, [phrase] * len(shown))
        maps = [grounding.heatmap.values for grounding in groundings if grounding.heatmap is not None]
        save_map(run.folder, f"discriminator_{name.replace(' ', '_')}", np.mean(maps, axis=0))
    run.note("phantom or real", found)
    for name, images in (("phantom", phantom), ("real", real)):
        save_map(run.folder, f"mean_{name}", images.squares.mean(axis=0))


def save_map(folder: Path, name: str, values: NDArray[Any]) -> None:
    """Write a map as an array and as a small picture, dark to bright."""
    np.save(folder / f"{name}.npy", values.astype(np.float32))
    scaled = (values - values.min()) / max(float(np.ptp(values)), 1e-12)
    picture = PillowImage.fromarray((scaled * 255).astype(np.uint8))
    picture.resize((224, 224), PillowImage.Resampling.NEAREST).save(folder / f"{name}.png")


def main(given: Sequence[str] | None = None) -> None:
    """Compare statistics, train the classifiers and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nih", help="manifest folder or archive with the split train")
    parser.add_argument("--out", required=True, type=Path, help="folder for results.json, log.txt, arrays and pictures")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to check that it runs")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--steps", type=int, default=400, help="of each training")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--phantom", type=int, default=4000, help="phantom images")
    parser.add_argument("--phantom-seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(15, (os.cpu_count() or 1) - 1), help="that read studies")
    arguments = parser.parse_args(given)
    if arguments.nih is None and not arguments.quick:
        parser.error("--nih is required, except with --quick")
    if arguments.quick:
        small = {"size": 64, "width": 4, "steps": 6, "batch": 8, "phantom": 16, "workers": 0}
        for name, value in small.items():
            setattr(arguments, name, value)
    phantom = f"phantom-nih?count={arguments.phantom}&seed={arguments.phantom_seed}&size={arguments.size}"
    real = f"phantom-nih?count=16&seed=901&size={arguments.size}"
    if arguments.nih is not None:
        real = f"manifest:{arguments.nih}?split=train"
    run = Run(arguments.out)
    discriminate(run, arguments, {"phantom": phantom, "real": real})
    run.log("done")


if __name__ == "__main__":
    main()

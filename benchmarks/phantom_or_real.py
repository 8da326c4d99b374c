"""What gives the phantom away? A network learns to tell it from real radiographs, and simple numbers are compared.

The network sees all of an image, or images from which a part of the information was taken; the pictures show where it
looks. The real images are NIH's split ``train`` (see ``phantom_and_nih.py``), a quarter of the patients held out.

    python benchmarks/phantom_or_real.py --nih nih.tar --out results [--minutes 2]
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from phantom_and_nih import (  # type: ignore[import-not-found]  # beside this script
    Real,
    Run,
    folds_of,
    load_real,
    make_phantom,
    new_network,
)
from PIL import Image as PillowImage
from supervised import (  # type: ignore[import-not-found]  # beside this script
    TrainingData,
    TrainingSettings,
    predict,
    train,
)
from torch.nn.functional import avg_pool2d, interpolate

from rightlung.core import Phrase, Polarity
from rightlung.models.classifier import Classifier
from rightlung.scoring import recognition
from rightlung.training.augmentation import Augmentation

FloatArray = NDArray[np.float64]

GEOMETRY_ONLY = Augmentation(brightness=0, contrast=0, gamma=0, noise=0, blur=0, cut_out=0)


def views(images: torch.Tensor) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Ways to take information away from images (n, h, w) uint8, by name."""
    side = images.shape[-1]

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


def in_parts(images: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Apply a change to a few hundred images at a time."""
    return torch.cat([change(part) for part in torch.split(images, 512)])


def statistics_of(images: torch.Tensor) -> dict[str, FloatArray]:
    """Simple numbers of each image (n, h, w) uint8, by name; spectra in eight bands from coarse to fine."""
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
    """How far each simple number alone tells phantom (higher: above 0.5) from real, and the mean histograms apart."""
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


def discriminate(run: Run, arguments: argparse.Namespace, phantom: TrainingData, real: Real) -> None:
    """Teach a network to tell phantom from real, with all or part of the information; see where it looks."""
    count = min(len(phantom), len(real))
    device = real.images.device
    held_out = folds_of(real.patients, 4) == 0
    both = torch.cat([real.images, phantom.images[:count]])
    labels = torch.cat([torch.zeros(len(real)), torch.ones(count)])[:, None].to(device)
    tested = torch.from_numpy(np.concatenate([held_out, np.arange(count) % 4 == 0])).to(device)

    statistics = compare_statistics(phantom.images[:count], real.images)
    run.note("statistics", statistics)
    telling = sorted(statistics["numbers"].items(), key=lambda item: -abs(item[1]["auroc"] - 0.5))
    run.log(f"histograms differ by {statistics['histogram_distance']:.3f} (0 to 1); the most telling numbers:")
    for name, numbers in telling[:6]:
        run.log(
            f"    {name}: AUROC {numbers['auroc']:.3f}, {numbers['phantom'][0]:.3f} beside {numbers['real'][0]:.3f}"
        )

    ways = views(both)
    found: dict[str, Any] = {}
    budget = run.remaining() / len(ways)
    for name, change in ways.items():
        changed = in_parts(both, change)
        data = TrainingData(changed[~tested], labels[~tested])
        settings = TrainingSettings(arguments.steps, 64, 1e-3, 0.05, 0.1, 0.98, augmentation=GEOMETRY_ONLY)
        network = new_network(1, 0, arguments.width)
        result = train(network, data, settings, stop_at=time.monotonic() + budget)
        if not result.steps:
            run.log(f"phantom or real, {name}: no time left")
            continue
        scores = predict(result.network, changed[tested])[:, 0].numpy()
        auroc = recognition.auroc(scores, labels[tested][:, 0].cpu().numpy())
        found[name] = {
            "auroc": auroc,
            "steps": result.steps,
            "final_loss": result.losses[-1] if result.losses else None,
        }
        run.log(f"phantom or real, {name}: AUROC {auroc:.4f} after {result.steps} steps")
        phrase = Phrase("phantom", findings={"phantom": Polarity.POSITIVE})
        model = Classifier(result.network, ["phantom"], size=arguments.size, device=device)
        shown = changed[tested & (labels[:, 0] > 0)][:128].float().cpu().numpy() / 255
        groundings = model.ground(list(shown.astype(np.float32)), [phrase] * len(shown))
        maps = [grounding.heatmap.values for grounding in groundings if grounding.heatmap is not None]
        save_map(run.folder, f"discriminator_{name.replace(' ', '_')}", np.mean(maps, axis=0))
    run.note("phantom or real", found)
    for name, images in (("phantom", phantom.images[:count]), ("real", real.images)):
        save_map(run.folder, f"mean_{name}", images.float().mean(dim=0).cpu().numpy())


def save_map(folder: Path, name: str, values: NDArray[Any]) -> None:
    """Write a map as an array and as a small picture, dark to bright."""
    np.save(folder / f"{name}.npy", values.astype(np.float32))
    scaled = (values - values.min()) / max(float(np.ptp(values)), 1e-12)
    picture = PillowImage.fromarray((scaled * 255).astype(np.uint8))
    picture.resize((224, 224), PillowImage.Resampling.NEAREST).save(folder / f"{name}.png")


def main(given: Sequence[str] | None = None) -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nih", required=True, help="manifest folder or archive with the split train")
    parser.add_argument("--out", required=True, type=Path, help="folder for results.json, log.txt, arrays and pictures")
    parser.add_argument("--minutes", type=float, default=2.0, help="stop by itself within this time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64, help="channels of the network's first stage")
    parser.add_argument("--steps", type=int, default=400, help="of each training")
    parser.add_argument("--phantom-seed", type=int, default=1)
    arguments = parser.parse_args(given)
    run, device = Run(arguments.out, arguments.minutes), torch.device(arguments.device)
    real = load_real(arguments.nih, "train", arguments.size, device)
    workers = min(8, (os.cpu_count() or 1) - 1)
    seconds, seed = 0.3 * run.seconds, arguments.phantom_seed
    phantom = make_phantom(run, seconds, len(real), arguments.size, device, seed, 256, workers, {})
    discriminate(run, arguments, phantom, real)
    run.log("done")


if __name__ == "__main__":
    main()

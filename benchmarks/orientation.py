"""Fit the reading of which way round a radiograph is (`rightlung.studies.checks.orientation`) and measure it.

    python benchmarks/orientation.py 'manifest:nih.tar?split=train' --other 'manifest:openi.tar?split=train' --out FILE

Fitted on the first source and on phantom studies, cross-fitted by patient: images whose side is surely wrong when read
by a network that has not seen their patient are left out of the final fit, because real archives hold mirrored images.
The share of images called mirrored is printed for the patients held out and for sources that were never fitted.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional

from rightlung.studies import open_source
from rightlung.studies.checks.orientation import COARSE, SIDE, SURE_MIRROR, coarse_pattern, shrunk, turned

Pixels = NDArray[np.float64]


class Half(nn.Module):
    """The network whose odd part tells the side."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(1, 8, 5, 2, 2)
        self.b = nn.Conv2d(8, 16, 3, 2, 1)
        self.c = nn.Conv2d(16, 32, 3, 2, 1)
        self.d = nn.Linear(32 * 16, 1, bias=False)

    def one_side(self, images: Tensor) -> Tensor:
        """(n, 1, 64, 64) to (n,)."""
        for layer in (self.a, self.b, self.c):
            images = torch.relu(layer(images))
        pooled = functional.avg_pool2d(images, 2).flatten(1)
        odds: Tensor = self.d(functional.dropout(pooled, 0.2, self.training))[:, 0]
        return odds

    def forward(self, images: Tensor) -> Tensor:
        """Log odds that the image is not mirrored."""
        return self.one_side(images) - self.one_side(images.flip(-1))


def read(address: str) -> tuple[Pixels, NDArray[np.int64]]:
    """Return all images of a source at 64 x 64, and a number for each patient."""
    images, patients = [], []
    for study in open_source(address):
        images.append(shrunk(study.image, SIDE))
        patients.append(zlib.crc32((study.patient or study.id).encode()))
    return np.array(images), np.array(patients)


def scaled(images: Tensor) -> Tensor:
    """Mean 0, deviation 1."""
    centred = images - images.mean((-1, -2), keepdim=True)
    return centred / centred.std((-1, -2), keepdim=True, unbiased=False).clamp_min(1e-3)


def varied(images: Tensor) -> Tensor:
    """Turn, zoom, shift, change gamma, cover two rectangles (side letters are no proof), add noise."""
    count = len(images)
    angle, zoom = (torch.rand(count) - 0.5) * 0.35, torch.exp((torch.rand(count) - 0.5) * 0.4)
    tall, shift = zoom * torch.exp((torch.rand(count) - 0.5) * 0.2), (torch.rand(count, 2) - 0.5) * 0.3
    rows = [zoom * angle.cos(), -zoom * angle.sin(), shift[:, 0]], [tall * angle.sin(), tall * angle.cos(), shift[:, 1]]
    grid = functional.affine_grid(torch.stack([torch.stack(row, 1) for row in rows], 1), list(images.shape), False)
    padding = "zeros" if torch.rand(1) < 0.5 else "border"
    images = functional.grid_sample(images, grid, padding_mode=padding, align_corners=False)
    images = images.clamp(0, 1) ** torch.exp((torch.rand(count, 1, 1, 1) - 0.5) * 1.2)
    for image in images:
        for _ in range(2):
            if torch.rand(1) < 0.5:
                height, width = torch.randint(4, 20, (2,)).tolist()
                top, left = torch.randint(0, SIDE, (2,)).tolist()
                image[:, top : top + height, left : left + width] = torch.rand(1)
    return scaled(images + torch.randn_like(images) * 0.02)


def fit_side(images: Pixels, epochs: int, seed: int) -> Half:
    """Fit the network on images that are taken to be the right way round."""
    torch.manual_seed(seed)
    network, pixels = Half(), torch.tensor(images, dtype=torch.float32)[:, None]
    steps = epochs * (len(pixels) // 64)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-2, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps + 1)
    for _ in range(epochs):
        order = torch.randperm(len(pixels))
        for batch in order[: len(order) // 64 * 64].reshape(-1, 64):
            # Clipped: an image that really is mirrored must not pull with all its weight.
            loss = functional.softplus(-network(varied(pixels[batch].clone())).clamp_min(-4)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return network.eval()


def fit_template(images: Pixels, penalty: float = 0.1) -> Pixels:
    """Fit the template by the softmax over the 16 ways to lay an image down and to invert it."""
    ways = np.array([[w.ravel() for group in turned(coarse_pattern(x)).values() for w in group] for x in images])
    ways = ways.astype(np.float32)

    def loss(template: Pixels) -> tuple[float, Pixels]:
        values = (ways @ template.astype(np.float32)).astype(np.float64)
        values = np.concatenate([values, -values], axis=1)
        top = values.max(axis=1, keepdims=True)
        odds = np.exp(values - top)
        total = odds.sum(axis=1, keepdims=True)
        pull = odds[:, :8] / total - odds[:, 8:] / total
        pull[:, 0] -= 1.0
        slope = np.einsum("nk,nkd->d", pull.astype(np.float32), ways, optimize=True) / len(ways)
        mean = (np.log(total[:, 0]) + top[:, 0] - values[:, 0]).mean()
        return mean + penalty * (template @ template) / 2, slope.astype(np.float64) + penalty * template

    fitted = minimize(loss, np.zeros(COARSE * COARSE), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(fitted.x).reshape(COARSE, COARSE)


def margins(network: Half, images: Pixels) -> Pixels:
    """Log odds that each image is not mirrored."""
    with torch.no_grad():
        odds: Pixels = network(scaled(torch.tensor(images, dtype=torch.float32)[:, None])).numpy().astype(np.float64)
    return odds


def tell(name: str, values: Pixels) -> None:
    """Print the share called mirrored and the lowest quantiles."""
    print(
        f"{name}: {len(values):,} images, mirrored by sign {np.mean(values < 0):.4f}, surely "
        f"{np.mean(values < -SURE_MIRROR):.4f}; quantiles 0.001, 0.01, 0.05, 0.5: "
        f"{np.quantile(values, [0.001, 0.01, 0.05, 0.5]).round(2)}",
        flush=True,
    )


def main() -> None:
    """Fit, measure, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--phantom", default="phantom?count=2400&seed=11&size=96")
    parser.add_argument("--other", action="append", default=[])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    real, patients = read(given.source)
    made, made_patients = read(given.phantom)
    images, folds = np.concatenate([real, made]), np.concatenate([patients, made_patients]) % 2
    held_out = np.zeros(len(images))
    for fold in (0, 1):
        held_out[folds == fold] = margins(fit_side(images[folds != fold], given.epochs, fold), images[folds == fold])
    tell("held out", held_out[: len(real)])
    tell("held out, phantom", held_out[len(real) :])
    kept = held_out > -SURE_MIRROR
    network = fit_side(images[kept], given.epochs, 2)
    for address in given.other:
        tell(address, margins(network, read(address)[0]))
    weights = {name: values.numpy() for name, values in network.state_dict().items()}
    template = fit_template(images[kept]).astype(np.float32)
    mean = np.mean([coarse_pattern(image) for image in images[kept]], axis=0)
    mean = mean + mean[:, ::-1]
    mean = (mean / np.sqrt((mean**2).sum())).astype(np.float32)
    save_file({**weights, "template": template, "mean": mean}, given.out)


if __name__ == "__main__":
    main()

"""From attenuation to grey values: Beer–Lambert, scatter, heel effect, grid, noise, blur, and the display curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rightlung.phantom.image.columns import ColumnTensors
from rightlung.phantom.image.maps import enlarge
from rightlung.phantom.image.randomness import Floats, normals, seeds_of, uniforms
from rightlung.phantom.scene import Scene

WATER = 0.19  # attenuation per centimetre at the mean energy of a 110 kV beam
BONE = 0.42  # attenuation of bone above water, per centimetre
NOISE_STREAM = 31
LOOK_STREAM = 32
PHOTONS = 160_000.0  # in an unattenuated pixel of a 256-pixel image at dose 1


def wide_blur(maps: Tensor, factor: int, reach: int) -> Tensor:
    """Blur maps ``(n, size, size)`` widely: two moving averages over blocks of ``factor`` pixels."""
    factor = max(1, factor)
    small = functional.avg_pool2d(maps[:, None], factor)
    for _ in range(2):
        padded = functional.pad(small, (reach, reach, reach, reach), mode="replicate")
        small = functional.avg_pool2d(padded, 2 * reach + 1, stride=1)
    return enlarge(small[:, 0], maps.shape[-1])


def soft_blur(maps: Tensor, share: Tensor) -> Tensor:
    """Blur by mixing each pixel with its four neighbours; ``share (n, 1, 1)`` is the weight of a pair of them."""
    padded = functional.pad(maps[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    beside = padded[:, 1:-1, 2:] + padded[:, 1:-1, :-2]
    over = padded[:, 2:, 1:-1] + padded[:, :-2, 1:-1]
    return maps * (1 - 2 * share) + (beside + over) * (share / 2)


def columns(scenes: Sequence[Scene]) -> dict[str, Floats]:
    """Return the columns for exposure and display."""
    exposures = [scene.exposure for scene in scenes]
    chance = uniforms(seeds_of([exposure.seed for exposure in exposures], NOISE_STREAM), 8)
    # The look of a department's images depends on the study, not on the exposure's seed, so that two exposures of one
    # scene differ only by noise.
    style = uniforms(seeds_of([scene.seed * 1_000_003 + scene.index for scene in scenes], LOOK_STREAM), 12)
    bedside = np.array([float(exposure.portable) for exposure in exposures])
    # Large patients and old cassettes scatter more: some images are grey and hazy.
    fat = np.array([scene.body.fat for scene in scenes])
    hazy = np.clip(style[:, 0] * 3.0 - 2.0, 0, 1)
    dose = [PHOTONS * exposure.dose * (0.5 if exposure.portable else 1.0) for exposure in exposures]
    return {
        "scatter": 0.2 + 0.2 * style[:, 1] + 0.4 * bedside + 0.25 * np.clip(fat - 0.4, 0, 1) + 0.6 * hazy,
        "heel_down": 0.24 * (style[:, 2] - 0.5),
        "heel_across": 0.44 * (style[:, 3] - 0.5),
        "blur": 0.04 + 0.10 * bedside + 0.24 * style[:, 4] ** 2,
        "grid_depth": np.array([0.012 * float(exposure.grid_lines) for exposure in exposures]),
        "grid_cycles": np.array([0.31 + 0.15 * value for value in chance[:, 3]]) * 2 * np.pi,
        "photons": np.array(dose),
        "bedside": bedside,
        "contrast": np.array([exposure.contrast for exposure in exposures]),
        "brightness": np.array([exposure.brightness for exposure in exposures]),
        # The automatic exposure is measured behind the lungs, so a large patient's image is not brighter.
        "bulk": np.array([0.42 * scene.body.fat + 0.34 * scene.body.breasts for scene in scenes]),
        "sharpening": 0.2 + 0.7 * style[:, 5],
        "gamma": np.exp(0.12 + 0.5 * (style[:, 6] + style[:, 7] - 1.0)),
        "bend": 1.2 * (style[:, 8] - 0.35),
    }


def expose(studies: ColumnTensors, noise: Tensor, attenuation: Tensor) -> Tensor:
    """Return minus the logarithm of the detector's signal, ``(n, size, size)``, with noise of seeds ``(n,)``."""
    size = attenuation.shape[-1]
    device = attenuation.device
    primary = torch.exp(-attenuation)
    # Scatter spreads over centimetres, so a sixteenth of the resolution suffices. Portable images use no grid.
    signal = primary + wide_blur(primary, size // 32, 3) * studies["scatter"]
    lines = torch.linspace(-1, 1, size, device=device)[None, :, None]
    signal = signal * (1.0 + studies["heel_down"] * lines)
    signal = signal * (1.0 + studies["heel_across"] * lines.transpose(1, 2))
    signal = soft_blur(signal, studies["blur"])
    cells = torch.arange(size, device=device)[None, None]
    signal = signal * (1.0 + studies["grid_depth"] * torch.sin(cells * studies["grid_cycles"]))
    photons = studies["photons"] * (256.0 / size) ** 2
    random = normals(noise, size * size).view(-1, size, size)
    noisy = signal + random * (signal / photons + 1e-8).sqrt_()
    return -torch.log(noisy.clamp_min_(2e-4))


def display(studies: ColumnTensors, logarithm: Tensor) -> Tensor:
    """Return grey values in 0 to 1 as on a workstation: windowed, S-shaped, with slightly enhanced edges."""
    bedside = studies["bedside"]
    detail = logarithm - wide_blur(logarithm, logarithm.shape[-1] // 64, 2)
    sharpened = logarithm + studies["sharpening"] * detail
    # The shoulder of a film: lungs get most of the range, and dense tissue approaches white without reaching it.
    start = 0.66 - 0.1 * bedside + studies["bulk"]
    speed = 0.58 - 0.05 * bedside
    # The toe is soft, too: nearly black values are not cut off.
    above = sharpened - start
    above = (above + (above * above + 0.03).sqrt_()) * 0.5
    value = 1.0 - torch.exp(above.mul_(-speed))
    # The contrast pivots at the grey of the lungs' border.
    value = (value - 0.5) * studies["contrast"] + 0.5 + studies["brightness"]
    return tone(studies, value.clamp_(0.0, 1.0))


def tone(studies: ColumnTensors, value: Tensor) -> Tensor:
    """Apply a random vendor's tone curve to grey values in 0 to 1: a gamma, then an S or its inverse at mid-grey."""
    value = value.clamp_min_(1e-4).pow_(studies["gamma"])
    curve = (3.0 - 2.0 * value).mul_(value).mul_(value).sub_(value)
    return curve.mul_(studies["bend"]).add_(value).clamp_(0.0, 1.0)

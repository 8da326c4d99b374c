"""What the benchmarks of the phantom beside real radiographs share: the images of both, the clock and the results.

The real images are NIH ChestX-ray14's (Wang et al., CVPR 2017), a manifest folder or archive with the splits ``train``,
``val`` and ``boxes``. A label that NIH does not give counts as negative, in training and in scoring: that is how its
figures are published, although NIH's labels are mined from text and a missing one is really unknown.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from supervised import TrainingData  # type: ignore[import-not-found]  # beside this script
from torch.nn.functional import adaptive_max_pool2d

from rightlung import open_source
from rightlung.core import Polarity, Study
from rightlung.core.files import write_json
from rightlung.lexicon import find, label_set
from rightlung.models.classifier import NetworkConfig, ResidualNetwork
from rightlung.models.preprocessing import letterbox
from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.scene import Scene
from rightlung.phantom.stream import PhantomStream
from rightlung.scoring.statistics import Interval

FloatArray = NDArray[np.float64]

FINDINGS = tuple(label_set("nih-8-boxed").findings.values())

# What a lesion of the phantom says about NIH's eight labels: those it makes positive, and those it leaves unknown
# (left out of the loss). NIH's "Infiltration" is whatever a report called an infiltrate or an ill-defined opacity, so
# every airspace opacity is one; whether an opacity is called pneumonia is more than the image shows.
MEANING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "atelectasis": (("atelectasis",), ()),
    "linear atelectasis": (("atelectasis",), ()),
    "lobar collapse": (("atelectasis",), ("infiltration",)),
    "cardiomegaly": (("cardiomegaly",), ()),
    "enlarged cardiomediastinum": ((), ("cardiomegaly",)),
    "pleural effusion": (("pleural effusion",), ()),
    "hydropneumothorax": (("pleural effusion", "pneumothorax"), ()),
    "pneumothorax": (("pneumothorax",), ()),
    "infiltration": (("infiltration",), ("pneumonia",)),
    "lung opacity": (("infiltration",), ("pneumonia",)),
    "airspace opacity": (("infiltration",), ("pneumonia",)),
    "pneumonia-like opacity": (("infiltration",), ("pneumonia",)),
    "consolidation": (("infiltration",), ("pneumonia",)),
    "pneumonia": (("pneumonia", "infiltration"), ()),
    "edema": ((), ("infiltration", "pneumonia")),
    "nodule": (("nodule",), ()),
    "multiple nodules": (("nodule",), ("mass",)),
    "mass": (("mass",), ("nodule",)),
    "granuloma": ((), ("nodule",)),
    "calcified granuloma": ((), ("nodule",)),
    "calcified nodule": (("nodule",), ()),
}

# Rare findings are made frequent enough to learn from.
FREQUENT: dict[str, Any] = {"normal": 0.25, "prevalence": {"nodule": 0.12, "mass": 0.10, "pneumothorax": 0.12}}

PRIOR_WIDTHS = (0.0, 1.0, 2.0, 4.0, 6.0)  # of the location prior's Gaussian, in cells
MASK_GRID = 28  # cells a side on which lesions are kept for the loss of positions


class Run:
    """The clock, the log and the results, which are on disk after every step."""

    def __init__(self, folder: Path, minutes: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.start = time.monotonic()
        self.seconds = 60.0 * minutes
        self.results: dict[str, Any] = {}
        self._log = (folder / "log.txt").open("w", encoding="utf-8")

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def remaining(self) -> float:
        """Seconds until the end."""
        return self.seconds - self.elapsed()

    def log(self, text: str) -> None:
        """Write a line to the log and to standard output, at once."""
        line = f"{self.elapsed():7.1f} s  {text}"
        print(line, flush=True)
        self._log.write(line + "\n")
        self._log.flush()

    def note(self, name: str, value: Any) -> None:
        """Keep a result and write all of them."""
        self.results[name] = value
        self.results.setdefault("seconds", {})[name] = round(self.elapsed(), 1)
        write_json(self.folder / "results.json", _rounded(self.results))


def _rounded(value: Any) -> Any:
    """Return results as they are printed: five decimals, intervals with their sentence, arrays as lists."""
    if isinstance(value, Interval):
        return _rounded(asdict(value)) | {"sentence": value.sentence()}
    if isinstance(value, dict):
        return {str(key): _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_rounded(part) for part in value]
    return round(float(value), 5) if isinstance(value, float | np.floating) else value


@dataclass(frozen=True, slots=True)
class Real:
    """A split of real images: squares (n, size, size) uint8, labels (n, 8) of 0 and 1, and the studies themselves."""

    images: torch.Tensor
    labels: torch.Tensor
    patients: NDArray[np.str_]
    studies: tuple[Study, ...]

    def __len__(self) -> int:
        return len(self.studies)

    def chosen(self, keep: NDArray[np.bool_]) -> Real:
        """Return the images where ``keep`` is True."""
        index = torch.from_numpy(np.flatnonzero(keep)).to(self.images.device)
        studies = tuple(study for study, kept in zip(self.studies, keep, strict=True) if kept)
        return Real(self.images[index], self.labels[index], self.patients[keep], studies)


def canonical(names: Sequence[str]) -> set[str]:
    """Return the canonical findings among label names."""
    return {meaning.name for meaning in map(find, names) if meaning is not None}


def load_real(path: str, split: str, size: int, device: torch.device, every: int = 1) -> Real:
    """Load a split; an absent label is a negative one here (see the module's first lines)."""
    studies = tuple(islice(open_source(f"manifest:{path}?split={split}"), 0, None, every))

    def square(study: Study) -> torch.Tensor:
        return (letterbox(study.image, size)[0] * 255).round().to(torch.uint8)

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        images = torch.stack(list(pool.map(square, studies)))
    labels = torch.zeros(len(studies), len(FINDINGS))
    for row, study in enumerate(studies):
        present = canonical([name for name, polarity in study.findings.items() if polarity == Polarity.POSITIVE])
        labels[row] = torch.tensor([float(finding in present) for finding in FINDINGS])
    patients = np.array([study.patient or study.id for study in studies])
    return Real(images.to(device), labels.to(device), patients, studies)


def folds_of(patients: NDArray[np.str_], folds: int, seed: int = 0) -> NDArray[np.intp]:
    """Number the instances by fold such that all of a patient's are in the same one."""
    names, index = np.unique(patients, return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(names)) % folds)[index].astype(np.intp)


def location_prior(
    masks: FloatArray, findings: NDArray[np.str_], patients: NDArray[np.str_], folds: int = 5
) -> FloatArray:
    """For each instance, the smoothed mean box map of its finding in other patients: (n, rows, cols) to the same.

    The width of the Gaussian is chosen for each fold by how often the peak hits within the other folds.
    """
    fold = folds_of(patients, folds)
    result = np.zeros_like(masks)

    def mean_map(chosen: NDArray[np.bool_], finding: str, width: float) -> FloatArray:
        of_finding = masks[chosen & (findings == finding)]
        mean = of_finding.mean(axis=0) if len(of_finding) else masks[chosen].mean(axis=0)
        return np.asarray(gaussian_filter(mean, width, mode="nearest") if width else mean)

    def hits(fitted: NDArray[np.bool_], tried: NDArray[np.bool_], width: float) -> float:
        total = 0.0
        for finding in np.unique(findings[tried]):
            peak = int(mean_map(fitted, finding, width).argmax())
            total += masks[tried & (findings == finding)].reshape(-1, masks[0].size)[:, peak].sum()
        return total

    for held_out in range(folds):
        inner = [number for number in range(folds) if number != held_out]
        others = fold != held_out
        value = {
            width: sum(hits(others & (fold != number), fold == number, width) for number in inner)
            for width in PRIOR_WIDTHS
        }
        best = max(PRIOR_WIDTHS, key=lambda width: (value[width], -width))
        for finding in np.unique(findings[~others]):
            result[~others & (findings == finding)] = mean_map(others, finding, best)
    return result


def labels_of(scene: Scene) -> list[float]:
    """NIH's eight labels of a scene: 1, 0, or NaN where its lesions leave a label open."""
    positive: set[str] = set()
    unknown: set[str] = set()
    for lesion in scene.lesions:
        made, left_open = MEANING.get(lesion.finding, ((), ()))
        positive.update(made)
        unknown.update(left_open)
    return [1.0 if name in positive else math.nan if name in unknown else 0.0 for name in FINDINGS]


def cells_of(scenes: Sequence[Scene], lesion_masks: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Lesions on a grid for each label, (n, 8, MASK_GRID, MASK_GRID) uint8: 255 where one has a pixel in the cell."""
    cells = torch.zeros(len(scenes) * len(FINDINGS), MASK_GRID, MASK_GRID, device=device)
    parts: list[torch.Tensor] = []
    places: list[int] = []
    rows: list[int] = []
    first = 0
    for number, (scene, masks) in enumerate(zip(scenes, lesion_masks, strict=True)):
        if not scene.lesions:
            continue
        parts.append(torch.as_tensor(masks, device=device))
        for offset, lesion in enumerate(scene.lesions):
            for name in MEANING.get(lesion.finding, ((), ()))[0]:
                places.append(number * len(FINDINGS) + FINDINGS.index(name))
                rows.append(first + offset)
        first += len(scene.lesions)
    if places:
        pooled = adaptive_max_pool2d(torch.cat(parts)[:, None].float(), MASK_GRID)[:, 0]
        covered = pooled[torch.tensor(rows, device=device)]
        index = torch.tensor(places, device=device)[:, None, None].expand_as(covered)
        cells.scatter_reduce_(0, index, covered, "amax")
    return (cells * 255).to(torch.uint8).view(len(scenes), len(FINDINGS), MASK_GRID, MASK_GRID)


def make_phantom(
    run: Run,
    seconds: float,
    count: int,
    size: int,
    device: torch.device,
    seed: int,
    batch: int,
    workers: int,
    changes: dict[str, Any],
) -> TrainingData:
    """Render up to ``count`` phantom images, as many as there are ``seconds`` for."""
    images, labels, cells = [], [], []
    start, made = run.elapsed(), 0
    stream = PhantomStream(PhantomConfig.from_mapping(FREQUENT | changes), seed, size, device, workers)
    for one in stream.batches(range(first, min(first + batch, count)) for first in range(0, count, batch)):
        pixels = torch.as_tensor(one.rendering.images, device=device)
        images.append((pixels.clamp(0, 1) * 255).round().to(torch.uint8))
        labels.append(torch.tensor([labels_of(scene) for scene in one.scenes], device=device))
        cells.append(cells_of(one.scenes, one.rendering.lesion_masks, device))
        made += len(one)
        if run.elapsed() - start > seconds:
            break
    taken = run.elapsed() - start
    data = TrainingData(torch.cat(images), torch.cat(labels), torch.cat(cells))
    known = {
        name: {"positive": int((column == 1).sum()), "unknown": int(column.isnan().sum())}
        for name, column in zip(FINDINGS, data.labels.T, strict=True)
    }
    run.note("phantom", {"images": made, "seconds": taken, "images_per_second": made / taken, "labels": known})
    run.log(f"phantom: {made} images in {taken:.1f} s; " + ", ".join(f"{k} {v['positive']}" for k, v in known.items()))
    return data


def new_network(outputs: int, seed: int, width: int = 64, blocks: int = 2) -> ResidualNetwork:
    """Build a network (ResNet-18 by default, stride 16, log-sum-exp pooling) with weights from a seed."""
    torch.manual_seed(seed)
    widths = (width, 2 * width, 4 * width, 8 * width)
    return ResidualNetwork(NetworkConfig(outputs, widths, (blocks,) * 4, stride=16, pooling="lse", dropout=0.2))

"""How real is the phantom? What a network learns from it, measured on real radiographs, and what gives it away.

Networks of the same kind are trained on the phantom alone; on real images alone; on the phantom and then on real images
for as many steps as the second ("pretrained"); and once more so, with some phantom images in every batch of the second
half ("mixed"). Each is asked for the eight findings that NIH ChestX-ray14 has boxes for (Wang et al., CVPR 2017): AUROC
on images of other patients, and how often the peak of its Grad-CAM (Selvaraju et al., ICCV 2017) lies in a
radiologist's box, beside a location prior that never looks at the image. Then a network learns to tell phantom from
real, with parts of the information taken away, and simple statistics are compared.

By default the real figures come from a quarter of the patients of the split ``train``, held out: tune on those. With
``--final`` the networks learn from all of ``train`` and ``val`` is looked at: do that once.

    python -m benchmarks.phantom_transfer --nih nih.tar --out results [--minutes 8] [--final]

``--nih`` is a manifest folder or archive with the splits ``train``, ``val`` and ``boxes``. A label that NIH does not
give counts as negative, in training and in scoring: that is how its figures are published, although NIH's labels are
mined from text and a missing one is really unknown.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image as PillowImage
from scipy.ndimage import gaussian_filter
from torch.nn.functional import adaptive_max_pool2d, avg_pool2d, interpolate

from benchmarks.supervised import (
    TrainingData,
    TrainingSettings,
    adapt_statistics,
    predict,
    start_at_prevalence,
    train,
)
from rightlung import open_source
from rightlung.core import Heatmap, Mask, Phrase, Polarity, Study
from rightlung.explain import class_activation
from rightlung.lexicon import find, label_set
from rightlung.models.classifier import Classifier, NetworkConfig, ResidualNetwork
from rightlung.models.folder import save_model
from rightlung.models.preprocessing import letterbox, standardise
from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.render import render
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Scene
from rightlung.scoring import localisation, recognition
from rightlung.scoring.statistics import Interval, bootstrap, bootstrap_by_counts, paired_difference
from rightlung.training.augmentation import Augmentation

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

MASK_GRID = 28  # cells a side on which lesions are kept for the loss of positions
PRIOR_GRID = 56
PRIOR_WIDTHS = (0.0, 1.0, 2.0, 4.0, 6.0)  # of the location prior's Gaussian, in cells
GEOMETRY_ONLY = Augmentation(brightness=0, contrast=0, gamma=0, noise=0, blur=0, cut_out=0)

# Shares of the time; training gets what the others leave.
GENERATION, SCORING, DISCRIMINATION = 0.14, 0.12, 0.12


# --- keeping time and notes -------------------------------------------------------------------------------------------


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
        (self.folder / "results.json").write_text(json.dumps(_plain(self.results), indent=1) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Replace what JSON does not have: NaN becomes null, intervals become objects."""
    if isinstance(value, Interval):
        return _plain(asdict(value)) | {"sentence": value.sentence()}
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float | np.floating):
        return None if not math.isfinite(value) else round(float(value), 5)
    return value


# --- real images ------------------------------------------------------------------------------------------------------


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


# --- the phantom ------------------------------------------------------------------------------------------------------


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


def draw_scenes(config: PhantomConfig, seed: int, first: int, count: int) -> list[Scene]:
    """Draw scenes in a worker process."""
    return [sample_scene(config, seed, index) for index in range(first, first + count)]


def start_drawing(config: PhantomConfig, arguments: argparse.Namespace) -> Iterator[list[Scene]]:
    """Start to draw scenes in worker processes (none: here, when asked for) and return them in batches, in order.

    Call it before anything else: the workers are forked, which is instant, and safe only as long as this process has
    neither begun to use a GPU nor started threads.
    """
    seed, count, batch, workers = arguments.phantom_seed, arguments.phantom, arguments.render_batch, arguments.workers
    chunks = [(config, seed, first, min(batch, count - first)) for first in range(0, count, batch)]
    if not workers:
        return (draw_scenes(*chunk) for chunk in chunks)
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
    futures = [pool.submit(draw_scenes, *chunk) for chunk in chunks]

    def batches() -> Iterator[list[Scene]]:
        try:
            for number, future in enumerate(futures):
                yield future.result()
                futures[number] = None  # type: ignore[call-overload]  # scenes need not be kept
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    return batches()


def make_phantom(run: Run, drawn: Iterator[list[Scene]], size: int, device: torch.device) -> TrainingData:
    """Render phantom images until there are enough or the time for it is over."""
    images, labels, cells = [], [], []
    stop_at, start = run.elapsed() + GENERATION * run.seconds, run.elapsed()
    made = 0
    for scenes in drawn:
        rendering = render(scenes, size, device)
        batch = torch.as_tensor(rendering.images, device=device)
        images.append((batch.clamp(0, 1) * 255).round().to(torch.uint8))
        labels.append(torch.tensor([labels_of(scene) for scene in scenes], device=device))
        cells.append(cells_of(scenes, rendering.lesion_masks, device))
        made += len(scenes)
        if run.elapsed() > stop_at:
            break
    seconds = run.elapsed() - start
    data = TrainingData(torch.cat(images), torch.cat(labels), torch.cat(cells))
    known = {
        name: {"positive": int((column == 1).sum()), "unknown": int(column.isnan().sum())}
        for name, column in zip(FINDINGS, data.labels.T, strict=True)
    }
    run.note("phantom", {"images": made, "seconds": seconds, "images_per_second": made / seconds, "labels": known})
    run.log(
        f"phantom: {made} images in {seconds:.1f} s; " + ", ".join(f"{k} {v['positive']}" for k, v in known.items())
    )
    return data


# --- training ---------------------------------------------------------------------------------------------------------


def new_network(arguments: argparse.Namespace, outputs: int, seed: int) -> ResidualNetwork:
    """Build a network with weights from a seed."""
    torch.manual_seed(seed)
    width = arguments.width
    config = NetworkConfig(
        outputs,
        widths=(width, 2 * width, 4 * width, 8 * width),
        blocks=(1, 1, 1, 1) if arguments.quick else (2, 2, 2, 2),
        stride=arguments.stride,
        pooling=arguments.pooling,
        dropout=arguments.dropout,
    )
    return ResidualNetwork(config)


def seconds_per_step(arguments: argparse.Namespace, data: TrainingData, batch_size: int) -> float:
    """Time a few steps, after a few to warm up, with a network that is thrown away."""
    network = new_network(arguments, data.labels.shape[1], 0)
    train(network, data, TrainingSettings(steps=3, batch_size=batch_size))
    steps = 2 if arguments.quick else 15
    return train(network, data, TrainingSettings(steps=steps, batch_size=batch_size)).seconds / steps


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps each training takes; the same for every seed."""

    phantom: int
    real: int
    seconds_a_seed: float


def make_plan(run: Run, arguments: argparse.Namespace, phantom: TrainingData, real: TrainingData) -> Plan:
    """Turn the wanted numbers of passes into steps, fewer where the time does not allow them."""
    of_phantom = seconds_per_step(arguments, phantom, arguments.phantom_batch)
    of_real = seconds_per_step(arguments, real, arguments.real_batch)
    a_seed = (run.remaining() - (SCORING + DISCRIMINATION) * run.seconds) / arguments.seeds
    # Two trainings on real images, and a third with phantom images besides.
    real_trainings = 2 + (1 + arguments.beside / arguments.real_batch if arguments.beside else 0)
    wanted_phantom = math.ceil(arguments.phantom_passes * len(phantom) / arguments.phantom_batch)
    wanted_real = math.ceil(arguments.epochs * len(real) / arguments.real_batch)
    plan = Plan(
        phantom=max(1, min(wanted_phantom, int(0.35 * a_seed / of_phantom))),
        real=max(1, min(wanted_real, int(0.6 * a_seed / (of_real * real_trainings)))),
        seconds_a_seed=a_seed,
    )
    epochs = plan.real * arguments.real_batch / len(real)
    passes = plan.phantom * arguments.phantom_batch / len(phantom)
    facts = {"phantom_steps": plan.phantom, "phantom_passes": passes, "real_steps": plan.real, "real_epochs": epochs}
    rates = {"phantom": arguments.phantom_batch / of_phantom, "real": arguments.real_batch / of_real}
    run.note("plan", facts | {"images_per_second": rates})
    run.log(
        f"plan: {plan.phantom} phantom steps ({passes:.1f} passes, {rates['phantom']:.0f} images/s), "
        f"{plan.real} real steps ({epochs:.1f} epochs, {rates['real']:.0f} images/s), {arguments.seeds} seed(s)"
    )
    return plan


def train_all(
    run: Run, arguments: argparse.Namespace, phantom: TrainingData, learnt: Real, asked: Real
) -> dict[str, list[ResidualNetwork]]:
    """Train the networks for each seed that there is time for."""
    real = TrainingData(learnt.images, learnt.labels)
    plan = make_plan(run, arguments, phantom, real)
    arms = ["phantom", "real", "pretrained", *(["mixed"] if arguments.beside else [])]
    networks: dict[str, list[ResidualNetwork]] = {arm: [] for arm in arms}
    reserve = run.seconds * (SCORING + DISCRIMINATION)

    def one(
        name: str,
        network: ResidualNetwork,
        data: TrainingData,
        settings: TrainingSettings,
        beside: TrainingData | None = None,
    ) -> ResidualNetwork:
        def watch(step: int, averaged: ResidualNetwork) -> None:
            value = mean_auroc(predict(averaged, asked.images).numpy(), asked.labels.cpu().numpy())
            curve.append((step, value))

        # Looking on the way is for tuning; with --final, what is asked is looked at once, at the end.
        curve: list[tuple[int, float]] = []
        looks = 0 if arguments.final else max(1, settings.steps // 5)
        stop_at = time.monotonic() + run.remaining() - reserve
        result = train(network, data, settings, beside=beside, stop_at=stop_at, watch=watch, watch_every=looks)
        way = f", loss {result.losses[0]:.3f} to {result.losses[-1]:.3f}" if result.losses else ""
        looked = f"; held-out mean AUROC {', '.join(f'{value:.3f}' for _, value in curve)}" if curve else ""
        done = f"{result.steps} of {settings.steps} steps in {result.seconds:.1f} s"
        run.log(f"seed {settings.seed}, {name}: {done}{way}{looked}")
        facts = {"steps": result.steps, "planned": settings.steps, "seconds": result.seconds, "losses": result.losses}
        run.note(f"training {name} {settings.seed}", facts | {"curve": curve})
        if result.steps < settings.steps:  # it would not be compared with its like
            run.log(f"seed {settings.seed}, {name}: left out, the time was over")
        elif beside is not None:  # the norms saw both kinds of images; what is asked is one kind
            networks[name].append(adapt_statistics(result.network, learnt.images))
        else:
            networks[name].append(result.network)
        return result.network

    for seed in range(arguments.seeds):
        if seed and run.remaining() - reserve < 0.9 * plan.seconds_a_seed:
            run.log(f"no time for seed {seed}")
            break
        of_real = TrainingSettings(
            plan.real,
            arguments.real_batch,
            arguments.rate,
            arguments.weight_decay,
            averaging=arguments.averaging,
            mask_weight=arguments.mask_weight,
            seed=seed,
        )
        of_phantom = replace(
            of_real,
            steps=plan.phantom,
            batch_size=arguments.phantom_batch,
            augmentation=Augmentation().times(arguments.phantom_augmentation),
        )
        after = replace(of_real, rate=arguments.fine_tuning_rate)
        network = new_network(arguments, len(FINDINGS), seed)
        start_at_prevalence(network, phantom.labels)
        pretrained = one("phantom", network, phantom, of_phantom)
        network = new_network(arguments, len(FINDINGS), seed)
        start_at_prevalence(network, real.labels)
        one("real", network, real, of_real)
        network = new_network(arguments, len(FINDINGS), seed)
        network.load_state_dict(pretrained.state_dict())
        start_at_prevalence(network, real.labels)
        one("pretrained", network, real, after)
        if not arguments.beside:
            continue
        network = new_network(arguments, len(FINDINGS), seed)
        network.load_state_dict(pretrained.state_dict())
        start_at_prevalence(network, real.labels)
        one("mixed", network, real, replace(after, beside_batch=arguments.beside), phantom)
    return {arm: of_arm for arm, of_arm in networks.items() if of_arm}


# --- findings on real images ------------------------------------------------------------------------------------------


def auroc_by_counts(scores: FloatArray, labels: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """AUROC of one label as a function of how often each image was drawn, (rows, images) to (rows,); ties are half."""
    order = np.argsort(scores, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(scores[order])) + 1])
    positive = labels[order]

    def of_counts(counts: FloatArray) -> FloatArray:
        ordered = counts[:, order]
        positives = np.add.reduceat(ordered * positive, starts, axis=1)
        negatives = np.add.reduceat(ordered * (1 - positive), starts, axis=1)
        below = np.cumsum(negatives, axis=1) - negatives / 2
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray((positives * below).sum(axis=1) / np.where(pairs > 0, pairs, np.nan))

    return of_counts


def mean_by_counts(scores: Sequence[FloatArray], labels: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The mean over seeds and labels of AUROC: scores (images, labels) of each seed, labels (images, labels)."""
    parts = [
        auroc_by_counts(of_seed[:, column], labels[:, column])
        for of_seed in scores
        for column in range(labels.shape[1])
        if 0 < labels[:, column].sum() < len(labels)
    ]
    return lambda counts: np.mean([part(counts) for part in parts], axis=0) if parts else np.full(len(counts), np.nan)


def gain_by_counts(
    first: Sequence[FloatArray], second: Sequence[FloatArray], labels: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """The difference of two means of AUROC on the same drawn images: paired."""
    of_first, of_second = mean_by_counts(first, labels), mean_by_counts(second, labels)
    return lambda counts: of_first(counts) - of_second(counts)


def mean_auroc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """The mean of AUROC over the labels that have both classes."""
    return float(mean_by_counts([scores.astype(np.float64)], labels.astype(np.float64))(np.ones((1, len(labels))))[0])


def score_findings(
    run: Run, networks: dict[str, list[ResidualNetwork]], asked: Real, name: str, resamples: int
) -> None:
    """AUROC of each network for each finding and on average, and the differences, by patient-clustered bootstrap."""
    labels = asked.labels.cpu().numpy().astype(np.float64)
    settings: dict[str, Any] = {"clusters": asked.patients, "resamples": resamples}
    scores = {
        arm: [predict(network, asked.images).numpy().astype(np.float64) for network in of_arm]
        for arm, of_arm in networks.items()
    }
    found: dict[str, Any] = {"images": len(asked), "patients": len(set(asked.patients))}
    found["positives"] = dict(zip(FINDINGS, labels.sum(axis=0).astype(int).tolist(), strict=True))
    for arm, of_arm in scores.items():
        of_findings = {
            finding: recognition.interval(of_arm[0][:, column], labels[:, column], **settings)
            if len(of_arm) == 1
            else bootstrap_by_counts(
                mean_by_counts([one[:, [column]] for one in of_arm], labels[:, [column]]), len(labels), **settings
            )
            for column, finding in enumerate(FINDINGS)
        }
        mean = bootstrap_by_counts(mean_by_counts(of_arm, labels), len(labels), **settings)
        by_seed = [mean_auroc(one, labels) for one in of_arm]
        found[arm] = {"mean": mean, "by_seed": by_seed, "findings": of_findings}
        run.log(f"{name}, {arm}: mean AUROC {mean.sentence()}, seeds {', '.join(f'{value:.3f}' for value in by_seed)}")
        run.log("    " + ", ".join(f"{finding} {value.estimate:.3f}" for finding, value in of_findings.items()))
    for arm in sorted({"pretrained", "mixed"} & scores.keys() if "real" in scores else ()):
        gain = bootstrap_by_counts(gain_by_counts(scores[arm], scores["real"], labels), len(labels), **settings)
        found[f"{arm} less real"] = gain
        run.log(f"{name}: {arm} less real {gain.sentence()}")
    run.note(f"AUROC on {name}", found)
    arrays = {f"{arm}_{seed}": one.astype(np.float32) for arm, of in scores.items() for seed, one in enumerate(of)}
    ids = np.array([study.id for study in asked.studies])
    save_arrays(run.folder / f"scores_{name.replace(' ', '_')}.npz", {"ids": ids, "labels": labels} | arrays)


def save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Keep what each number was made from, so that it can be scored again without a network."""
    np.savez_compressed(path, allow_pickle=False, **arrays)


# --- pointing on boxes ------------------------------------------------------------------------------------------------


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


def activation_maps(network: ResidualNetwork, images: torch.Tensor, findings: NDArray[np.str_]) -> NDArray[np.float32]:
    """Class activation shifted to a minimum of 0: where Grad-CAM's ReLU leaves nothing, this still has a peak."""
    columns = torch.tensor([FINDINGS.index(finding) for finding in findings], device=images.device)
    parts = []
    with torch.no_grad():
        for batch, chosen in zip(torch.split(images, 128), torch.split(columns, 128), strict=True):
            features = network.eval().features(standardise(batch[:, None].float() / 255))
            maps = class_activation(features, network.classifier.weight.flatten(1))
            maps = maps[torch.arange(len(chosen), device=images.device), chosen]
            parts.append((maps - maps.amin(dim=(1, 2), keepdim=True)).float().cpu())
    return torch.cat(parts).numpy()


def score_pointing(
    run: Run, networks: dict[str, list[ResidualNetwork]], boxed: Real, arguments: argparse.Namespace, resamples: int
) -> None:
    """How often the peak of each map lies in a box of the finding asked for, beside the location prior."""
    side = 224
    pairs = [
        (row, phrase)
        for row, study in enumerate(boxed.studies)
        for phrase in study.phrases
        if phrase.boxes and canonical(list(phrase.findings)) & set(FINDINGS)
    ]
    findings = np.array([next(iter(canonical(list(phrase.findings)))) for _, phrase in pairs])
    patients = boxed.patients[[row for row, _ in pairs]]
    masks = np.stack([Mask.from_boxes(phrase.boxes, (side, side)).pixels for _, phrase in pairs])
    coarse = np.stack([Mask.from_boxes(phrase.boxes, (PRIOR_GRID, PRIOR_GRID)).pixels for _, phrase in pairs])
    prior = location_prior(coarse.astype(np.float64), findings, patients)
    metrics = ("pointing", "auroc", "average_precision")

    def scored(heatmaps: Sequence[Heatmap]) -> dict[str, FloatArray]:
        maps = np.stack([heatmap.to_size((side, side), keep_mass=False) for heatmap in heatmaps])
        result = localisation.score(maps, masks, metrics=metrics)
        return {metric: np.asarray(result[metric], dtype=np.float64) for metric in metrics}

    values = {"location prior": scored([Heatmap(one) for one in prior])}
    empty: dict[str, list[float]] = {}
    untrained = {"untrained": [new_network(arguments, len(FINDINGS), 1000).to(boxed.images.device)]}
    for arm, of_arm in (untrained | networks).items():
        of_seeds, of_seeds_signed = [], []
        for network in of_arm:
            model = Classifier(network, FINDINGS, size=arguments.size, device=boxed.images.device)
            images = [boxed.studies[row].image for row, _ in pairs]
            groundings = model.ground(images, [phrase for _, phrase in pairs])
            heatmaps = [grounding.heatmap for grounding in groundings if grounding.heatmap is not None]
            of_seeds.append(scored(heatmaps))
            empty.setdefault(arm, []).append(float(np.mean([heatmap.mass == 0 for heatmap in heatmaps])))
            shifted = activation_maps(network, boxed.images[[row for row, _ in pairs]], findings)
            of_seeds_signed.append(scored([Heatmap(one) for one in shifted]))
        values[arm] = {metric: np.mean([one[metric] for one in of_seeds], axis=0) for metric in metrics}
        signed = {metric: np.mean([one[metric] for one in of_seeds_signed], axis=0) for metric in metrics}
        values[f"{arm}, without ReLU"] = signed
    settings: dict[str, Any] = {"clusters": patients, "resamples": resamples}
    found: dict[str, Any] = {"pairs": len(pairs), "patients": len(set(patients)), "empty_maps": empty}
    for arm, of_metrics in values.items():
        found[arm] = {metric: bootstrap(value, **settings) for metric, value in of_metrics.items()}
        found[arm]["findings"] = {
            finding: float(np.nanmean(of_metrics["pointing"][findings == finding]))
            for finding in FINDINGS
            if (findings == finding).any()
        }
        run.log(f"boxes, {arm}: pointing {found[arm]['pointing'].sentence()}, AUROC {found[arm]['auroc'].estimate:.3f}")
    for first, second in (
        ("phantom", "location prior"),
        ("pretrained", "location prior"),
        ("real", "location prior"),
        ("mixed", "location prior"),
        ("pretrained", "real"),
        ("mixed", "real"),
    ):
        if first in values and second in values:
            difference = paired_difference(values[first]["pointing"], values[second]["pointing"], **settings)
            found[f"{first} less {second}"] = difference
            run.log(f"boxes, {first} less {second}: {difference.sentence()}")
    run.note("pointing on boxes", found)
    ids = np.array([f"{boxed.studies[row].id} {finding}" for (row, _), finding in zip(pairs, findings, strict=True)])
    save_arrays(run.folder / "pointing.npz", {"ids": ids} | {arm: value["pointing"] for arm, value in values.items()})


# --- phantom or real? -------------------------------------------------------------------------------------------------


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
    budget = min(DISCRIMINATION * run.seconds, max(0.0, run.remaining() - 0.05 * run.seconds)) / len(ways)
    for name, change in ways.items():
        changed = in_parts(both, change)
        data = TrainingData(changed[~tested], labels[~tested])
        settings = TrainingSettings(
            arguments.discriminator_steps, 64, 1e-3, 0.05, 0.1, 0.98, augmentation=GEOMETRY_ONLY
        )
        network = new_network(arguments, 1, 0)
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


# --- all of it --------------------------------------------------------------------------------------------------------


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; ``--quick`` makes everything small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nih", required=True, help="manifest folder or archive with the splits train, val and boxes")
    parser.add_argument("--out", required=True, type=Path, help="folder for results.json, log.txt, arrays and pictures")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop by itself within this time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--final", action="store_true", help="learn from all of train and look at val")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs")
    parser.add_argument("--keep-models", action="store_true", help="write the networks of the first seed")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each network, as far as time allows")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--stride", type=int, default=16)
    parser.add_argument("--pooling", choices=("average", "lse"), default="lse")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--phantom", type=int, default=60_000, help="phantom images to make at most")
    parser.add_argument("--phantom-config", type=Path, help="TOML that replaces parts of the phantom's defaults")
    parser.add_argument("--phantom-seed", type=int, default=1)
    parser.add_argument("--phantom-passes", type=float, default=6.0, help="passes over them at most")
    parser.add_argument("--phantom-batch", type=int, default=256)
    parser.add_argument("--render-batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=min(8, (os.cpu_count() or 1) - 1), help="that draw scenes")
    parser.add_argument("--phantom-augmentation", type=float, default=1.0, help="times the usual, on phantom images")
    parser.add_argument("--mask-weight", type=float, default=1.0, help="of the loss of positions on the phantom")
    parser.add_argument("--epochs", type=float, default=40.0, help="passes over the real images at most")
    parser.add_argument("--beside", type=int, default=32, help="phantom images in each batch of the mixed training")
    parser.add_argument("--real-batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--fine-tuning-rate", type=float, default=3e-4)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--averaging", type=float, default=0.998)
    parser.add_argument("--discriminator-steps", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=2_000)
    arguments = parser.parse_args(given)
    if arguments.quick and arguments.final:
        parser.error("--quick is for trying things out, and --final looks at val: not together")
    if arguments.quick:
        small = {"minutes": 0.9, "seeds": 2, "size": 64, "width": 8, "phantom": 96, "render_batch": 16, "workers": 0}
        small |= {
            "phantom_batch": 16,
            "real_batch": 16,
            "beside": 8,
            "epochs": 1.0,
            "phantom_passes": 1.0,
            "resamples": 200,
        }
        for name, value in (small | {"discriminator_steps": 4}).items():
            setattr(arguments, name, value)
    return arguments


def main(given: Sequence[str] | None = None) -> None:
    """Run all steps."""
    arguments = read_arguments(given)
    changes = dict(FREQUENT)
    if arguments.phantom_config is not None:
        changes |= tomllib.loads(arguments.phantom_config.read_text("utf-8"))
    drawn = start_drawing(PhantomConfig.from_mapping(changes), arguments)
    run = Run(arguments.out, arguments.minutes)
    device = torch.device(arguments.device)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    del settings["nih"], settings["out"]
    run.note("settings", settings | {"torch": torch.__version__})
    torch.backends.cudnn.benchmark = True
    if arguments.quick:
        torch.set_num_threads(1)  # tiny tensors gain nothing from more, and lose much on a busy machine

    every = 12 if arguments.quick else 1
    real = load_real(arguments.nih, "train", arguments.size, device, every)
    boxed = load_real(arguments.nih, "boxes", arguments.size, device, every)
    held_out = folds_of(real.patients, 4) == 0
    if arguments.final:
        learnt, asked, name = real, load_real(arguments.nih, "val", arguments.size, device, every), "val"
    else:
        learnt, asked, name = real.chosen(~held_out), real.chosen(held_out), "held-out train"
    shared = set(learnt.patients) & (set(asked.patients) | set(boxed.patients))
    if shared:
        raise SystemExit(f"{len(shared)} patients are both learnt from and asked about, such as {min(shared)}")
    run.log(f"real images: {len(learnt)} to learn from, {len(asked)} ({name}) to ask about, {len(boxed)} with boxes")

    phantom = make_phantom(run, drawn, arguments.size, device)
    networks = train_all(run, arguments, phantom, learnt, asked)
    # The phantom's networks once more, with the norms' statistics from real images: no label is used for that.
    if "phantom" in networks:
        networks["phantom, adapted"] = [adapt_statistics(network, learnt.images) for network in networks["phantom"]]
    if not arguments.final:  # no real label was learnt: all of train can be asked about
        alone: dict[str, list[ResidualNetwork]] = {}
        alone |= {arm: networks[arm] for arm in ("phantom", "phantom, adapted") if arm in networks}
        score_findings(run, alone, real, "all of train", min(500, arguments.resamples))
    score_findings(run, networks, asked, name, arguments.resamples)
    score_pointing(run, networks, boxed, arguments, arguments.resamples)
    if arguments.keep_models:
        for arm, of_arm in networks.items():
            save_model(Classifier(of_arm[0], FINDINGS, size=arguments.size, device=device), arguments.out / arm)
    discriminate(run, arguments, phantom, real)
    run.log("done")


if __name__ == "__main__":
    main()

"""Shared parts of the benchmarks that compare the phantom with real radiographs: sources, training, log and results.

The real images are NIH ChestX-ray14's (Wang et al., CVPR 2017), a manifest folder or archive with the splits ``train``,
``val`` and ``boxes``. A label that NIH does not give counts as negative, in training and in scoring. Published figures
do the same, although NIH's labels are mined from text, so that a missing one is unknown.

Two sources are registered here. ``phantom-nih`` has the phantom's images with NIH's labels. ``patients`` has a part of
the patients of another source: ``patients:manifest:/data/nih.tar?split=train&part=held-out``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from rightlung import open_source
from rightlung.core import Mask, Phrase, Polarity, Study
from rightlung.core.files import write_json
from rightlung.core.settings import read_settings
from rightlung.lexicon import find, label_set
from rightlung.models.classifier import Classifier
from rightlung.models.folder import load_folder
from rightlung.models.preprocessing import letterbox
from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.source import PhantomSource
from rightlung.scoring.statistics import Interval
from rightlung.studies.sources import Address, Source, register_source, source_schemes
from rightlung.training.loop import Hardware, train
from rightlung.training.recipe import Recipe

FloatArray = NDArray[np.float64]

FINDINGS = tuple(label_set("nih-8-boxed").findings.values())

# What a lesion of the phantom says about NIH's eight labels: those it makes positive, and those it leaves unknown
# (ignored by the loss). NIH's "Infiltration" is whatever a report called an infiltrate or an ill-defined opacity, so
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
HELD_OUT = 4  # one of so many folds of the patients
BLOCK, KEPT = 16, 256  # studies that are built at a time, and the largest source whose studies are kept


class Run:
    """The log and the results of a benchmark, written to a folder after every step."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.start = time.monotonic()
        self.results: dict[str, Any] = {}
        (folder / "log.txt").write_text("", encoding="utf-8")

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def log(self, text: str) -> None:
        """Write a line to the log and to standard output."""
        line = f"{self.elapsed():7.1f} s  {text}"
        print(line, flush=True)
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def note(self, name: str, value: Any) -> None:
        """Add a result and write all results."""
        self.results[name] = value
        self.results.setdefault("seconds", {})[name] = round(self.elapsed(), 1)
        write_json(self.folder / "results.json", _rounded(self.results))


def _rounded(value: Any) -> Any:
    """Return results as JSON values: five decimals, intervals with their sentence, arrays as lists."""
    if isinstance(value, Interval):
        return _rounded(asdict(value)) | {"sentence": value.sentence()}
    if isinstance(value, dict):
        return {str(key): _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_rounded(part) for part in value]
    return round(float(value), 5) if isinstance(value, float | np.floating) else value


class ChangedSource(Source):
    """Some studies of another source, each changed by a function that can be pickled.

    Studies are built some at a time, which is how the phantom is fast; those of a small source are kept.
    """

    def __init__(
        self, address: str, inner: Source, change: Callable[[Study], Study] | None, ids: Sequence[str] | None = None
    ) -> None:
        super().__init__(address)
        self.inner, self.change = inner, change
        places = range(len(inner)) if ids is None else [inner.ids.index(one) for one in ids]
        self.places: Sequence[int] = places
        self._blocks: dict[int, list[Study]] = {}

    @cached_property
    def ids(self) -> Sequence[str]:
        """The ids of the studies, in order."""
        return [self.inner.ids[place] for place in self.places]

    def _build(self, position: int) -> Study:
        block, offset = divmod(position, BLOCK)
        if block not in self._blocks:
            if len(self.places) > KEPT:
                self._blocks.clear()
            places = self.places[block * BLOCK : (block + 1) * BLOCK]
            together = getattr(self.inner, "__getitems__", None)
            studies = [self.inner[place] for place in places] if together is None else together(list(places))
            self._blocks[block] = studies if self.change is None else [self.change(study) for study in studies]
        return self._blocks[block][offset]


def inner_address(address: Address, own: Iterable[str]) -> str:
    """Return the address in the path of another one, with the parameters that are not the outer one's own."""
    given = [f"{name}={quote(value)}" for name, value in address.parameters.items() if name not in own]
    return address.path + ("?" + "&".join(given) if given else "")


def open_patients(address: Address) -> Source:
    """Open ``patients:ADDRESS?part=PART&every=N``: every Nth study, of the ``learn`` or the ``held-out`` patients."""
    inner = open_source(inner_address(address, ("part", "every")))
    studies = list(inner)[:: address.whole_number("every", 1) or 1]
    part = address.parameters.get("part", "all")
    held_out = folds_of(np.array([study.patient or study.id for study in studies]), HELD_OUT) == 0
    kept = {"all": held_out | True, "held-out": held_out, "learn": ~held_out}[part]
    ids = [study.id for study, keep in zip(studies, kept, strict=True) if keep]
    return ChangedSource(str(address), inner, None, ids)


def open_phantom_nih(address: Address) -> Source:
    """Open ``phantom-nih?count=N&seed=S&size=PIXELS``: the phantom with NIH's labels, rare findings more frequent."""
    address.check_parameters(("count", "seed", "size"))
    count, seed, size = (address.whole_number(name, 0) for name in ("count", "seed", "size"))
    phantom = PhantomSource(
        str(address), PhantomConfig.from_mapping(FREQUENT), seed or 0, range(count or 1), size or 224
    )
    return ChangedSource(str(address), phantom, with_nih_labels)


def with_nih_labels(study: Study) -> Study:
    """Return a phantom study with NIH's labels as findings, and one phrase with a mask for each that is present."""
    lesions = [lesion["finding"] for lesion in study.extra["scene"]["lesions"]]
    labels = nih_labels(lesions)
    phrases = []
    for finding, polarity in labels.items():
        if polarity == Polarity.POSITIVE:
            masks = [
                mask.pixels
                for name, mask in zip(lesions, study.extra["lesion_masks"], strict=True)
                if finding in MEANING.get(name, ((), ()))[0]
            ]
            mask = Mask(np.any(masks, axis=0))
            phrases.append(Phrase(finding, mask=mask, findings={finding: polarity}))
    return replace(study, findings=labels, phrases=tuple(phrases), report=None)


def nih_labels(lesions: Iterable[str]) -> dict[str, Polarity]:
    """Return NIH's eight labels for the lesions of a phantom; those that its lesions leave open are uncertain."""
    meanings = [MEANING.get(name, ((), ())) for name in lesions]
    positive = {name for made, _ in meanings for name in made}
    unknown = {name for _, left_open in meanings for name in left_open}
    kinds = {True: Polarity.POSITIVE, False: Polarity.NEGATIVE}
    return {name: Polarity.UNCERTAIN if name in unknown - positive else kinds[name in positive] for name in FINDINGS}


_opened: dict[str, Source] = {}


def register_once(scheme: str, opener: Callable[[Address], Source]) -> None:
    """Register a source that opens each address once and returns the same studies again."""

    def open_once(address: Address) -> Source:
        if str(address) not in _opened:
            _opened[str(address)] = opener(address)
        return _opened[str(address)]

    if scheme not in source_schemes():
        register_source(scheme, open_once)


register_once("patients", open_patients)
register_once("phantom-nih", open_phantom_nih)


@dataclass(frozen=True, slots=True)
class Images:
    """Studies of a source with their squares (n, size, size) uint8, NIH's labels (n, 8) of 0 and 1, and patients."""

    squares: NDArray[np.uint8]
    labels: FloatArray
    patients: NDArray[np.str_]
    studies: tuple[Study, ...]

    def __len__(self) -> int:
        return len(self.studies)

    def pixels(self, chosen: slice = slice(None)) -> list[NDArray[np.float32]]:
        """Return squares as images in 0 to 1."""
        return [square.astype(np.float32) / 255 for square in self.squares[chosen]]


def canonical(names: Iterable[str]) -> set[str]:
    """Return the canonical findings among label names."""
    return {meaning.name for meaning in map(find, names) if meaning is not None}


def load_images(address: str, size: int) -> Images:
    """Load all studies of a source. A missing label is negative (see the module's docstring)."""
    studies, squares, labels = [], [], []
    for study in open_source(address):
        squares.append((letterbox(study.image, size)[0] * 255).round().to(torch.uint8).numpy())
        present = canonical(name for name, polarity in study.findings.items() if polarity == Polarity.POSITIVE)
        labels.append([float(finding in present) for finding in FINDINGS])
        studies.append(study)
    patients = np.array([study.patient or study.id for study in studies])
    return Images(np.stack(squares), np.array(labels), patients, tuple(studies))


def folds_of(patients: NDArray[np.str_], folds: int, seed: int = 0) -> NDArray[np.intp]:
    """Return the fold of each instance; all instances of a patient are in the same fold."""
    names, index = np.unique(patients, return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(names)) % folds)[index].astype(np.intp)


def location_prior(
    masks: FloatArray, findings: NDArray[np.str_], patients: NDArray[np.str_], folds: int = 5
) -> FloatArray:
    """Return for each instance the smoothed mean box map of its finding in other patients, (n, rows, cols).

    The width of the Gaussian is chosen for each fold by the hit rate of the peak within the other folds.
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


def model_config(findings: Sequence[str], size: int, width: int = 64, blocks: int = 2) -> dict[str, Any]:
    """Return the configuration of a classifier: a ResNet-18 by default, log-sum-exp pooling on cells of 16 pixels."""
    widths = [width, 2 * width, 4 * width, 8 * width]
    options = {"embedding_size": width, "hidden_sizes": widths, "depths": [blocks] * 4, "layer_type": "basic"}
    image = {"kind": "resnet", "size": size, "pyramid_levels": [-2, -1], "options": options}
    return {"findings": list(findings), "image": image, "pooling": "lse"}


def train_classifier(
    out: Path,
    device: str,
    *,
    model: Mapping[str, Any],
    findings: Sequence[str],
    entries: Sequence[Mapping[str, Any]],
    size: int,
    **settings: Any,
) -> tuple[Classifier, dict[str, Any]]:
    """Train by a recipe into a folder, and return the classifier and how the training went.

    ``model`` is the recipe's; ``entries`` are its sources; ``settings`` are its other fields. Masks are learned from
    where an entry has phrases.
    """
    located = any(entry.get("phrases_per_image") for entry in entries)
    validation = settings.pop("validation", None)
    data = {
        "train": list(entries), "image_size": size, "mask_grid": max(1, size // 8), "targets": ["labels"],
        "target_options": {"labels": {"findings": list(findings)}}, "workers": settings.pop("workers", 2),
        "cache_folder": str(out.parent / "cache"),
    }  # fmt: skip
    if validation is not None:
        data["validation"] = validation
    losses = {"label_bce": 1.0, **({"mask_bce": 1.0} if located else {})}
    recipe = read_settings(Recipe, {"model": model, "data": data, "losses": losses, **settings})
    outcome = train(recipe, out, hardware=Hardware(accelerator="cuda" if device.startswith("cuda") else "cpu"))
    trained: Classifier = load_folder(outcome.model)
    facts = {"steps": outcome.steps, "seconds": outcome.seconds, "loss": outcome.loss, "validation": outcome.validation}
    return trained.to(torch.device(device)), facts


@torch.no_grad()
def adapt_statistics(model: Classifier, squares: NDArray[np.uint8], batch_size: int = 256) -> Classifier:
    """Return a copy whose batch norms have the statistics of these squares (n, size, size); weights stay.

    Domain adaptation without labels (Li et al., *Revisiting Batch Normalization For Practical Domain Adaptation*,
    2016).
    """
    adapted = copy.deepcopy(model).eval()
    norms = [module for module in adapted.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
        norm.train()
    order = torch.randperm(len(squares), generator=torch.Generator().manual_seed(0))
    for chosen in torch.split(order, batch_size):
        images = torch.from_numpy(squares[chosen.numpy()])[:, None].to(adapted.device)
        adapted.image_encoder.patches(images.float() / 255)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return adapted.eval()

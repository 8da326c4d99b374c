"""Recipes: everything that a training run depends on, in one YAML file. docs/training.md explains each field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import yaml

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.core.settings import plain_settings
from rightlung.training.annotations import MaskKind
from rightlung.training.augmentation import Augmentation
from rightlung.training.curves import check_curve, value_at
from rightlung.training.expert_maps import ExpertMapKind
from rightlung.training.targets import target_builders

PairedText = Literal["sentence", "report", "abnormal", "abnormal-first"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model: a new one of a ``kind`` with a ``config``, or an existing one to ``start`` from.

    With both, the new model takes the image and text encoder of the existing one.
    """

    kind: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None


@dataclass(frozen=True, slots=True)
class FilmMatching:
    """How grey values of synthetic images are matched to those of real films, which need no labels."""

    source: str  # of the real films
    histogram: float = 0.0  # probability that an image takes the histogram of a film
    low_frequency: float = 0.0  # probability that it takes the low-frequency amplitudes of a film
    band: float = 0.01  # the highest low frequency, in cycles a pixel
    films: int = 200  # drawn from the source, the same ones in every run

    def __post_init__(self) -> None:
        if not self.histogram and not self.low_frequency:
            raise InputError("histogram or low_frequency must be above 0")


@dataclass(frozen=True, slots=True)
class DataEntry:
    """One source of training studies, and which texts and phrases are drawn from them."""

    source: str
    share: Any = 1.0  # of the images of a batch, relative to the other entries; a number or a curve
    probability: Any = 1.0  # that the entry takes part in a batch; a number or a curve
    cached_studies: int | None = None  # held on the device; None: all of a small source, none of a phantom
    words_from: Literal["sentences", "labels"] = "sentences"  # of texts and phrases; labels: prompts for them
    paired_text: PairedText = "sentence"  # what an image is paired with
    texts_per_image: int = 1  # 0: none, for a source that is mixed with others that have texts
    pairing: Literal["own", "random"] = "own"  # random: texts of another study, as a control
    word_mask_probability: float = 0.0  # that a word of a text is hidden
    entity_mask_probability: float = 0.0  # the same for a clinical entity (finding, region, device)
    mirror_pairs: bool = False  # half of the images are the mirror images of the others, with mirrored words
    few_shot_studies: int | None = None  # use only the first so many studies with a location, with fixed phrases
    phrases_per_image: int = 0  # asked of each image
    positive_share: float = 0.6  # of the study's own phrases: those that describe something visible
    other_study_probability: float = 0.0  # that a phrase is of another study, and false here
    swapped_side_probability: float = 0.0  # that a phrase has left and right swapped, and is false here
    drop_side_probability: float = 0.0  # that one of the study's own phrases about one side does not name it
    prompt_probability: float = 0.0  # that one of the study's own phrases is a prompt for a finding
    missing_labels: Literal["negative", "unknown"] = "unknown"  # what a missing label means
    phrase_masks: MaskKind = "exact"  # their masks or boxes, or the boxes of their regions, or none
    added_images: int = 0  # per process, besides the batch size; 0: the entry has a share of the batch size
    expert_map: ExpertMapKind | None = None  # where an expert looked at each image; see `expert_maps`
    domain: Literal["synthetic", "real"] | None = None  # of the images, for the target `domain`
    match_to: FilmMatching | None = None  # real films that the entry's synthetic images are made to resemble


@dataclass(frozen=True, slots=True)
class Validation:
    """The studies that the loss is computed on every so many steps."""

    source: str
    every: int = 1000
    cached_studies: int | None = None
    words_from: Literal["sentences", "labels"] = "sentences"
    paired_text: PairedText = "sentence"
    phrases_per_image: int = 4
    prompt_probability: float = 0.0
    missing_labels: Literal["negative", "unknown"] = "unknown"
    phrase_masks: MaskKind = "exact"
    few_shot_studies: int | None = None
    grounded_phrases: int = 100  # phrases with a mask that a model with a map is scored on

    def entry(self) -> DataEntry:
        """Convert to a DataEntry without swapped or borrowed phrases.

        ``positive_share`` is 0.6, the default of training. With ``few_shot_studies`` it is 1.0: only phrases with a
        location are asked.
        """
        shared = {entry.name: getattr(self, entry.name) for entry in fields(DataEntry) if hasattr(self, entry.name)}
        return DataEntry(**shared, positive_share=0.6 if self.few_shot_studies is None else 1.0)


@dataclass(frozen=True, slots=True)
class Data:
    """The sources of studies, how they are mixed, and what a batch holds."""

    train: tuple[DataEntry, ...]
    validation: Validation | None = None
    sources_per_batch: Literal["all", "one"] = "all"  # all entries by their shares, or one drawn by its share
    targets: tuple[str, ...] = ()  # besides phrases, which a batch has where an entry asks for them
    target_options: Mapping[str, Any] = field(default_factory=dict)  # settings of a target, by its name
    image_size: int = 224  # pixels per side
    mask_grid: int = 56  # cells per side of masks and gaze maps
    workers: int = 2  # processes that read, or make, studies ahead
    cache_folder: str | None = None  # where cached studies are kept for the next run


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The optimizer and its settings."""

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 5e-4
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: float = 1.0  # largest norm of the gradient; 0: no clipping
    learning_rate_factors: Mapping[str, float] = field(default_factory=dict)  # by prefix of a parameter's name


@dataclass(frozen=True, slots=True)
class Schedule:
    """Linear warm-up, then cosine decay to ``final_learning_rate_factor`` times the learning rate.

    With ``patience``, training stops after so many validations in a row without a lower validation loss.
    """

    steps: int
    warmup_steps: int = 0
    final_learning_rate_factor: float = 0.0
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training run."""

    model: ModelChoice
    data: Data
    losses: Mapping[str, Any]  # weight of each term of the model's loss: a number or a curve, see `curves`
    schedule: Schedule
    optimizer: Optimizer = field(default_factory=Optimizer)
    batch_size: int = 64  # images per process and forward pass
    gradient_accumulation: int = 1  # batches per optimizer step
    ema: float = 0.999  # decay of the exponential moving average of the weights, which is what is saved; 0: none
    augmentation: Augmentation = field(default_factory=Augmentation)
    precision: Precision = "32-true"
    seed: int = 0
    checkpoint_every: int = 500
    log_every: int = 20
    model_card: str | None = None  # README.md of the trained model

    def loss_weights(self, step: int) -> dict[str, float]:
        """Return the weights of the loss terms at a step, counted from 0."""
        return {name: value_at(weight, step / self.schedule.steps) for name, weight in self.losses.items()}

    def __post_init__(self) -> None:
        if self.model.kind is None and self.model.start is None:
            raise InputError("model needs kind (a new model) or start (an existing one)")
        if not self.data.train:
            raise InputError("data.train must name at least one source")
        for name, weight in self.losses.items():
            check_curve(weight, f"losses.{name}")
        points = {
            0.0,
            1.0,
            *(point[0] for one in self.losses.values() if not isinstance(one, int | float) for point in one),
        }
        if not all(any(value_at(weight, place) > 0 for weight in self.losses.values()) for place in points):
            raise InputError("losses must give at least one term of the model's loss a weight above 0, at every step")
        findings, labels = self.model.config.get("findings"), self.data.target_options.get("labels", {}).get("findings")
        if findings is not None and labels is not None and list(findings) != list(labels):
            raise InputError("data.target_options.labels.findings must equal model.config.findings, in the same order")
        if self.schedule.patience is not None and self.data.validation is None:
            raise InputError("schedule.patience needs data.validation, whose loss it watches")
        if self.augmentation.cutout_count > 1 and not self.augmentation.cutout:
            raise InputError("augmentation.cutout_count has no effect with cutout: 0; set cutout, or remove it")
        if "domain" in self.data.targets and len({one.domain for one in self.data.train} - {None}) < 2:
            raise InputError("data.targets: domain needs an entry with domain: synthetic, and one with domain: real")
        target_builders(self.data)  # rejects unknown targets and settings
        for place, name, value in _numbers(self):
            if name in _LIMITS:
                check_limits(value, place, *_LIMITS[name])
        textless = [number for number, entry in enumerate(self.data.train) if not entry.texts_per_image]
        if textless and (len(textless) == len(self.data.train) or self.data.sources_per_batch == "one"):
            place = f"data.train[{textless[0]}].texts_per_image"
            raise InputError(f"{place}: 0 needs another entry with texts, and data.sources_per_batch: all")
        if all(entry.added_images for entry in self.data.train):
            raise InputError("data.train needs an entry without added_images, whose images fill the batch size")
        for number, entry in enumerate(self.data.train):
            check_curve(entry.share, f"data.train[{number}].share")
            check_curve(entry.probability, f"data.train[{number}].probability", 0, 1)
            _check_phrase_settings(entry, f"data.train[{number}]")
            _check_added(entry, f"data.train[{number}]")
            if entry.share == 0:
                raise InputError(f"data.train[{number}].share must be above 0; got {entry.share}")
            if entry.other_study_probability + entry.swapped_side_probability > 1:
                raise InputError(
                    f"data.train[{number}]: other_study_probability and swapped_side_probability must not exceed 1 "
                    f"together; got {entry.other_study_probability} and {entry.swapped_side_probability}"
                )


def _check_phrase_settings(entry: DataEntry, place: str) -> None:
    """Refuse settings of phrases that would have no effect."""
    for name in (
        "other_study_probability", "swapped_side_probability", "drop_side_probability", "prompt_probability",
    ):  # fmt: skip
        if getattr(entry, name) == 0:
            continue
        if not entry.phrases_per_image:
            raise InputError(f"{place}.{name} needs {place}.phrases_per_image of at least 1")
        if entry.words_from == "labels":
            raise InputError(f"{place}.{name} has no effect with {place}.words_from: labels, whose phrases are prompts")
        if entry.phrase_masks == "none" and name in ("other_study_probability", "prompt_probability"):
            raise InputError(f"{place}.{name} draws phrases with a location, which {place}.phrase_masks: none hides")


def _check_added(entry: DataEntry, place: str) -> None:
    """Refuse settings of added images and expert maps that do not fit together."""
    if entry.added_images and entry.share != 1:
        raise InputError(f"{place}.share has no effect with {place}.added_images; remove one of them")
    if entry.added_images % 2 and entry.mirror_pairs:
        raise InputError(f"{place}.mirror_pairs needs an even number of added_images; got {entry.added_images}")
    if entry.expert_map is not None and not entry.added_images:
        raise InputError(f"{place}.expert_map needs {place}.added_images of at least 1")
    if (entry.expert_map or "").startswith("sentence-") and (
        entry.texts_per_image != 1 or entry.paired_text == "report" or entry.words_from == "labels"
    ):
        raise InputError(
            f"{place}.expert_map: {entry.expert_map} needs one sentence for each image: set texts_per_image: 1, "
            "paired_text other than report, and words_from: sentences"
        )


_NAMES: dict[tuple[float, float], str] = {
    (0, 1): "positive_share other_study_probability swapped_side_probability drop_side_probability prompt_probability "
    "word_mask_probability entity_mask_probability mirror_probability betas final_learning_rate_factor ema shift blur "
    "cutout crop clahe inversion histogram low_frequency band",
    (0, 10): "scale shear brightness contrast gamma noise contrast_curve bias_field sharpen",
    (1, 100): "cutout_count",
    (1, 1000): "films",
    (0, 180): "rotation",
    (0, 1000): "phrases_per_image texts_per_image",
    (0, 2**20): "added_images",
    (0, 1024): "workers",
    (16, 4096): "image_size",
    (1, 4096): "mask_grid",
    (0, 2**53): "seed",
    (0, math.inf): "grounded_phrases learning_rate weight_decay clip_norm learning_rate_factors warmup_steps",
    (1, math.inf): "few_shot_studies cached_studies every steps patience batch_size gradient_accumulation "
    "checkpoint_every log_every",
}
_LIMITS = {name: limits for limits, names in _NAMES.items() for name in names.split()}
"""The lowest and the highest value of a field, by its name."""


def _numbers(settings: Any, place: str = "", name: str = "") -> Iterator[tuple[str, str, float]]:
    """Yield the path, the field's name and the value of every number in a recipe; model configs are left out."""
    if is_dataclass(settings):
        for entry in fields(settings):
            yield from _numbers(getattr(settings, entry.name), f"{place}.{entry.name}".lstrip("."), entry.name)
    elif isinstance(settings, tuple):
        for number, value in enumerate(settings):
            yield from _numbers(value, f"{place}[{number}]", name)
    elif name == "learning_rate_factors":
        yield from ((f"{place}.{prefix}", name, factor) for prefix, factor in settings.items())
    elif isinstance(settings, int | float):
        yield place, name, settings


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe as YAML with every field, to be read again."""
    return yaml.safe_dump(plain_settings(recipe), sort_keys=False, allow_unicode=True, width=120)


def differing_fields(one: Any, other: Any, place: str = "") -> list[str]:
    """Return the paths of the fields in which two recipes differ."""
    if is_dataclass(one) and type(one) is type(other):
        found = []
        for entry in fields(one):
            path = f"{place}.{entry.name}" if place else entry.name
            found.extend(differing_fields(getattr(one, entry.name), getattr(other, entry.name), path))
        return found
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [path for number, pair in pairs for path in differing_fields(*pair, f"{place}[{number}]")]
    return [] if plain_settings(one) == plain_settings(other) else [place]

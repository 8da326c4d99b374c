"""Recipes: everything that a training run depends on, in one YAML file. docs/training.md explains each field."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

import yaml

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError, unknown_name
from rightlung.core.settings import plain_settings, read_settings
from rightlung.training.augmentation import Augmentation
from rightlung.training.curves import check_curve, value_at
from rightlung.training.study_texts import MaskKind
from rightlung.training.targets import target_builders

PACKAGE = Path(__file__).parents[1]

TextChoice = Literal["sentence", "report", "abnormal", "abnormal-first"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model: a new one of a ``kind`` with a ``config``, or an existing one to ``start`` from."""

    kind: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None


@dataclass(frozen=True, slots=True)
class DataEntry:
    """One source of training studies, and which texts and phrases are drawn from them."""

    source: str
    share: Any = 1.0  # of the images of a batch, relative to the other entries; a number or a curve
    probability: Any = 1.0  # that the entry takes part in a batch; a number or a curve
    cached: int | None = None  # studies held on the device; None: all of a small source, none of a phantom
    text: TextChoice = "sentence"
    texts: int = 1  # paired with each image
    text_of: Literal["own", "another"] = "own"  # another: texts of a random other study, as a control
    masked_words: float = 0.0  # share of a text's words that are hidden
    masked_entities: float = 0.0  # share of a text's clinical entities (findings, regions, devices) that are hidden
    mirrored: bool = False  # half of the images are the mirror images of the others, with mirrored words
    examples: int | None = None  # use only the first so many studies with a target, with the same phrases every time
    phrases: int = 0  # asked of each image
    positive: float = 0.6  # share of the study's own phrases that describe something visible
    from_other_studies: float = 0.0  # share of phrases taken from another study, false here
    sides_swapped: float = 0.0  # share of phrases with left and right swapped, false here
    without_side: float = 0.0  # share of the phrases with a target whose words for the side are left out
    prompts: Any = 0.0  # share of phrases that are prompts for a finding, or "labels": all are, from the labels
    unlabeled: Literal["negative", "unknown"] = "unknown"  # what a missing label means
    masks: MaskKind = "exact"  # of phrases: their masks or boxes, or the boxes of their regions, or none

    def __post_init__(self) -> None:
        if self.prompts == "labels":
            return
        if isinstance(self.prompts, bool) or not isinstance(self.prompts, int | float):
            raise InputError(f"prompts must be a share from 0 to 1 or 'labels'; got {self.prompts!r}")


@dataclass(frozen=True, slots=True)
class Validation:
    """The studies that the loss is computed on every so many steps."""

    source: str
    every: int = 1000
    cached: int | None = None
    text: TextChoice = "sentence"
    phrases: int = 4
    prompts: Any = 0.0
    unlabeled: Literal["negative", "unknown"] = "unknown"
    masks: MaskKind = "exact"
    examples: int | None = None
    grounded: int = 100  # phrases that a model with a map is scored on

    def entry(self) -> DataEntry:
        """Return it as an entry whose phrases are the study's own."""
        shared = {entry.name: getattr(self, entry.name) for entry in fields(DataEntry) if hasattr(self, entry.name)}
        return DataEntry(**shared, positive=0.6 if self.examples is None else 1.0)


@dataclass(frozen=True, slots=True)
class Data:
    """The sources of studies, how they are mixed, and what a batch holds."""

    train: tuple[DataEntry, ...]
    validation: Validation | None = None
    draw: Literal["all", "one"] = "all"  # a batch has images of all entries by their shares, or of one of them
    targets: tuple[str, ...] = ()  # besides phrases, which a batch has where an entry asks for them
    target_options: Mapping[str, Any] = field(default_factory=dict)  # settings of a target, by its name
    size: int = 224  # pixels per side of the images
    grid: int = 56  # cells per side of the masks
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
    """Linear warm-up over ``warmup_steps``, then cosine decay to ``final_factor`` times the learning rate.

    With ``patience``, training stops after so many validations in a row without a lower validation loss.
    """

    steps: int
    warmup_steps: int = 0
    final_factor: float = 0.0
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
    card: str | None = None  # README.md of the trained model

    def loss_weights(self, step: int) -> dict[str, float]:
        """Return the weights of the loss terms at a step, counted from 0."""
        return {name: value_at(weight, step / self.schedule.steps) for name, weight in self.losses.items()}

    def __post_init__(self) -> None:
        if (self.model.kind is None) == (self.model.start is None):
            raise InputError("model needs either kind (a new model) or start (an existing one), and not both")
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
        target_builders(self.data)  # rejects unknown targets and settings
        for place, name, value in _numbers(self):
            if name in _LIMITS:
                check_limits(value, place, *_LIMITS[name])
        for number, entry in enumerate(self.data.train):
            check_curve(entry.share, f"data.train[{number}].share")
            check_curve(entry.probability, f"data.train[{number}].probability", 0, 1)
            for name in ("from_other_studies", "sides_swapped", "without_side"):
                if getattr(entry, name) > 0 and not entry.phrases:
                    raise InputError(f"data.train[{number}].{name} needs data.train[{number}].phrases of at least 1")
            if entry.share == 0:
                raise InputError(f"data.train[{number}].share must be above 0; got {entry.share}")
            if entry.from_other_studies + entry.sides_swapped > 1:
                raise InputError(
                    f"data.train[{number}]: from_other_studies and sides_swapped must not exceed 1 together; "
                    f"got {entry.from_other_studies} and {entry.sides_swapped}"
                )


_NAMES: dict[tuple[float, float], str] = {
    (0, 1): "positive from_other_studies sides_swapped without_side prompts masked_words masked_entities betas "
    "final_factor ema shift blur cut_out mirror",
    (0, 10): "scale shear brightness contrast gamma noise",
    (0, 180): "rotation",
    (0, 1000): "phrases",
    (1, 1000): "texts",
    (0, 1024): "workers",
    (16, 4096): "size",
    (1, 4096): "grid",
    (0, 2**53): "seed",
    (0, math.inf): "grounded learning_rate weight_decay clip_norm learning_rate_factors warmup_steps",
    (1, math.inf): "examples cached every steps patience batch_size gradient_accumulation checkpoint_every log_every",
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


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package: the general ones, and those of each reproduced paper."""
    found = (path for place in ("training", "reproduce/*") for path in PACKAGE.glob(f"{place}/recipes/*.yaml"))
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def read_recipe(name_or_path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or by the name of a shipped one, with fields changed by ``field=value``."""
    stages = read_stages(name_or_path, changes)
    if list(stages) != [""]:
        raise InputError(f"{name_or_path} has the stages {', '.join(stages)}; it is trained by rightlung train")
    return stages[""]


def read_stages(name_or_path: str | Path, changes: Sequence[str] = (), out: Path = Path()) -> dict[str, Recipe]:
    """Read the stages of a recipe by name, in order; a recipe without ``stages`` has one, named "".

    A stage is the recipe with the stage's ``changes``. Each but the first starts from the model that the one before
    leaves in ``out / stage / "model"``. A change ``stage:field=value`` is for one stage only.
    """
    path, given = _read_table(str(name_or_path))
    if "base" in given:
        given = _derived(path, given)
    stages = _stage_changes(path, given.pop("stages", None))
    recipes: dict[str, Recipe] = {}
    try:
        for change in changes:
            if (name := _stage_of(change)) is not None and name not in stages:
                raise unknown_name("stage in --set", name, stages)
        for stage, own in stages.items():
            table = copy.deepcopy(given)
            if recipes:
                table["model"] = {"start": str((out / list(recipes)[-1] / "model").resolve())}
            general, special = ([one for one in changes if _stage_of(one) == name] for name in (None, stage))
            _set_all(table, own, f"stages, {stage}:")
            _set_all(table, general)
            _set_all(table, [change.partition(":")[2] for change in special])
            recipes[stage] = read_settings(Recipe, table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return recipes


def _stage_of(change: str) -> str | None:
    name, colon, _ = change.partition("=")[0].partition(":")
    return name.strip() if colon else None


def _stage_changes(path: Path, stages: Any) -> dict[str, list[str]]:
    if stages is None:
        return {"": []}
    found: dict[str, list[str]] = {}
    for number, stage in enumerate(stages if isinstance(stages, list) else [None]):
        name, changes = (stage.get("name"), stage.get("changes", [])) if isinstance(stage, dict) else (None, None)
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in found:
            raise InputError(f"{path}: stages[{number}] needs a name of its own, of letters, digits, - and _")
        if not _are_texts(changes):
            raise InputError(f"{path}: stages[{number}].changes must be a list of field=value")
        found[name] = changes
    if not found:
        raise InputError(f"{path}: stages must name at least one stage")
    return found


def _derived(path: Path, given: Mapping[str, Any], above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the recipe that a file describes as another one (``base``) with ``changes``, a list of field=value.

    The base may be derived, too; ``above`` are those that are derived from this one.
    """
    for name in given:
        if name not in ("base", "changes"):
            raise InputError(f"{path}: a recipe with base may only have changes, a list of field=value; got {name!r}")
    base, changes = given["base"], given.get("changes") or []
    if not isinstance(base, str) or not _are_texts(changes):
        raise InputError(f"{path}: base must name a recipe, and changes be a list of field=value")
    beside = path.parent / base
    try:
        of, table = _read_table(str(beside) if _is_file(beside) else base)
        if of.resolve() in (path.resolve(), *above):
            raise InputError(f"base {base} leads back to {of.name}, which is derived from this one")
        if "base" in table:
            table = _derived(of, table, (path.resolve(), *above))
        _set_all(table, changes, "changes:")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return table


def _are_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


def _read_table(name: str) -> tuple[Path, dict[str, Any]]:
    path = _find(name)
    try:
        given = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except UnicodeDecodeError:
        raise InputError(f"{path}: the recipe is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{path}: the recipe cannot be read ({error.strerror or error})") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: the recipe is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict):
        raise InputError(f"{path}: a recipe must be a table of fields; got {type(given).__name__}")
    return path, given


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


def _find(name: str) -> Path:
    if (shipped := shipped_recipes().get(name)) is not None:
        return shipped
    path = Path(name)
    if _is_file(path):
        return path
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise InputError(f"recipe {name} is not there")
    raise unknown_name("recipe", name, shipped_recipes())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _set_all(given: dict[str, Any], changes: Sequence[str], by: str = "--set") -> None:
    """Change fields of a recipe: ``optimizer.learning_rate=1e-3``, ``data.train[0].share=0.5``."""
    for change in changes:
        _set(given, change, by)


def _set(given: dict[str, Any], change: str, by: str) -> None:
    path, equals, text = change.partition("=")
    steps = [part for part in re.split(r"[.\[\]]+", path.strip()) if part]
    if not equals or not steps:
        raise InputError(f"{by} takes field=value, such as optimizer.learning_rate=1e-3; got {change!r}")
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        raise InputError(f"{by} {path}: the value {text!r} is not YAML") from None
    place: Any = given
    for number, step in enumerate(steps):
        key: Any = step
        if isinstance(place, list):
            if not step.isdigit() or int(step) >= len(place):
                raise InputError(f"{by} {path}: there are {len(place)} entries, numbered from 0; got {step!r}")
            key = int(step)
        elif not isinstance(place, dict):
            raise InputError(f"{by} {path}: {'.'.join(steps[:number])} has no fields")
        if number == len(steps) - 1:
            place[key] = value
        else:
            place = place[key] if isinstance(place, list) else place.setdefault(key, {})


class _Loader(yaml.SafeLoader):
    """YAML as people write it: 1e-3 is a number (YAML 1.1 wants 1.0e-3), and a field given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for place, key in enumerate(keys):
            if any(key.value == other.value for other in keys[:place]):
                reason = f"field {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, reason, key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+0123456789.")
)

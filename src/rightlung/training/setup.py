"""Set up a run: its processes, its data, and the model that it starts from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from rightlung.core import InputError
from rightlung.core.errors import unknown_name
from rightlung.core.settings import read_settings
from rightlung.lexicon import FINDINGS, positive_prompts
from rightlung.lexicon.side_changes import without_side
from rightlung.models.base import Trainable, TrainingBatch
from rightlung.models.folder import load_folder, read_config, save_model
from rightlung.models.kinds import IMPORT_PATH, class_of, import_object, kinds, register
from rightlung.models.registry import ModelFolder, find_folder
from rightlung.phantom.config import check_picture_size
from rightlung.phantom.source import PhantomSource
from rightlung.studies.sources import open_source, parse_address
from rightlung.training.batches import Batches
from rightlung.training.cache import DiskCache
from rightlung.training.checkpoint import Checkpoint
from rightlung.training.datasets import (
    CachedDataset,
    Dataset,
    LoadOptions,
    PhantomDataset,
    ReportProgress,
    SourceDataset,
)
from rightlung.training.expert_maps import NEEDS
from rightlung.training.failures import explain_out_of_memory
from rightlung.training.film_matching import read_films
from rightlung.training.folder import RunFolder
from rightlung.training.log import TrainingProgress
from rightlung.training.recipe import Data, DataEntry, Recipe
from rightlung.training.recipe_file import STAGE, shipped_recipes
from rightlung.training.targets import target_builders
from rightlung.training.targets.base import RaggedTensor
from rightlung.training.targets.phrases import side_swapped_sentences

Entries = list[tuple[DataEntry, Dataset]]

CACHE_WHOLE_BELOW = 50_000
"""Sources with fewer studies are held on the device as a whole, unless ``cached_studies`` says otherwise."""
TOKENIZER_STUDIES = 5000
"""Studies of each source whose sentences a new tokenizer learns from; a model's class may say ``tokenizer_studies``."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware settings for Fabric; not part of the recipe."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"


def launch(recipe: Recipe, hardware: Hardware) -> Any:
    """Start the processes. Raise `InputError` if the requested hardware is not available."""
    from lightning.fabric import Fabric

    torch.set_float32_matmul_precision("high")  # of matrix units on a GPU; a CPU's products stay as they are
    strategy: Any = hardware.strategy
    many = hardware.devices * hardware.nodes > 1
    if strategy == "ddp" or (strategy == "auto" and many):
        strategy = "ddp_find_unused_parameters_true"  # a batch without phrases leaves some heads without gradient
    try:
        fabric = Fabric(
            accelerator=hardware.accelerator, devices=hardware.devices, num_nodes=hardware.nodes,
            strategy=strategy, precision=recipe.precision,
        )  # fmt: skip
        fabric.launch()
    except Exception as error:
        if isinstance(error, RuntimeError | ValueError) or type(error).__name__ == "MisconfigurationException":
            raise InputError(f"cannot start training on this hardware: {' '.join(str(error).split())}") from None
        raise
    return fabric


def open_datasets(recipe: Recipe, device: torch.device, progress: TrainingProgress) -> Entries:
    """Open every source of the training data, and report what is left out of them.

    All sources are checked before the first is cached, so that a missing one is noticed at once.
    """
    data = recipe.data
    places = {f"data.train[{number}]": entry for number, entry in enumerate(data.train)}
    for field, settings in (*places.items(), ("data.validation", data.validation)):
        try:
            if settings is not None:
                open_source(settings.source)
        except InputError as error:
            raise InputError(f"{field}.source: {error}") from None
    for field, entry in places.items():
        if (match := entry.match_to) is not None:
            try:
                read_films(match.source, match.films, data.image_size, device)
            except InputError as error:
                raise InputError(f"{field}.match_to.source: {error}") from None
        if entry.expert_map is not None and data.validation is not None:
            check_patients(entry.source, data.validation.source, f"{field}.source", entry.cached_studies)
    entries = [(entry, _open(entry, recipe, device, progress, field)) for field, entry in places.items()]
    for field, (entry, studies) in zip(places, entries, strict=True):
        if not isinstance(studies, PhantomDataset):  # which can serve everything
            check_available(entry, studies, field)
    asked = [
        builder.name for builder in target_builders(data) if builder.name != "phrases" or "phrases" in data.targets
    ]
    for name in asked:
        if not any(name in studies.available_targets for _, studies in entries):
            raise InputError(f"data.targets: no study of {', '.join(entry.source for entry in data.train)} has {name}")
    return entries


def _open(entry: DataEntry, recipe: Recipe, device: torch.device, progress: TrainingProgress, field: str) -> Dataset:
    with contextlib.ExitStack() as stack:

        def advance(what: str, count: int) -> Callable[[int], None]:
            return stack.enter_context(progress.loading_bar(what, count))

        studies = open_studies(entry, recipe.data, device, advance, field)
    if problems := studies.problems:
        are = "study is" if len(problems) == 1 else "studies are"
        progress.tell(f"{field}: {len(problems):,} {are} left out, the first: {problems[0]}")
    return studies


def open_studies(
    entry: DataEntry, data: Data, device: torch.device, advance: Callable[[str, int], ReportProgress], field: str
) -> Dataset:
    """Open the studies of an entry, cached where it says so. ``advance(what, count)`` shows the progress."""
    studies, count, disk = _opened(entry, data, device, field)
    if count is None:
        return studies
    what = f"to hold the {count:,} studies of {field}, {data.image_size} pixels a side"
    with explain_out_of_memory(
        str(device), what, f"try fewer, such as --set {field}.cached_studies={max(1, count // 2)}"
    ):
        cached = None if disk is None else disk.read(device)
        if cached is None:
            cached = studies.cached(count, advance(f"caching {entry.source.partition('?')[0]}", count))
            if disk is not None:
                disk.write(cached)
        return _chosen(cached, entry, field)


def pool_folder(entry: DataEntry, data: Data, field: str) -> Path | None:
    """Return the folder that keeps the cached studies of an entry; None if none does. It need not be there yet."""
    _, _, disk = _opened(entry, data, torch.device("cpu"), field)
    return None if disk is None else disk.path


def _opened(
    entry: DataEntry, data: Data, device: torch.device, field: str
) -> tuple[PhantomDataset | SourceDataset, int | None, DiskCache | None]:
    """Return the studies of an entry, how many of them to cache (None for none), and where."""
    source = open_source(entry.source)
    phantom = source if isinstance(source, PhantomSource) and not source.faults else None
    sized = "size" in parse_address(entry.source).parameters
    if phantom is not None:
        if sized and phantom.size != data.image_size:
            raise InputError(f"{field}.source says size={phantom.size}, but data.image_size is {data.image_size}")
        try:
            check_picture_size(data.image_size)
        except InputError as error:
            raise InputError(f"data.image_size: the phantom's {error}") from None
    if not len(source):
        raise InputError(f"{field}.source: {entry.source} has no studies")
    builders = [builder.for_entry(entry) for builder in target_builders(data)]
    options = LoadOptions(entry, data.image_size, data.mask_grid, builders, device, data.workers)
    rendered = entry.phrase_masks != "regions" and all(
        builder.can_build_from_rendering(entry) for builder in options.builders_to_run
    )
    studies: PhantomDataset | SourceDataset
    if phantom is not None and rendered:
        studies = PhantomDataset(phantom, options)
        count = entry.cached_studies
    else:
        if phantom is not None and not sized:  # the same images as rendered ones
            source = open_source(f"{entry.source}&size={data.image_size}")
        studies = SourceDataset(source, options)
        count = (
            min(len(studies), entry.cached_studies or len(studies))
            if entry.cached_studies or len(studies) < CACHE_WHOLE_BELOW
            else None
        )
    if count is None:
        for name, wants in (
            ("paired_text 'abnormal'", entry.paired_text == "abnormal"),
            ("few_shot_studies", entry.few_shot_studies is not None),
            ("expert_map", entry.expert_map in NEEDS),
        ):
            if wants:
                raise InputError(f"{field}.{name} needs {field}.cached_studies, because some studies are left out")
        return studies, None, None
    if count > len(studies):
        raise InputError(f"{field}.cached_studies: {count} is more than the {len(studies)} studies of {entry.source}")
    disk = None if data.cache_folder is None else DiskCache(data.cache_folder, source, count, options)
    return studies, count, disk


def check_patients(source: str, other: str, what: str, studies: int | None = None) -> None:
    """Refuse a source that shares a patient with another one, such as that of a validation or an evaluation.

    Only the first ``studies`` of it count, if given. Studies without a patient are not compared.
    """
    named = islice(open_source(source).patients(), studies)
    if shared := (set(named) & set(open_source(other).patients())) - {None}:
        raise InputError(
            f"{what}: {source} has {len(shared):,} of the patients of {other}, such as {min(map(str, shared))}; an "
            "expert's maps must be of other patients than those it is evaluated on"
        )


def check_available(entry: DataEntry, studies: Dataset, field: str) -> None:
    """Refuse settings of an entry that no study of its source can serve."""
    annotations = [studies.annotations(index) for index in range(len(studies))]
    sentences = [sentence for one in annotations for sentence in one.sentences]
    by_labels, located = entry.words_from == "labels", any(sentence.locations for sentence in sentences)
    labels = (
        bool(studies.findings)
        if entry.missing_labels == "negative"
        else any(one.positive_findings or one.absent for one in annotations)
    )
    sided = [sentence for sentence in sentences if sentence.visible and sentence.side is not None]
    own = any(sentence.visible is not None for sentence in sentences) or (labels and entry.prompt_probability != 0)
    lent = any(sentence.locations and sentence.positive for sentence in sentences) and any(
        one.absent for one in annotations
    )
    one_side = "a sentence about a finding on one side only"
    needs = [("paired_text", entry.paired_text == "report", any(one.report.strip() for one in annotations), "a report")]
    if by_labels:
        needs.append(("words_from", True, labels, "a label"))
    elif entry.phrases_per_image:
        needs += [
            ("phrases_per_image", True, own, "a phrase whose findings are known, or a label"),
            (
                "phrase_masks",
                entry.phrase_masks == "exact",
                located,
                "a phrase with a mask or a box; set phrase_masks: none",
            ),
            ("phrase_masks", entry.phrase_masks == "regions", located, "a phrase with the box of a region"),
            (
                "other_study_probability",
                entry.other_study_probability > 0,
                lent,
                "a sentence that is false of another study",
            ),
            (
                "swapped_side_probability",
                entry.swapped_side_probability > 0,
                any(map(side_swapped_sentences, annotations)),
                one_side,
            ),
            (
                "drop_side_probability",
                entry.drop_side_probability > 0,
                any(without_side(one.text) for one in sided),
                one_side,
            ),
        ]
    for name, wanted, available, what in needs:
        if wanted and not available:
            raise InputError(f"{field}.{name}: no study of {entry.source} has {what}")


def _chosen(studies: CachedDataset, entry: DataEntry, field: str) -> CachedDataset:
    """Return the studies that an entry uses: those with an abnormal sentence, or the first with a location."""
    sentences = [studies.annotations(index).sentences for index in range(len(studies))]
    if entry.paired_text == "abnormal":
        kept = [number for number, own in enumerate(sentences) if any(one.abnormal for one in own)]
        if not kept:
            raise InputError(f"{field}.paired_text 'abnormal': no study of {entry.source} has an abnormal sentence")
        studies, sentences = studies.select(kept), [sentences[number] for number in kept]
    if entry.few_shot_studies is not None:
        kept = [number for number, own in enumerate(sentences) if any(one.locations for one in own)]
        if len(kept) < entry.few_shot_studies:
            raise InputError(
                f"{field}.few_shot_studies is {entry.few_shot_studies}, but only {len(kept)} of the {len(studies)} "
                f"studies of {entry.source} have a phrase with a location"
            )
        studies = studies.select(kept[: entry.few_shot_studies])
    maps = studies.loaded.columns.get(f"expert/{entry.expert_map}/maps")
    if isinstance(maps, RaggedTensor) and not all(maps.counts):
        kept = [number for number, count in enumerate(maps.counts) if count]
        if not kept:
            need = NEEDS[str(entry.expert_map)]
            raise InputError(f"{field}.expert_map: {entry.expert_map}: no study of {entry.source} has {need}")
        studies = studies.select(kept)
    return studies


def validation_batches(
    recipe: Recipe, device: torch.device, progress: TrainingProgress
) -> tuple[list[TrainingBatch], Sequence[str]]:
    """Return the fixed batches of every validation, and what is wrong with the studies that were left out.

    They have the run's batch size where there are enough studies.
    """
    settings = recipe.data.validation
    if settings is None:
        return [], ()
    entry = settings.entry()
    studies = _open(entry, recipe, device, progress, "data.validation")
    size = min(recipe.batch_size, len(studies))
    if entry.phrases_per_image and not isinstance(studies, PhantomDataset):
        try:
            check_available(entry, studies, "data.validation")
        except InputError as error:
            progress.tell(f"{error}; mask losses may be 0 in validation")
    batches = Batches([(entry, studies)], size, recipe.seed, device, name="validation", data=recipe.data)
    what = f"to hold the {len(studies):,} studies of data.validation as batches"
    advice = f"try fewer, such as --set data.validation.cached_studies={max(1, len(studies) // 2)}"
    with explain_out_of_memory(str(device), what, advice):
        return list(batches.iterate(0, len(studies) // size)), studies.problems


def save_initial_model(recipe: Recipe, model_class: Any, folder: RunFolder, entries: Entries) -> None:
    """Write the model before the first step."""
    start: Any = None
    if recipe.model.start is not None:
        found = _start_folder(recipe.model.start, folder)
        start = load_folder(found.path, links_within=found.links_within)
        model_class = model_class or type(start)
    config = model_config(recipe, model_class)
    texts = _sample_texts(entries, getattr(model_class, "tokenizer_studies", TOKENIZER_STUDIES))
    try:
        if start is None:
            model = model_class.create(config, texts, recipe.seed)
        elif recipe.model.kind is not None:
            same = type(start) is model_class  # another design of the same kind: what the recipe does not name stays
            described = _merged(start.to_config(), config) if same else config
            model = model_class.from_encoders(start, described, texts, recipe.seed)
        else:  # some fields changed, with the weights that it has
            changed = _merged(start.to_config(), config)
            model = model_class.from_parts(changed, start.tensors(), start.extra_files()) if config else start
    except InputError as error:
        raise InputError(f"model.config: {error}") from None
    if not isinstance(model, Trainable) or not isinstance(model, nn.Module):
        raise InputError(
            f"a {type(model).__name__} cannot be trained: it must be a torch.nn.Module whose forward returns losses"
        )
    save_model(model, folder.start)  # type: ignore[arg-type]  # which says what a model lacks that cannot be saved


def check_model(recipe: Recipe, folder: RunFolder) -> None:
    """Refuse an unknown kind of model, and a configuration or loss that it does not have. No data is needed."""
    model_class, config = trainable_class(recipe.model.kind), {}
    if recipe.model.start is not None:
        start = _start_folder(recipe.model.start, folder)
        described = read_config(start.path, links_within=start.links_within)
        if model_class is not None and not callable(getattr(model_class, "from_encoders", None)):
            raise InputError(f"model: a {recipe.model.kind} takes no encoders of another model; give kind or start")
        if model_class is None:
            model_class, config = class_of(described.kind), described.config
    config = _merged(config, model_config(recipe, model_class))
    try:
        if (config_type := getattr(model_class, "config_type", None)) is not None:
            read_settings(config_type, config)
    except InputError as error:
        raise InputError(f"model.config: {error}") from None


def model_config(recipe: Recipe, model_class: Any) -> dict[str, Any]:
    """Return the recipe's model.config; a class with ``loss_names`` also gets the names of the recipe's losses."""
    config, known = dict(recipe.model.config), getattr(model_class, "loss_names", None)
    if known is None:
        return config
    if "losses" in config:
        raise InputError("model.config.losses: remove it; the recipe's losses name the losses and their weights")
    for name in recipe.losses:
        if name not in known:
            raise InputError(f"losses: {unknown_name(f'loss of {model_class.__name__}', name, known)}")
    return config | {"losses": list(recipe.losses)}


def _start_folder(start: str, folder: RunFolder) -> ModelFolder:
    stage = folder.path.parent / start.removeprefix(STAGE) / "model"
    try:
        found = find_folder(str(stage) if start.startswith(STAGE) else start)
    except InputError as error:
        if start in shipped_recipes():
            raise InputError(
                f"model.start: {start!r} is a recipe, not a model; train it first (rightlung train {start} "
                "--out RUN) and give --set model.start=RUN/model"
            ) from None
        raise InputError(f"model.start: {error}") from None
    if found is None:
        raise InputError(f"model.start must be a model folder or the name of a shipped model; got {start!r}")
    return found


def _merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for name, value in changes.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def trainable_class(kind: str | None) -> Any:
    """Return the class of a kind, or the one that ``module:Class`` names, which is registered by its own kind."""
    if kind is None:
        return None
    if not IMPORT_PATH.fullmatch(kind):
        model_class = class_of(kind)
    else:
        model_class = import_object(kind)
        own = getattr(model_class, "kind", None)
        if isinstance(own, str) and own not in kinds():
            register(own, kind)
    if not callable(getattr(model_class, "create", None)):
        raise InputError(f"model.kind: {kind!r} has no create(config, texts, seed) and cannot be trained anew")
    return model_class


def _sample_texts(entries: Entries, most: int) -> Iterator[str]:
    """Yield sentences of the training studies, and the prompts of every finding: what a tokenizer should know."""
    for entry, studies in entries:
        if entry.added_images:  # so that a run with them starts from the same model as one without
            continue
        for index in range(min(most, len(studies))):
            yield from (sentence.text for sentence in studies.annotations(index).sentences)
    for name in FINDINGS:
        yield from positive_prompts(name)


def check_same_data(checkpoint: Checkpoint, entries: Entries, processes: int) -> None:
    """Refuse to go on with sources that have grown or shrunk, or in more or fewer processes than before.

    The studies would come in another order, and the global batch would be larger or smaller.
    """
    began_with = checkpoint.metadata.get("processes", processes)
    if began_with != processes:
        began, goes_on = ("1 process" if count == 1 else f"{count} processes" for count in (began_with, processes))
        raise InputError(
            f"the run began in {began} and would go on in {goes_on}, with another global batch; "
            "give --devices and --nodes as before"
        )
    for number, (before, (_, studies)) in enumerate(zip(checkpoint.metadata["studies"], entries, strict=True)):
        if before != (now := len(studies)):
            raise InputError(f"data.train[{number}].source had {before} studies when the run began and has {now} now")

"""Set up a run: its processes, its data, and the model that it starts from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from rightlung.training.datasets import Advance, CachedDataset, Dataset, Loading, PhantomDataset, SourceDataset
from rightlung.training.failures import enough_memory
from rightlung.training.folder import RunFolder
from rightlung.training.log import TrainingProgress
from rightlung.training.recipe import Data, DataEntry, Recipe, shipped_recipes
from rightlung.training.targets import target_builders
from rightlung.training.targets.phrases import swappable

Entries = list[tuple[DataEntry, Dataset]]

MOST_HELD = 50_000
"""Sources with fewer studies are held on the device as a whole, unless ``cached`` says otherwise."""
SAMPLED = 5000
"""Studies of each source whose sentences a new tokenizer learns from."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run runs on. The recipe says nothing of it."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"


def launched(recipe: Recipe, machine: Machine) -> Any:
    """Start the processes. Raise `InputError` if the requested hardware is not available."""
    from lightning.fabric import Fabric

    torch.set_float32_matmul_precision("high")  # of matrix units on a GPU; a CPU's products stay as they are
    strategy: Any = machine.strategy
    many = machine.devices * machine.nodes > 1
    if strategy == "ddp" or (strategy == "auto" and many):
        strategy = "ddp_find_unused_parameters_true"  # a batch without phrases leaves some heads without gradient
    try:
        fabric = Fabric(
            accelerator=machine.accelerator, devices=machine.devices, num_nodes=machine.nodes,
            strategy=strategy, precision=recipe.precision,
        )  # fmt: skip
        fabric.launch()
    except Exception as error:
        if isinstance(error, RuntimeError | ValueError) or type(error).__name__ == "MisconfigurationException":
            raise InputError(f"cannot start training on this hardware: {' '.join(str(error).split())}") from None
        raise
    return fabric


def open_all(recipe: Recipe, device: torch.device, shown: TrainingProgress) -> Entries:
    """Open every source of the training data, and report what is left out of them.

    All sources are checked before the first is cached, so that a missing one is noticed at once.
    """
    data = recipe.data
    places = {f"data.train[{number}]": entry for number, entry in enumerate(data.train)}
    for place, settings in (*places.items(), ("data.validation", data.validation)):
        try:
            if settings is not None:
                open_source(settings.source)
        except InputError as error:
            raise InputError(f"{place}.source: {error}") from None
    entries = [(entry, _open(entry, recipe, device, shown, place)) for place, entry in places.items()]
    for place, (entry, studies) in zip(places, entries, strict=True):
        if not isinstance(studies, PhantomDataset):  # which can serve everything
            check_served(entry, studies, place)
    for name in data.targets:
        if not any(name in studies.served for _, studies in entries):
            raise InputError(f"data.targets: no study of {', '.join(entry.source for entry in data.train)} has {name}")
    return entries


def _open(entry: DataEntry, recipe: Recipe, device: torch.device, shown: TrainingProgress, place: str) -> Dataset:
    with contextlib.ExitStack() as stack:

        def advance(what: str, count: int) -> Callable[[int], None]:
            return stack.enter_context(shown.filling(what, count))

        studies = open_studies(entry, recipe.data, device, advance, place)
    if problems := studies.problems:
        are = "study is" if len(problems) == 1 else "studies are"
        shown.tell(f"{place}: {len(problems):,} {are} left out, the first: {problems[0]}")
    return studies


def open_studies(
    entry: DataEntry, data: Data, device: torch.device, advance: Callable[[str, int], Advance], place: str
) -> Dataset:
    """Open the studies of an entry, cached where it says so. ``advance(what, count)`` shows the progress."""
    source = open_source(entry.source)
    phantom = source if isinstance(source, PhantomSource) and not source.faults else None
    sized = "size" in parse_address(entry.source).parameters
    if phantom is not None:
        if sized and phantom.size != data.size:
            raise InputError(f"{place}.source says size={phantom.size}, but data.size is {data.size}")
        try:
            check_picture_size(data.size)
        except InputError as error:
            raise InputError(f"data.size: the phantom's {error}") from None
    if not len(source):
        raise InputError(f"{place}.source: {entry.source} has no studies")
    how = Loading(entry, data.size, data.grid, target_builders(data), device, data.workers)
    painted = entry.masks != "regions" and all(builder.can_paint(entry) for builder in how.built)
    studies: PhantomDataset | SourceDataset
    if phantom is not None and painted:
        studies = PhantomDataset(phantom, how)
        count = entry.cached
    else:
        if phantom is not None and not sized:  # the same images as painted ones
            source = open_source(f"{entry.source}&size={data.size}")
        studies = SourceDataset(source, how)
        count = min(len(studies), entry.cached or len(studies)) if entry.cached or len(studies) < MOST_HELD else None
    if count is None:
        for name, wants in (("text 'abnormal'", entry.text == "abnormal"), ("examples", entry.examples is not None)):
            if wants:
                raise InputError(f"{place}.{name} needs {place}.cached, because some studies are left out")
        return studies
    if count > len(studies):
        raise InputError(f"{place}.cached: {count} is more than the {len(studies)} studies of {entry.source}")
    what = f"to hold the {count:,} studies of {place}, {data.size} pixels a side"
    disk = None if data.cache_folder is None else DiskCache(data.cache_folder, source, count, how)
    with enough_memory(str(device), what, f"try fewer, such as --set {place}.cached={max(1, count // 2)}"):
        cached = None if disk is None else disk.read(device)
        if cached is None:
            cached = studies.cached(count, advance(f"caching {entry.source.partition('?')[0]}", count))
            if disk is not None:
                disk.write(cached)
        return _chosen(cached, entry, place)


def check_served(entry: DataEntry, studies: Dataset, place: str) -> None:
    """Refuse settings of an entry that no study of its source can serve."""
    texts = [studies.texts(number) for number in range(len(studies))]
    sentences = [sentence for one in texts for sentence in one.sentences]
    by_labels, located = entry.prompts == "labels", any(sentence.targets for sentence in sentences)
    labels = bool(studies.findings) if entry.unlabeled == "negative" else any(one.labels or one.absent for one in texts)
    sided = [sentence for sentence in sentences if sentence.seen and sentence.side is not None]
    own = any(sentence.seen is not None for sentence in sentences) or (labels and entry.prompts != 0)
    lent = any(sentence.targets and sentence.positive for sentence in sentences) and any(one.absent for one in texts)
    one_side = "a sentence with coded findings on one side only (a manifest gives them in phrases[].findings)"
    needs = [("text", entry.text == "report", any(one.report.strip() for one in texts), "a report")]
    if entry.phrases and by_labels:
        needs.append(("phrases", True, labels, "a label"))
    elif entry.phrases:
        needs += [
            ("phrases", True, own, "a phrase whose findings are known, or a label"),
            ("masks", entry.masks == "exact", located, "a phrase with a mask or a box; set masks: none"),
            ("masks", entry.masks == "regions", located, "a phrase with the box of a region"),
            ("from_other_studies", entry.from_other_studies > 0, lent, "a sentence that is false of another study"),
            ("sides_swapped", entry.sides_swapped > 0, any(map(swappable, texts)), one_side),
            ("without_side", entry.without_side > 0, any(without_side(one.text) for one in sided), one_side),
        ]
    for name, wanted, served, what in needs:
        if wanted and not served:
            raise InputError(f"{place}.{name}: no study of {entry.source} has {what}")


def _chosen(studies: CachedDataset, entry: DataEntry, place: str) -> CachedDataset:
    """Return the studies that an entry uses: those with an abnormal sentence, or the first with a target."""
    sentences = [studies.texts(number).sentences for number in range(len(studies))]
    if entry.text == "abnormal":
        kept = [number for number, own in enumerate(sentences) if any(one.abnormal for one in own)]
        if not kept:
            raise InputError(f"{place}.text 'abnormal': no study of {entry.source} has an abnormal sentence")
        studies, sentences = studies.only(kept), [sentences[number] for number in kept]
    if entry.examples is not None:
        kept = [number for number, own in enumerate(sentences) if any(one.targets for one in own)]
        if len(kept) < entry.examples:
            raise InputError(
                f"{place}.examples asks for {entry.examples}, but only {len(kept)} of the {len(studies)} studies of "
                f"{entry.source} have a phrase with a target"
            )
        studies = studies.only(kept[: entry.examples])
    return studies


def validation_batches(
    recipe: Recipe, device: torch.device, shown: TrainingProgress
) -> tuple[list[TrainingBatch], Sequence[str]]:
    """Return the fixed batches of every validation, and what is wrong with the studies that were left out.

    They have the run's batch size where there are enough studies.
    """
    settings = recipe.data.validation
    if settings is None:
        return [], ()
    entry = settings.entry()
    studies = _open(entry, recipe, device, shown, "data.validation")
    size = min(recipe.batch_size, len(studies))
    if entry.phrases and not isinstance(studies, PhantomDataset):
        try:
            check_served(entry, studies, "data.validation")
        except InputError as error:
            shown.tell(f"{error}; losses that learn from phrases say nothing there")
    batches = Batches([(entry, studies)], size, recipe.seed, device, name="validation", data=recipe.data)
    what = f"to hold the {len(studies):,} studies of data.validation as batches"
    advice = f"try fewer, such as --set data.validation.cached={max(1, len(studies) // 2)}"
    with enough_memory(str(device), what, advice):
        return list(batches.from_number(0, len(studies) // size)), studies.problems


def keep_start(recipe: Recipe, maker: Any, folder: RunFolder, entries: Entries) -> None:
    """Write the model before the first step."""
    if recipe.model.start is not None:
        start = _start_folder(recipe.model.start)
        model = load_folder(start.path, links_within=start.links_within)
        maker = type(model)
    config = model_config(recipe, maker)
    try:
        if recipe.model.start is None:
            model = maker.create(config, _sample_texts(entries), recipe.seed)
        elif config:  # some fields changed, with the weights that it has
            model = maker.from_parts(_merged(model.to_config(), config), model.tensors(), model.extra_files())
    except InputError as error:
        raise InputError(f"model.config: {error}") from None
    if not isinstance(model, Trainable) or not isinstance(model, nn.Module):
        raise InputError(
            f"a {type(model).__name__} cannot be trained: it must be a torch.nn.Module whose forward returns losses"
        )
    save_model(model, folder.start)  # type: ignore[arg-type]  # which says what a model lacks that cannot be saved


def check_model(recipe: Recipe) -> None:
    """Refuse an unknown kind of model, and a configuration or loss that it does not have. No data is needed."""
    if recipe.model.start is None:
        maker, config = model_class(recipe.model.kind), {}
    else:
        start = _start_folder(recipe.model.start)
        described = read_config(start.path, links_within=start.links_within)
        maker, config = class_of(described.kind), described.config
    config = _merged(config, model_config(recipe, maker))
    try:
        if (config_type := getattr(maker, "config_type", None)) is not None:
            read_settings(config_type, config)
    except InputError as error:
        raise InputError(f"model.config: {error}") from None


def model_config(recipe: Recipe, maker: Any) -> dict[str, Any]:
    """Return the recipe's model.config; a class with ``loss_names`` also gets the names of the recipe's losses."""
    config, known = dict(recipe.model.config), getattr(maker, "loss_names", None)
    if known is None:
        return config
    if "losses" in config:
        raise InputError("model.config.losses: remove it; the recipe's losses name the losses and their weights")
    for name in recipe.losses:
        if name not in known:
            raise InputError(f"losses: {unknown_name(f'loss of {maker.__name__}', name, known)}")
    return config | {"losses": list(recipe.losses)}


def _start_folder(start: str) -> ModelFolder:
    try:
        found = find_folder(start)
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


def model_class(kind: str | None) -> Any:
    """Return the class of a kind, or the one that ``module:Class`` names, which is registered by its own kind."""
    if kind is None:
        return None
    if not IMPORT_PATH.fullmatch(kind):
        maker = class_of(kind)
    else:
        maker = import_object(kind)
        own = getattr(maker, "kind", None)
        if isinstance(own, str) and own not in kinds():
            register(own, kind)
    if not callable(getattr(maker, "create", None)):
        raise InputError(f"model.kind: {kind!r} has no create(config, texts, seed) and cannot be trained anew")
    return maker


def _sample_texts(entries: Entries) -> Iterator[str]:
    """Yield sentences of the training studies, and the prompts of every finding: what a tokenizer should know."""
    for _, studies in entries:
        for number in range(min(SAMPLED, len(studies))):
            yield from (sentence.text for sentence in studies.texts(number).sentences)
    for name in FINDINGS:
        yield from positive_prompts(name)


def check_same_data(checkpoint: Checkpoint, entries: Entries, processes: int) -> None:
    """Refuse to go on with sources that have grown or shrunk, or in more or fewer processes than before.

    The studies would come in another order, and the joint batch would be larger or smaller.
    """
    began_with = checkpoint.facts.get("processes", processes)
    if began_with != processes:
        began, goes_on = ("1 process" if count == 1 else f"{count} processes" for count in (began_with, processes))
        raise InputError(
            f"the run began in {began} and would go on in {goes_on}, with another joint batch; "
            "give --devices and --nodes as before"
        )
    for number, (before, (_, studies)) in enumerate(zip(checkpoint.facts["studies"], entries, strict=True)):
        if before != (now := len(studies)):
            raise InputError(f"data.train[{number}].source had {before} studies when the run began and has {now} now")

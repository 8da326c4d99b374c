"""What a run needs before its first step: processes, data, and the model that it starts from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from rightlung.core import InputError
from rightlung.lexicon import FINDINGS, positive_prompts
from rightlung.models.base import Trainable, TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.models.kinds import TARGET, class_of, import_target, kinds, register
from rightlung.models.registry import find_folder
from rightlung.phantom.config import check_picture_size
from rightlung.phantom.source import PhantomSource
from rightlung.studies.sources import open_source, parse_address
from rightlung.training.batches import Batches
from rightlung.training.checkpoint import Checkpoint
from rightlung.training.failures import enough_memory
from rightlung.training.folder import RunFolder
from rightlung.training.keeping import KeptPool
from rightlung.training.log import TrainingProgress
from rightlung.training.pools import Advance, PhantomFlow, Pool, Studies
from rightlung.training.reading import ReadFlow
from rightlung.training.recipe import Data, DataEntry, Recipe, shipped_recipes

Entries = list[tuple[DataEntry, Studies]]

MOST_HELD = 50_000
"""Studies of a source below which they are all held on the device, unless a pool is asked for."""
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
    """Start the processes. Wrong machines (no GPU, too many of them) are said in a sentence."""
    from lightning.fabric import Fabric

    torch.set_float32_matmul_precision("high")  # of matrix units on a GPU; a CPU's products stay as they are
    strategy: Any = machine.strategy
    many = machine.devices * machine.nodes > 1
    if strategy == "ddp" or (strategy == "auto" and many):
        strategy = "ddp_find_unused_parameters_true"  # a batch without phrases leaves some heads without gradient
    try:
        fabric = Fabric(
            accelerator=machine.accelerator,
            devices=machine.devices,
            num_nodes=machine.nodes,
            strategy=strategy,
            precision=recipe.precision,
        )
        fabric.launch()
    except Exception as error:
        if isinstance(error, RuntimeError | ValueError) or type(error).__name__ == "MisconfigurationException":
            raise InputError(f"this machine cannot run that: {' '.join(str(error).split())}") from None
        raise
    return fabric


def open_all(recipe: Recipe, device: torch.device, shown: TrainingProgress) -> Entries:
    """Open every source of the recipe's training data. What is left out of them is said at once.

    All are looked at before the first pool is filled: that one is not there should not take minutes to learn.
    """
    named = {f"data.train[{number}].source": entry.source for number, entry in enumerate(recipe.data.train)}
    if recipe.data.validation is not None:
        named["data.validation.source"] = recipe.data.validation.source
    for field, address in named.items():
        try:
            open_source(address)
        except InputError as error:
            raise InputError(f"{field}: {error}") from None
    return [
        (entry, _open(entry, recipe, device, shown, f"data.train[{number}]"))
        for number, entry in enumerate(recipe.data.train)
    ]


def _open(entry: DataEntry, recipe: Recipe, device: torch.device, shown: TrainingProgress, place: str) -> Studies:
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
) -> Studies:
    """Open the studies of an entry, filling its pool where it has one. ``advance(what, count)`` shows the progress."""
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
    if phantom is not None and entry.targets != "regions":
        flow: PhantomFlow | ReadFlow = PhantomFlow(phantom, data.size, data.grid, device, data.workers, entry.targets)
        pool = entry.pool
    else:
        if phantom is not None and not sized:  # the very pictures that other targets come with
            source = open_source(f"{entry.source}&size={data.size}")
        flow = ReadFlow(source, data.size, data.grid, device, data.workers, entry.targets)
        pool = min(len(flow), entry.pool or len(flow)) if entry.pool or len(flow) < MOST_HELD else None
    if not len(flow):
        raise InputError(f"{place}.source: {entry.source} has no studies")
    if pool is None:
        for name, wants in (("text 'abnormal'", entry.text == "abnormal"), ("examples", entry.examples is not None)):
            if wants:
                raise InputError(f"{place}.{name} needs a pool, of which some studies are left out")
        return flow
    if pool > len(flow):
        raise InputError(f"{place}.pool: {pool} is more than the {len(flow)} studies of {entry.source}")
    what = f"to hold the {pool:,} studies of {place}, {data.size} pixels a side"
    kept = None if data.keep is None else KeptPool(data.keep, source, pool, data.size, data.grid, entry.targets)
    with enough_memory(str(device), what, f"try a smaller pool, such as --set {place}.pool={max(1, pool // 2)}"):
        filled = None if kept is None else kept.read(device)
        if filled is None:
            filled = flow.pool(pool, advance(f"filling the pool of {entry.source.partition('?')[0]}", pool))
            if kept is not None:
                kept.write(filled)
        return _chosen(filled, entry, place)


def _chosen(pool: Pool, entry: DataEntry, place: str) -> Pool:
    """Return the studies of a pool that an entry wants: those with an abnormal sentence, or the first with a target."""
    if entry.text == "abnormal":
        telling = [number for number in range(len(pool)) if any(told.abnormal for told in pool.facts(number).told)]
        if not telling:
            raise InputError(f"{place}.text 'abnormal': no study of {entry.source} has an abnormal sentence")
        pool = pool.only(telling)
    if entry.examples is not None:
        placed = [number for number in range(len(pool)) if any(told.targets for told in pool.facts(number).told)]
        if len(placed) < entry.examples:
            raise InputError(
                f"{place}.examples asks for {entry.examples}, but only {len(placed)} of the {len(pool)} studies of "
                f"{entry.source} have a phrase with a target"
            )
        pool = pool.only(placed[: entry.examples])
    return pool


def validation_batches(
    recipe: Recipe, device: torch.device, shown: TrainingProgress
) -> tuple[list[TrainingBatch], Sequence[str]]:
    """The fixed batches that every validation looks at, of the run's batch size where there are enough studies.

    With them what is wrong with the studies that were left out.
    """
    settings = recipe.data.validation
    if settings is None:
        return [], ()
    entry = settings.entry()
    studies = _open(entry, recipe, device, shown, "data.validation")
    size = min(recipe.batch_size, len(studies))
    batches = Batches([(entry, studies)], size, recipe.seed, device, name="validation", boxes=recipe.data.boxes)
    what = f"to hold the {len(studies):,} studies of data.validation as batches"
    advice = f"try a smaller pool, such as --set data.validation.pool={max(1, len(studies) // 2)}"
    with enough_memory(str(device), what, advice):
        return list(batches.from_number(0, len(studies) // size)), studies.problems


def keep_start(recipe: Recipe, maker: Any, folder: RunFolder, entries: Entries) -> None:
    """Write the model before the first step."""
    start, config = recipe.model.start, recipe.model.config
    if start is not None:
        try:
            found = find_folder(start)
        except InputError as error:
            if start in shipped_recipes():
                raise InputError(
                    f"model.start: {start!r} is no model here, but a recipe; train it first (rightlung train {start} "
                    "--out RUN) and give --set model.start=RUN/model"
                ) from None
            raise InputError(f"model.start: {error}") from None
        if found is None:
            raise InputError(f"model.start must be a model folder or the name of a shipped model; got {start!r}")
        model = load_folder(found.path, links_within=found.links_within)
    try:
        if start is None:
            model = maker.create(config, _sample_texts(entries), recipe.seed)
        elif config:  # some fields changed, with the weights that it has
            model = type(model).from_parts(_merged(model.to_config(), config), model.tensors(), model.extra_files())
    except InputError as error:
        raise InputError(f"model.config: {error}") from None
    if not isinstance(model, Trainable) or not isinstance(model, nn.Module):
        raise InputError(f"a {type(model).__name__} cannot be trained: it is no torch.nn.Module that returns losses")
    save_model(model, folder.start)  # type: ignore[arg-type]  # which says what a model lacks that cannot be saved


def _merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for name, value in changes.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def model_class(kind: str) -> Any:
    """Return the class of a kind, or the one that ``module:Class`` names, which is registered by its own kind."""
    if not TARGET.fullmatch(kind):
        maker = class_of(kind)
    else:
        maker = import_target(kind)
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
            for told in studies.facts(number).told:
                yield told.text
    for name in FINDINGS:
        yield from positive_prompts(name)


def lengths(entries: Entries) -> list[int]:
    """Return how many studies each source has."""
    return [len(studies) for _, studies in entries]


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
    for number, (before, now) in enumerate(zip(checkpoint.facts["studies"], lengths(entries), strict=True)):
        if before != now:
            raise InputError(f"data.train[{number}].source had {before} studies when the run began and has {now} now")

"""The pools of a plan's runs: prepared studies that runs share, filled one after the other or as tasks of a queue."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rightlung.core import InputError
from rightlung.core.progress import Progress
from rightlung.reproduce.plan import Plan, recipes_of
from rightlung.reproduce.processes import Task
from rightlung.reproduce.variants import Job
from rightlung.scoring.threads import usable_cores
from rightlung.training.datasets import ReportProgress
from rightlung.training.failures import free_memory
from rightlung.training.recipe import Data, DataEntry, Recipe
from rightlung.training.setup import open_studies, pool_folder

MOST_WORKERS = 16
"""Maximum number of processes that fill a pool."""
_EVERY = 5.0

Recipes = Mapping[Job, Mapping[str, Recipe]]
"""The recipes of runs by stage."""


@dataclass(frozen=True, slots=True)
class PoolTasks:
    """The tasks that fill pools, those that each run waits for by name, and why runs cannot be trained."""

    tasks: list[Task]
    awaited: Mapping[Job, tuple[str, ...]]
    lacking: dict[str, str]


def fill_pools(plan: Plan, recipes: Recipes, progress: Progress) -> dict[str, str]:
    """Fill the pools that runs share; return why some runs (and those that start from them) cannot be trained."""
    workers = min(usable_cores(), MOST_WORKERS)
    seen: dict[object, str | None] = {}
    lacking: dict[str, str] = {}
    for job, stages in recipes.items():
        for _, place, entry, data in _entries(stages):
            key = _key(place, entry, data)
            if key not in seen:
                seen[key] = _why_not(entry, replace(data, workers=workers), plan.device, place, progress)
                free_memory()
            if (reason := seen[key]) is not None:
                lacking.setdefault(job.slug, reason)
        _leave_out_with_its_start(job, lacking)
    return lacking


def pool_tasks(plan: Plan, recipes: Recipes, plan_file: Path, at_once: int) -> PoolTasks:
    """Return a task for each pool that is not there, those that most runs wait for first.

    A task opens the pool as its first run does. Each has its share of the cores, and twice as many processes, because
    not all are busy all the time.
    """
    seen: dict[object, Path | str | None] = {}
    lacking: dict[str, str] = {}
    waiting: dict[Path, dict[Job, tuple[str, str, str]]] = {}
    for job, stages in recipes.items():
        for stage, place, entry, data in _entries(stages):
            key = _key(place, entry, data)
            if key not in seen:
                seen[key] = _missing_pool(place, entry, data)
            if isinstance(found := seen[key], str):
                lacking.setdefault(job.slug, found)
            elif found is not None:
                waiting.setdefault(found, {}).setdefault(job, (stage, place, entry.source))
        _leave_out_with_its_start(job, lacking)
    left = {path: {job: jobs[job] for job in jobs if job.slug not in lacking} for path, jobs in waiting.items()}
    ordered = sorted((path for path in left if left[path]), key=lambda path: -len(left[path]))
    workers = str(max(1, min(MOST_WORKERS, 2 * usable_cores() // max(1, min(len(ordered), at_once)))))
    awaited: dict[Job, tuple[str, ...]] = {}
    tasks = []
    for path in ordered:
        job, (stage, place, source) = next(iter(left[path].items()))
        name, title = f"pool-{path.name}", f"pool of {source} for {job.slug}"
        command = [sys.executable, "-m", "rightlung.reproduce.experiment", str(plan_file), job.slug, title]
        tasks.append(Task(name, title, [*command, stage, place, workers], prepares=True))
        for one in left[path]:
            awaited[one] = (*awaited.get(one, ()), name)
    return PoolTasks(tasks, awaited, lacking)


def fill_pool(plan: Plan, job: Job, stage: str, place: str, workers: int, progress: Progress) -> None:
    """Fill the pool of one entry of a run's recipe.

    A pool that can be filled is of use to other runs, even if this one finds no study in it that it needs.
    """
    for own, where, entry, data in _entries(recipes_of(plan, job)):
        if (own, where) == (stage, place):
            reason = _why_not(entry, replace(data, workers=workers), plan.device, place, progress)
            if reason is not None and _missing_pool(place, entry, data) is not None:
                raise InputError(reason)


def printed_progress(title: str) -> Progress:
    """Return a progress that prints a line every few seconds, which the queue shows."""
    last = time.monotonic()

    def show(_: str, done: float, total: float) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _EVERY:
            last = now
            print(f"{title}: {done:,.0f} of {total:,.0f} studies", file=sys.stderr, flush=True)

    return show


def _entries(stages: Mapping[str, Recipe]) -> Iterator[tuple[str, str, DataEntry, Data]]:
    """Yield the data entries of a run with their stage, their place in its recipe, and the data they belong to."""
    for stage, recipe in stages.items():
        for number, entry in enumerate(recipe.data.train):
            yield stage, f"data.train[{number}]", entry, recipe.data
        if recipe.data.validation is not None:
            yield stage, "data.validation", recipe.data.validation.entry(), recipe.data


def _key(place: str, entry: DataEntry, data: Data) -> object:
    """Return what a pool, and the choice of studies from it, depend on."""
    chosen = (entry.source, entry.cached_studies, entry.phrase_masks, entry.paired_text, entry.few_shot_studies)
    built = (data.image_size, data.mask_grid, data.targets, repr(data.target_options), entry.phrases_per_image > 0)
    return place, chosen, entry.expert_map, built


def _missing_pool(place: str, entry: DataEntry, data: Data) -> Path | str | None:
    """Return the folder of a pool that is not there yet, or why there can be none; None if nothing has to be filled."""
    try:
        folder = pool_folder(entry, data, place)
    except InputError as error:
        return str(error)
    return None if folder is None or folder.is_dir() else folder


def _leave_out_with_its_start(job: Job, lacking: dict[str, str]) -> None:
    if job.start is not None and job.start.slug in lacking:
        lacking.setdefault(job.slug, f"it starts from {job.start.slug}, which cannot be trained")


def _why_not(entry: DataEntry, data: Data, device: str, place: str, progress: Progress) -> str | None:
    def advance(what: str, count: int) -> ReportProgress:
        done = 0

        def more(number: int) -> None:
            nonlocal done
            done += number
            progress(what, done, count)

        return more

    try:
        open_studies(entry, data, torch.device(device), advance, place)
    except InputError as error:
        return str(error)
    return None

"""A plan as tasks of a queue (`in_processes`): its test studies, its pools and its runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from rightlung.core.files import write_json
from rightlung.measuring.targets import TARGETS
from rightlung.reproduce.models import is_measured
from rightlung.reproduce.plan import Plan, check_plan, check_same_recipe, recipes_of, stage_digests, stage_folders
from rightlung.reproduce.pools import pool_tasks
from rightlung.reproduce.prepared import FOLDER, PreparedStudies
from rightlung.reproduce.processes import Task
from rightlung.reproduce.variants import Job, with_starts

PREPARE = "prepare"
"""The name of the task that prepares the test studies."""


@dataclass(frozen=True, slots=True)
class PlanTasks:
    """The tasks of a plan, the images that each run trains on, and why runs cannot be trained."""

    tasks: list[Task]
    images: Mapping[str, int]
    lacking: Mapping[str, str]


def is_trained(plan: Plan, job: Job) -> bool:
    """Return whether a run is trained, or need not be."""
    return job.variant.derive is not None or plan.run(job).finished.is_file()


def runs_left(plan: Plan, wanted: Sequence[Job], prepared: PreparedStudies | None) -> list[Job]:
    """Return the runs that are not measured on the prepared studies, and those they start from that are not trained."""
    left = [job for job in wanted if prepared is None or not is_measured(plan.measures(job.slug), prepared)]
    starts = {job.start for job in left}
    return [job for job in wanted if job in left or (job in starts and not plan.run(job).finished.is_file())]


def tasks_of(
    plan: Plan, left: Sequence[Job], titles: Mapping[Job, str], plan_file: Path,
    awaited: Mapping[Job, tuple[str, ...]] = MappingProxyType({}),
) -> list[Task]:  # fmt: skip
    """Return a task for each run.

    It waits for its pools (``awaited``) and the run it starts from, or the stage that it shares with another.
    """
    command = [sys.executable, "-m", "rightlung.reproduce.experiment", str(plan_file)]
    owners: dict[str, str] = {}
    tasks = []
    for job in left:
        file = {} if job.start is None else {job.start.slug: plan.run(job.start).finished}
        if job.variant.derive is None:
            folders = stage_folders(plan, job)
            for stage, digest in list(stage_digests(plan, job).items())[:-1]:
                if owners.setdefault(digest, job.slug) != job.slug:
                    file = {owners[digest]: folders[stage].finished}
        after = (*awaited.get(job, ()), *file)
        tasks.append(Task(job.slug, titles[job], [*command, job.slug, titles[job]], after, file))
    return tasks


def plan_tasks(plan: Plan, at_once: int) -> PlanTasks:
    """Return what is left to do of a plan, but for its page and what `Plan.measure` leaves to another machine."""
    check_plan(plan)
    wanted = with_starts(plan.wanted())
    recipes = {job: recipes_of(plan, job) for job in wanted}
    for job, stages in recipes.items():
        check_same_recipe(plan, job, stages)
    plan_file, prepared = plan.out / "plan.json", None
    write_json(plan_file, plan.as_json())
    if (plan.out / FOLDER / TARGETS).exists():
        prepared = PreparedStudies.make(plan.measured_on, plan.out, plan.protocol, plan.limit)
    left = runs_left(plan, wanted, prepared)
    pools = pool_tasks(plan, {job: recipes[job] for job in left if not is_trained(plan, job)}, plan_file, at_once)
    left = [job for job in left if job.slug not in pools.lacking]
    runs = tasks_of(plan, left, {job: job.slug for job in left}, plan_file, pools.awaited)
    tasks = [*pools.tasks, *runs]
    if prepared is None and runs:
        command = [sys.executable, "-m", "rightlung.reproduce.experiment", str(plan_file)]
        waiting = [replace(task, after=(PREPARE, *task.after)) for task in runs]
        tasks = [Task(PREPARE, PREPARE, command, prepares=True), *pools.tasks, *waiting]
    images = {
        job.slug: 0 if is_trained(plan, job) else sum(one.schedule.steps * one.batch_size for one in stages.values())
        for job, stages in recipes.items()
    }
    return PlanTasks(tasks, images, pools.lacking)

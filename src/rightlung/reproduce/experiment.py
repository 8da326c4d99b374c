"""``rightlung reproduce PAPER``: train, ask and measure every variant, and write one page.

An interrupted run continues where it stopped. Variants can be run in parallel processes. A variant that cannot be
trained is left out, and the page says so. ``docs/reproduce.md`` lists the files.
"""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rightlung.core import InputError, OutputError
from rightlung.core.files import read_json, write_json
from rightlung.core.progress import Progress, no_progress
from rightlung.measuring.targets import UNREAD
from rightlung.models.registry import load
from rightlung.reproduce.measurements import Measurements
from rightlung.reproduce.models import (
    Say,
    is_comparable,
    is_measured,
    measure_baselines,
    measure_model,
    measure_more,
    measure_own,
    measure_rest,
    own_models,
)
from rightlung.reproduce.plan import (
    Plan,
    check_plan,
    check_same_recipe,
    ignored_by_few_shots,
    recipe_digest,
    recipes_of,
    stage_folders,
    training_source,
)
from rightlung.reproduce.pools import Recipes, fill_pool, fill_pools, pool_tasks, printed_progress
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.reproduce.processes import INTERRUPTED, NOT_WRITTEN, REFUSED, in_processes, interrupt
from rightlung.reproduce.tasks import is_trained, runs_left, tasks_of
from rightlung.reproduce.variants import Job, with_starts
from rightlung.scoring.threads import usable_cores
from rightlung.studies import open_source
from rightlung.training.log import Row, TrainingProgress, read_log
from rightlung.training.loop import TrainingOutcome, train
from rightlung.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The files of the page (if it was written), and what was left out, a sentence each."""

    files: tuple[Path, ...]
    left_out: tuple[str, ...]


def reproduce(
    plan: Plan,
    *,
    at_once: int = 1,
    page: bool = True,
    judgements: Path | None = None,
    key: Path | None = None,
    commands: Sequence[str] = (),
    progress: Progress = no_progress,
    say: Say = lambda _: None,
) -> Reproduced:
    """Run everything that is not done yet, and write the page.

    ``at_once`` variants are trained and measured in parallel processes. ``judgements`` is a table of radiologists'
    judgements for the page, with the ``key`` to its codes. ``commands`` are stored with earlier ones.
    """
    from rightlung.pages.write import write_page

    check_plan(plan)
    _check_judgements(judgements, key)
    asked = plan.wanted()
    wanted = with_starts(asked)
    recipes = {job: recipes_of(plan, job) for job in wanted}
    for job, stages in recipes.items():
        check_same_recipe(plan, job, stages)
    own = own_models(plan)
    for change in ignored_by_few_shots(plan.changes, wanted):
        say(f"note: --set {change} does not apply to the few-shot variants; to change one: --set VARIANT:{change}")

    prepared = PreparedStudies.make(plan.measured_on, plan.out, plan.protocol, plan.limit, progress)
    typed = _keep_commands(plan.out, commands)
    if plan.measure:
        measure_baselines(plan, prepared, progress, say)
    missing = measure_own(plan, prepared, own, progress, say)
    missing |= _run_jobs(plan, prepared, asked, wanted, recipes, bool(own), at_once, progress, say)
    missing |= measure_rest(plan, prepared, progress, say)
    _keep_missing(plan, missing, prepared)

    files: Sequence[Path] = ()
    if page:
        progress("writing the page", 0, 1)
        found = Measurements.read(plan.out, plan.paper, prepared, commands=typed, judgements=judgements, key=key)
        content = plan.paper.page(found)
        files = write_page(
            content, plan.out, html="page.html", markdown="results.md", json_name="results.json",
            data=content.as_json() | found.as_json(),
        )  # fmt: skip
        progress("writing the page", 1, 1)
    slugs = [*(job.slug for job in wanted), *(row.slug for row in own.values())]
    return Reproduced(tuple(files), tuple(_left_out(plan, prepared, slugs, missing)))


def _check_judgements(judgements: Path | None, key: Path | None) -> None:
    """Raise errors about the judgements now, not after everything is trained and measured."""
    if (judgements is None) != (key is None):
        raise InputError(
            "--judgements TABLE and --key KEY must be given together, because the table names models by codes"
        )
    if judgements is not None and key is not None:
        from rightlung.judgements.blinding import read_key
        from rightlung.judgements.run import read_judged

        read_judged(judgements, read_key(key))


def run_job(plan: Plan, job: Job, prepared: PreparedStudies, title: str, progress: Progress, say: Say) -> None:
    """Train and measure one run, skipping what is done."""
    about = job.about() | {"recipe": recipe_digest(plan, job)}
    if job.variant.derive is None:
        outcomes = _train(plan, job, title, say)
        log = read_log(plan.run(job).log)
        about["training"] = _training(outcomes, log, recipes_of(plan, job)) | {"quick": plan.quick}
    if not is_measured(plan.measures(job.slug), prepared):
        say(f"{title}: measuring")
        model = _model(plan, job)
        about["comparable"] = about["comparable"] and is_comparable(model)
        measure_model(plan, prepared, model, about, progress, title)
    measure_more(plan, prepared, job.slug, progress)


def _train(plan: Plan, job: Job, title: str, say: Say) -> dict[str, TrainingOutcome]:
    """Train the stages of a run, skipping what is done."""
    recipes, folders = recipes_of(plan, job), stage_folders(plan, job)
    if not plan.run(job).finished.is_file():
        say(f"{title}: training")
    outcomes: dict[str, TrainingOutcome] = {}
    for stage, recipe in recipes.items():
        prefix = ": ".join(part for part in (title, stage) if part)
        outcomes[stage] = train(
            recipe, folders[stage].path, resume=True, hardware=plan.hardware,
            progress=TrainingProgress(say=say, prefix=f"{prefix}: "),
        )  # fmt: skip
    return outcomes


def _model(plan: Plan, job: Job) -> Any:
    """Return the model of a run: trained, or made from that of another."""
    if job.variant.derive is None:
        return load(plan.run(job).model, plan.device)
    start = None if job.start is None else load(plan.run(job.start).model, plan.device)
    *_, recipe = recipes_of(plan, job).values()
    entry = recipe.data.train[0]
    return job.variant.derive(start, itertools.islice(open_source(entry.source), entry.cached_studies))


def _run_jobs(
    plan: Plan, prepared: PreparedStudies, asked: Sequence[Job], wanted: Sequence[Job],
    recipes: Mapping[Job, Mapping[str, Recipe]], has_own: bool, at_once: int, progress: Progress, say: Say,
) -> dict[str, str]:  # fmt: skip
    """Train and measure the remaining runs; return the reasons of those that failed."""
    left = runs_left(plan, wanted, prepared)
    if 0 < len(left) < len(wanted):
        say(f"{len(wanted) - len(left)} of {len(wanted)} runs are done already")
    titles = {job: f"[{number}/{len(wanted)}] {job.slug}" for number, job in enumerate(wanted, start=1)}
    to_train = {job: recipes[job] for job in left if not is_trained(plan, job)}

    def possible(missing: Mapping[str, str]) -> list[Job]:
        """Return the runs that can be done, without those that only impossible ones start from."""
        if missing and not has_own and all(job.slug in missing for job in asked):
            raise InputError(next(iter(missing.values())))
        for slug, reason in missing.items():
            say(f"{slug} cannot be trained and is left out: {reason}")
        found = [job for job in left if job.slug not in missing]
        return [job for job in found if job in asked or any(other.start == job for other in found)]

    if at_once > 1 and len(left) > 1:
        return _in_processes(plan, to_train, possible, titles, at_once, progress, say)
    missing = fill_pools(plan, to_train, progress)
    left = possible(missing)
    for job in left:
        try:
            if job.start is not None and job.start.slug in missing:
                raise InputError(f"it starts from {job.start.slug}, which failed")
            run_job(plan, job, prepared, titles[job], progress, say)
        except InputError as error:
            missing[job.slug] = str(error)
            say(f"{titles[job]}: {error}")
    return missing


def _in_processes(
    plan: Plan, trained: Recipes, possible: Callable[[Mapping[str, str]], list[Job]], titles: Mapping[Job, str],
    at_once: int, progress: Progress, say: Say,
) -> dict[str, str]:  # fmt: skip
    """Fill pools and run what is possible in parallel processes; return the reasons of the runs that failed."""
    plan_file = plan.out / "plan.json"
    write_json(plan_file, plan.as_json())
    pools, threads = pool_tasks(plan, trained, plan_file, at_once), max(1, usable_cores() // at_once)
    tasks = [*pools.tasks, *tasks_of(plan, possible(pools.lacking), titles, plan_file, pools.awaited)]
    failed = in_processes(tasks, at_once, plan.out / "logs", threads=threads, progress=progress, say=say)
    unfilled = {task.name for task in pools.tasks}
    return pools.lacking | {name: reason for name, reason in failed.items() if name not in unfilled}


def _training(
    outcomes: Mapping[str, TrainingOutcome], rows: Sequence[Row], recipes: Mapping[str, Recipe]
) -> dict[str, Any]:
    """Return how a run was trained: counts over all stages, and the validation curve of the last."""
    *_, last = outcomes
    counted = {stage: recipe.batch_size * recipe.gradient_accumulation for stage, recipe in recipes.items()}
    images = {stage: outcome.steps * counted[stage] for stage, outcome in outcomes.items()}
    judged = [row for row in rows if "validation loss" in row]
    return {
        "steps": sum(outcome.steps for outcome in outcomes.values()),
        "stopped_early": outcomes[last].stopped_early,
        "images": sum(images.values()),
        "pairs": sum(count * recipes[stage].data.train[0].texts_per_image for stage, count in images.items()),
        "seconds": round(sum(float(outcome.seconds) for outcome in outcomes.values()), 1),
        "device": outcomes[last].device,
        "left_out": max(len(outcome.left_out) for outcome in outcomes.values()),
        "curve": [[int(row["step"]), row["validation loss"], row.get("validation pointing")] for row in judged],
    }


def _keep_commands(out: Path, commands: Sequence[str]) -> list[str]:
    """Append commands to the earlier ones and return all; a command repeated in a row is listed once."""
    path = out / "commands.json"
    typed = [str(command) for command in read_json(path).get("commands", [])] if path.exists() else []
    typed = [command for command, _ in itertools.groupby([*typed, *commands])]
    write_json(path, {"commands": typed})
    return typed


def _keep_missing(plan: Plan, missing: Mapping[str, str], prepared: PreparedStudies) -> None:
    """Write what is missing and why, including what is still missing from earlier runs, and the training source."""
    path = plan.out / "run.json"
    earlier = read_json(path) if path.exists() else {}
    still = {
        slug: reason
        for slug, reason in {**earlier.get("missing", {}), **missing}.items()
        if slug in missing or not is_measured(plan.measures(slug), prepared)
    }
    train = training_source(plan) or earlier.get("train")
    write_json(path, {"quick": plan.quick, "missing": still, "train": train})


def _left_out(plan: Plan, prepared: PreparedStudies, slugs: Sequence[str], missing: Mapping[str, str]) -> list[str]:
    """Return what is missing: rows and studies of the source, variants, answers."""
    counts = {reason: prepared.targets.left_out[reason] for reason in UNREAD}
    lines = [f"{plan.measured_on}: {reason}: {count:,}" for reason, count in counts.items() if count]
    lines += [f"{plan.measured_on}: the first of them: {problem}" for problem in prepared.targets.problems[:1]]
    lines += [f"{slug}: {reason}" for slug, reason in missing.items()]
    for slug in slugs:
        mark = plan.measures(slug) / "about.json"
        if slug in missing or not mark.exists():
            continue
        about = read_json(mark)
        if errors := about["measured"]["errors"]:
            lines.append(f"{slug}: {errors:,} of {about['measured']['questions']:,} questions have no answer")
        if unread := (about.get("training") or {}).get("left_out"):
            lines.append(f"{slug}: {unread:,} studies could not be used for training or validation")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Run one job of a prepared plan, fill a pool of it, or, without a job, prepare its test studies.

    This is the entry point of the processes of `in_processes`.
    """
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    plan_file, *which = arguments
    try:
        plan = Plan.from_json(read_json(Path(plan_file)))
        if not which:
            PreparedStudies.make(plan.measured_on, plan.out, plan.protocol, plan.limit)
            return 0
        slug, title, *pool = which
        job = next(job for job in plan.jobs((slug,)) if job.slug == slug)
        if pool:
            stage, place, workers = pool
            fill_pool(plan, job, stage, place, int(workers), printed_progress(title))
            return 0
        run_job(plan, job, PreparedStudies.open(plan.out, plan.protocol), title, no_progress, say)
    except (InputError, OutputError) as error:
        say(f"error: {error}")
        return REFUSED if isinstance(error, InputError) else NOT_WRITTEN
    except KeyboardInterrupt as error:
        say(f"interrupted{f': {error}' if str(error) else ''}")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``rightlung reproduce PAPER``: train, ask and measure every variant, and write one page.

An interrupted run continues where it stopped. Variants can be run in parallel processes. A variant that cannot be
trained is left out, and the page says so. ``docs/reproduce.md`` lists the files.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rightlung.asking import Answerer, answers, ask, code_fingerprint
from rightlung.core import InputError, OutputError
from rightlung.core.files import read_json, write_json
from rightlung.core.progress import Progress, no_progress
from rightlung.measuring import measure, write_instances
from rightlung.measuring.targets import UNREAD
from rightlung.models.base import BlindGrounder, Grounder, RegionGrounder
from rightlung.models.folder import weights_digest
from rightlung.models.registry import load
from rightlung.predictions import open_predictions
from rightlung.reproduce.examples import keep_examples
from rightlung.reproduce.measurements import Measurements
from rightlung.reproduce.plan import (
    Plan,
    check_plan,
    check_same_recipe,
    ignored_by_few_shots,
    recipe_digest,
    recipes_of,
    stage_digests,
    stage_folders,
)
from rightlung.reproduce.prepared import PreparedStudies, fit_priors
from rightlung.reproduce.processes import INTERRUPTED, NOT_WRITTEN, REFUSED, Task, in_processes, interrupt
from rightlung.reproduce.sanity import check_sanity, known_models
from rightlung.reproduce.variants import Job, Variant, with_starts
from rightlung.scoring.threads import usable_cores
from rightlung.studies import open_source
from rightlung.training.datasets import ReportProgress
from rightlung.training.failures import free_memory
from rightlung.training.log import Row, TrainingProgress, read_log
from rightlung.training.loop import TrainingOutcome, train
from rightlung.training.recipe import Data, DataEntry, Recipe
from rightlung.training.setup import open_studies

MOST_WORKERS = 16
"""Maximum number of processes that fill a pool."""
BATCH_SIZE = 256
LONGEST_SLUG = 100

Say = Callable[[str], None]


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
    own = _own_models(plan)
    for change in ignored_by_few_shots(plan.changes, wanted):
        say(f"note: --set {change} does not apply to the few-shot variants; to change one: --set VARIANT:{change}")

    prepared = PreparedStudies.make(plan.measured_on, plan.out, plan.protocol, plan.limit, progress)
    typed = _keep_commands(plan.out, commands)
    if plan.measure:
        _measure_baselines(plan, prepared, progress, say)
    missing = _measure_own(plan, prepared, own, progress, say)
    missing |= _run_jobs(plan, prepared, asked, wanted, recipes, bool(own), at_once, progress, say)
    missing |= _measure_rest(plan, prepared, progress, say)
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


def measure_model(
    plan: Plan, prepared: PreparedStudies, model: object, about: Mapping[str, Any], progress: Progress,
    title: str = "", more: bool = True,
) -> None:  # fmt: skip
    """Ask a model all questions, measure its answers and write ``measures/<slug>``, with ``about.json`` last.

    ``more``: also those that the paper asks besides phrases.
    """
    slug = str(about["slug"])
    folder, conditions = plan.measures(slug), prepared.protocol.conditions

    def tell(done: float, total: float) -> None:
        progress(f"{title or slug}: asking", done, total)

    if isinstance(model, BlindGrounder):
        batches = answers(model, prepared.source, conditions, batch_size=BATCH_SIZE, boxes=None, progress=tell)
        examples: dict[str, Any] = {}
        counts = {"errors": 0}
    else:
        out = plan.predictions(slug)
        summary = ask(
            model, prepared.source, out, conditions, queries=_queries(plan, model), batch_size=BATCH_SIZE,
            boxes=plan.paper.boxes, findings=plan.paper.findings, model_name=slug, progress=tell,
        )  # fmt: skip
        examples = keep_examples(out, prepared, folder)
        batches, counts = open_predictions(out).batches(), {"errors": len(summary.failed), "questions": summary.rows}
    table = measure(batches, prepared.targets, prepared.protocol, device=plan.device)
    (folder / "about.json").unlink(missing_ok=True)  # so that a folder being rewritten does not count as complete
    if plan.paper.ask_more is not None and more:
        plan.paper.ask_more(model, plan.predictions(slug), prepared, folder, progress)
    write_instances(folder / "instances.parquet", table, prepared.protocol, slug)
    measured = {"instances": len(prepared.targets.phrases), "rows": table.num_rows, **counts}
    whole = {"weights": weights_digest(model), **about, "protocol": prepared.protocol.hash, "measured": measured}
    write_json(folder / "about.json", whole | examples)


def _measure_rest(plan: Plan, prepared: PreparedStudies, progress: Progress, say: Say) -> dict[str, str]:
    """Measure what needs no model and was left to this call; return the reasons of models for which that failed."""
    failed: dict[str, str] = {}
    for slug in sorted(path.parent.name for path in plan.out.glob("measures/*/about.json")):
        try:
            _measure_more(plan, prepared, slug, progress)
        except InputError as error:
            failed[slug] = str(error)
            say(f"{slug}: {error}")
    return failed


def _measure_more(plan: Plan, prepared: PreparedStudies, slug: str, progress: Progress) -> None:
    if plan.paper.measure_more is not None and plan.measure:
        plan.paper.measure_more(prepared, plan.measures(slug), progress)


def _queries(plan: Plan, model: object) -> list[str]:
    known = Answerer(model).queries
    return [name for name in plan.paper.queries if name in known]


def is_measured(folder: Path, prepared: PreparedStudies) -> bool:
    """Return whether a folder has the complete measurements of a model on these studies."""
    mark = folder / "about.json"
    return mark.exists() and read_json(mark).get("protocol") == prepared.protocol.hash


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
    _measure_more(plan, prepared, job.slug, progress)


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


def is_comparable(model: object) -> bool:
    """Return whether a model can be compared with others: not if it must be given the region boxes."""
    return isinstance(model, Grounder | BlindGrounder) or not isinstance(model, RegionGrounder)


def _run_jobs(
    plan: Plan, prepared: PreparedStudies, asked: Sequence[Job], wanted: Sequence[Job],
    recipes: Mapping[Job, Mapping[str, Recipe]], has_own: bool, at_once: int, progress: Progress, say: Say,
) -> dict[str, str]:  # fmt: skip
    """Train and measure the remaining runs; return the reasons of those that failed."""
    left = [job for job in wanted if not is_measured(plan.measures(job.slug), prepared)]
    starts = {job.start for job in left}
    left = [job for job in wanted if job in left or (job in starts and not plan.run(job).finished.is_file())]
    if 0 < len(left) < len(wanted):
        say(f"{len(wanted) - len(left)} of {len(wanted)} runs are done already")
    trained = [job for job in left if job.variant.derive is None and not plan.run(job).finished.is_file()]
    missing = _fill_pools(plan, {job: recipes[job] for job in trained}, progress)
    if missing and not has_own and all(job.slug in missing for job in asked):
        raise InputError(next(iter(missing.values())))
    for slug, reason in missing.items():
        say(f"{slug} cannot be trained and is left out: {reason}")
    possible = [job for job in left if job.slug not in missing]
    left = [job for job in possible if job in asked or any(other.start == job for other in possible)]
    titles = {job: f"[{number}/{len(wanted)}] {job.slug}" for number, job in enumerate(wanted, start=1)}
    if at_once > 1 and len(left) > 1:
        return missing | _in_processes(plan, left, titles, at_once, progress, say)
    for job in left:
        try:
            if job.start is not None and job.start.slug in missing:
                raise InputError(f"it starts from {job.start.slug}, which failed")
            run_job(plan, job, prepared, titles[job], progress, say)
        except InputError as error:
            missing[job.slug] = str(error)
            say(f"{titles[job]}: {error}")
    return missing


def _fill_pools(plan: Plan, recipes: Mapping[Job, Mapping[str, Recipe]], progress: Progress) -> dict[str, str]:
    """Fill the pools that runs share; return why some runs (and those that start from them) cannot be trained."""
    device, workers = torch.device(plan.device), min(usable_cores(), MOST_WORKERS)
    seen: dict[object, str | None] = {}
    lacking: dict[str, str] = {}
    for job, stages in recipes.items():
        for place, entry, data in _entries(stages.values(), workers):
            built = (data.image_size, data.mask_grid, data.targets, entry.phrases_per_image > 0)
            key = (
                place,
                entry.source,
                entry.cached_studies,
                entry.phrase_masks,
                entry.paired_text,
                entry.few_shot_studies,
                built,
            )
            if key not in seen:
                seen[key] = _why_not(entry, data, device, place, progress)
                free_memory()
            if (reason := seen[key]) is not None:
                lacking.setdefault(job.slug, reason)
        if job.start is not None and job.start.slug in lacking:
            lacking.setdefault(job.slug, f"it starts from {job.start.slug}, which cannot be trained")
    return lacking


def _entries(recipes: Iterable[Recipe], workers: int) -> Iterator[tuple[str, DataEntry, Data]]:
    """Yield the data entries of recipes, with their places and the data they belong to."""
    for recipe in recipes:
        data = replace(recipe.data, workers=workers)
        for number, entry in enumerate(data.train):
            yield f"data.train[{number}]", entry, data
        if data.validation is not None:
            yield "data.validation", data.validation.entry(), data


def tasks_of(plan: Plan, left: Sequence[Job], titles: Mapping[Job, str], plan_file: Path) -> list[Task]:
    """Return a task for each run. It waits for the run it starts from, or for the stage that it shares with another."""
    command = [sys.executable, "-m", "rightlung.reproduce.experiment", str(plan_file)]
    owners: dict[str, str] = {}
    tasks = []
    for job in left:
        after, file = (None, None) if job.start is None else (job.start.slug, plan.run(job.start).finished)
        if job.variant.derive is None:
            folders = stage_folders(plan, job)
            for stage, digest in list(stage_digests(plan, job).items())[:-1]:
                if owners.setdefault(digest, job.slug) != job.slug:
                    after, file = owners[digest], folders[stage].finished
        tasks.append(Task(job.slug, titles[job], [*command, job.slug, titles[job]], after, file))
    return tasks


def _why_not(entry: DataEntry, data: Data, device: torch.device, place: str, progress: Progress) -> str | None:
    def advance(what: str, count: int) -> ReportProgress:
        done = 0

        def more(number: int) -> None:
            nonlocal done
            done += number
            progress(what, done, count)

        return more

    try:
        open_studies(entry, data, device, advance, place)
    except InputError as error:
        return str(error)
    return None


def _in_processes(
    plan: Plan, left: Sequence[Job], titles: Mapping[Job, str], at_once: int, progress: Progress, say: Say
) -> dict[str, str]:
    """Run jobs in parallel processes; return the reasons of those that failed."""
    plan_file = plan.out / "plan.json"
    write_json(plan_file, plan.as_json())
    tasks, threads = tasks_of(plan, left, titles, plan_file), max(1, usable_cores() // at_once)
    return in_processes(tasks, at_once, plan.out / "logs", threads=threads, progress=progress, say=say)


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


def _measure_baselines(plan: Plan, prepared: PreparedStudies, progress: Progress, say: Say) -> None:
    """Measure the image-blind priors and, with ``--quick``, the models of the sanity checks."""
    rows = dict(fit_priors(prepared))
    if plan.quick:
        rows |= known_models(prepared)
    for order, (slug, (name, note, model)) in enumerate(rows.items()):
        if not is_measured(plan.measures(slug), prepared):
            about = {
                "slug": slug, "variant": slug, "name": name, "group": "reference", "comparable": True, "seed": None,
                "order": 1000 + order, "note": note, "training": None, "weights": None,
            }  # fmt: skip
            measure_model(plan, prepared, model, about, progress, more=False)
    if plan.quick:
        for sentence in check_sanity(plan.out, plan.paper, synthetic=plan.source is None):
            say(sentence)


def own_slug(name: str) -> str:
    """Return the slug of a user's model, distinct from all variants."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-").lower()
    return f"own-{plain[-LONGEST_SLUG:]}"


def _own_models(plan: Plan) -> dict[str, Variant]:
    """Return the rows of the user's models by name; raise errors about models that cannot be used."""
    found: dict[str, Variant] = {}
    for name in plan.models:
        model = load(name, plan.device)
        if not isinstance(model, Grounder | RegionGrounder | BlindGrounder):
            raise InputError(
                f"--model {name}: {type(model).__name__} does not implement ground, so it cannot be measured"
            )
        own = Variant(own_slug(name), name, "ours", "added with --model", recipe="")
        row = plan.paper.released.get(str(getattr(model, "kind", "")), own)
        if twin := next((other for other, taken in found.items() if taken.slug == row.slug), None):
            raise InputError(
                f"--model {twin} and --model {name} would use the same row, {row.slug}; rename one of them"
            )
        mark = plan.measures(row.slug) / "about.json"
        if mark.exists() and (kept := read_json(mark).get("loaded_from")) != name:
            raise InputError(f"--model {name}: its folder {mark.parent} is used by --model {kept}; rename the model")
        found[name] = row
    return found


def _measure_own(
    plan: Plan, prepared: PreparedStudies, own: Mapping[str, Variant], progress: Progress, say: Say
) -> dict[str, str]:
    """Measure the user's models as additional rows; return the reasons of those that failed.

    A model is measured again if its weights or its code changed, or if its weights cannot be compared.
    """
    failed: dict[str, str] = {}
    for name, row in own.items():
        slug, folder, model = row.slug, plan.measures(row.slug), load(name, plan.device)
        identity = {"weights": weights_digest(model), "code": code_fingerprint(model, name)}
        if is_measured(folder, prepared) and identity["weights"] is not None:
            before = read_json(folder / "about.json")
            if all(before.get(part) == value for part, value in identity.items()):
                continue
        say(f"{slug}: measuring")
        (folder / "about.json").unlink(missing_ok=True)
        shutil.rmtree(plan.predictions(slug), ignore_errors=True)
        about = Job(row, seed=1, order=2000 if row.group == "ours" else 0).about() | {
            "comparable": is_comparable(model), "seed": None, "training": None, "loaded_from": name, **identity,
        }  # fmt: skip
        try:
            measure_model(plan, prepared, model, about, progress)
        except InputError as error:
            failed[slug] = str(error)
            say(f"{slug}: {error}")
    return failed


def _keep_commands(out: Path, commands: Sequence[str]) -> list[str]:
    """Append commands to the earlier ones and return all; a command repeated in a row is listed once."""
    path = out / "commands.json"
    typed = [str(command) for command in read_json(path).get("commands", [])] if path.exists() else []
    typed = [command for command, _ in itertools.groupby([*typed, *commands])]
    write_json(path, {"commands": typed})
    return typed


def _keep_missing(plan: Plan, missing: Mapping[str, str], prepared: PreparedStudies) -> None:
    """Write what is missing and why, including what is still missing from earlier runs."""
    path = plan.out / "run.json"
    earlier = read_json(path).get("missing", {}) if path.exists() else {}
    still = {
        slug: reason
        for slug, reason in {**earlier, **missing}.items()
        if slug in missing or not is_measured(plan.measures(slug), prepared)
    }
    write_json(path, {"quick": plan.quick, "missing": still})


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
    """Run one job of a prepared plan; the entry point of the processes of `in_processes`."""
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    plan_file, slug, title = arguments
    try:
        plan = Plan.from_json(read_json(Path(plan_file)))
        job = next(job for job in plan.jobs((slug,)) if job.slug == slug)
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

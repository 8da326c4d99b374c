"""``rightlung reproduce PAPER``: train, ask and measure every variant, and write one page; it can be stopped anywhere.

::

    studies/                                     the studies that are measured on, and their targets
    pools/                                       the training studies, filled once for all runs
    runs/<slug>/                                 training runs
    predictions/<slug>/                          what each model answered
    measures/<slug>/                             its instances table, examples, and about.json
    run.json, commands.json                      what is missing and why; the commands
    page.html, results.md, results.json          the page

Each part that is complete is not done again. Several variants can be worked on at once, each in a process of its own. A
variant that cannot be trained is left out, and the page says so.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rightlung.asking import answers, ask
from rightlung.core import InputError, OutputError
from rightlung.core.files import read_json, write_json
from rightlung.core.progress import Progress, no_progress
from rightlung.measuring import measure, write_instances
from rightlung.models.base import BlindGrounder, Grounder, RegionGrounder
from rightlung.models.fingerprint import weights_digest
from rightlung.models.registry import load
from rightlung.predictions import open_predictions
from rightlung.reproduce.baselines import fit_priors
from rightlung.reproduce.examples import keep_examples
from rightlung.reproduce.facts import Measurements
from rightlung.reproduce.known import check_known, known_models
from rightlung.reproduce.plan import (
    Plan,
    check_plan,
    check_same_recipe,
    ignored_by_few_shots,
    recipe_digest,
    recipe_of,
)
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.reproduce.processes import INTERRUPTED, NOT_WRITTEN, REFUSED, Task, in_processes, interrupt
from rightlung.reproduce.variants import Job, Variant, with_starts
from rightlung.scoring.threads import usable_cores
from rightlung.training.datasets import Advance
from rightlung.training.loop import train
from rightlung.training.recipe import Data, DataEntry, Recipe
from rightlung.training.setup import open_studies
from rightlung.training.trouble import release
from rightlung.training.watching import Row, TrainingProgress, read_log

MOST_WORKERS = 16
"""Processes that fill a pool, at most."""
BATCH_SIZE = 256
LONGEST_SLUG = 100

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The files of the page (none where it was not wanted), and what was left out, a sentence each."""

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
    """Do all that is not done yet.

    ``at_once`` variants are trained and measured at a time, each in a process of its own. ``judgements`` is a table of
    radiologists' judgements, with the ``key`` to its codes, for the page. ``commands`` are kept with earlier ones.
    """
    check_plan(plan)
    _check_judgements(judgements, key)
    asked = plan.wanted()
    wanted = with_starts(asked)
    recipes = {job: recipe_of(plan, job) for job in wanted}
    for job, recipe in recipes.items():
        check_same_recipe(plan, job, recipe)
    own = _own_models(plan)
    for change in ignored_by_few_shots(plan.changes, wanted):
        say(f"note: the few-shot variants do not follow --set {change}; name one to change it: VARIANT:{change}")

    prepared = PreparedStudies.make(plan.measured_on, plan.out, plan.protocol, plan.limit, progress)
    typed = _keep_commands(plan.out, commands)
    _measure_baselines(plan, prepared, progress, say)
    missing = _measure_own(plan, prepared, own, progress, say)
    missing |= _work_off_all(plan, prepared, asked, wanted, recipes, bool(own), at_once, progress, say)
    _keep_missing(plan, missing, prepared)

    files: Sequence[Path] = ()
    if page:
        progress("writing the page", 0, 1)
        files = write_results(plan, judgements, key, typed)
        progress("writing the page", 1, 1)
    slugs = [*(job.slug for job in wanted), *own.values()]
    return Reproduced(tuple(files), tuple(_left_out(plan, prepared, slugs, missing)))


def _check_judgements(judgements: Path | None, key: Path | None) -> None:
    """Refuse now what would otherwise be refused after everything is trained and measured."""
    if (judgements is None) != (key is None):
        raise InputError("--judgements TABLE and --key KEY are needed together: models go by codes in the table")
    if judgements is not None and key is not None:
        from rightlung.judgements.blinding import read_key
        from rightlung.judgements.run import read_judged

        read_judged(judgements, read_key(key))


def write_results(plan: Plan, judgements: Path | None, key: Path | None, commands: Sequence[str]) -> list[Path]:
    """Write the page, the Markdown and the JSON of what was measured so far."""
    from rightlung.pages.write import write_page

    prepared = PreparedStudies.open(plan.out, plan.protocol)
    found = Measurements.read(plan.out, plan.paper, prepared, commands=commands, judgements=judgements, key=key)
    page = plan.paper.page(found)
    return write_page(
        page, plan.out, html="page.html", markdown="results.md", json_name="results.json",
        data=page.as_json() | found.as_json(),
    )  # fmt: skip


# ------------------------------------------------------------------ one model


def measure_model(
    plan: Plan, prepared: PreparedStudies, model: object, about: Mapping[str, Any], progress: Progress, title: str = ""
) -> None:
    """Ask a model everything, measure its answers and write ``measures/<slug>``; ``about.json`` comes last."""
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
            model, prepared.source, out, conditions, queries=("phrases",), batch_size=BATCH_SIZE, boxes=None,
            model_name=slug,
            progress=tell,
        )  # fmt: skip
        examples = keep_examples(out, prepared, folder)
        batches, counts = open_predictions(out).batches(), {"errors": len(summary.failed), "questions": summary.rows}
    table = measure(batches, prepared.targets, prepared.protocol, device=plan.device)
    (folder / "about.json").unlink(missing_ok=True)  # what is being replaced must not be taken for complete
    write_instances(folder / "instances.parquet", table, prepared.protocol, slug)
    measured = {"instances": len(prepared.targets.phrases), "rows": table.num_rows, **counts}
    whole = {"weights": weights_digest(model), **about, "protocol": prepared.protocol.hash, "measured": measured}
    write_json(folder / "about.json", whole | examples)


def is_measured(folder: Path, prepared: PreparedStudies) -> bool:
    """Whether a folder holds the complete measurement of a model on these very studies."""
    mark = folder / "about.json"
    return mark.exists() and read_json(mark).get("protocol") == prepared.protocol.hash


def work_off(plan: Plan, job: Job, prepared: PreparedStudies, title: str, progress: Progress, say: Say) -> None:
    """Train one variant and measure it, as far as that is not done."""
    run, recipe = plan.run(job), recipe_of(plan, job)
    if not run.finished.is_file():
        say(f"{title}: training")
    outcome = train(
        recipe, run.path, resume=True, machine=plan.machine, progress=TrainingProgress(say=say, prefix=f"{title}: ")
    )
    if is_measured(plan.measures(job.slug), prepared):
        return
    say(f"{title}: measuring")
    model = load(outcome.model, plan.device)
    about = job.about()
    about |= {
        "comparable": about["comparable"] and is_comparable(model),
        "recipe": recipe_digest(plan, job),
        "training": _training(asdict(outcome), read_log(run.log), recipe) | {"quick": plan.quick},
    }
    measure_model(plan, prepared, model, about, progress, title)


def is_comparable(model: object) -> bool:
    """Whether a model is asked as the others are: one that must be shown the regions' boxes is not."""
    return isinstance(model, Grounder | BlindGrounder)


# ------------------------------------------------------------------ variants


def _work_off_all(
    plan: Plan, prepared: PreparedStudies, asked: Sequence[Job], wanted: Sequence[Job], recipes: Mapping[Job, Recipe],
    has_own: bool, at_once: int, progress: Progress, say: Say,
) -> dict[str, str]:  # fmt: skip
    """Train and measure what is left to do, and return why some could not be."""
    left = [job for job in wanted if not is_measured(plan.measures(job.slug), prepared)]
    starts = {job.start for job in left}
    left = [job for job in wanted if job in left or (job in starts and not plan.run(job).finished.is_file())]
    if 0 < len(left) < len(wanted):
        say(f"{len(wanted) - len(left)} of {len(wanted)} variants are done already")
    missing = _fill_pools(plan, {job: recipes[job] for job in left if not plan.run(job).finished.is_file()}, progress)
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
            work_off(plan, job, prepared, titles[job], progress, say)
        except InputError as error:
            missing[job.slug] = str(error)
            say(f"{titles[job]}: {error}")
    return missing


def _fill_pools(plan: Plan, recipes: Mapping[Job, Recipe], progress: Progress) -> dict[str, str]:
    """Fill the pools that runs share, once, and return why some cannot be trained: known before any of them is.

    Those that start from such a one cannot be, either.
    """
    device, workers = torch.device(plan.device), min(usable_cores(), MOST_WORKERS)
    seen: dict[object, str | None] = {}
    lacking: dict[str, str] = {}
    for job, recipe in recipes.items():
        data = replace(recipe.data, workers=workers)
        entries = [(f"data.train[{number}]", entry) for number, entry in enumerate(data.train)]
        if data.validation is not None:
            entries.append(("data.validation", data.validation.entry()))
        for place, entry in entries:
            built = (data.size, data.grid, data.targets, entry.phrases > 0)
            key = (place, entry.source, entry.cached, entry.masks, entry.text, entry.examples, built)
            if key not in seen:
                seen[key] = _why_not(entry, data, device, place, progress)
                release()
            if (reason := seen[key]) is not None:
                lacking.setdefault(job.slug, reason)
        if job.start is not None and job.start.slug in lacking:
            lacking.setdefault(job.slug, f"it starts from {job.start.slug}, which cannot be trained")
    return lacking


def _why_not(entry: DataEntry, data: Data, device: torch.device, place: str, progress: Progress) -> str | None:
    def advance(what: str, count: int) -> Advance:
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
    """Work runs off in processes of their own, and return why those failed that did."""
    plan_file = plan.out / "plan.json"
    write_json(plan_file, plan.as_json())
    tasks = [
        Task(
            job.slug,
            titles[job],
            [sys.executable, "-m", "rightlung.reproduce.experiment", str(plan_file), job.slug, titles[job]],
            None if job.start is None else job.start.slug,
        )
        for job in left
    ]
    threads = max(1, usable_cores() // at_once)
    return in_processes(tasks, at_once, plan.out / "logs", threads=threads, progress=progress, say=say)


def _training(outcome: Mapping[str, Any], rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    judged = [row for row in rows if "validation loss" in row]
    images = int(outcome["steps"]) * recipe.batch.size * recipe.batch.accumulate
    return {
        "steps": outcome["steps"],
        "stopped_early": outcome["stopped_early"],
        "images": images,
        "pairs": images * recipe.data.train[0].texts,
        "seconds": round(float(outcome["seconds"]), 1),
        "device": outcome["device"],
        "left_out": len(outcome["left_out"]),
        "curve": [[int(row["step"]), row["validation loss"], row.get("validation pointing")] for row in judged],
    }


# ------------------------------------------------------------------ other rows


def _measure_baselines(plan: Plan, prepared: PreparedStudies, progress: Progress, say: Say) -> None:
    """Measure the image-blind priors and, with ``--quick``, models whose answers are known, which are checked."""
    rows = dict(fit_priors(prepared))
    if plan.quick:
        rows |= known_models(prepared)
    for order, (slug, (name, note, model)) in enumerate(rows.items()):
        if not is_measured(plan.measures(slug), prepared):
            about = {
                "slug": slug, "variant": slug, "name": name, "group": "reference", "comparable": True, "seed": None,
                "order": 1000 + order, "note": note, "training": None, "weights": None,
            }  # fmt: skip
            measure_model(plan, prepared, model, about, progress)
    if plan.quick:
        for sentence in check_known(plan.out, plan.paper, synthetic=plan.source is None):
            say(sentence)


def own_slug(name: str) -> str:
    """Return what the folder of a user's model is called, distinct from all variants."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-").lower()
    return f"own-{plain[-LONGEST_SLUG:]}"


def _own_models(plan: Plan) -> dict[str, str]:
    """Return the folders of the user's models by name; what cannot be loaded or told apart is refused now."""
    found: dict[str, str] = {}
    for name in plan.models:
        model = load(name, plan.device)
        if not isinstance(model, Grounder | RegionGrounder | BlindGrounder):
            raise InputError(f"--model {name}: a {type(model).__name__} cannot ground phrases: nothing to measure")
        released = plan.paper.released.get(str(getattr(model, "kind", "")))
        slug = own_slug(name) if released is None else released.slug
        if twin := next((other for other, taken in found.items() if taken == slug), None):
            raise InputError(f"--model {twin} and --model {name} would be the same row, {slug}; rename one of them")
        mark = plan.measures(slug) / "about.json"
        if mark.exists() and (kept := read_json(mark).get("loaded_from")) != name:
            raise InputError(
                f"{mark.parent}: is the row of --model {kept}, and --model {name} would be, too; rename it"
            )
        found[name] = slug
    return found


def _measure_own(
    plan: Plan, prepared: PreparedStudies, own: Mapping[str, str], progress: Progress, say: Say
) -> dict[str, str]:
    """Measure the user's models as more rows, and return why those failed that did.

    A model whose weights have changed is measured again, and so is one without weights to compare.
    """
    failed: dict[str, str] = {}
    for name, slug in own.items():
        folder, model = plan.measures(slug), load(name, plan.device)
        weights = weights_digest(model)
        if is_measured(folder, prepared) and weights == read_json(folder / "about.json").get("weights") is not None:
            continue
        say(f"{slug}: measuring")
        (folder / "about.json").unlink(missing_ok=True)
        shutil.rmtree(plan.predictions(slug), ignore_errors=True)
        released = plan.paper.released.get(str(getattr(model, "kind", "")))
        row = Variant(slug, name, "ours", "a model of one's own", recipe="") if released is None else released
        about = Job(row, seed=1, order=2000 if released is None else 0).about() | {
            "comparable": is_comparable(model), "seed": None, "training": None, "weights": weights, "loaded_from": name,
        }  # fmt: skip
        try:
            measure_model(plan, prepared, model, about, progress)
        except InputError as error:
            failed[slug] = str(error)
            say(f"{slug}: {error}")
    return failed


# ------------------------------------------------------------------ what is kept of the run itself


def _keep_commands(out: Path, commands: Sequence[str]) -> list[str]:
    """Add commands to the earlier ones, and return all; one repeated at once is not listed twice."""
    path = out / "commands.json"
    typed = [str(command) for command in read_json(path).get("commands", [])] if path.exists() else []
    for command in commands:
        if typed[-1:] != [command]:
            typed.append(command)
    write_json(path, {"commands": typed})
    return typed


def _keep_missing(plan: Plan, missing: Mapping[str, str], prepared: PreparedStudies) -> None:
    """Write down what is missing and why, of this run and, where it still is, of those before."""
    path = plan.out / "run.json"
    earlier = read_json(path).get("missing", {}) if path.exists() else {}
    still = {
        slug: reason
        for slug, reason in {**earlier, **missing}.items()
        if slug in missing or not is_measured(plan.measures(slug), prepared)
    }
    write_json(path, {"quick": plan.quick, "missing": still})


def _left_out(plan: Plan, prepared: PreparedStudies, slugs: Sequence[str], missing: Mapping[str, str]) -> list[str]:
    """Say what should be there and is not: rows and studies of the source, variants, answers."""
    said = [f"{plan.measured_on}: {reason}: {count:,}" for reason, count in prepared.unread.items()]
    said += [f"{plan.measured_on}: the first of them: {problem}" for problem in prepared.targets.problems[:1]]
    said += [f"{slug}: {reason}" for slug, reason in missing.items()]
    for slug in slugs:
        mark = plan.measures(slug) / "about.json"
        if slug in missing or not mark.exists():
            continue
        about = read_json(mark)
        if errors := about["measured"]["errors"]:
            said.append(f"{slug}: {errors:,} of {about['measured']['questions']:,} questions have no answer")
        if unread := (about.get("training") or {}).get("left_out"):
            said.append(f"{slug}: {unread:,} studies could not be learned from, or validated on")
    return said


# ------------------------------------------------------------------ a process of its own


def main(arguments: Sequence[str]) -> int:
    """Work off one run of a plan whose folder is prepared: what the processes of `in_processes` do."""
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    plan_file, slug, title = arguments
    try:
        plan = Plan.from_json(read_json(Path(plan_file)))
        job = next(job for job in plan.jobs((slug,)) if job.slug == slug)
        work_off(plan, job, PreparedStudies.open(plan.out, plan.protocol), title, no_progress, say)
    except InputError as error:
        say(f"error: {error}")
        return REFUSED
    except OutputError as error:
        say(f"error: {error}")
        return NOT_WRITTEN
    except KeyboardInterrupt as error:
        say(f"interrupted{f': {error}' if str(error) else ''}")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

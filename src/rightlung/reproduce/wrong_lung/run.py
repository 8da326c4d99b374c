"""``rightlung reproduce wrong-lung``: every variant trained, measured and put on one page; it may be stopped anywhere.

::

    instances.parquet, instances.json, cache/    what is asked (`instances`)
    pools/                                       the training studies, filled once for all runs
    runs/<slug>/                                 training runs
    measures/<slug>/                             what came of asking each model (`measuring`)
    run.json, commands.json                      what is missing and why; what was typed
    page.html, results.md, results.json          what it says

Each part that is whole is not done again. Several variants can be worked on at once, each in a process of its own. A
variant that cannot be trained is left out, and said to be.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rightlung.core import InputError, OutputError
from rightlung.models.base import Grounder, RegionGrounder
from rightlung.models.registry import load
from rightlung.predictions.asking import weights_digest
from rightlung.reproduce.wrong_lung.examples import draw_examples, keep_examples
from rightlung.reproduce.wrong_lung.files import read_json, write_json
from rightlung.reproduce.wrong_lung.instances import Instances, open_instances, prepare
from rightlung.reproduce.wrong_lung.measuring import is_measured, measure
from rightlung.reproduce.wrong_lung.page import write_page
from rightlung.reproduce.wrong_lung.plan import (
    Plan,
    check_plan,
    check_same_recipe,
    kept_back,
    plain_plan,
    plan_from,
    recipe_digest,
    recipe_of,
)
from rightlung.reproduce.wrong_lung.prior_row import measure_prior
from rightlung.reproduce.wrong_lung.processes import INTERRUPTED, NOT_WRITTEN, REFUSED, Task, in_processes, interrupt
from rightlung.reproduce.wrong_lung.rehearsal import check_known, measure_known
from rightlung.reproduce.wrong_lung.variants import Job, jobs, with_starts
from rightlung.scoring.threads import usable_cores
from rightlung.training.loop import train
from rightlung.training.pools import Advance
from rightlung.training.preparing import open_studies
from rightlung.training.recipe import Data, DataEntry, Recipe
from rightlung.training.trouble import release
from rightlung.training.watching import Row, TrainingProgress, read_log

MOST_WORKERS = 16
"""Processes that fill a pool, at most."""

_LONGEST_SLUG = 100

Tell = Callable[[str, float, float], None]
"""Called with what is being done, how much of it is done and how much there is."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files of the page (none where it was not wanted), and what was left out, a sentence each."""

    files: tuple[Path, ...]
    left_out: tuple[str, ...]


def reproduce(
    plan: Plan,
    *,
    at_once: int = 1,
    page: bool = True,
    commands: Sequence[str] = (),
    tell: Tell = lambda *_: None,
    say: Say = lambda _: None,
) -> Outcome:
    """Do all that is not done yet.

    ``at_once`` variants are trained and measured at a time, each in a process of its own. ``commands`` are what was
    typed, and are kept with those before.
    """
    check_plan(plan)
    asked = plan.wanted()
    wanted = with_starts(asked)
    recipes = {job: recipe_of(plan, job) for job in wanted}
    for job, recipe in recipes.items():
        check_same_recipe(plan, job, recipe)
    own = _own_models(plan)
    for change in kept_back(plan.changes, wanted):
        say(f"note: the few-shot variants do not follow --set {change}; name one to change it: thirty-shot:{change}")

    instances = prepare(
        plan.measured_on,
        plan.out,
        limit=plan.limit,
        size=plan.pixels,
        progress=lambda done, total: tell("preparing instances", done, total),
    )
    typed = _keep_commands(plan.out, commands)
    _measure_priors(plan, instances, tell)
    if plan.quick:
        measure_known(instances, plan.out, plan.device)
        for sentence in check_known(plan.out, ours=plan.source is None):
            say(sentence)

    missing = _measure_own(plan, instances, own, tell, say)
    left = _left_to_do(plan, wanted, instances)
    if 0 < len(left) < len(wanted):
        say(f"{len(wanted) - len(left)} of {len(wanted)} variants are done already")
    titles = {job: f"[{number}/{len(wanted)}] {job.slug}" for number, job in enumerate(wanted, start=1)}
    untrained = {job: recipes[job] for job in left if not plan.run(job).finished.is_file()}
    lacking = _fill_pools(plan, untrained, tell)
    if lacking and not own and all(job.slug in lacking for job in asked):
        raise InputError(next(iter(lacking.values())))
    for slug, reason in lacking.items():
        say(f"{slug} cannot be trained and is left out: {reason}")
    missing |= lacking
    left = _worth_doing(left, asked, lacking)
    if at_once > 1 and len(left) > 1:
        missing |= _in_processes(plan, left, titles, at_once, tell, say)
    else:
        missing |= _one_by_one(plan, left, titles, instances, tell, say)
    _keep_missing(plan, missing, instances)

    files: Sequence[Path] = ()
    if page:
        tell("writing the page", 0, 1)
        files = write_page(plan.out, draw_examples(instances), commands=typed)
        tell("writing the page", 1, 1)
    slugs = [*(job.slug for job in wanted), *own.values()]
    return Outcome(tuple(files), tuple(_left_out(plan, instances, slugs, missing)))


def work_off(plan: Plan, job: Job, instances: Instances, title: str, tell: Tell, say: Say) -> None:
    """Train one variant and measure it, as far as that is not done."""
    run, folder, recipe = plan.run(job), plan.measures(job.slug), recipe_of(plan, job)
    if not run.finished.is_file():
        say(f"{title}: training")
    outcome = train(
        recipe, run.path, resume=True, machine=plan.machine, progress=TrainingProgress(say=say, prefix=f"{title}: ")
    )
    if is_measured(folder, instances):
        return
    say(f"{title}: measuring")
    model = load(outcome.model, plan.device)
    about = job.about()
    about |= {
        "comparable": about["comparable"] and is_comparable(model),
        "recipe": recipe_digest(plan, job),
        "training": _training(asdict(outcome), read_log(run.log), recipe) | {"quick": plan.quick},
        "sees": keep_examples(model, instances, folder),
    }
    measure(
        model,
        instances,
        folder,
        about=about,
        device=plan.device,
        progress=lambda done, total: tell(f"{title}: measuring", done, total),
    )


def is_comparable(model: object) -> bool:
    """Whether a model is asked as the others are: one that must be shown the regions' boxes is not."""
    return isinstance(model, Grounder)


# ------------------------------------------------------------------ variants


def _left_to_do(plan: Plan, wanted: Sequence[Job], instances: Instances) -> list[Job]:
    """Return the runs that are not measured yet, and those that they start from and are not there (any more)."""
    left = [job for job in wanted if not is_measured(plan.measures(job.slug), instances)]
    starts = {job.start for job in left if job.start is not None}
    return [job for job in wanted if job in left or (job in starts and not plan.run(job).finished.is_file())]


def _worth_doing(left: Sequence[Job], asked: Sequence[Job], lacking: Mapping[str, str]) -> list[Job]:
    """Return the runs that can be trained, without those that were only to be started from and now are not."""
    possible = [job for job in left if job.slug not in lacking]
    return [job for job in possible if job in asked or any(other.start == job for other in possible)]


def _fill_pools(plan: Plan, recipes: Mapping[Job, Recipe], tell: Tell) -> dict[str, str]:
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
            key = (place, entry.source, entry.pool, entry.targets, entry.text, entry.examples, data.size, data.grid)
            if key not in seen:
                seen[key] = _why_not(entry, data, device, place, tell)
                release()
            if (reason := seen[key]) is not None:
                lacking.setdefault(job.slug, reason)
        if job.start is not None and job.start.slug in lacking:
            lacking.setdefault(job.slug, f"it starts from {job.start.slug}, which cannot be trained")
    return lacking


def _why_not(entry: DataEntry, data: Data, device: torch.device, place: str, tell: Tell) -> str | None:
    def advance(what: str, count: int) -> Advance:
        done = 0

        def more(number: int) -> None:
            nonlocal done
            done += number
            tell(what, done, count)

        return more

    try:
        open_studies(entry, data, device, advance, place)
    except InputError as error:
        return str(error)
    return None


def _one_by_one(
    plan: Plan, left: Sequence[Job], titles: Mapping[Job, str], instances: Instances, tell: Tell, say: Say
) -> dict[str, str]:
    """Work runs off in this process, and return why those failed that did."""
    failed: dict[str, str] = {}
    for job in left:
        try:
            if job.start is not None and job.start.slug in failed:
                raise InputError(f"it starts from {job.start.slug}, which failed")
            work_off(plan, job, instances, titles[job], tell, say)
        except InputError as error:
            failed[job.slug] = str(error)
            say(f"{titles[job]}: {error}")
    return failed


def _in_processes(
    plan: Plan, left: Sequence[Job], titles: Mapping[Job, str], at_once: int, tell: Tell, say: Say
) -> dict[str, str]:
    """Work runs off in processes of their own, and return why those failed that did."""
    plan_file = plan.out / "plan.json"
    write_json(plan_file, plain_plan(plan))
    tasks = [
        Task(
            job.slug,
            titles[job],
            [sys.executable, "-m", "rightlung.reproduce.wrong_lung.run", str(plan_file), job.slug, titles[job]],
            None if job.start is None else job.start.slug,
        )
        for job in left
    ]
    threads = max(1, usable_cores() // at_once)
    return in_processes(tasks, at_once, plan.out / "logs", threads=threads, tell=tell, say=say)


def _training(outcome: Mapping[str, Any], rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    judged = [row for row in rows if "validation loss" in row]
    images = int(outcome["steps"]) * recipe.batch.size * recipe.batch.accumulate
    return {
        "steps": outcome["steps"],
        "stopped_early": outcome["stopped_early"],
        "plateau": has_plateau([row["validation loss"] for row in judged], bool(outcome["stopped_early"])),
        "images": images,
        "pairs": images * recipe.data.train[0].texts,
        "seconds": round(float(outcome["seconds"]), 1),
        "device": outcome["device"],
        "left_out": len(outcome["left_out"]),
        "curve": [[int(row["step"]), row["validation loss"], row.get("validation pointing")] for row in judged],
    }


def has_plateau(losses: Sequence[float], stopped: bool) -> bool | None:
    """Whether a run has come to rest: stopped by its patience, or hardly better in its last third than before.

    Hardly is 2 % of what it has gained altogether. None where there are fewer than six validations to tell by.
    """
    if stopped:
        return True
    if len(losses) < 6:
        return None
    last = len(losses) - len(losses) // 3
    gained = losses[0] - min(losses)
    return min(losses[:last]) - min(losses[last:]) <= 0.02 * max(gained, 0.0)


# ------------------------------------------------------------------ other rows


def _measure_priors(plan: Plan, instances: Instances, tell: Tell) -> None:
    """Measure the priors that never look at an image: what a map owes to the words alone."""
    has_exact = any("exact" in instance.targets for instance in instances)
    for order, (slug, name, target) in enumerate(
        (("prior", "Location prior", "exact"), ("prior-regions", "Location prior, of region boxes", "regions"))
    ):
        folder = plan.measures(slug)
        if is_measured(folder, instances) or (target == "exact" and not has_exact):
            continue
        about = {
            "slug": slug, "variant": slug, "name": name, "group": "reference", "comparable": True, "seed": None,
            "order": 1000 + order, "note": "finding, side and zone of the words; never sees an image",
        }  # fmt: skip
        measure_prior(
            instances,
            folder,
            about=about,
            fitted_on=target,  # type: ignore[arg-type]  # one of the two
            device=plan.device,
            progress=lambda done, total, slug=slug: tell(f"measuring {slug}", done, total),  # type: ignore[misc]
        )


def own_slug(name: str) -> str:
    """Return what the folder of somebody's model is called, apart from all variants."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-").lower()
    return f"own-{plain[-_LONGEST_SLUG:]}"


def _own_models(plan: Plan) -> dict[str, str]:
    """Return the folders of somebody's models by their names; what cannot be loaded or told apart is refused now."""
    found: dict[str, str] = {}
    for name in plan.models:
        slug = own_slug(name)
        if twin := next((other for other, taken in found.items() if taken == slug), None):
            raise InputError(f"--model {twin} and --model {name} would be the same row, {slug}; rename one of them")
        mark = plan.measures(slug) / "about.json"
        if mark.exists() and (kept := read_json(mark).get("name")) != name:
            raise InputError(
                f"{mark.parent}: is the row of --model {kept}, and --model {name} would be, too; rename it"
            )
        model = load(name, plan.device)
        if not isinstance(model, Grounder | RegionGrounder):
            raise InputError(f"--model {name}: a {type(model).__name__} cannot ground phrases: nothing to measure")
        found[name] = slug
    return found


def _measure_own(plan: Plan, instances: Instances, own: Mapping[str, str], tell: Tell, say: Say) -> dict[str, str]:
    """Measure somebody's models as more rows, and return why those failed that did.

    One whose weights are not those that were measured is measured again, and so is one without weights to tell by.
    """
    failed: dict[str, str] = {}
    for name, slug in own.items():
        folder, model = plan.measures(slug), load(name, plan.device)
        weights = weights_digest(model)
        if is_measured(folder, instances) and weights == read_json(folder / "about.json").get("weights") is not None:
            continue
        say(f"{slug}: measuring")
        (folder / "about.json").unlink(missing_ok=True)
        about: dict[str, Any] = {
            "slug": slug, "variant": slug, "name": name, "group": "ours", "comparable": is_comparable(model),
            "seed": None, "order": 2000, "note": "a model of one's own", "training": None, "weights": weights,
            "sees": keep_examples(model, instances, folder),
        }  # fmt: skip
        try:
            measure(
                model,
                instances,
                folder,
                about=about,
                device=plan.device,
                progress=lambda done, total, slug=slug: tell(f"measuring {slug}", done, total),  # type: ignore[misc]
            )
        except InputError as error:
            failed[slug] = str(error)
            say(f"{slug}: {error}")
    return failed


# ------------------------------------------------------------------ what is kept of the run itself


def _keep_commands(out: Path, commands: Sequence[str]) -> list[str]:
    """Add commands to those that were typed before, and return all; one typed again at once is not listed twice."""
    path = out / "commands.json"
    typed = [str(command) for command in read_json(path).get("commands", [])] if path.exists() else []
    for command in commands:
        if typed[-1:] != [command]:
            typed.append(command)
    write_json(path, {"commands": typed})
    return typed


def _keep_missing(plan: Plan, missing: Mapping[str, str], instances: Instances) -> None:
    """Write down what is missing and why, of this run and, where it still is, of those before."""
    path = plan.out / "run.json"
    earlier = read_json(path).get("missing", {}) if path.exists() else {}
    known = {**earlier, **missing}
    still = {
        slug: reason
        for slug, reason in known.items()
        if slug in missing or not is_measured(plan.measures(slug), instances)
    }
    write_json(path, {"quick": plan.quick, "missing": still})


def _left_out(plan: Plan, instances: Instances, slugs: Sequence[str], missing: Mapping[str, str]) -> list[str]:
    """Say what was to be there and is not: rows and studies of the source, variants, answers."""
    said = [f"{plan.measured_on}: {reason}: {count:,}" for reason, count in instances.unread.items()]
    said += [f"{plan.measured_on}: the first of them: {problem}" for problem in instances.about["problems"][:1]]
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
    """Work off one run of a plan in whose folder all is prepared: what the processes of `in_processes` do."""
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    plan_file, slug, title = arguments
    try:
        plan = plan_from(read_json(Path(plan_file)))
        job = next(job for job in jobs((slug,), plan.seeds) if job.slug == slug)
        work_off(plan, job, open_instances(plan.out), title, lambda *_: None, say)
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

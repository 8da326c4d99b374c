"""``rightlung reproduce wrong-lung``: every variant trained, measured and put on one page; it may be stopped anywhere.

::

    instances.parquet, instances.json, cache/    what is asked (`instances`)
    pools/                                       the training studies, filled once for all runs
    runs/<slug>/                                 training runs
    measures/<slug>/                             what came of asking each model (`measuring`)
    page.html, results.md, results.json          what it says

Each part that is whole is not done again. Several variants can be worked on at once, each in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from rightlung.core import InputError
from rightlung.models.registry import load
from rightlung.reproduce.wrong_lung.examples import draw_examples, keep_examples
from rightlung.reproduce.wrong_lung.files import read_json, write_json
from rightlung.reproduce.wrong_lung.instances import Instances, prepare
from rightlung.reproduce.wrong_lung.measuring import is_measured, measure
from rightlung.reproduce.wrong_lung.page import write_page
from rightlung.reproduce.wrong_lung.prior_row import measure_prior
from rightlung.reproduce.wrong_lung.rehearsal import check_known, measure_known
from rightlung.reproduce.wrong_lung.variants import BY_SLUG, Job, jobs
from rightlung.studies.sources import parse_address
from rightlung.training.loop import Machine, train
from rightlung.training.recipe import Recipe, read_recipe
from rightlung.training.watching import Progress, Row, read_log

SOURCE = "phantom?count=600&seed=13"
QUICK_SOURCE = "phantom?count=24&seed=13&size=96"
FEW_SHOTS = 500
"""Studies of one's own among which those are looked for that attention is shown."""

Tell = Callable[[str, float, float], None]
"""Called with what is being done, how much of it is done and how much there is."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be reproduced, and on what. Without sources of one's own everything is made up."""

    out: Path
    source: str | None = None
    train: str | None = None
    validation: str | None = None
    only: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    seeds: int = 3
    size: int = 224
    limit: int | None = None
    changes: tuple[str, ...] = ()
    machine: Machine = field(default_factory=Machine)
    quick: bool = False

    @property
    def measured_on(self) -> str:
        """The source of the instances."""
        return self.source or (QUICK_SOURCE if self.quick else SOURCE)

    @property
    def device(self) -> str:
        """Where models are asked, and maps scored."""
        accelerator = self.machine.accelerator
        if accelerator == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return accelerator


def reproduce(
    plan: Plan,
    *,
    at_once: int = 1,
    page: bool = True,
    commands: Sequence[str] = (),
    tell: Tell = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Do all that is not done yet, and return the files of the page (none without ``page``).

    ``at_once`` variants are trained and measured at a time, each in a process of its own.
    """
    wanted = jobs(plan.only, 1 if plan.quick else plan.seeds)
    _check_sources(plan)
    instances = prepare(
        plan.measured_on,
        plan.out,
        limit=plan.limit,
        size=64 if plan.quick else plan.size,
        progress=lambda done, total: tell("preparing instances", done, total),
    )
    _measure_priors(plan, instances, tell)
    if plan.quick:
        measure_known(instances, plan.out, plan.device)
        for sentence in check_known(plan.out):
            say(sentence)
    for name in plan.models:
        _measure_own(plan, instances, name, tell)
    if at_once > 1 and len(wanted) > 1:
        _in_processes(plan, wanted, at_once, tell)
    else:
        for number, job in enumerate(wanted):
            tell(job.slug, number, len(wanted))
            work_off(plan, job, instances, tell)
    if not page:
        return []
    tell("writing the page", 0, 1)
    return write_page(plan.out, draw_examples(instances), commands=commands)


def work_off(plan: Plan, job: Job, instances: Instances, tell: Tell) -> None:
    """Train one variant and measure it, as far as that is not done."""
    if job.variant.start is not None:
        start = replace(job, variant=BY_SLUG[job.variant.start])
        if not (plan.out / "runs" / start.slug / "finished.json").is_file():
            work_off(plan, start, instances, tell)
    folder = plan.out / "measures" / job.slug
    if is_measured(folder, instances):
        return
    run = plan.out / "runs" / job.slug
    recipe = recipe_of(plan, job)
    outcome = train(recipe, run, resume=True, machine=plan.machine, progress=Progress())
    about = job.about() | {"training": _training(asdict(outcome), read_log(run / "log.csv"), recipe)}
    model = load(outcome.model, plan.device)
    about["sees"] = keep_examples(model, instances, folder)
    measure(
        model,
        instances,
        folder,
        about=about,
        device=plan.device,
        progress=lambda done, total: tell(f"measuring {job.slug}", done, total),
    )


def recipe_of(plan: Plan, job: Job) -> Recipe:
    """Return the recipe of a run on the plan's studies."""
    variant = job.variant
    changes = [f"seed={job.seed}", f"data.keep={json.dumps(str(plan.out / 'pools'))}"]
    if variant.start is not None:
        start = replace(job, variant=BY_SLUG[variant.start])
        changes.append(f"model.start={json.dumps(str(plan.out / 'runs' / start.slug / 'model'))}")
    for place, source in (("data.train[0]", plan.train), ("data.validation", plan.validation)):
        if source is not None:
            held = "null" if variant.start is None else str(FEW_SHOTS)
            changes += [f"{place}.source={json.dumps(source)}", f"{place}.pool={held}"]
    if plan.quick:
        changes += _quick_changes(variant.start is not None, variant.slug == "uniter")
    return read_recipe(variant.recipe, [*changes, *plan.changes])


def _quick_changes(few_shots: bool, boxes: bool) -> list[str]:
    """Return what makes a run take a second: a tiny model, few studies, a few steps. It learns nothing."""
    if few_shots:
        return [
            "data.size=64", "data.grid=16", "data.workers=0", "schedule={steps: 4, patience: 3}", "batch.size=8",
            "data.train[0].source=phantom?count=24&seed=21", "data.train[0].pool=24", "data.train[0].examples=8",
            "data.validation.source=phantom?count=24&seed=22", "data.validation.pool=24", "data.validation.examples=8",
        ]  # fmt: skip
    tiny = "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32}"
    model = [
        "model.config.size=64", f"model.config.options={tiny}", "model.config.vocabulary=300",
    ] if boxes else [
        "model.config.image.size=64", f"model.config.text.options={tiny}", "model.config.text.vocabulary=300",
        "model.config.image.options={embedding_size: 8, hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], "
        "layer_type: basic}", "model.config.dimension=16",
    ]  # fmt: skip
    return [
        *model, "data.size=64", "data.grid=16", "data.workers=0", "schedule.steps=4", "schedule.warm_up=1",
        "batch.size=16", "data.train[0].source=phantom?count=48&seed=11", "data.train[0].pool=48",
        "data.validation.source=phantom?count=16&seed=12", "data.validation.pool=16", "data.validation.every=2",
        "data.validation.grounded=8",
    ]  # fmt: skip


def _check_sources(plan: Plan) -> None:
    """Say before anything is done that variants cannot learn from made-up studies what is asked of others."""
    if plan.source is None or parse_address(plan.source).scheme == "phantom" or plan.only == ("none",):
        return
    for name in ("train", "validation"):
        if getattr(plan, name) is None:
            raise InputError(
                f"--source {plan.source} is not made up, so --{name} must name what the variants learn from, too"
            )


def _measure_priors(plan: Plan, instances: Instances, tell: Tell) -> None:
    """Measure the priors that never look at an image: what a map owes to the words alone."""
    has_exact = any("exact" in instance.targets for instance in instances)
    for order, (slug, name, target) in enumerate(
        (("prior", "Location prior", "exact"), ("prior-regions", "Location prior, of region boxes", "regions"))
    ):
        folder = plan.out / "measures" / slug
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


def _measure_own(plan: Plan, instances: Instances, name: str, tell: Tell) -> None:
    """Measure somebody's model as one more row."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-").lower()
    folder = plan.out / "measures" / slug
    if is_measured(folder, instances):
        return
    model = load(name, plan.device)
    about: dict[str, Any] = {
        "slug": slug, "variant": slug, "name": name, "group": "ours", "comparable": True, "seed": None,
        "order": 2000, "note": "a model of one's own", "training": None,
    }  # fmt: skip
    about["sees"] = keep_examples(model, instances, folder)
    measure(
        model,
        instances,
        folder,
        about=about,
        device=plan.device,
        progress=lambda done, total: tell(f"measuring {slug}", done, total),
    )


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


def _in_processes(plan: Plan, wanted: Sequence[Job], at_once: int, tell: Tell) -> None:
    """Work jobs off in processes of their own, those that others start from first."""
    done = {job.slug: threading.Event() for job in wanted}
    finished = threading.Semaphore(0)
    failed: list[str] = []
    plan_file = plan.out / "plan.json"
    write_json(plan_file, plain_plan(plan))

    def work(job: Job) -> None:
        try:
            start = None if job.variant.start is None else replace(job, variant=BY_SLUG[job.variant.start]).slug
            if start is not None and start in done:
                done[start].wait()
            if failed:
                return
            log = plan.out / "logs" / f"{job.slug}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "rightlung.reproduce.wrong_lung.run", str(plan_file), job.slug]
            with log.open("a", encoding="utf-8") as file:
                code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
            if code:
                said = log.read_text(encoding="utf-8").strip().splitlines()
                failed.append(f"{job.slug} failed (see {log}): {said[-1] if said else f'exit code {code}'}")
        finally:
            done[job.slug].set()
            finished.release()

    # A job that waits for another takes a place: those that others start from come first, so that none waits for ever.
    ordered = sorted(wanted, key=lambda job: job.variant.start is not None)
    with ThreadPoolExecutor(at_once) as pool, contextlib.suppress(KeyboardInterrupt):
        for job in ordered:
            pool.submit(work, job)
        for number in range(len(ordered)):
            tell("variants", number, len(ordered))
            finished.acquire()
    if failed:
        raise InputError("; ".join(failed))


def plain_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    return asdict(plan) | {"out": str(plan.out)}


def plan_from(given: Mapping[str, Any]) -> Plan:
    """Return the plan that `plain_plan` has written."""
    listed = {name: tuple(given[name]) for name in ("only", "models", "changes")}
    return Plan(**{**given, **listed, "out": Path(given["out"]), "machine": Machine(**given["machine"])})


def main(arguments: Sequence[str]) -> None:
    """Work off one job of a plan: what the processes run."""
    plan = plan_from(read_json(Path(arguments[0])))
    job = next(job for job in jobs((arguments[1],), plan.seeds) if job.slug == arguments[1])
    instances = prepare(plan.measured_on, plan.out, limit=plan.limit, size=64 if plan.quick else plan.size)
    work_off(plan, job, instances, lambda *_: None)


if __name__ == "__main__":
    main(sys.argv[1:])

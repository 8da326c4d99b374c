"""The plan of a reproduction: what to run on which data, and the recipe of every run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rightlung.core import InputError
from rightlung.core.errors import unknown_name
from rightlung.core.files import read_json
from rightlung.core.settings import plain_settings
from rightlung.measuring import Protocol
from rightlung.reproduce.papers import Paper, find_paper
from rightlung.reproduce.variants import QUICK_FEW_SHOTS, QUICK_POOLS, Job, jobs, with_starts
from rightlung.studies.sources import open_source, parse_address
from rightlung.training.folder import MAY_CHANGE_ON_RESUME, RunFolder
from rightlung.training.loop import Hardware
from rightlung.training.recipe import Recipe, differing_fields
from rightlung.training.recipe_file import read_recipe, read_stages
from rightlung.training.setup import CACHE_WHOLE_BELOW

FEW_SHOTS = 500
"""Number of the user's studies from which a few-shot variant picks its examples."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to reproduce, and on which data. Default: synthetic data."""

    paper_name: str
    out: Path
    source: str | None = None
    train: str | None = None
    validation: str | None = None
    only: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    seeds: int = 3
    pixels: int | None = None
    limit: int | None = None
    changes: tuple[str, ...] = ()
    hardware: Hardware = field(default_factory=Hardware)
    quick: bool = False
    measure: bool = True
    """Whether to measure what needs no model. Otherwise a later call does, on any machine."""

    @property
    def paper(self) -> Paper:
        """The paper."""
        return find_paper(self.paper_name)

    @property
    def measured_on(self) -> str:
        """The source of the test studies."""
        return self.source or (self.paper.quick_source if self.quick else self.paper.source)

    @property
    def protocol(self) -> Protocol:
        """The protocol; ``--quick`` uses small targets."""
        pixels = self.pixels or (64 if self.quick else None)
        return self.paper.protocol if pixels is None else replace(self.paper.protocol, pixels=pixels)

    @property
    def device(self) -> str:
        """The device for inference and scoring."""
        accelerator = self.hardware.accelerator
        if accelerator == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return accelerator

    def jobs(self, only: Sequence[str] = ()) -> list[Job]:
        """Return the paper's runs, all or some."""
        return jobs(self.paper.variants, only, 1 if self.quick else self.seeds)

    def wanted(self) -> list[Job]:
        """Return the selected runs."""
        return self.jobs(self.only)

    def measures(self, slug: str) -> Path:
        """Return the folder of a model's measures."""
        return self.out / "measures" / slug

    def predictions(self, slug: str) -> Path:
        """Return the folder of a model's predictions."""
        return self.out / "predictions" / slug

    def run(self, job: Job) -> RunFolder:
        """Return the folder of a training run; of its last stage, if it has several."""
        *_, last = stage_names(job.variant.recipe)
        return RunFolder(self.out / "runs" / job.slug / last)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self) | {"out": str(self.out)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Plan:
        """Return the plan of JSON values made by `as_json`."""
        listed = {name: tuple(given[name]) for name in ("only", "models", "changes")}
        return cls(**{**given, **listed, "out": Path(given["out"]), "hardware": Hardware(**given["hardware"])})


def check_plan(plan: Plan) -> None:
    """Raise an error for settings that cannot work, before anything is run."""
    accelerator = plan.hardware.accelerator
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not usable.get(accelerator, True):
        raise InputError(f"--accelerator {accelerator}: not available on this machine; use cpu")
    wanted = plan.wanted()
    if plan.source is not None and parse_address(plan.source).scheme != "phantom" and wanted:
        for name in ("train", "validation"):
            if getattr(plan, name) is None:
                raise InputError(
                    f"--source {plan.source} is not synthetic, so the training data must be given, too: --{name} SOURCE"
                )
    named = {name for job in with_starts(wanted) for name in (*_names(job), *stage_names(job.variant.recipe))}
    for change in plan.changes:
        of, _ = _split(change)
        if not wanted:
            raise InputError(f"--set {change}: no variant is selected, so there is no recipe to change")
        if of is not None and of not in named:
            known = {name for job in plan.jobs() for name in _names(job)}
            if of not in known:
                raise unknown_name("variant", of, known)
            raise InputError(f"--set {change}: variant {of} is not among the selected ones (--only)")


def check_same_recipe(plan: Plan, job: Job, recipes: Mapping[str, Recipe]) -> None:
    """Raise an error if a run in the folder used another recipe than the plan has now."""
    mark = plan.measures(job.slug) / "about.json"
    folders = stage_folders(plan, job)
    if not mark.exists():
        for stage, recipe in recipes.items():
            folders[stage].check(recipe, resume=True)
        return
    if read_json(mark).get("recipe") == recipe_digest(plan, job):
        return
    which = [
        name
        for stage, recipe in recipes.items()
        if folders[stage].recipe.is_file()
        for name in differing_fields(read_recipe(folders[stage].recipe), recipe)
        if name not in MAY_CHANGE_ON_RESUME
    ]
    differs = f", which differs in {', '.join(which[:5])}" if which else ""
    raise InputError(
        f"{mark}: {job.slug} was trained with another recipe{differs}; repeat the first command or choose another --out"
    )


@lru_cache(maxsize=64)
def stage_names(recipe: str) -> tuple[str, ...]:
    """Return the names of a recipe's stages; one without stages has one, named ""."""
    return tuple(read_stages(recipe))


def _given_recipes(plan: Plan, job: Job) -> dict[str, Recipe]:
    """Return the recipes of a run's stages with the plan's data and changes, starting from each other by name."""
    changes = [*job.variant.changes, f"seed={job.seed}", f"data.cache_folder={json.dumps(str(plan.out / 'pools'))}"]
    if plan.quick:
        changes += plan.paper.quick_changes(job)
    if (start := job.start) is not None and job.few_shot:
        model = plan.run(start).model.absolute()
        changes.append(f"model.start={json.dumps(str(model))}")
    return read_stages(job.variant.recipe, [*changes, *_own_sources(plan, job), *changes_of(plan.changes, job)])


def recipes_of(plan: Plan, job: Job) -> dict[str, Recipe]:
    """Return the recipes of a run by stage, each starting from the folder that the stage before has."""
    folders, recipes = stage_folders(plan, job), _given_recipes(plan, job)
    for before, stage in pairwise(recipes):
        start = str(folders[before].model.absolute())
        recipes[stage] = replace(recipes[stage], model=replace(recipes[stage].model, start=start))
    return recipes


def training_source(plan: Plan) -> str | None:
    """Return the source that the first variant is trained on; None if a later call does not know it."""
    jobs = plan.jobs()
    if plan.train is not None or not jobs or parse_address(plan.measured_on).scheme != "phantom":
        return plan.train
    *_, recipe = _given_recipes(plan, jobs[0]).values()
    return recipe.data.train[0].source


def stage_folders(plan: Plan, job: Job) -> dict[str, RunFolder]:
    """Return the folder of each stage; the last is the run's own, others are shared by runs that begin alike.

    Variants often differ in their later stages only: ChEX's encoders are trained once for each seed.
    """
    digests = stage_digests(plan, job)
    folders = {stage: RunFolder(plan.out / "runs" / "shared" / digests[stage] / stage) for stage in list(digests)[:-1]}
    return folders | {list(digests)[-1]: plan.run(job)}


def stage_digests(plan: Plan, job: Job) -> dict[str, str]:
    """Return a short hash, for each stage, of everything that determines its weights, independent of its folder."""
    digests: dict[str, str] = {}
    before = None if job.start is None else recipe_digest(plan, job.start)
    for stage, recipe in _given_recipes(plan, job).items():
        plain = plain_settings(recipe)
        for path in MAY_CHANGE_ON_RESUME:
            *above, name = path.split(".")
            place = plain
            for step in above:
                place = place[step]
            place.pop(name, None)
        if before is not None:
            plain["model"]["start"] = before
        before = digests[stage] = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
    return digests


def recipe_digest(plan: Plan, job: Job) -> str:
    """Return the hash of a run's last stage, which includes those before."""
    return list(stage_digests(plan, job).values())[-1]


def changes_of(changes: Sequence[str], job: Job) -> list[str]:
    """Return the changes (``--set``) for a run: those for all runs first, then those for a stage, then its own.

    Changes for all runs do not apply to the steps, batch size and studies of few-shot variants, which define them.
    """
    split = [_split(change) for change in changes]
    few = job.few_shot
    for_all = [change for name, change in split if name is None and not (few and _defines_few_shots(change))]
    stages = set(stage_names(job.variant.recipe))
    of_stages = [f"{name}:{change}" for name, change in split if name and name in stages]
    return [*for_all, *of_stages, *(change for name, change in split if name in _names(job))]


def ignored_by_few_shots(changes: Sequence[str], wanted: Sequence[Job]) -> list[str]:
    """Return the changes for all runs that do not apply to the selected few-shot variants."""
    if not any(job.few_shot for job in wanted):
        return []
    return [change for name, change in map(_split, changes) if name is None and _defines_few_shots(change)]


def _names(job: Job) -> tuple[str, str]:
    return job.slug, job.variant.slug


def _split(change: str) -> tuple[str | None, str]:
    """Return the variant of a change (None for all) and the change itself."""
    path = change.partition("=")[0]
    name, colon, _ = path.partition(":")
    return (name.strip(), change[len(name) + 1 :]) if colon else (None, change)


def _defines_few_shots(change: str) -> bool:
    steps = [part for part in re.split(r"[.\[\]]+", change.partition("=")[0].strip()) if part]
    whole = (["data"], ["data", "train"], ["data", "train", "0"], ["data", "validation"])
    schedule = steps[:1] in (["schedule"], ["batch_size"], ["gradient_accumulation"])
    return schedule or steps in whole or (steps[:1] == ["data"] and "few_shot_studies" in steps)


@lru_cache(maxsize=8)
def _count(address: str) -> int:
    count = len(open_source(address))
    if not count:
        raise InputError(f"{address} has no studies")
    return count


def _own_sources(plan: Plan, job: Job) -> list[str]:
    """Return the recipe changes for the user's data; a variant that selects studies holds as many as it can."""
    found = []
    for name, place in (("train", "data.train[0]"), ("validation", "data.validation")):
        source = getattr(plan, name)
        if source is None:
            continue
        count = _count(source)
        if job.few_shot:
            pool: int | None = min(count, QUICK_FEW_SHOTS if plan.quick else FEW_SHOTS)
        elif plan.quick:
            pool = min(count, QUICK_POOLS[name])
        else:
            pool = min(count, CACHE_WHOLE_BELOW) if job.variant.picks or count <= CACHE_WHOLE_BELOW else None
        found += [f"{place}.source={json.dumps(source)}", f"{place}.cached_studies={'null' if pool is None else pool}"]
    return found

"""``rightlung reproduce``: the experiments of a paper, as one command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import print_json, say
from rightlung.cli.stages import stages
from rightlung.core.errors import unknown_name

if TYPE_CHECKING:
    from rightlung.reproduce.wrong_lung.run import Plan

PAPERS = ("wrong-lung",)


def run(paper: str, plan: Plan, at_once: int, page: bool, json: bool) -> None:
    """Do what is left to do, and say where the page is."""
    if paper not in PAPERS:
        raise unknown_name("paper", paper, PAPERS)
    from rightlung.reproduce.wrong_lung.run import reproduce

    command = shlex.join(["rightlung", *sys.argv[1:]])
    with stages() as tell:
        files = reproduce(plan, at_once=at_once, page=page, commands=(command,), tell=tell, say=say)
    if json:
        print_json({"files": [str(path) for path in files], "note": NOT_A_MEDICAL_DEVICE})
        return
    if files:
        say(f"{files[0]}: open it in a browser")
        for path in files[1:3]:
            say(f"  {path}")
    else:
        say(f"{plan.out}: done, no page written")
    say(f"  {NOT_A_MEDICAL_DEVICE}")


def plan_for(
    out: Path,
    source: str | None,
    train: str | None,
    validation: str | None,
    only: list[str],
    model: list[str],
    seeds: int,
    limit: int | None,
    change: list[str],
    accelerator: str,
    quick: bool,
) -> Plan:
    """Return the plan that the options describe."""
    from rightlung.cli.train import ACCELERATORS
    from rightlung.reproduce.wrong_lung.run import Plan
    from rightlung.training.loop import Machine

    if accelerator not in ACCELERATORS:
        raise unknown_name("accelerator", accelerator, ACCELERATORS)
    return Plan(
        out=out,
        source=source,
        train=train,
        validation=validation,
        only=tuple(name for names in only for name in names.split(",") if name),
        models=tuple(model),
        seeds=seeds,
        limit=limit,
        changes=tuple(change),
        machine=Machine(accelerator=accelerator),  # type: ignore[arg-type]  # checked above
        quick=quick,
    )

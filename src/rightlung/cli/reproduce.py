"""``rightlung reproduce``: the experiments of a paper, as one command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.exits import Exit
from rightlung.cli.output import print_json, say
from rightlung.core import InputError
from rightlung.core.errors import unknown_name
from rightlung.core.progress import ProgressBars

if TYPE_CHECKING:
    from rightlung.reproduce.wrong_lung.plan import Plan

PAPERS = ("wrong-lung",)


def run(paper: str, plan: Plan, at_once: int, page: bool, json: bool) -> None:
    """Do what is left to do, and say where the page is and what was left out."""
    if paper not in PAPERS:
        raise unknown_name("paper", paper, PAPERS)
    from rightlung.reproduce.wrong_lung.run import reproduce

    command = shlex.join(["rightlung", *sys.argv[1:]])
    with ProgressBars(say) as shown:
        done = reproduce(plan, at_once=at_once, page=page, commands=(command,), tell=shown, say=shown.say)
    if json:
        files = [str(path) for path in done.files]
        print_json({"files": files, "left_out": list(done.left_out), "note": NOT_A_MEDICAL_DEVICE})
    else:
        _describe(plan, done.files)
        for number, sentence in enumerate(done.left_out):
            say(f"left out, and why:\n  {sentence}" if not number else f"  {sentence}")
        say(f"  {NOT_A_MEDICAL_DEVICE}")
    if done.left_out:
        raise typer.Exit(Exit.SOME_LEFT_OUT)


def _describe(plan: Plan, files: tuple[Path, ...]) -> None:
    if not files:
        say(f"{plan.out}: done, no page written")
        return
    say(f"{files[0]}: open it in a browser")
    for path in files[1:3]:
        say(f"  {path}")


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
    from rightlung.reproduce.wrong_lung.plan import Plan
    from rightlung.training.loop import Machine

    if accelerator not in ACCELERATORS:
        raise unknown_name("accelerator", accelerator, ACCELERATORS)
    names = tuple(name for given in only for name in given.split(",") if name)
    if only and not names:
        raise InputError("--only names no variant; none trains none")
    return Plan(
        out=out,
        source=source,
        train=train,
        validation=validation,
        only=names,
        models=tuple(model),
        seeds=seeds,
        limit=limit,
        changes=tuple(change),
        machine=Machine(accelerator=accelerator),  # type: ignore[arg-type]  # checked above
        quick=quick,
    )

"""``rightlung reproduce``: the experiments of a paper, as one command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, print_json, say, say_table
from rightlung.core import InputError
from rightlung.core.errors import unknown_name
from rightlung.core.progress import ProgressBars

if TYPE_CHECKING:
    from rightlung.reproduce.plan import Plan


def list_all(json: bool) -> None:
    """List the papers that can be reproduced."""
    from rightlung.reproduce.papers import list_papers

    papers = list_papers()
    if json:
        print_json([{"name": one.name, "summary": one.summary, "variants": len(one.variants)} for one in papers])
        return
    rows = [[one.name, str(len(one.variants)), one.summary] for one in papers]
    say_table(["paper", "variants", "what"], rows, words=["what"])
    say("\nrightlung reproduce PAPER --quick --out DIR   # checks the machinery in about a minute")


def run(plan: Plan, at_once: int, page: bool, judgements: Path | None, key: Path | None, json: bool) -> None:
    """Do what is left to do, and say where the page is and what was left out."""
    from rightlung.reproduce.experiment import reproduce

    command = shlex.join(["rightlung", *sys.argv[1:]])
    with ProgressBars(say) as shown:
        done = reproduce(
            plan, at_once=at_once, page=page, judgements=judgements, key=key, commands=(command,),
            progress=shown, say=shown.say,
        )  # fmt: skip

    def tell() -> None:
        if done.files:
            say(f"{done.files[0]}: open it in a browser")
            for path in done.files[1:3]:
                say(f"  {path}")
        else:
            say(f"{plan.out}: done, no page written")
        for number, sentence in enumerate(done.left_out):
            say(f"left out, and why:\n  {sentence}" if not number else f"  {sentence}")
        say(f"  {NOT_A_MEDICAL_DEVICE}")

    result = {"files": [str(path) for path in done.files], "left_out": list(done.left_out)}
    finish(json, result | {"note": NOT_A_MEDICAL_DEVICE}, tell, done.left_out)


def plan_for(
    paper: str,
    out: Path | None,
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
    from rightlung.reproduce.papers import find_paper
    from rightlung.reproduce.plan import Plan
    from rightlung.training.loop import Machine

    find_paper(paper)
    if out is None:
        raise InputError(f"reproduce {paper} needs --out DIR, the folder to write to")
    if accelerator not in ACCELERATORS:
        raise unknown_name("accelerator", accelerator, ACCELERATORS)
    names = tuple(name for given in only for name in given.split(",") if name)
    if only and not names:
        raise InputError("--only names no variant; none trains none")
    return Plan(
        paper_name=paper,
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

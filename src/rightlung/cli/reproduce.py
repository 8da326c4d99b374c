"""``rightlung reproduce``: run the experiments of a paper."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.options import Accelerator, Json, Key, Texts, arg, opt
from rightlung.cli.output import finish, say, say_table
from rightlung.core import InputError
from rightlung.core.errors import check_known
from rightlung.core.progress import ProgressBars

if TYPE_CHECKING:
    from rightlung.reproduce.plan import Plan
    from rightlung.training.loop import Hardware

OVERRIDE_HELP = (
    "Override a recipe field of all variants, of one, or of one training stage (repeatable), such as sided:seed=1. "
    "Without NAME, few-shot variants keep their steps, batch sizes and numbers of examples."
)


def reproduce(
    paper: Annotated[str | None, arg("Paper, such as wrong-lung. Default: list all.", "PAPER")] = None,
    out: Annotated[Path | None, opt("Folder to write to. Finished parts are not repeated.", "DIR")] = None,
    source: Annotated[str | None, opt("Studies to test on. Default: synthetic.", "SOURCE", name="--source")] = None,
    train: Annotated[str | None, opt("Studies to train on. Default: synthetic.", "SOURCE")] = None,
    validation: Annotated[str | None, opt("Studies to validate on. Default: synthetic.", "SOURCE")] = None,
    only: Annotated[
        Texts, opt("Variants to run, in this order: retrained,sided or none (repeatable). Default: all.", "NAMES")
    ] = None,
    model: Annotated[Texts, opt("Further model to test (repeatable).", "MODEL", name="--model")] = None,
    seeds: Annotated[int, opt("Seeds to train each variant with; --quick uses one.", "N", min=1, max=10)] = 3,
    limit: Annotated[int | None, opt("Test on the first N studies only. Default: all.", "N", min=2)] = None,
    change: Annotated[Texts, opt(OVERRIDE_HELP, "[NAME:]FIELD=VALUE", name="--set")] = None,
    at_once: Annotated[int, opt("Number of variants to run in parallel, one process each.", "N", min=1)] = 1,
    accelerator: Accelerator = "auto",
    page: Annotated[bool, opt("Write the page at the end.", name="--page/--no-page")] = True,
    judgements: Annotated[Path | None, opt("Table of judgements to analyse; needs --key.", "TABLE")] = None,
    key: Key = None,
    measure: Annotated[
        bool, opt("Measure what needs no model; otherwise a later call does.", name="--measure/--no-measure")
    ] = True,
    quick: Annotated[bool, opt("Test the pipeline with tiny models in about a minute.", name="--quick")] = False,
    json: Json = False,
) -> None:
    """Reproduce the experiments of a paper.

    Trains or loads its models, tests them, and writes its tables, figures and claims as one page.
    """
    from rightlung.reproduce.papers import find_paper
    from rightlung.reproduce.plan import Plan

    if paper is None:
        if quick or any((out, source, train, validation, only, model, limit, change, judgements, key)):
            raise InputError("name the paper to reproduce; without options, rightlung reproduce lists them")
        list_all(json)
        return
    find_paper(paper)
    if out is None:
        raise InputError(f"reproduce {paper} needs --out DIR, the folder to write to")
    plan = Plan(
        paper, out, source, train, validation, split_names(only or ()), tuple(model or ()), seeds, limit=limit,
        changes=tuple(change or ()), hardware=hardware_of(accelerator), quick=quick, measure=measure,
    )  # fmt: skip
    run(plan, at_once, page, judgements, key, json)


def list_all(json: bool) -> None:
    """List the papers that can be reproduced."""
    from rightlung.reproduce.papers import list_papers

    papers = list_papers()

    def tell() -> None:
        rows = [[one.name, str(len(one.variants)), one.summary] for one in papers]
        say_table(["paper", "variants", "question"], rows, words=["question"])
        say("\nrightlung reproduce PAPER --quick --out DIR   # tests the pipeline in about a minute")

    finish(json, [{"name": one.name, "summary": one.summary, "variants": len(one.variants)} for one in papers], tell)


def run(plan: Plan, at_once: int, page: bool, judgements: Path | None, key: Path | None, json: bool) -> None:
    """Run what is not finished, and print where the page is and what was left out."""
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
            say(f"{plan.out}: done; no page was written")
        for number, sentence in enumerate(done.left_out):
            say(f"left out, and why:\n  {sentence}" if not number else f"  {sentence}")
        say(f"  {NOT_A_MEDICAL_DEVICE}")

    result = {"files": [str(path) for path in done.files], "left_out": list(done.left_out)}
    finish(json, result | {"note": NOT_A_MEDICAL_DEVICE}, tell, done.left_out)


def split_names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that ``--only`` names, separated by commas or by repeating the option."""
    names = tuple(name for part in given for name in part.split(",") if name)
    if given and not names:
        raise InputError("--only names no variant; to train none, write --only none")
    return names


def hardware_of(accelerator: str) -> Hardware:
    """Return one device of the named accelerator."""
    from rightlung.cli.train import ACCELERATORS
    from rightlung.training.loop import Hardware

    check_known("accelerator", accelerator, ACCELERATORS)
    return Hardware(accelerator=accelerator)  # type: ignore[arg-type]  # checked above

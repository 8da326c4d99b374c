"""``rightlung reproduce``: run the experiments of a paper."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say, say_table
from rightlung.core import InputError
from rightlung.core.errors import check_known
from rightlung.core.progress import ProgressBars

if TYPE_CHECKING:
    from rightlung.reproduce.plan import Plan
    from rightlung.training.loop import Hardware


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

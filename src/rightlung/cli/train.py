"""``rightlung train``: train a model from a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say, say_problems
from rightlung.core.errors import unknown_name

if TYPE_CHECKING:
    from rightlung.training.loop import TrainingOutcome

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
STRATEGIES = ("auto", "ddp", "fsdp")


def run(
    recipe_name: str,
    out: Path,
    resume: bool,
    changes: Sequence[str],
    steps: int | None,
    precision: str | None,
    machine: dict[str, Any],
    json: bool,
) -> None:
    """Train, and print where the model is."""
    for name, known in (("accelerator", ACCELERATORS), ("strategy", STRATEGIES)):
        if machine[name] not in known:
            raise unknown_name(name, machine[name], known)
    from rightlung.training.recipe import read_recipe

    changed = list(changes)
    if steps is not None:
        changed.append(f"schedule.steps={steps}")
    if precision is not None:
        changed.append(f"precision={precision}")
    recipe = read_recipe(recipe_name, changed)  # before the slow imports, so that a typo is reported at once

    from rightlung.training.loop import Machine, train
    from rightlung.training.watching import TrainingProgress

    try:
        outcome = train(recipe, out, resume=resume, machine=Machine(**machine), progress=TrainingProgress(say=say))
    except KeyboardInterrupt as error:
        say(str(error) or "interrupted; --resume continues from the last checkpoint, if there is one")
        raise
    result = {**asdict(outcome), "note": NOT_A_MEDICAL_DEVICE}
    finish(json, result, lambda: _describe(outcome, out), outcome.left_out)


def _describe(outcome: TrainingOutcome, out: Path) -> None:
    say(f"{outcome.model}: trained for {outcome.steps:,} steps, last loss {outcome.loss:.4g}")
    for name, value in outcome.validation.items():
        say(f"  validation {name}: {value:.4g}")
    say(f"  log: {out / 'log.csv'}, plotted in {out / 'curve.png'}")
    say(f"  to describe it: rightlung models {outcome.model}")
    say_problems(outcome.left_out, "studies could not be used and were left out")
    say(f"  {NOT_A_MEDICAL_DEVICE}")

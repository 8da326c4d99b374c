"""``rightlung train``: train a model from a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say, say_problems
from rightlung.core.errors import check_known

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
        check_known(name, machine[name], known)
    from rightlung.training.recipe import read_stages

    changed = list(changes)
    if steps is not None:
        changed.append(f"schedule.steps={steps}")
    if precision is not None:
        changed.append(f"precision={precision}")
    recipes = read_stages(recipe_name, changed, out)  # before the slow imports: a mistake is reported at once

    from rightlung.training.log import TrainingProgress
    from rightlung.training.loop import Machine, train

    outcomes: dict[str, TrainingOutcome] = {}
    try:
        for stage, recipe in recipes.items():
            progress = TrainingProgress(say=say, prefix=f"{stage}: " if stage else "")
            again = resume and (out / stage / "recipe.yaml").is_file()
            outcomes[stage] = train(recipe, out / stage, resume=again, machine=Machine(**machine), progress=progress)
    except KeyboardInterrupt as error:
        say(str(error) or "interrupted; --resume continues from the last checkpoint, if there is one")
        raise
    last, outcome = list(outcomes.items())[-1]
    result = {**asdict(outcome), "note": NOT_A_MEDICAL_DEVICE}
    if last:
        result["stages"] = {stage: asdict(one) for stage, one in outcomes.items()}
    finish(json, result, lambda: _describe(outcome, out / last), outcome.left_out)


def _describe(outcome: TrainingOutcome, out: Path) -> None:
    say(f"{outcome.model}: trained for {outcome.steps:,} steps, last loss {outcome.loss:.4g}")
    for name, value in outcome.validation.items():
        say(f"  validation {name}: {value:.4g}")
    say(f"  log: {out / 'log.csv'}, plotted in {out / 'curve.png'}")
    say(f"  to describe it: rightlung models {outcome.model}")
    say_problems(outcome.left_out, "studies could not be used and were left out")
    say(f"  {NOT_A_MEDICAL_DEVICE}")

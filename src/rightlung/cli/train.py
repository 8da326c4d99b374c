"""``rightlung train``: train a model from a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.options import Accelerator, Json, Texts, arg, opt
from rightlung.cli.output import finish, say, say_problems
from rightlung.core.errors import check_known

if TYPE_CHECKING:
    from rightlung.training.loop import TrainingOutcome

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
STRATEGIES = ("auto", "ddp", "fsdp")


def train(
    recipe: Annotated[str, arg("YAML file, or the name of a shipped recipe.", "RECIPE")],
    out: Annotated[Path, opt("Folder for checkpoints, log and model.", "DIR")],
    resume: Annotated[bool, opt("Continue the run in DIR.", name="--resume")] = False,
    restart: Annotated[bool, opt("Remove the checkpoints in DIR and train from step 0.", name="--restart")] = False,
    change: Annotated[
        Texts,
        opt(
            "Override a recipe field, such as seed=1, or finetune:seed=1 for one stage (repeatable).",
            "[STAGE:]FIELD=VALUE",
            name="--set",
        ),
    ] = None,
    steps: Annotated[int | None, opt("Number of steps. Default: the recipe's.", "N")] = None,
    precision: Annotated[str | None, opt("32-true, bf16-mixed or 16-mixed. Default: the recipe's.", "NAME")] = None,
    accelerator: Accelerator = "auto",
    devices: Annotated[int, opt("Number of devices on each machine, one process each.", "N", min=1)] = 1,
    nodes: Annotated[int, opt("Number of machines.", "N", min=1)] = 1,
    strategy: Annotated[str, opt("How to use several devices: auto, ddp or fsdp.", "NAME")] = "auto",
    json: Json = False,
) -> None:
    """Train a model from a recipe."""
    hardware = {"accelerator": accelerator, "devices": devices, "nodes": nodes, "strategy": strategy}
    run(recipe, out, resume, restart, change or [], steps, precision, hardware, json)


def run(
    recipe_name: str,
    out: Path,
    resume: bool,
    restart: bool,
    changes: Sequence[str],
    steps: int | None,
    precision: str | None,
    hardware: dict[str, Any],
    json: bool,
) -> None:
    """Train, and print where the model is."""
    for name, known in (("accelerator", ACCELERATORS), ("strategy", STRATEGIES)):
        check_known(name, hardware[name], known)
    from rightlung.training.recipe_file import read_stages

    changed = list(changes)
    if steps is not None:
        changed.append(f"schedule.steps={steps}")
    if precision is not None:
        changed.append(f"precision={precision}")
    recipes = read_stages(recipe_name, changed)  # before the slow imports: a mistake is reported at once

    from rightlung.training.log import TrainingProgress
    from rightlung.training.loop import Hardware, train

    outcomes: dict[str, TrainingOutcome] = {}
    try:
        for stage, recipe in recipes.items():
            progress = TrainingProgress(say=say, prefix=f"{stage}: " if stage else "")
            again = resume and (out / stage / "recipe.yaml").is_file()
            outcomes[stage] = train(
                recipe, out / stage, resume=again, restart=restart, hardware=Hardware(**hardware), progress=progress
            )
    except KeyboardInterrupt as error:
        say(str(error) or "interrupted; --resume continues from the last checkpoint, if there is one")
        raise
    last, outcome = list(outcomes.items())[-1]
    result = {**asdict(outcome), "note": NOT_A_MEDICAL_DEVICE}
    if last:
        result["stages"] = {stage: asdict(one) for stage, one in outcomes.items()}
    left_out = [reason for one in outcomes.values() for reason in one.left_out]
    finish(json, result, lambda: _describe(outcomes, out), left_out)


def _describe(outcomes: Mapping[str, TrainingOutcome], out: Path) -> None:
    for stage, outcome in outcomes.items():
        say(f"{outcome.model}: trained for {outcome.steps:,} steps, last loss {outcome.loss:.4g}")
        for name, value in outcome.validation.items():
            say(f"  validation {name}: {value:.4g}")
        say(f"  log: {out / stage / 'log.csv'}, plotted in {out / stage / 'curve.png'}")
        say_problems(outcome.left_out, "studies could not be used and were left out")
    say(f"To describe the model: rightlung models {outcome.model}")
    say(NOT_A_MEDICAL_DEVICE)

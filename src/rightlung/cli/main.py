"""The program ``rightlung`` and its commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.output import Exit, say
from rightlung.core.errors import InputError, OutputError

EPILOG = (
    f"Exit codes: {Exit.DONE:d} done, {Exit.BUG:d} a bug, {Exit.BAD_INPUT:d} bad input, "
    f"{Exit.SOME_LEFT_OUT:d} done but some rows were left out, {Exit.NOT_WRITTEN:d} output could not be written, "
    f"{Exit.INTERRUPTED:d} interrupted.  {NOT_A_MEDICAL_DEVICE}"
)

app = typer.Typer(
    name="rightlung",
    help="Ask a chest X-ray model where it is looking, and find out whether it is the right lung.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
data_app = typer.Typer(help="Look at studies: counts, pictures, and what is wrong with them.", no_args_is_help=True)
app.add_typer(data_app, name="data")
judgements_app = typer.Typer(help="People's judgements of heatmaps: plan, check, analyse.", no_args_is_help=True)
app.add_typer(judgements_app, name="judgements")

Texts = list[str] | None
CONDITION_HELP = "Probe to apply before asking (repeatable). Default: none, swap-sides, exchange-image."


def _argument(help: str, metavar: str | None = None) -> Any:
    return typer.Argument(help=help, metavar=metavar)


def _option(help: str, metavar: str | None = None, name: str | None = None, **limits: Any) -> Any:
    return typer.Option(*([name] if name else []), help=help, metavar=metavar, **limits)


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"rightlung {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def audit(
    what: Annotated[str, _argument("A predictions file or folder, or a model to ask.", "MODEL|PATH")],
    source: Annotated[str | None, _argument("Address of the studies; predictions may name it.", "SOURCE")] = None,
    out: Annotated[Path, _option("Folder to write to.", "DIR")] = Path("audit"),
    prior_source: Annotated[str | None, _option("Source to fit the image-blind prior on.", "SOURCE")] = None,
    condition: Annotated[Texts, _option(CONDITION_HELP)] = None,
    device: Annotated[str, _option("Where a model runs.")] = "cpu",
    batch_size: Annotated[int, _option("Questions a model is asked at once.", min=1)] = 32,
    resamples: Annotated[int, _option("Resamples behind each interval.", min=100)] = 10_000,
    level: Annotated[float, _option("Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, _option("Seed of the resampling.", min=0)] = 0,
    cases: Annotated[int, _option("Best and worst cases to draw, each.", min=0, max=50)] = 6,
    json: Json = False,
) -> None:
    """Score where a model looks beside a prior that never looks, and write a page."""
    from rightlung.cli.audit import run
    from rightlung.results.estimate import BootstrapSettings

    settings = BootstrapSettings(resamples, level, seed)
    run(what, source, out, prior_source, condition or [], device, batch_size, settings, cases, json)


@app.command()
def demo(
    out: Annotated[Path, _option("Folder to write to.", "DIR")] = Path("demo-output"),
    model: Annotated[str, _option("The model to ask: a name, a folder, or module:Class.")] = "starter",
    count: Annotated[int, _option("Studies to make.", min=2, max=10_000)] = 200,
    seed: Annotated[int, _option("Seed of the studies.", min=0)] = 4242,
    json: Json = False,
) -> None:
    """Make phantom studies, ask the shipped model where it sees every sentence, and audit its answers."""
    from rightlung.cli.demo import run

    run(out, model, count, seed, json)


@data_app.command("show")
def data_show(
    source: Annotated[str, _argument("Address of the studies, such as manifest:/data/mine.tar?split=val")],
    sheet: Annotated[Path | None, _option("Draw random studies with their boxes into this PNG.", "FILE")] = None,
    count: Annotated[int, _option("Studies on the sheet.", min=1, max=400)] = 30,
    seed: Annotated[int, _option("Seed of the random choice.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Say what a source holds, and draw random studies with their boxes."""
    from rightlung.cli.data import show

    show(source, sheet, count, seed, json)


@data_app.command("check")
def data_check(
    source: Annotated[str, _argument("Address of the studies, such as manifest:/data/mine.tar")],
    limit: Annotated[int | None, _option("Look at the first N studies only.", "N", min=1)] = None,
    images: Annotated[bool, _option("Decode images and masks.", name="--images/--no-images")] = True,
    least: Annotated[str, _option("Least severity to tell: error, warning or hint.", "SEVERITY")] = "hint",
    json: Json = False,
) -> None:
    """Find what is wrong with a source: files, ids, splits, boxes, sides, masks, reports, labels."""
    from rightlung.cli.data import check

    check(source, limit, images, least, json)


@app.command()
def ground(
    image: Annotated[str, _argument("A PNG, JPEG or DICOM file, a folder, or the address of a source.", "IMAGE")],
    phrases: Annotated[Texts, _argument("What to look for. Default: the source's own phrases.", "PHRASE…")] = None,
    model: Annotated[str, _option("Name or folder of the model.", "MODEL", name="--model")] = "starter",
    out: Annotated[Path, _option("Folder to write to; what it holds is not done again.", "DIR")] = Path("groundings"),
    batch_size: Annotated[int, _option("Phrases at a time; halved if memory runs out.", min=1)] = 16,
    device: Annotated[str | None, _option("cpu, cuda, cuda:1, …; the GPU if there is one.")] = None,
    force: Annotated[bool, _option("Read DICOM files of other than frontal chest views.", name="--force")] = False,
    json: Json = False,
) -> None:
    """Show where a model sees a phrase: overlays as PNG, boxes, peak and its side as JSON."""
    from rightlung.cli.ground import run

    run(image, phrases or [], model, out, batch_size, device, force, json)


@judgements_app.command("plan")
def judgements_plan(
    instances: Annotated[Path, _argument("What to judge: the folder of an experiment or an audit.", "INSTANCES")],
    out: Annotated[Path, _option("The table to fill in, CSV.", "TABLE")],
    key: Annotated[Path, _option("Which code is which model, CSV; not for annotators.", "KEY", name="--key")],
    annotator: Annotated[list[str], _option("Who judges. Repeatable.", "NAME")],
    model: Annotated[
        Texts,
        _option(
            "A model to judge (repeatable). Default: the model of an audit; the comparable variants of an "
            "experiment, without references, ablations and other seeds.",
            "NAME",
        ),
    ] = None,
    per_annotator: Annotated[int, _option("Prompts for each annotator.", "N", min=1)] = 50,
    overlap: Annotated[int, _option("Of those, prompts that all annotators judge.", "N", min=0)] = 10,
    abnormal: Annotated[bool, _option("Take abnormal phrases only.", name="--abnormal")] = False,
    seed: Annotated[int, _option("Seed of codes, choice and order.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Write an empty table of judgements, blinded and in an order by chance, and its key."""
    from rightlung.cli.judgements import make_plan

    make_plan(instances, model or [], annotator, per_annotator, overlap, seed, abnormal, out, key, json)


@judgements_app.command("check")
def judgements_check(
    table: Annotated[Path, _argument("A table of judgements, CSV or Parquet.", "TABLE")],
    key: Annotated[Path | None, _option("The key: its codes are the only ones.", "KEY", name="--key")] = None,
    instances: Annotated[
        Path | None, _option("Experiment or audit that the prompts come from.", "INSTANCES", name="--instances")
    ] = None,
    json: Json = False,
) -> None:
    """Check a table of judgements: ratings, doubled and half rows, blinding; say what it holds."""
    from rightlung.cli.judgements import check

    check(table, key, instances, json)


@judgements_app.command("analyse")
def judgements_analyse(
    table: Annotated[Path, _argument("A table of judgements, CSV or Parquet.", "TABLE")],
    out: Annotated[Path, _option("Folder to write to.", "DIR")],
    key: Annotated[Path | None, _option("Which code is which model, CSV.", "KEY", name="--key")] = None,
    measures: Annotated[
        list[Path] | None, _option("Experiment or audit to correlate with (repeatable); needs --key.")
    ] = None,
    instances: Annotated[Path | None, _option("Where patients and findings come from, if not from --measures.")] = None,
    resamples: Annotated[int, _option("Resamples behind each interval.", min=100)] = 10_000,
    level: Annotated[float, _option("Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, _option("Seed of the resampling.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Say what judgements tell of models, annotators and automatic measures, and write a page."""
    from rightlung.cli.judgements import analyse
    from rightlung.results.estimate import BootstrapSettings

    analyse(table, key, measures or [], instances, out, BootstrapSettings(resamples, level, seed), json)


@app.command()
def models(
    name: Annotated[
        str | None, _argument("A shipped model, a folder, or module:Class. Default: list all.", "NAME")
    ] = None,
    json: Json = False,
) -> None:
    """List the models that can be loaded, or describe one."""
    from rightlung.cli.models import describe, list_all

    if name is None:
        list_all(json)
    else:
        describe(name, json)


@app.command()
def phantom(
    out: Annotated[Path, _argument("Folder to write to; a run that was stopped goes on.", "OUT")],
    count: Annotated[int, _option("Studies to make.", "N")],
    seed: Annotated[int, _option("Same seed, same studies.", "S")],
    size: Annotated[int | None, _option("Pixels a side; 256 unless the configuration says else.")] = None,
    dicom: Annotated[bool, _option("Write DX DICOM files, too, under OUT/dicom.", name="--dicom")] = False,
    shortcut: Annotated[Texts, _option("Plant a fault: NAME[:FINDING]=STRENGTH (repeatable).", "FAULT")] = None,
    config: Annotated[Path | None, _option("TOML file with prevalences and more, see docs/phantom.md.", "FILE")] = None,
    json: Json = False,
) -> None:
    """Make up studies with exactly known truth and write them as a manifest folder."""
    from rightlung.cli.phantom import run

    run(out, count, seed, size, dicom, shortcut or [], config, json)


@app.command()
def predict(
    model: Annotated[str, _argument("Name or folder of the model.", "MODEL")],
    source: Annotated[str, _argument("Address of the studies, such as phantom?count=500&seed=7")],
    out: Annotated[Path, _option("Folder to write to; a run that was stopped goes on.", "P")],
    condition: Annotated[Texts, _option(CONDITION_HELP)] = None,
    query: Annotated[
        Texts, _option("Ask about phrases, image or regions (repeatable). Default: all it can answer.")
    ] = None,
    embeddings: Annotated[bool, _option("Keep embeddings of images and phrases.", name="--embeddings")] = False,
    batch_size: Annotated[int, _option("Questions at a time; halved if memory runs out.", min=1)] = 32,
    device: Annotated[str | None, _option("cpu, cuda, cuda:1, …; the GPU if there is one.")] = None,
    limit: Annotated[int | None, _option("Ask about the first N studies only.", "N", min=1)] = None,
    seed: Annotated[int, _option("Seed of the conditions that draw by chance.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Ask a model about every study of a source and write a predictions file."""
    from rightlung.cli.predict import run

    run(model, source, out, condition or [], query or [], embeddings, batch_size, device, limit, seed, json)


@app.command()
def predictions(
    path: Annotated[Path, _argument("A predictions folder or Parquet file.", "PATH")],
    json: Json = False,
) -> None:
    """Check a predictions file; say what it holds."""
    from rightlung.cli.predictions import check

    check(path, json)


@app.command()
def reproduce(
    paper: Annotated[str | None, _argument("The paper, such as wrong-lung. Default: list all.", "PAPER")] = None,
    out: Annotated[Path | None, _option("Folder to write to; what is done there is not done again.", "DIR")] = None,
    source: Annotated[
        str | None, _option("Studies to measure on. Default: synthetic ones.", "SOURCE", name="--source")
    ] = None,
    train: Annotated[str | None, _option("Studies to learn from.", "SOURCE")] = None,
    validation: Annotated[str | None, _option("Studies to validate on.", "SOURCE")] = None,
    only: Annotated[
        Texts, _option("Only these variants, such as retrained,sided, or none (repeatable).", "NAMES")
    ] = None,
    model: Annotated[
        Texts, _option("One more row: a model's name or folder. Repeatable.", "MODEL", name="--model")
    ] = None,
    seeds: Annotated[int, _option("Seeds that each variant is trained with; --quick takes one.", min=1, max=10)] = 3,
    limit: Annotated[int | None, _option("Measure on the first N studies only.", "N", min=2)] = None,
    change: Annotated[
        Texts,
        _option(
            "Change a field of every recipe, or of one: sided:optimizer.learning_rate=1e-3. What is for all leaves the "
            "few-shot variants their steps, batches and numbers of examples (schedule, batch, data…examples). "
            "Repeatable.",
            "[VARIANT:]FIELD=VALUE",
            name="--set",
        ),
    ] = None,
    at_once: Annotated[int, _option("Variants at a time, a process each.", "N", min=1)] = 1,
    accelerator: Annotated[str, _option("auto, cpu, cuda or mps.")] = "auto",
    page: Annotated[bool, _option("Write the page at the end.", name="--page/--no-page")] = True,
    judgements: Annotated[Path | None, _option("Radiologists' judgements of the maps; needs --key.", "TABLE")] = None,
    key: Annotated[Path | None, _option("Which code is which model, CSV.", "KEY", name="--key")] = None,
    quick: Annotated[bool, _option("Check the machinery with tiny and known models.", name="--quick")] = False,
    json: Json = False,
) -> None:
    """Train or load all models of a paper, measure them, and write its tables and figures as one page."""
    from rightlung.cli.reproduce import list_all, plan_for, run

    if paper is None:
        if quick or any((out, source, train, validation, only, model, limit, change, judgements, key)):
            raise InputError("name the paper to reproduce; without options, rightlung reproduce lists them")
        list_all(json)
        return
    plan = plan_for(
        paper, out, source, train, validation, only or [], model or [], seeds, limit, change or [], accelerator, quick
    )
    run(plan, at_once, page, judgements, key, json)


@app.command()
def train(
    recipe: Annotated[str, _argument("A YAML file, or the name of a shipped recipe.", "RECIPE")],
    out: Annotated[Path, _option("Folder for checkpoints, log and model.", "DIR")],
    resume: Annotated[bool, _option("Go on with the run in DIR.", name="--resume")] = False,
    change: Annotated[
        Texts, _option("Change a field: optimizer.learning_rate=1e-3 (repeatable).", "FIELD=VALUE", name="--set")
    ] = None,
    steps: Annotated[int | None, _option("Steps, instead of the recipe's.", "N")] = None,
    precision: Annotated[str | None, _option("32-true, bf16-mixed or 16-mixed.")] = None,
    accelerator: Annotated[str, _option("auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[int, _option("Processes on this machine, one a device.", min=1)] = 1,
    nodes: Annotated[int, _option("Machines.", min=1)] = 1,
    strategy: Annotated[str, _option("auto, ddp or fsdp.")] = "auto",
    json: Json = False,
) -> None:
    """Train a model by a recipe."""
    from rightlung.cli.train import run

    machine = {"accelerator": accelerator, "devices": devices, "nodes": nodes, "strategy": strategy}
    run(recipe, out, resume, change or [], steps, precision, machine, json)


def main() -> None:
    """Run the program: every error that a user can cause becomes one sentence and a documented exit code."""
    # PyTorch, not loaded yet, lets its threads wait spinning: on a busy machine that takes many times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the reader of the help went away, which typer turns into an exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = Exit.DONE
    except Exception as error:
        return _explained(error)
    # Some versions of typer make a code of the interruption, some hand it on. Training says itself how it goes on.
    if code == Exit.INTERRUPTED and sys.argv[1:2] != ["train"]:
        say("interrupted; what is complete is kept, and the same command goes on from there")
    return int(code) if isinstance(code, int) else Exit.DONE


def _explained(error: Exception) -> int:
    """Say in a sentence what the user can mend, and re-raise what only we can."""
    if isinstance(error, InputError):
        say(f"error: {error}")
        return Exit.BAD_INPUT
    if isinstance(error, OutputError):
        say(f"error: {error}")
        return Exit.NOT_WRITTEN
    show = getattr(error, "show", None)  # a wrong option or command; whose class it is depends on typer's version
    if show is None:
        raise error
    show()
    return Exit.BAD_INPUT

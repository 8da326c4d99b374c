"""The program ``rightlung`` and its commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.exits import Exit
from rightlung.cli.output import say
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
    what: Annotated[str, typer.Argument(help="A predictions file or folder, or a model to ask.", metavar="MODEL|PATH")],
    source: Annotated[
        str | None, typer.Argument(help="Address of the studies; predictions may name it.", metavar="SOURCE")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.", metavar="DIR")] = Path("audit"),
    prior_source: Annotated[
        str | None,
        typer.Option(help="Fit the image-blind prior on this source instead of on other patients.", metavar="SOURCE"),
    ] = None,
    condition: Annotated[
        list[str] | None,
        typer.Option(help="What to ask a model under; none, swap-sides and exchange-image if left out. Repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where a model runs.")] = "cpu",
    batch_size: Annotated[int, typer.Option(min=1, help="Questions a model is asked at once.")] = 32,
    resamples: Annotated[int, typer.Option(min=100, help="Resamples behind each interval.")] = 10_000,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    cases: Annotated[int, typer.Option(min=0, max=50, help="Best and worst cases to draw, each.")] = 6,
    json: Json = False,
) -> None:
    """Score where a model looks beside a prior that never looks, and write a page."""
    from rightlung.cli.audit import run
    from rightlung.results.estimate import BootstrapSettings

    settings = BootstrapSettings(resamples, level, seed)
    run(what, source, out, prior_source, condition or [], device, batch_size, settings, cases, json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.", metavar="DIR")] = Path("demo-output"),
    model: Annotated[str, typer.Option(help="The model to ask: a name, a folder, or module:Class.")] = "starter",
    count: Annotated[int, typer.Option(min=2, max=10_000, help="Studies to make.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the studies.")] = 4242,
    json: Json = False,
) -> None:
    """Make phantom studies, ask the shipped model where it sees every sentence, and audit its answers."""
    from rightlung.cli.demo import run

    run(out, model, count, seed, json)


@data_app.command("show")
def data_show(
    source: Annotated[str, typer.Argument(help="Address of the studies, such as manifest:/data/mine.tar?split=val")],
    sheet: Annotated[
        Path | None, typer.Option(help="Draw random studies with their boxes into this PNG.", metavar="FILE")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=400, help="Studies on the sheet.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random choice.")] = 0,
    json: Json = False,
) -> None:
    """Say what a source holds, and draw random studies with their boxes."""
    from rightlung.cli.data import show

    show(source, sheet, count, seed, json)


@data_app.command("check")
def data_check(
    source: Annotated[str, typer.Argument(help="Address of the studies, such as manifest:/data/mine.tar")],
    limit: Annotated[int | None, typer.Option(min=1, help="Look at the first N studies only.", metavar="N")] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Decode images and masks.")] = True,
    least: Annotated[
        str, typer.Option("--least", help="Least severity to tell: error, warning or hint.", metavar="SEVERITY")
    ] = "hint",
    json: Json = False,
) -> None:
    """Find what is wrong with a source: files, ids, splits, boxes, sides, masks, reports, labels."""
    from rightlung.cli.data import check

    check(source, limit, images, least, json)


@app.command()
def ground(
    image: Annotated[
        str, typer.Argument(help="A PNG, JPEG or DICOM file, a folder, or the address of a source.", metavar="IMAGE")
    ],
    phrases: Annotated[
        list[str] | None,
        typer.Argument(help="What to look for; a source's own phrases where none is given.", metavar="PHRASE…"),
    ] = None,
    model: Annotated[str, typer.Option("--model", help="Name or folder of the model.", metavar="MODEL")] = "starter",
    out: Annotated[
        Path, typer.Option(help="Folder to write to; what is there already is not done again.", metavar="DIR")
    ] = Path("groundings"),
    batch_size: Annotated[int, typer.Option(min=1, help="Phrases at a time; halved if memory runs out.")] = 16,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; the GPU if there is one.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Read DICOM files whose header says they are no frontal chest radiograph.")
    ] = False,
    json: Json = False,
) -> None:
    """Show where a model sees a phrase: overlays as PNG, boxes, peak and its side as JSON."""
    from rightlung.cli.ground import run

    run(image, phrases or [], model, out, batch_size, device, force, json)


@judgements_app.command("plan")
def judgements_plan(
    instances: Annotated[
        Path, typer.Argument(help="What to judge: the folder of an experiment or an audit.", metavar="INSTANCES")
    ],
    out: Annotated[Path, typer.Option(help="The table to fill in, CSV.", metavar="TABLE")],
    key: Annotated[
        Path, typer.Option("--key", help="Which code is which model, CSV; not for annotators.", metavar="KEY")
    ],
    annotator: Annotated[list[str], typer.Option(help="Who judges. Repeatable.", metavar="NAME")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model to judge (repeatable). Default: the model of an audit; the comparable variants of an "
            "experiment, without references, ablations and other seeds.",
            metavar="NAME",
        ),
    ] = None,
    per_annotator: Annotated[int, typer.Option(min=1, help="Prompts for each annotator.", metavar="N")] = 50,
    overlap: Annotated[int, typer.Option(min=0, help="Of those, prompts that all annotators judge.", metavar="N")] = 10,
    abnormal: Annotated[bool, typer.Option("--abnormal", help="Take abnormal phrases only.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of codes, choice and order.")] = 0,
    json: Json = False,
) -> None:
    """Write an empty table of judgements, blinded and in an order by chance, and its key."""
    from rightlung.cli.judgements import make_plan

    make_plan(instances, model or [], annotator, per_annotator, overlap, seed, abnormal, out, key, json)


@judgements_app.command("check")
def judgements_check(
    table: Annotated[Path, typer.Argument(help="A table of judgements, CSV or Parquet.", metavar="TABLE")],
    key: Annotated[
        Path | None, typer.Option("--key", help="The key: its codes are the only ones.", metavar="KEY")
    ] = None,
    instances: Annotated[
        Path | None,
        typer.Option("--instances", help="The experiment or audit that the prompts come from.", metavar="INSTANCES"),
    ] = None,
    json: Json = False,
) -> None:
    """Check a table of judgements: ratings, doubled and half rows, blinding; say what it holds."""
    from rightlung.cli.judgements import check

    check(table, key, instances, json)


@judgements_app.command("analyse")
def judgements_analyse(
    table: Annotated[Path, typer.Argument(help="A table of judgements, CSV or Parquet.", metavar="TABLE")],
    out: Annotated[Path, typer.Option(help="Folder to write to.", metavar="DIR")],
    key: Annotated[Path | None, typer.Option("--key", help="Which code is which model, CSV.", metavar="KEY")] = None,
    measures: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of an experiment or an audit to correlate with; needs --key. Repeatable."),
    ] = None,
    instances: Annotated[
        Path | None, typer.Option(help="Where patients and findings come from, if not from --measures.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Resamples behind each interval.")] = 10_000,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    json: Json = False,
) -> None:
    """Say what judgements tell of models, annotators and automatic measures, and write a page."""
    from rightlung.cli.judgements import analyse
    from rightlung.results.estimate import BootstrapSettings

    analyse(table, key, measures or [], instances, out, BootstrapSettings(resamples, level, seed), json)


@app.command()
def models(
    name: Annotated[
        str | None,
        typer.Argument(help="A shipped model, a folder, or module:Class; without it, all are listed.", metavar="NAME"),
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
    out: Annotated[Path, typer.Argument(help="Folder to write to; a run that was stopped goes on.", metavar="OUT")],
    count: Annotated[int, typer.Option(help="Studies to make.", metavar="N")],
    seed: Annotated[int, typer.Option(help="Same seed, same studies.", metavar="S")],
    size: Annotated[int | None, typer.Option(help="Pixels a side; 256 unless the configuration says else.")] = None,
    dicom: Annotated[bool, typer.Option("--dicom", help="Write DX DICOM files, too, under OUT/dicom.")] = False,
    shortcut: Annotated[
        list[str] | None,
        typer.Option(help="Plant a fault: NAME=STRENGTH or NAME:FINDING=STRENGTH. Repeatable.", metavar="FAULT"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with prevalences and all else, see docs/phantom.md.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """Make up studies with exactly known truth and write them as a manifest folder."""
    from rightlung.cli.phantom import run

    run(out, count, seed, size, dicom, shortcut or [], config, json)


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="Name or folder of the model.", metavar="MODEL")],
    source: Annotated[str, typer.Argument(help="Address of the studies, such as phantom?count=500&seed=7")],
    out: Annotated[Path, typer.Option(help="Folder to write to; a run that was stopped goes on.", metavar="P")],
    condition: Annotated[
        list[str] | None,
        typer.Option(help="Probe to apply before asking (repeatable). Default: none, swap-sides, exchange-image."),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="What to ask about: phrases, image or regions (repeatable). Default: all that the model can answer."
        ),
    ] = None,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="Keep the embeddings of images and phrases, too.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions at a time; halved if memory runs out.")] = 32,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; the GPU if there is one.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask about the first N studies only.", metavar="N")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the conditions that draw by chance.")] = 0,
    json: Json = False,
) -> None:
    """Ask a model about every study of a source and write a predictions file."""
    from rightlung.cli.predict import run

    run(model, source, out, condition or [], query or [], embeddings, batch_size, device, limit, seed, json)


@app.command()
def predictions(
    path: Annotated[Path, typer.Argument(help="A predictions folder or Parquet file.", metavar="PATH")],
    json: Json = False,
) -> None:
    """Check a predictions file; say what it holds."""
    from rightlung.cli.predictions import check

    check(path, json)


@app.command()
def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="The paper, such as wrong-lung; without it, all are listed.", metavar="PAPER")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; what is done there is not done again.", metavar="DIR")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Studies to measure on. Default: synthetic ones.", metavar="SOURCE")
    ] = None,
    train: Annotated[str | None, typer.Option(help="Studies to learn from.", metavar="SOURCE")] = None,
    validation: Annotated[str | None, typer.Option(help="Studies to validate on.", metavar="SOURCE")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only these variants, such as retrained,sided; none for none. Repeatable.", metavar="NAMES"),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="One more row: a model's name or folder. Repeatable.", metavar="MODEL"),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=10, help="Seeds that each variant is trained with; --quick takes one.")
    ] = 3,
    limit: Annotated[int | None, typer.Option(min=2, help="Measure on the first N studies only.", metavar="N")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a field of every recipe, or of one: sided:optimiser.rate=1e-3. What is for all leaves the "
            "few-shot variants their steps, batches and numbers of examples (schedule, batch, data…examples). "
            "Repeatable.",
            metavar="[VARIANT:]FIELD=VALUE",
        ),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Variants at a time, a process each.", metavar="N")] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write the page at the end.")] = True,
    judgements: Annotated[
        Path | None, typer.Option(help="Radiologists' judgements of the maps; needs --key.", metavar="TABLE")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Which code is which model, CSV.", metavar="KEY")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check the machinery with tiny models and models of known answers.")
    ] = False,
    json: Json = False,
) -> None:
    """Train or load all models of a paper, measure them, and write its tables and figures as one page."""
    from rightlung.cli.reproduce import list_all, plan_for, run

    if paper is None:
        list_all(json)
        return
    plan = plan_for(
        paper, out, source, train, validation, only or [], model or [], seeds, limit, change or [], accelerator, quick
    )
    run(plan, at_once, page, judgements, key, json)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped recipe.", metavar="RECIPE")],
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, log and model.", metavar="DIR")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a field, such as optimiser.rate=1e-3. Repeatable.", metavar="FIELD=VALUE"),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps, instead of the recipe's.", metavar="N")] = None,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed or 16-mixed.")] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Processes on this machine, one a device.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp or fsdp.")] = "auto",
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

"""The command line ``rightlung``: options and help of every command."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.core

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.output import Exit, say
from rightlung.core.errors import InputError, OutputError

EPILOG = (
    f"Exit codes: {Exit.DONE:d} done, {Exit.BUG:d} a bug, {Exit.BAD_INPUT:d} bad input, "
    f"{Exit.SOME_LEFT_OUT:d} done but some rows were left out, {Exit.NOT_WRITTEN:d} output could not be written, "
    f"{Exit.INTERRUPTED:d} interrupted.  {NOT_A_MEDICAL_DEVICE}"
)


class _Commands(typer.core.TyperGroup):
    """Accepts --import before and after the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        first: list[str] = []
        while "--import" in args[:end]:
            at = args.index("--import")
            first, args, end = [*first, *args[at : at + 2]], [*args[:at], *args[at + 2 :]], end - 2
        return super().parse_args(ctx, [*first, *args])


app = typer.Typer(
    name="rightlung",
    cls=_Commands,
    help="Ask a chest X-ray model where it is looking, and find out whether it is the right lung.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
data_app = typer.Typer(help="Summarise, draw and check data sources.", no_args_is_help=True)
app.add_typer(data_app, name="data")
judgements_app = typer.Typer(help="Plan, check and analyse radiologists' judgements.", no_args_is_help=True)
app.add_typer(judgements_app, name="judgements")


def _arg(help: str, metavar: str) -> Any:
    return typer.Argument(help=help, metavar=metavar)


def _opt(help: str, metavar: str | None = None, name: str | None = None, **limits: Any) -> Any:
    return typer.Option(*([name] if name else []), help=help, metavar=metavar, **limits)


Use = Literal["yes", "positive", "no"]
Texts = list[str] | None
MODELS_HELP = (
    "Model to judge (repeatable). Default: the model of an audit; the comparable variants of an experiment, without "
    "references, ablations and further seeds."
)
OVERRIDE_HELP = (
    "Override a recipe field of all variants or of one (repeatable), such as sided:seed=1. Without VARIANT, few-shot "
    "variants keep their steps, batch sizes and numbers of examples."
)
Source = Annotated[
    str, _arg("Address of the studies, such as phantom?count=500&seed=7 or manifest:/data/mine.tar.", "SOURCE")
]
TASK_HELP = (
    "Task to measure (repeatable): grounding, detection, classification, probe, region-classification, "
    "region-description, retrieval or report; TASK:PART for one part. Default: the audit of heatmaps."
)
BOXES_HELP = (
    "With --task: post-processing of predicted boxes: merge (the boxes of a class become one), nms=IOU or none. "
    "Default: nms=0.25 or, with --tune, the best IoU."
)
TUNE_HELP = (
    "With --task: tune the scale of boxes for each class on another source, or by cross-validation over the patients "
    "of SOURCE. Default: no scaling."
)
TRAIN_HELP = "With --task probe: source that the linear probe learns from; no patient of SOURCE may be in it."
PROBE_HELP = "With --task probe: logistic (regression to convergence) or five-epochs (eCLIP's protocol)."
SHARE_HELP = "With --task probe: share of the training patients whose labels are used."
MISSING_HELP = (
    "With --task classification or probe: whether a finding that an image's labels lack is unknown or, if other images "
    "have it, negative."
)
RESAMPLES_HELP = "Number of bootstrap resamples behind each interval. Default: 10000; with --task, 250."
CASES_HELP = "Number of best cases, and of worst cases, to draw. Default: 6; with --task, 4."
QUERY_HELP = (
    "phrases, image, regions, boxes, region-names or reports (repeatable). Default: all it can answer of the first "
    "three."
)
PROBES_HELP = "Probe to apply before asking (repeatable). Default: none, swap-sides, exchange-image."
Probes = Annotated[Texts, _opt(PROBES_HELP, "PROBE", name="--condition")]
Device = Annotated[str | None, _opt("Device, such as cpu or cuda:1. Default: cuda if available, else cpu.", "DEVICE")]
Overwrite = Annotated[bool, _opt("Replace earlier answers in the folder.", name="--overwrite")]
Accelerator = Annotated[str, _opt("Hardware to train on: auto, cpu, cuda or mps.", "NAME")]
Resamples = Annotated[int, _opt("Number of bootstrap resamples behind each interval.", "N", min=100)]
Level = Annotated[float, _opt("Confidence level of the intervals.", "LEVEL")]
BootstrapSeed = Annotated[int, _opt("Seed of the bootstrap.", "N", name="--seed", min=0)]
Key = Annotated[Path | None, _opt("CSV file with the model behind each code.", "KEY", name="--key")]
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
    modules: Annotated[
        Texts,
        _opt("Module with your model classes, to load their folders (repeatable).", "MODULE", "--import"),
    ] = None,
) -> None:
    for module in modules or ():
        from rightlung.models.kinds import register_module

        register_module(module)


@app.command()
def audit(
    what: Annotated[str, _arg("A predictions file or folder, or a model to ask.", "MODEL|PATH")],
    source: Annotated[str | None, _arg("Address of the studies. Default: the one PATH names.", "SOURCE")] = None,
    out: Annotated[Path, _opt("Folder to write to.", "DIR")] = Path("audit"),
    task: Annotated[Texts, _opt(TASK_HELP, "TASK")] = None,
    boxes: Annotated[str | None, _opt(BOXES_HELP, "RULE")] = None,
    tune: Annotated[str | None, _opt(TUNE_HELP, "SOURCE|cross-validate")] = None,
    train: Annotated[str | None, _opt(TRAIN_HELP, "SOURCE")] = None,
    probe: Annotated[str, _opt(PROBE_HELP, "PROTOCOL")] = "logistic",
    label_share: Annotated[float, _opt(SHARE_HELP, "SHARE")] = 1.0,
    missing_labels: Annotated[str, _opt(MISSING_HELP, "unknown|negative")] = "unknown",
    prior_source: Annotated[str | None, _opt("Studies to fit the prior on. Default: SOURCE.", "SOURCE")] = None,
    condition: Probes = None,
    device: Device = None,
    batch_size: Annotated[int, _opt("Number of questions to ask the model at once.", "N", min=1)] = 32,
    resamples: Annotated[int | None, _opt(RESAMPLES_HELP, "N", min=100)] = None,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    cases: Annotated[int | None, _opt(CASES_HELP, "N", min=0, max=50)] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Score a model's heatmaps against known regions, or the tasks given by --task.

    Compares the model with an image-blind prior and with itself under each probe. Writes a page (audit.html), the
    numbers (audit.json) and one row for each phrase (instances.parquet; with --task, a table for each task).
    """
    from rightlung.cli.audit import check_no_task_options, run, run_tasks
    from rightlung.results.estimate import BootstrapSettings

    if task:
        settings = BootstrapSettings(resamples or 250, level, seed)
        if prior_source is not None:
            raise InputError(
                "--prior-source does not apply to --task: baselines are fitted on --tune or other patients"
            )
        run_tasks(
            what, source, out, task, boxes, tune, settings, json, conditions=condition or [], device=device,
            batch_size=batch_size, cases=4 if cases is None else cases, overwrite=overwrite, train=train,
            missing_labels=missing_labels, probe=probe, label_share=label_share,
        )  # fmt: skip
        return
    check_no_task_options(boxes, tune, train)
    settings = BootstrapSettings(resamples or 10_000, level, seed)
    shown = 6 if cases is None else cases
    run(what, source, out, prior_source, condition or [], device, batch_size, settings, shown, overwrite, json)


@app.command()
def demo(
    out: Annotated[Path, _opt("Folder to write to.", "DIR")] = Path("demo-output"),
    model: Annotated[str, _opt("Model to ask: a name, a folder, or module:Class.", "MODEL")] = "starter",
    count: Annotated[int, _opt("Number of synthetic studies.", "N", min=2, max=10_000)] = 200,
    seed: Annotated[int, _opt("Seed of the studies.", "N", min=0)] = 4242,
    json: Json = False,
) -> None:
    """Run the whole pipeline on synthetic studies.

    Generates phantom studies, asks the model where it sees every sentence of their reports, and audits its answers.
    """
    from rightlung.cli.demo import run

    run(out, model, count, seed, json)


@data_app.command("show")
def data_show(
    source: Source,
    sheet: Annotated[Path | None, _opt("PNG file to draw random studies and boxes into.", "FILE")] = None,
    count: Annotated[int, _opt("Number of studies on the sheet.", "N", min=1, max=400)] = 30,
    seed: Annotated[int, _opt("Seed of the random choice.", "N", min=0)] = 0,
    json: Json = False,
) -> None:
    """Count the studies, findings and phrases of a source."""
    from rightlung.cli.data import show

    show(source, sheet, count, seed, json)


@data_app.command("check")
def data_check(
    source: Source,
    limit: Annotated[int | None, _opt("Check the first N studies only. Default: all.", "N", min=1)] = None,
    images: Annotated[bool, _opt("Decode images and masks.", name="--images/--no-images")] = True,
    least: Annotated[str, _opt("Lowest severity to list: error, warning or hint.", "SEVERITY")] = "hint",
    json: Json = False,
) -> None:
    """Find errors in a source.

    Checks files, ids, splits, boxes, sides, masks, reports and labels. Exits with 3 if it finds anything.
    """
    from rightlung.cli.data import check

    check(source, limit, images, least, json)


@app.command()
def ground(
    image: Annotated[str, _arg("PNG, JPEG or DICOM file, folder of these, or source.", "IMAGE")],
    phrases: Annotated[Texts, _arg("Phrases to find; with --phrase, more images.", "PHRASE…")] = None,
    phrase: Annotated[Texts, _opt("Phrase to find (repeatable). Default: those of the source.", "PHRASE")] = None,
    model: Annotated[str, _opt("Name or folder of the model.", "MODEL", name="--model")] = "starter",
    out: Annotated[Path, _opt("Folder to write to. Earlier groundings are kept.", "DIR")] = Path("groundings"),
    batch_size: Annotated[int, _opt("Phrases to ask at once; halved when memory runs out.", "N", min=1)] = 16,
    device: Device = None,
    force: Annotated[bool, _opt("Read DICOM files of any view or body part.", name="--force")] = False,
    anyway: Annotated[bool, _opt("Ground images that cannot be chest radiographs.", name="--anyway")] = False,
    json: Json = False,
) -> None:
    """Show where a model sees a phrase in an image.

    Writes an overlay (PNG) for each image and phrase, and groundings.json with boxes, peak, side and abstention. For
    several images, write: rightlung ground IMAGE… --phrase PHRASE.
    """
    from rightlung.cli.ground import run

    run([image, *(phrases or [])], phrase or [], model, out, batch_size, device, force, anyway, json)


@app.command()
def describe(
    image: Annotated[Path, _arg("PNG, JPEG or DICOM file.", "IMAGE")],
    prompt: Annotated[Texts, _opt("What to describe, such as 'left lung' (repeatable).", "TEXT")] = None,
    box: Annotated[Texts, _opt("Region to describe, X0,Y0,X1,Y1 from 0 to 1 (repeatable).", "BOX")] = None,
    model: Annotated[str, _opt("Name or folder of the model.", "MODEL", name="--model")] = "chex",
    device: Device = None,
    json: Json = False,
) -> None:
    """Describe what a text, a box or both ask for.

    Without --prompt and --box, the whole image is described. A box given with prompts is where to look for each of
    them.
    """
    from rightlung.cli.describe import describe as run

    run(image, prompt or [], box or [], model, device, json)


@app.command()
def report(
    image: Annotated[Path, _arg("PNG, JPEG or DICOM file.", "IMAGE")],
    model: Annotated[str, _opt("Name or folder of the model.", "MODEL", name="--model")] = "chex",
    prompts: Annotated[Path | None, _opt("File with prompts of your own, one on each line.", "FILE")] = None,
    findings: Annotated[
        Use, _opt("Ask for the 14 findings; positive: keep only those that are more likely than not.")
    ] = "positive",
    regions: Annotated[Use, _opt("Ask for the 15 regions; positive: keep only what shows a finding.")] = "positive",
    html: Annotated[Path | None, _opt("Page to write, with the boxes of each sentence.", "FILE")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Write the report of an image: sentences with their boxes, scores and prompts."""
    from rightlung.cli.describe import report as run

    run(image, model, prompts, findings, regions, html, device, json)


@judgements_app.command("plan")
def judgements_plan(
    instances: Annotated[Path, _arg("Folder of the experiment or audit to judge.", "INSTANCES")],
    out: Annotated[Path, _opt("CSV file to write the table to.", "TABLE")],
    key: Annotated[Path, _opt("CSV file to write the key to; hide it from annotators.", "KEY", name="--key")],
    annotator: Annotated[list[str], _opt("Name of an annotator (repeatable).", "NAME")],
    model: Annotated[Texts, _opt(MODELS_HELP, "NAME")] = None,
    per_annotator: Annotated[int, _opt("Number of prompts for each annotator.", "N", min=1)] = 50,
    overlap: Annotated[int, _opt("Number of those prompts that all annotators judge.", "N", min=0)] = 10,
    abnormal: Annotated[bool, _opt("Use abnormal phrases only.", name="--abnormal")] = False,
    seed: Annotated[int, _opt("Seed of the codes, the choice of prompts and their order.", "N", min=0)] = 0,
    json: Json = False,
) -> None:
    """Write a blinded table of judgements to fill in, and its key."""
    from rightlung.cli.judgements import make_plan

    make_plan(instances, model or [], annotator, per_annotator, overlap, seed, abnormal, out, key, json)


@judgements_app.command("check")
def judgements_check(
    table: Annotated[Path, _arg("Table of judgements, CSV or Parquet.", "TABLE")],
    key: Key = None,
    instances: Annotated[
        Path | None, _opt("Folder that the prompts come from.", "INSTANCES", name="--instances")
    ] = None,
    json: Json = False,
) -> None:
    """Check a table of judgements and count what it holds.

    Finds invalid ratings, duplicate and incomplete rows, and models that are not blinded.
    """
    from rightlung.cli.judgements import check

    check(table, key, instances, json)


@judgements_app.command("analyse")
def judgements_analyse(
    table: Annotated[Path, _arg("Table of judgements, CSV or Parquet.", "TABLE")],
    out: Annotated[Path, _opt("Folder to write to.", "DIR")],
    key: Key = None,
    measures: Annotated[list[Path] | None, _opt("Folder of measures to correlate with (repeatable).", "DIR")] = None,
    instances: Annotated[Path | None, _opt("Folder that names the patients. Default: --measures.", "INSTANCES")] = None,
    resamples: Resamples = 10_000,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    json: Json = False,
) -> None:
    """Compare models by their ratings, with agreement and correlations.

    Writes a page with the ratings of each model, the agreement of annotators and the correlation with automatic
    measures.
    """
    from rightlung.cli.judgements import analyse
    from rightlung.results.estimate import BootstrapSettings

    analyse(table, key, measures or [], instances, out, BootstrapSettings(resamples, level, seed), json)


@app.command()
def models(
    name: Annotated[str | None, _arg("Name, folder or module:Class. Default: list all.", "NAME")] = None,
    json: Json = False,
) -> None:
    """List the available models, or describe one."""
    from rightlung.cli.models import describe, list_all

    if name is None:
        list_all(json)
    else:
        describe(name, json)


@app.command()
def phantom(
    out: Annotated[Path, _arg("Folder to write to. An interrupted run continues.", "OUT")],
    count: Annotated[int, _opt("Number of studies.", "N")],
    seed: Annotated[int, _opt("Seed: the same seed gives the same studies.", "S")],
    size: Annotated[int | None, _opt("Height and width of images. Default: 256.", "PIXELS")] = None,
    dicom: Annotated[bool, _opt("Also write DX DICOM files to OUT/dicom.", name="--dicom")] = False,
    shortcut: Annotated[Texts, _opt("Shortcut to plant: NAME[:FINDING]=STRENGTH (repeatable).", "FAULT")] = None,
    config: Annotated[Path | None, _opt("TOML file with settings; see docs/phantom.md.", "FILE")] = None,
    part: Annotated[str | None, _opt("all, train or held-out; see docs/phantom.md. Default: all.", "PART")] = None,
    json: Json = False,
) -> None:
    """Generate synthetic studies with exact masks.

    They are written as a manifest folder, which every command reads as manifest:OUT.
    """
    from rightlung.cli.phantom import run

    run(out, count, seed, size, dicom, shortcut or [], config, part, json)


@app.command()
def predict(
    model: Annotated[str, _arg("Name or folder of the model, or module:Class.", "MODEL")],
    source: Source,
    out: Annotated[Path, _opt("Folder to write to. An interrupted run continues.", "P")],
    condition: Probes = None,
    query: Annotated[Texts, _opt(QUERY_HELP, "KIND")] = None,
    embeddings: Annotated[bool, _opt("Also save the embeddings of images and phrases.", name="--embeddings")] = False,
    batch_size: Annotated[int, _opt("Questions to ask at once; halved when memory runs out.", "N", min=1)] = 32,
    device: Device = None,
    limit: Annotated[int | None, _opt("Ask about the first N studies only. Default: all.", "N", min=1)] = None,
    seed: Annotated[int, _opt("Seed of the probes that draw at random.", "N", min=0)] = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Ask a model about every study and save its answers."""
    from rightlung.cli.predict import run

    run(model, source, out, condition or [], query or [], embeddings, batch_size, device, limit, seed, overwrite, json)


@app.command()
def predictions(
    path: Annotated[Path, _arg("A predictions folder or Parquet file.", "PATH")],
    json: Json = False,
) -> None:
    """Check a predictions file and count what it holds."""
    from rightlung.cli.predict import check

    check(path, json)


@app.command()
def reproduce(
    paper: Annotated[str | None, _arg("Paper, such as wrong-lung. Default: list all.", "PAPER")] = None,
    out: Annotated[Path | None, _opt("Folder to write to. Finished parts are not repeated.", "DIR")] = None,
    source: Annotated[str | None, _opt("Studies to test on. Default: synthetic.", "SOURCE", name="--source")] = None,
    train: Annotated[str | None, _opt("Studies to train on. Default: synthetic.", "SOURCE")] = None,
    validation: Annotated[str | None, _opt("Studies to validate on. Default: synthetic.", "SOURCE")] = None,
    only: Annotated[
        Texts, _opt("Variants to run: retrained,sided or none (repeatable). Default: all.", "NAMES")
    ] = None,
    model: Annotated[Texts, _opt("Further model to test (repeatable).", "MODEL", name="--model")] = None,
    seeds: Annotated[int, _opt("Seeds to train each variant with; --quick uses one.", "N", min=1, max=10)] = 3,
    limit: Annotated[int | None, _opt("Test on the first N studies only. Default: all.", "N", min=2)] = None,
    change: Annotated[Texts, _opt(OVERRIDE_HELP, "[VARIANT:]FIELD=VALUE", name="--set")] = None,
    at_once: Annotated[int, _opt("Number of variants to run in parallel, one process each.", "N", min=1)] = 1,
    accelerator: Accelerator = "auto",
    page: Annotated[bool, _opt("Write the page at the end.", name="--page/--no-page")] = True,
    judgements: Annotated[Path | None, _opt("Table of judgements to analyse; needs --key.", "TABLE")] = None,
    key: Key = None,
    measure: Annotated[
        bool, _opt("Measure what needs no model; otherwise a later call does.", name="--measure/--no-measure")
    ] = True,
    quick: Annotated[bool, _opt("Test the pipeline with tiny models in about a minute.", name="--quick")] = False,
    json: Json = False,
) -> None:
    """Reproduce the experiments of a paper.

    Trains or loads its models, tests them, and writes its tables, figures and claims as one page.
    """
    from rightlung.cli.reproduce import hardware_of, list_all, run, split_names
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


@app.command()
def train(
    recipe: Annotated[str, _arg("YAML file, or the name of a shipped recipe.", "RECIPE")],
    out: Annotated[Path, _opt("Folder for checkpoints, log and model.", "DIR")],
    resume: Annotated[bool, _opt("Continue the run in DIR.", name="--resume")] = False,
    restart: Annotated[bool, _opt("Remove the checkpoints in DIR and train from step 0.", name="--restart")] = False,
    change: Annotated[
        Texts,
        _opt(
            "Override a recipe field, such as seed=1, or finetune:seed=1 for one stage (repeatable).",
            "[STAGE:]FIELD=VALUE",
            name="--set",
        ),
    ] = None,
    steps: Annotated[int | None, _opt("Number of steps. Default: the recipe's.", "N")] = None,
    precision: Annotated[str | None, _opt("32-true, bf16-mixed or 16-mixed. Default: the recipe's.", "NAME")] = None,
    accelerator: Accelerator = "auto",
    devices: Annotated[int, _opt("Number of devices on each machine, one process each.", "N", min=1)] = 1,
    nodes: Annotated[int, _opt("Number of machines.", "N", min=1)] = 1,
    strategy: Annotated[str, _opt("How to use several devices: auto, ddp or fsdp.", "NAME")] = "auto",
    json: Json = False,
) -> None:
    """Train a model from a recipe."""
    from rightlung.cli.train import run

    hardware = {"accelerator": accelerator, "devices": devices, "nodes": nodes, "strategy": strategy}
    run(recipe, out, resume, restart, change or [], steps, precision, hardware, json)


def main() -> None:
    """Run the command line. User errors become one sentence and a documented exit code."""
    # By default PyTorch's idle threads spin, which slows a busy machine down many times. Set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # `rightlung --help | head`, or a shell asks for completions
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = Exit.DONE
    except (InputError, OutputError) as error:
        say(f"error: {error}")
        return Exit.BAD_INPUT if isinstance(error, InputError) else Exit.NOT_WRITTEN
    except Exception as error:
        show = getattr(error, "show", None)  # a wrong option or command; its class depends on typer's version
        if show is None:
            raise
        show()
        return Exit.BAD_INPUT
    # Some versions of typer return a code for an interrupt, others re-raise it. `train` prints its own message.
    if code == Exit.INTERRUPTED and sys.argv[1:2] != ["train"]:
        say("interrupted; finished work is saved, and the same command continues from there")
    return int(code) if isinstance(code, int) else Exit.DONE

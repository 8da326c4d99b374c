"""The command line ``rightlung``: options and help of every command."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.cli.judgements import judgements_app
from rightlung.cli.leaderboard import leaderboard
from rightlung.cli.options import (
    ANYWAY_HELP,
    BATTERY_HELP,
    BOXES_HELP,
    CASES_HELP,
    FINDINGS_HELP,
    GATES_HELP,
    LANGUAGE_MODEL_HELP,
    MEASURE_HELP,
    MISSING_HELP,
    POOL_HELP,
    PROBE_HELP,
    PROMPTS_HELP,
    QUERY_HELP,
    REGIONS_HELP,
    REPORT_COLUMN,
    RESAMPLES_HELP,
    RETRIEVED_HELP,
    SAMPLES_HELP,
    SELF_TEST_HELP,
    TASK_HELP,
    TRAIN_HELP,
    TRAIN_REPORTS_HELP,
    TUNE_HELP,
    WORDS_HELP,
    BootstrapSeed,
    Device,
    Jobs,
    Json,
    Level,
    MapKind,
    Overwrite,
    Probes,
    Ray,
    Source,
    Texts,
    Use,
    Writer,
    arg,
    opt,
)
from rightlung.cli.output import Exit, say
from rightlung.cli.reproduce import reproduce
from rightlung.cli.serve import serve_app
from rightlung.cli.train import train
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
app.add_typer(judgements_app, name="judgements")
app.add_typer(serve_app, name="serve")


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
        opt("Module with your model classes, to load their folders (repeatable).", "MODULE", "--import"),
    ] = None,
) -> None:
    for module in modules or ():
        from rightlung.models.kinds import register_module

        register_module(module)


@app.command()
def audit(
    what: Annotated[str | None, arg("A predictions file or folder, or a model to ask.", "MODEL|PATH")] = None,
    source: Annotated[str | None, arg("Address of the studies. Default: the one PATH names.", "SOURCE")] = None,
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("audit"),
    self_test: Annotated[bool, opt(SELF_TEST_HELP, name="--self-test")] = False,
    task: Annotated[Texts, opt(TASK_HELP, "TASK")] = None,
    boxes: Annotated[str | None, opt(BOXES_HELP, "RULE")] = None,
    tune: Annotated[str | None, opt(TUNE_HELP, "SOURCE|cross-validate")] = None,
    train: Annotated[str | None, opt(TRAIN_HELP, "SOURCE")] = None,
    pool: Annotated[str | None, opt(POOL_HELP, "SOURCE")] = None,
    probe: Annotated[str, opt(PROBE_HELP, "PROTOCOL")] = "logistic",
    missing_labels: Annotated[str, opt(MISSING_HELP, "unknown|negative")] = "unknown",
    prior_source: Annotated[str | None, opt("Studies to fit the prior on. Default: SOURCE.", "SOURCE")] = None,
    condition: Probes = None,
    battery: Annotated[Texts, opt(BATTERY_HELP, "NAME")] = None,
    gates: Annotated[bool, opt(GATES_HELP, name="--gates")] = False,
    map: MapKind = None,
    device: Device = None,
    batch_size: Annotated[int, opt("Number of questions to ask the model at once.", "N", min=1)] = 32,
    resamples: Annotated[int | None, opt(RESAMPLES_HELP, "N", min=100)] = None,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    cases: Annotated[int | None, opt(CASES_HELP, "N", min=0, max=50)] = None,
    jobs: Jobs = None,
    ray: Ray = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Score a model's heatmaps against known regions, or the tasks given by --task.

    Compares the model with an image-blind prior and with itself under each probe. Writes a page (audit.html), the
    numbers (audit.json) and one row for each phrase (instances.parquet; with --task, a table for each task).
    """
    from rightlung.cli.audit import check_no_task_options, choose_map, run, run_self_test, run_tasks
    from rightlung.results.estimate import BootstrapSettings

    if self_test:
        if what is not None:
            raise InputError("--self-test needs neither a model nor a source: it tests the text metrics")
        run_self_test(json)
        return
    if what is None:
        raise InputError("give a model and a source, or a predictions file; without them there is --self-test")
    what = choose_map(what, map)
    if task:
        if battery:
            raise InputError("--battery applies to the audit of heatmaps only, not to --task")
        settings = BootstrapSettings(resamples or 250, level, seed)
        if prior_source is not None:
            raise InputError(
                "--prior-source does not apply to --task: baselines are fitted on --tune or other patients"
            )
        if jobs is not None or ray is not None:
            raise InputError("--jobs and --ray apply to the audit of heatmaps only, not to --task")
        run_tasks(
            what, source, out, task, boxes, tune, settings, json, conditions=condition or [], device=device,
            batch_size=batch_size, cases=4 if cases is None else cases, overwrite=overwrite, train=train,
            missing_labels=missing_labels, probe=probe, pool=pool, gates=gates,
        )  # fmt: skip
        return
    check_no_task_options(boxes, tune, train, pool)
    settings = BootstrapSettings(resamples or 10_000, level, seed)
    shown = 6 if cases is None else cases
    run(
        what, source, out, prior_source, condition or [], device, batch_size, settings, shown, overwrite, json,
        batteries=battery or [], gates=gates, jobs=jobs, ray=ray,
    )  # fmt: skip


@app.command()
def compare(
    results: Annotated[list[str], arg("Folders of audits or of scored reports, or instances tables.", "RESULT…")],
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("comparison"),
    measure: Annotated[Texts, opt(MEASURE_HELP, "NAME")] = None,
    condition: Annotated[str, opt("Condition under which the answers are compared.", "NAME")] = "none",
    resamples: Annotated[int, opt("Number of bootstrap resamples behind each interval.", "N", min=100)] = 1000,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    json: Json = False,
) -> None:
    """Compare the results of two or more models on the same instances.

    Paired differences with intervals over patients, overall and by finding, with Holm's correction. Results that were
    measured under unlike protocols are refused. Writes compare.html, compare.md and compare.json.
    """
    from rightlung.cli.compare import run
    from rightlung.results.estimate import BootstrapSettings

    run(results, out, measure or [], condition, BootstrapSettings(resamples, level, seed), json)


@app.command()
def diagnose(
    predictions: Annotated[str, arg("Predictions file or folder.", "PREDICTIONS")],
    source: Annotated[str | None, arg("Address of the studies. Default: named by the predictions.", "[SOURCE]")] = None,
    measure: Annotated[str, opt("Measure that was published, such as miou, pointing, map or f1.", "NAME")] = ...,  # type: ignore[assignment]
    published: Annotated[str, opt("The number as printed, such as 0.475 or 47.5.", "NUMBER")] = ...,  # type: ignore[assignment]
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("diagnosis"),
    json: Json = False,
) -> None:
    """Find the conventions under which predictions give a published number.

    Rescores one predictions file under every known convention of the measure: pooled or averaged, strict or inclusive
    thresholds, nearest or bilinear, uncertain labels… Writes diagnosis.html, diagnosis.md and diagnosis.json.
    """
    from rightlung.cli.diagnose import run

    run(predictions, source, measure, published, out, json)


@app.command()
def demo(
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("demo-output"),
    model: Annotated[str, opt("Model to ask: a name, a folder, or module:Class.", "MODEL")] = "starter",
    count: Annotated[int, opt("Number of synthetic studies.", "N", min=2, max=10_000)] = 200,
    seed: Annotated[int, opt("Seed of the studies.", "N", min=0)] = 4242,
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
    sheet: Annotated[Path | None, opt("PNG file to draw random studies and boxes into.", "FILE")] = None,
    count: Annotated[int, opt("Number of studies on the sheet.", "N", min=1, max=400)] = 30,
    seed: Annotated[int, opt("Seed of the random choice.", "N", min=0)] = 0,
    json: Json = False,
) -> None:
    """Count the studies, findings and phrases of a source."""
    from rightlung.cli.data import show

    show(source, sheet, count, seed, json)


@data_app.command("check")
def data_check(
    source: Source,
    limit: Annotated[int | None, opt("Check the first N studies only. Default: all.", "N", min=1)] = None,
    images: Annotated[bool, opt("Decode images and masks.", name="--images/--no-images")] = True,
    least: Annotated[str, opt("Lowest severity to list: error, warning or hint.", "SEVERITY")] = "hint",
    json: Json = False,
) -> None:
    """Find errors in a source.

    Checks files, ids, splits, boxes, sides, masks, reports and labels. Exits with 3 if it finds anything.
    """
    from rightlung.cli.data import check

    check(source, limit, images, least, json)


@app.command()
def ground(
    image: Annotated[str, arg("PNG, JPEG or DICOM file, folder of these, or source.", "IMAGE")],
    phrases: Annotated[Texts, arg("Phrases to find; with --phrase, more images.", "PHRASE…")] = None,
    phrase: Annotated[Texts, opt("Phrase to find (repeatable). Default: those of the source.", "PHRASE")] = None,
    model: Annotated[str, opt("Name or folder of the model.", "MODEL", name="--model")] = "starter",
    out: Annotated[Path, opt("Folder to write to. Earlier groundings are kept.", "DIR")] = Path("groundings"),
    batch_size: Annotated[int, opt("Phrases to ask at once; halved when memory runs out.", "N", min=1)] = 16,
    device: Device = None,
    force: Annotated[bool, opt("Read DICOM files of any view or body part.", name="--force")] = False,
    anyway: Annotated[bool, opt(ANYWAY_HELP, name="--anyway")] = False,
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
    image: Annotated[Path, arg("PNG, JPEG or DICOM file.", "IMAGE")],
    prompt: Annotated[Texts, opt("What to describe, such as 'left lung' (repeatable).", "TEXT")] = None,
    box: Annotated[Texts, opt("Region to describe, X0,Y0,X1,Y1 from 0 to 1 (repeatable).", "BOX")] = None,
    model: Annotated[str, opt("Name or folder of the model.", "MODEL", name="--model")] = "chex",
    anyway: Annotated[bool, opt(ANYWAY_HELP, name="--anyway")] = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Describe what a text, a box or both ask for.

    Without --prompt and --box, the whole image is described. A box given with prompts is where to look for each of
    them.
    """
    from rightlung.cli.describe import describe as run

    run(image, prompt or [], box or [], model, anyway, device, json)


@app.command()
def report(
    image: Annotated[str, arg("PNG, JPEG or DICOM file; with --samples, a source.", "IMAGE")],
    model: Annotated[str, opt("Name or folder of the model.", "MODEL", name="--model")] = "chex",
    prompts: Annotated[Path | None, opt(PROMPTS_HELP, "FILE")] = None,
    findings: Annotated[Use | None, opt(FINDINGS_HELP)] = None,
    regions: Annotated[Use | None, opt(REGIONS_HELP)] = None,
    html: Annotated[Path | None, opt("Page to write, with the boxes of each sentence.", "FILE")] = None,
    retrieval: Annotated[Path | None, opt("Write from the nearest reports of an index instead.", "INDEX")] = None,
    writer: Annotated[Writer | None, opt("With --retrieval: what writes. Default: language-model.", "NAME")] = None,
    language_model: Annotated[str | None, opt(LANGUAGE_MODEL_HELP, "MODEL", name="--language-model")] = None,
    retrieved: Annotated[str | None, opt(RETRIEVED_HELP, "N")] = None,
    samples: Annotated[int | None, opt(SAMPLES_HELP, "N", min=1, max=1000)] = None,
    anyway: Annotated[bool, opt(ANYWAY_HELP, name="--anyway")] = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Write the report of an image: sentences with their boxes, scores and prompts.

    With --retrieval, the report is written from the most similar reports of an index (rightlung index). With --samples
    too, a page shows random studies of a source with the reports written for them.
    """
    from rightlung.cli.describe import report as run

    if retrieval is None:
        if writer or language_model or retrieved or samples:
            raise InputError("--writer, --language-model, --retrieved and --samples need --retrieval INDEX")
        run(Path(image), model, prompts, findings, regions, html, anyway, device, json)
    elif prompts or findings or regions:
        raise InputError("an index takes no prompts: leave out --prompts, --findings and --regions")
    else:
        from rightlung.cli.retrieval import report_from_index, samples_from_index

        chosen = {"writer": writer, "language_model": language_model, "retrieved": retrieved, "device": device}
        if samples is None:
            report_from_index(Path(image), retrieval, html, anyway, json, **chosen)
        else:
            samples_from_index(image, retrieval, samples, html, json, **chosen)


@app.command()
def index(
    model: Annotated[str, arg("Name or folder of a model that embeds images and texts.", "MODEL")],
    source: Source,
    out: Annotated[Path, opt("Folder to write the index to.", "INDEX")],
    device: Device = None,
    json: Json = False,
) -> None:
    """Index the findings of training reports, to write reports from the most similar ones.

    The index is a model that writes reports: use it in 'rightlung report --retrieval INDEX' and in 'rightlung audit
    INDEX SOURCE --task report'. It refuses patients who are in it. It holds the reports' texts.
    """
    from rightlung.cli.retrieval import make_index

    make_index(model, source, out, device, json)


@app.command()
def regions(
    image: Annotated[Path, arg("PNG, JPEG or DICOM file.", "IMAGE")],
    out: Annotated[Path | None, opt("PNG file to draw outlines and boxes into.", "FILE")] = None,
    model: Annotated[str, opt("Name or folder of the model.", "MODEL", name="--model")] = "anatomy",
    anyway: Annotated[bool, opt(ANYWAY_HELP, name="--anyway")] = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Find lungs, heart and other regions in an image.

    Prints the boxes of Chest ImaGenome's 29 regions, each with a confidence (the predicted IoU), and the share of the
    image that each outlined structure covers; the JSON has the masks, too.
    """
    from rightlung.cli.regions import run

    run(image, model, out, anyway, device, json)


@app.command()
def models(
    name: Annotated[str | None, arg("Name, folder or module:Class. Default: list all.", "NAME")] = None,
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
    out: Annotated[Path, arg("Folder to write to. An interrupted run continues.", "OUT")],
    count: Annotated[int, opt("Number of studies.", "N")],
    seed: Annotated[int, opt("Seed: the same seed gives the same studies.", "S")],
    size: Annotated[int | None, opt("Height and width of images. Default: 256.", "PIXELS")] = None,
    dicom: Annotated[bool, opt("Also write DX DICOM files to OUT/dicom.", name="--dicom")] = False,
    shortcut: Annotated[Texts, opt("Shortcut to plant: NAME[:FINDING]=STRENGTH (repeatable).", "FAULT")] = None,
    config: Annotated[Path | None, opt("TOML file with settings; see docs/phantom.md.", "FILE")] = None,
    part: Annotated[str | None, opt("all, train or held-out; see docs/phantom.md. Default: all.", "PART")] = None,
    json: Json = False,
) -> None:
    """Generate synthetic studies with exact masks.

    They are written as a manifest folder, which every command reads as manifest:OUT.
    """
    from rightlung.cli.phantom import run

    run(out, count, seed, size, dicom, shortcut or [], config, part, json)


@app.command()
def predict(
    model: Annotated[str, arg("Name or folder of the model, or module:Class.", "MODEL")],
    source: Source,
    out: Annotated[Path, opt("Folder to write to. An interrupted run continues.", "P")],
    condition: Probes = None,
    map: MapKind = None,
    query: Annotated[Texts, opt(QUERY_HELP, "KIND")] = None,
    embeddings: Annotated[bool, opt("Also save the embeddings of images and phrases.", name="--embeddings")] = False,
    batch_size: Annotated[int, opt("Questions to ask at once; halved when memory runs out.", "N", min=1)] = 32,
    device: Device = None,
    limit: Annotated[int | None, opt("Ask about the first N studies only. Default: all.", "N", min=1)] = None,
    seed: Annotated[int, opt("Seed of the probes that draw at random.", "N", min=0)] = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Ask a model about every study and save its answers."""
    from rightlung.cli.predict import run
    from rightlung.models.maps import with_map

    model = with_map(model, map)
    run(model, source, out, condition or [], query or [], embeddings, batch_size, device, limit, seed, overwrite, json)


@app.command()
def predictions(
    path: Annotated[Path, arg("A predictions folder or Parquet file.", "PATH")],
    json: Json = False,
) -> None:
    """Check a predictions file and count what it holds."""
    from rightlung.cli.predict import check

    check(path, json)


@app.command()
def protocols(
    name: Annotated[str | None, arg("Name of a protocol. Default: list all.", "NAME")] = None,
    markdown: Annotated[bool, opt("Print all of them as Markdown.", name="--markdown")] = False,
    json: Json = False,
) -> None:
    """List the named protocols, or say what is known of one and what is not.

    A protocol is all that a number depends on besides the model: data, split, target, resizing, thresholds, averaging.
    """
    from rightlung.cli.protocols import describe, list_all

    if name is None:
        list_all(json, markdown)
    else:
        describe(name, json)


@app.command("score-reports")
def score_reports(
    generated: Annotated[str, arg("Generated reports: CSV, TSV, JSON lines, Parquet or a source.", "GENERATED")],
    references: Annotated[str, arg("The true reports, likewise.", "REFERENCES")],
    out: Annotated[Path, opt("Folder to write to.", "DIR")] = Path("report-scores"),
    train: Annotated[str | None, opt(TRAIN_REPORTS_HELP, "REPORTS")] = None,
    protocol: Annotated[Texts, opt(WORDS_HELP, "NAME")] = None,
    study: Annotated[
        str | None, opt("Column of the study in GENERATED. Default: id, study or study_id.", "COLUMN")
    ] = None,
    text: Annotated[str | None, opt(f"Column of the report in GENERATED. {REPORT_COLUMN}", "COLUMN")] = None,
    reference_study: Annotated[str | None, opt("Column of the study in REFERENCES.", "COLUMN")] = None,
    reference_text: Annotated[str | None, opt(f"Column of the report in REFERENCES. {REPORT_COLUMN}", "COLUMN")] = None,
    patient: Annotated[
        str | None, opt("Column of the patient in REFERENCES. Default: patient, patient_id or subject_id.", "COLUMN")
    ] = None,
    max_words: Annotated[int, opt("r2gen: words of a report (MIMIC-CXR: 99).", "N", min=1)] = 59,
    min_count: Annotated[int, opt("r2gen: occurrences of a known word in --train (MIMIC-CXR: 10).", "N", min=1)] = 3,
    resamples: Annotated[int, opt("Number of bootstrap resamples behind each interval.", "N", min=100)] = 1000,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    json: Json = False,
) -> None:
    """Score generated reports against references.

    BLEU, METEOR, ROUGE-L and CIDEr by several protocols, clinical efficacy by papers' names, sides, and diversity, next
    to image-blind baselines. Writes scores.html, scores.json and one row for each report (reports.csv).
    """
    from rightlung.audit.report_files import ReportColumns
    from rightlung.cli.score_reports import run
    from rightlung.results.estimate import BootstrapSettings

    columns, others = ReportColumns(study, text), ReportColumns(reference_study, reference_text, patient)
    settings = BootstrapSettings(resamples, level, seed)
    run(generated, references, out, columns, others, train, protocol or [], max_words, min_count, settings, json)


app.command()(leaderboard)
app.command()(reproduce)
app.command()(train)


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

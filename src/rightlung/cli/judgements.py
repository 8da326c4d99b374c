"""``rightlung judgements``: plan, check and analyse radiologists' judgements of heatmaps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.options import BootstrapSeed, Json, Key, Level, Texts, arg, opt
from rightlung.cli.output import Exit, finish, say, say_problems, say_table
from rightlung.core import InputError
from rightlung.core.progress import ProgressBars

judgements_app = typer.Typer(help="Plan, check and analyse radiologists' judgements.", no_args_is_help=True)
MODELS_HELP = (
    "Model to judge (repeatable). Default: the model of an audit; the comparable variants of an experiment, without "
    "references, ablations and further seeds."
)
Table = Annotated[Path, arg("Table of judgements, CSV or Parquet.", "TABLE")]


@judgements_app.command("plan")
def plan(
    instances: Annotated[Path, arg("Folder of the experiment or audit to judge.", "INSTANCES")],
    out: Annotated[Path, opt("CSV file to write the table to.", "TABLE")],
    key: Annotated[Path, opt("CSV file to write the key to; hide it from annotators.", "KEY", name="--key")],
    annotators: Annotated[list[str], opt("Name of an annotator (repeatable).", "NAME", name="--annotator")],
    models: Annotated[Texts, opt(MODELS_HELP, "NAME", name="--model")] = None,
    per_annotator: Annotated[int, opt("Number of prompts for each annotator.", "N", min=1)] = 50,
    overlap: Annotated[int, opt("Number of those prompts that all annotators judge.", "N", min=0)] = 10,
    abnormal: Annotated[bool, opt("Use abnormal phrases only.", name="--abnormal")] = False,
    seed: Annotated[int, opt("Seed of the codes, the choice of prompts and their order.", "N", min=0)] = 0,
    json: Json = False,
) -> None:
    """Write a blinded table of judgements to fill in, and its key."""
    from rightlung import judgements as study
    from rightlung.judgements.judgement import refuse_existing

    if out.resolve() == key.resolve():
        raise InputError(f"--out and --key must be two files; both are {out}")
    measures = study.read_measures([instances])
    chosen = [instance for instance in measures.instances.values() if instance.abnormal or not abnormal]
    names, others = (measures.named(models), []) if models else measures.to_judge()
    if not names:
        listed = ", ".join(others)
        raise InputError(f"{instances}: holds only references and variants ({listed}); choose with --model")
    hidden = study.blind(names, seed)
    planned = study.plan(chosen, hidden.codes, annotators, seed, per_annotator, overlap)
    for path, what in ((out, "table"), (key, "key")):
        refuse_existing(path, what)
    study.write_table(planned, out)
    study.write_key(hidden, key)
    prompts = len({row.instance.key for row in planned})
    summary = {
        "table": str(out),
        "key": str(key),
        "version": study.VERSION,
        "rows": len(planned),
        "prompts": prompts,
        "shared": overlap,
        "annotators": sorted(annotators),
        "models": len(names),
        "models_left_out": others,
        "seed": seed,
        "note": NOT_A_MEDICAL_DEVICE,
    }

    def tell() -> None:
        say(f"{out}: {len(planned):,} judgements to make, of {len(names)} models on {prompts:,} prompts")
        say(f"  {len(annotators)} annotators, {per_annotator:,} prompts each, {overlap:,} of them shared by all")
        if others:
            left = ", ".join(others)
            say(f"  left out (references, ablations, further seeds, not comparable): {left}; --model includes them")
        say(f"  {key}: the model behind each code. Hide it and the seed from the annotators.")

    finish(json, summary, tell)


@judgements_app.command("check")
def check(
    table: Table,
    key: Key = None,
    instances: Annotated[
        Path | None, opt("Folder that the prompts come from.", "INSTANCES", name="--instances")
    ] = None,
    json: Json = False,
) -> None:
    """Check a table of judgements and count what it holds.

    Finds invalid ratings, duplicate and incomplete rows, and models that are not blinded.
    """
    from rightlung import judgements as study

    read = study.read_judgements(
        table,
        key=None if key is None else study.read_key(key),
        instances=None if instances is None else study.read_measures([instances]).instances,
    )
    rows = read.judgements
    summary: dict[str, Any] = {
        "path": str(table),
        "valid": not read.problems,
        "version": study.VERSION,
        "judgements": len(rows),
        "open": read.open,
        "bad_rows": len(read.problems),
        "annotators": sorted({one.annotator for one in rows}),
        "models": sorted({one.model for one in rows}),
        "prompts": len({one.question for one in rows}),
        "custom_prompts": len({one.question for one in rows if one.custom}),
        "problems": [str(problem) for problem in read.problems],
    }

    def tell() -> None:
        valid = "problems" if read.problems else "valid"
        say(f"{table}: {valid}, {len(rows):,} judgements, {read.open:,} still to make")
        say(f"  {summary['prompts']} prompts, {summary['custom_prompts']} of them custom")
        for name in ("annotators", "models"):
            say(f"  {name}: {', '.join(summary[name]) or 'none'}")
        say_problems(summary["problems"], f"problems in {table}")

    finish(json, summary, tell, read.problems, Exit.BAD_INPUT)


@judgements_app.command("analyse")
def analyse(
    table: Table,
    out: Annotated[Path, opt("Folder to write to.", "DIR")],
    key: Key = None,
    measures: Annotated[list[Path] | None, opt("Folder of measures to correlate with (repeatable).", "DIR")] = None,
    instances: Annotated[Path | None, opt("Folder that names the patients. Default: --measures.", "INSTANCES")] = None,
    resamples: Annotated[int, opt("Number of bootstrap resamples behind each interval.", "N", min=100)] = 10_000,
    level: Level = 0.95,
    seed: BootstrapSeed = 0,
    json: Json = False,
) -> None:
    """Compare models by their ratings, with agreement and correlations.

    Writes a page with the ratings of each model, the agreement of annotators and the correlation with automatic
    measures.
    """
    from rightlung import judgements as study
    from rightlung.judgements.analysis import estimate_of
    from rightlung.pages.numbers import span
    from rightlung.results.estimate import BootstrapSettings

    settings = BootstrapSettings(resamples, level, seed)
    with ProgressBars(say) as tell:
        done = study.analyse_table(
            table, out, key=key, measures=measures or [], instances=instances, settings=settings, progress=tell
        )  # fmt: skip
    result = done.result

    def tell_people() -> None:
        for sentence in result["summary"]:
            say(sentence)
        if result["means"]:
            say()
            rows = [
                [row["model"], *(span(estimate_of(row["ratings"][name])) for name in study.RATINGS)]
                for row in result["means"]
            ]
            say_table(["model", *study.RATINGS], rows)
        say_problems(result["problems"], "rows were left out")
        say(f"\npage: {done.page}\n\n{result['note']}")

    finish(json, {**result, "page": str(done.page)}, tell_people, result["problems"])

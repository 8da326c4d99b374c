"""``rightlung judgements``: plan, check and analyse radiologists' judgements of heatmaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung import judgements as study
from rightlung.cli.output import Exit, finish, say, say_problems, say_table
from rightlung.core import InputError
from rightlung.core.progress import ProgressBars
from rightlung.judgements.analysis import estimate_of
from rightlung.judgements.judgement import refuse_existing
from rightlung.pages.numbers import span
from rightlung.results.estimate import BootstrapSettings


def make_plan(
    instances: Path,
    models: list[str],
    annotators: list[str],
    per_annotator: int,
    overlap: int,
    seed: int,
    abnormal: bool,
    out: Path,
    key: Path,
    json: bool,
) -> None:
    """Write an empty table and its key."""
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


def check(path: Path, key: Path | None, instances: Path | None, json: bool) -> None:
    """Print every problem of a table, and a summary."""
    read = study.read_judgements(
        path,
        key=None if key is None else study.read_key(key),
        instances=None if instances is None else study.read_measures([instances]).instances,
    )
    rows = read.judgements
    summary: dict[str, Any] = {
        "path": str(path),
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
        say(f"{path}: {valid}, {len(rows):,} judgements, {read.open:,} still to make")
        say(f"  {summary['prompts']} prompts, {summary['custom_prompts']} of them custom")
        for name in ("annotators", "models"):
            say(f"  {name}: {', '.join(summary[name]) or 'none'}")
        say_problems(summary["problems"], f"problems in {path}")

    finish(json, summary, tell, read.problems, Exit.BAD_INPUT)


def analyse(
    table: Path,
    key: Path | None,
    measures: list[Path],
    instances: Path | None,
    out: Path,
    settings: BootstrapSettings,
    json: bool,
) -> None:
    """Analyse the judgements; write the page, Markdown and JSON."""
    with ProgressBars(say) as tell:
        done = study.analyse_table(
            table, out, key=key, measures=measures, instances=instances, settings=settings, progress=tell
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

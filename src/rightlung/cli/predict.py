"""``rightlung predict``: ask a model about every study of a source and write the predictions file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.asking import Summary, ask
from rightlung.cli.device import chosen_device
from rightlung.cli.exits import Exit
from rightlung.cli.output import print_json, say, say_problems, say_table
from rightlung.probes import find_probe
from rightlung.studies import open_source

DEFAULT_CONDITIONS = ("none", "swap-sides", "exchange-image")


def run(
    model: str,
    address: str,
    out: Path,
    conditions: Sequence[str],
    queries: Sequence[str],
    embeddings: bool,
    batch_size: int,
    device: str | None,
    limit: int | None,
    seed: int,
    json: bool,
) -> None:
    """Ask what the folder does not hold yet, and say what it holds now."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    import rightlung

    names = list(conditions) or list(DEFAULT_CONDITIONS)
    for name in names:
        find_probe(name)
    source = open_source(address)
    loaded = rightlung.load(model, device=chosen_device(device))
    console = Console(stderr=True)
    columns = (TextColumn("asking"), BarColumn(), MofNCompleteColumn(), TextColumn("studies"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        summary = ask(
            loaded, source, out, names, queries=queries or None, embeddings=embeddings, batch_size=batch_size,
            model_name=model.rstrip("/") or model, seed=seed, limit=limit,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if json:
        print_json(as_json(summary))
    else:
        _say(summary)
    if not summary.complete:
        raise typer.Exit(Exit.SOME_LEFT_OUT)


def as_json(summary: Summary) -> dict[str, object]:
    """Return a summary as plain values."""
    return {
        "folder": str(summary.folder),
        "model": summary.model,
        "source": summary.source,
        "studies": summary.studies,
        "rows": summary.rows,
        "written": summary.written,
        "conditions": summary.conditions,
        "failed": [{**failure.key._asdict(), "reason": failure.reason} for failure in summary.failed],
        "problems": list(summary.problems),
        "notes": list(summary.notes),
        "note": NOT_A_MEDICAL_DEVICE,
    }


def _say(summary: Summary) -> None:
    before = summary.rows - summary.written
    there = f", {before:,} of them there before" if before else ""
    say(f"{summary.folder}: {summary.rows:,} answers of {summary.model} about {summary.studies:,} studies{there}")
    say_table(["condition", "rows"], [[name, f"{rows:,}"] for name, rows in sorted(summary.conditions.items())])
    for note in summary.notes:
        say(f"note: {note}")
    say_problems(summary.failed, "questions without an answer")
    say_problems(summary.problems, "rows or studies left out")
    say("\nwhat to try next:")
    say("  " + shlex.join(["rightlung", "audit", str(summary.folder), summary.source, "--out", "audit"]))
    say(f"\n{NOT_A_MEDICAL_DEVICE}")

"""``rightlung predict``: ask a model about every study of a source and save its answers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import finish, say, say_problems, say_table
from rightlung.core.progress import Progress, ProgressBars
from rightlung.probes import find_probe
from rightlung.studies import Source, open_source

if TYPE_CHECKING:
    from rightlung.asking import Summary

CONDITIONS = ("none", "swap-sides", "exchange-image")


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
    """Ask the questions that the folder has no answer to yet, and print what it holds."""
    import rightlung

    for name in conditions:
        find_probe(name)
    source = open_source(address)
    loaded = rightlung.load(model, device=chosen_device(device))
    with ProgressBars(say) as tell:
        summary = ask_model(
            loaded, source, out, conditions, tell, queries=queries or None, embeddings=embeddings,
            batch_size=batch_size, model_name=model.rstrip("/") or model, seed=seed, limit=limit,
        )  # fmt: skip
    finish(json, as_json(summary), lambda: _say(summary, queries or ["phrases"]), [*summary.failed, *summary.problems])


def ask_model(
    model: object, source: str | Source, out: Path, conditions: Sequence[str], tell: Progress, **options: Any
) -> Summary:
    """Ask a model under ``conditions`` (default: `CONDITIONS`) and show the progress."""
    from rightlung.asking import ask

    def progress(done: float, total: int) -> None:
        tell("asking the model", done, total)

    return ask(model, source, out, conditions or CONDITIONS, progress=progress, **options)


def chosen_device(name: str | None) -> str:
    """Return ``name`` or, if it is None, ``cuda`` where available and else ``cpu``."""
    if name is not None:
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def as_json(summary: Summary) -> dict[str, object]:
    """Return a summary as plain values."""
    failed = [{**failure.key._asdict(), "reason": failure.reason} for failure in summary.failed]
    fields = asdict(summary) | {"folder": str(summary.folder), "rows": summary.rows, "failed": failed}
    return fields | {"note": NOT_A_MEDICAL_DEVICE}


def _say(summary: Summary, asked: Sequence[str]) -> None:
    before = summary.rows - summary.written
    there = f", {before:,} of them from an earlier run" if before else ""
    say(f"{summary.folder}: {summary.rows:,} answers by {summary.model} about {summary.studies:,} studies{there}")
    say_table(["condition", "rows"], [[name, f"{rows:,}"] for name, rows in sorted(summary.conditions.items())])
    for note in summary.notes:
        say(f"note: {note}")
    say_problems(summary.failed, "questions without an answer")
    say_problems(summary.problems, "rows or studies were left out")
    if "phrases" in asked:
        say("\nnext:")
        say("  " + shlex.join(["rightlung", "audit", str(summary.folder), summary.source, "--out", "audit"]))
    say(f"\n{NOT_A_MEDICAL_DEVICE}")

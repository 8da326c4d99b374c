"""``rightlung predict`` asks a model about every study and saves its answers; ``rightlung predictions`` checks them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.output import Exit, finish, say, say_problems, say_table
from rightlung.core.progress import ProgressBars
from rightlung.predictions import check_predictions, open_predictions
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
    overwrite: bool,
    json: bool,
) -> None:
    """Ask the questions that the folder has no answer to yet, and print what it holds."""
    for name in conditions:
        find_probe(name)
    source = open_source(address)
    loaded = load_model(model, device)
    with ProgressBars(say) as tell:
        summary = ask_model(
            loaded, source, out, conditions, tell, queries=queries or None, embeddings=embeddings,
            batch_size=batch_size, model_name=model.rstrip("/") or model, seed=seed, limit=limit, overwrite=overwrite,
        )  # fmt: skip
    finish(json, as_json(summary), lambda: _say(summary, queries or ["phrases"]), [*summary.failed, *summary.problems])


def ask_model(
    model: object, source: str | Source, out: Path, conditions: Sequence[str], tell: ProgressBars, **options: Any
) -> Summary:
    """Ask a model under ``conditions`` (default: `CONDITIONS`); show the progress and what is reused."""
    from rightlung.asking import ask

    def progress(done: float, total: int) -> None:
        tell("asking the model", done, total)

    summary = ask(model, source, out, conditions or CONDITIONS, progress=progress, **options)
    if summary.reused:
        tell.say(f"reused {summary.reused:,} answers from {summary.reused_from or 'an earlier run'}: {summary.folder}")
    return summary


def load_model(name: str, device: str | None) -> Any:
    """Load a model on a device; by default on ``cuda`` if there is one and the model has ``to``, else on the CPU."""
    import torch

    import rightlung

    model = rightlung.load(name, device=device or "cpu")
    if device is None and torch.cuda.is_available() and callable(getattr(model, "to", None)):
        moved = model.to("cuda")
        return model if moved is None else moved
    return model


def as_json(summary: Summary) -> dict[str, object]:
    """Return a summary as plain values."""
    failed = [{**failure.key._asdict(), "reason": failure.reason} for failure in summary.failed]
    fields = asdict(summary) | {"folder": str(summary.folder), "rows": summary.rows, "failed": failed}
    return fields | {"note": NOT_A_MEDICAL_DEVICE}


def _say(summary: Summary, asked: Sequence[str]) -> None:
    say(f"{summary.folder}: {summary.rows:,} answers by {summary.model} about {summary.studies:,} studies")
    say_table(["condition", "rows"], [[name, f"{rows:,}"] for name, rows in sorted(summary.conditions.items())])
    for note in summary.notes:
        say(f"note: {note}")
    say_problems(summary.failed, "questions without an answer")
    say_problems(summary.problems, "rows or studies were left out")
    if "phrases" in asked:
        say("\nnext:")
        say("  " + shlex.join(["rightlung", "audit", str(summary.folder), summary.source, "--out", "audit"]))
    say(f"\n{NOT_A_MEDICAL_DEVICE}")


def check(path: Path, json: bool) -> None:
    """Print every problem of a predictions file or, if there is none, a summary."""
    problems = [str(problem) for problem in check_predictions(path)]
    summary: dict[str, Any] = {"path": str(path), "valid": not problems, "problems": problems}
    if not problems:
        summary |= summarise(path)

    def tell() -> None:
        if not problems:
            say(f"{path}: valid, schema version {summary['schema_version']}")
            say(f"  model {summary['model'] or 'not named'}, source {summary['source'] or 'not named'}")
            say(f"  {summary['rows']} rows about {summary['studies']} studies, {summary['errors']} with an error")
            for name in ("conditions", "grids"):
                say(f"  {name}: {', '.join(f'{label} {count}' for label, count in summary[name].items()) or 'none'}")
        say_problems(problems, f"problems in {path}")

    finish(json, summary, tell, problems, Exit.BAD_INPUT)


def summarise(path: Path) -> dict[str, Any]:
    """Count the rows, studies, errors, conditions and map sizes of a valid file."""
    predictions = open_predictions(path)
    studies, errors = set(), 0
    grids: Counter[str] = Counter()
    for batch in predictions.batches():
        studies.update(batch.column("study"))
        errors += sum(error is not None for error in batch.column("error"))
        grids.update(f"{values.shape[0]}x{values.shape[1]}" for values in batch.maps if values is not None)
    return {
        "schema_version": predictions.schema_version,
        "model": predictions.model,
        "source": predictions.source,
        "rows": len(predictions),
        "studies": len(studies),
        "errors": errors,
        "conditions": dict(predictions.rows_by_condition),
        "grids": dict(grids.most_common()),
    }

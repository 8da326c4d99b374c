"""``rightlung predictions``: check a predictions file and count what it holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rightlung.cli.output import Exit, finish, say, say_problems
from rightlung.predictions import check_predictions, open_predictions


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

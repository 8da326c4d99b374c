"""``rightlung audit``: is what a model points at owed to the image?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from rightlung.audit import Audit, Sureness, audit
from rightlung.audit.run import plain
from rightlung.audit.summary import metric_name, span, verdict
from rightlung.cli.exits import Exit
from rightlung.cli.output import print_json, say, say_problems, say_table
from rightlung.core import InputError
from rightlung.core.progress import Progress, ProgressBars
from rightlung.predictions import open_predictions

CONDITIONS = ("none", "swap-sides", "exchange-image")


def run(
    what: str,
    source: str | None,
    out: Path,
    prior_source: str | None,
    conditions: list[str],
    device: str,
    batch_size: int,
    sureness: Sureness,
    cases: int,
    json: bool,
) -> None:
    """Audit a predictions file; a model is asked first."""
    with ProgressBars(say) as tell:
        problems: list[str] = []
        if is_predictions(what):
            predictions = Path(what)
        else:
            if source is None and what.endswith(".parquet"):
                raise InputError(f"{what}: there is no such predictions file")
            if source is None:
                raise InputError(f"to audit the model {what!r}, give the source of studies to ask it about as well")
            predictions, problems = _ask(what, source, out / "predictions", conditions, device, batch_size, tell)
        done = audit(
            open_predictions(predictions),
            source,
            out,
            prior_source=prior_source,
            sureness=sureness,
            cases=cases,
            progress=tell,
        )
    result = {**done.result, "problems": [*problems, *done.problems], "page": str(done.page)}
    if json:
        print_json(plain(result))
    else:
        say_audit(done)
        say_problems(result["problems"], "questions or studies left out")
        say(f"\npage: {done.page}\nrows: {done.instances}\n\n{result['note']}")
    if result["problems"]:
        raise typer.Exit(Exit.SOME_LEFT_OUT)


def is_predictions(what: str) -> bool:
    """Whether this names a predictions file or folder: it is there, and is no model folder."""
    path = Path(what)
    return path.is_file() or (path.is_dir() and not (path / "config.json").exists())


def _ask(
    name: str, source: str, folder: Path, conditions: list[str], device: str, batch_size: int, tell: Progress
) -> tuple[Path, list[str]]:
    import rightlung
    from rightlung.predictions.asking import predict

    summary = predict(
        rightlung.load(name, device),
        source,
        folder,
        conditions or CONDITIONS,
        batch_size=batch_size,
        model_name=name,
        progress=lambda done, total: tell("asking the model", done, total),
    )
    return folder, [*map(str, summary.failed), *(problem for problem in summary.problems)]


def say_audit(done: Audit) -> None:
    """Print the main table and what was found, in words."""
    result = done.result
    counts = result["counts"]
    say(
        f"{result['model'] or 'model not named'} on {result['source']}: {counts['phrases']:,} phrases of "
        f"{counts['patients']:,} patients; {100 * result['protocol']['level']:g} % intervals, patients resampled; "
        f"protocol {result['protocol']['hash']}\n"
    )
    if result["overall"]:
        say_table(*main_table(result))
        say()
    for sentence in result["summary"]:
        say(f"- {sentence}")


def main_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the main table: model, prior, and the model under each condition."""
    metrics = ("average_precision", "pointing", "auroc")
    overall = result["overall"]
    basis = overall[metrics[0]]["model"]
    rows = [["the model", f"{basis['phrases']:,}", *(span(overall[name]["model"]) for name in metrics)]]
    if overall[metrics[0]]["prior"] is not None:
        rows.append(["image-blind prior", rows[0][1], *(span(overall[name]["prior"]) for name in metrics)])
        rows.append(["model − prior", rows[0][1], *(verdict(overall[name]["difference"]) for name in metrics)])
    titles = {"swap-sides": "sides swapped", "exchange-image": "image exchanged"}
    for condition, found in result["conditions"].items():
        values = found["values"]
        if all(name in values for name in metrics):
            title = titles.get(condition, condition)
            after = [values[name]["after"] for name in metrics]
            rows.append([title, f"{after[0]['phrases']:,}", *map(span, after)])
            rows.append(
                [f"{title}, change", f"{after[0]['phrases']:,}", *(verdict(found["change"][name]) for name in metrics)]
            )
    return ["", "phrases", *map(metric_name, metrics)], rows

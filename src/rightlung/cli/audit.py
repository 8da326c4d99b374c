"""``rightlung audit``: is what a model points at owed to the image?"""

from __future__ import annotations

from pathlib import Path

import typer

from rightlung.audit import Audit, audit
from rightlung.cli.exits import Exit
from rightlung.cli.output import print_json, say, say_problems, say_table
from rightlung.core import InputError
from rightlung.core.progress import Progress, ProgressBars
from rightlung.measuring import find_measure
from rightlung.pages.numbers import span, verdict
from rightlung.predictions import open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.groups import HEADLINE, Breakdown

CONDITIONS = ("none", "swap-sides", "exchange-image")


def run(
    what: str,
    source: str | None,
    out: Path,
    prior_source: str | None,
    conditions: list[str],
    device: str,
    batch_size: int,
    settings: BootstrapSettings,
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
            settings=settings,
            cases=cases,
            progress=tell,
        )
    result = {**done.result, "problems": [*problems, *done.problems], "page": str(done.page)}
    if json:
        print_json(result)
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
    from rightlung.asking import ask

    summary = ask(
        rightlung.load(name, device),
        source,
        folder,
        conditions or CONDITIONS,
        queries=["phrases"],
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
        say_table(*main_table(done.found))
        say()
    for sentence in result["summary"]:
        say(f"- {sentence}")


def main_table(found: Breakdown) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the main table: model, prior, and the model under each condition."""
    basis = f"{found.overall[HEADLINE[0]].model.n:,}"
    rows = [["the model", basis, *(span(found.overall[name].model) for name in HEADLINE)]]
    if found.overall[HEADLINE[0]].prior is not None:
        rows.append(["image-blind prior", basis, *(span(found.overall[name].prior) for name in HEADLINE)])
        rows.append(["model − prior", basis, *(verdict(found.overall[name].difference) for name in HEADLINE)])
    titles = {"swap-sides": "sides swapped", "exchange-image": "image exchanged"}
    for condition, changes in found.conditions.items():
        if all(name in changes.values for name in HEADLINE):
            title, after = titles.get(condition, condition), [changes.values[name].after for name in HEADLINE]
            asked = f"{after[0].n:,}"
            rows.append([title, asked, *map(span, after)])
            rows.append([f"{title}, change", asked, *(verdict(changes.change[name]) for name in HEADLINE)])
    return ["", "phrases", *(find_measure(name).title for name in HEADLINE)], rows

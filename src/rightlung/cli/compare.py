"""``rightlung compare``: compare the results of several models."""

from __future__ import annotations

from pathlib import Path

from rightlung.audit.compare import CompareResult, compare, main_measures
from rightlung.audit.compare_page import pair_rows, verdicts
from rightlung.cli.output import finish, say, say_problems, say_table
from rightlung.core.progress import ProgressBars
from rightlung.pages.content import ONLY_INTERVAL, ONLY_INTERVAL_NOTE
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.paired import ALL


def run(
    paths: list[str], out: Path, measures: list[str], condition: str, settings: BootstrapSettings, json: bool
) -> None:
    """Compare results and print the main measures."""
    with ProgressBars(say) as tell:
        done = compare(paths, out, measures=measures, condition=condition, settings=settings, progress=tell)
    dropped = [model for part in done.parts for model, count in part.dropped.items() if count]
    finish(json, {**done.result, "page": str(done.page)}, lambda: say_comparison(done, measures), dropped)


def say_comparison(done: CompareResult, measures: list[str]) -> None:
    """Print the warnings, then for each part the verdicts and the table of its main measures."""
    for warning in done.result["warnings"]:
        say(f"Warning: {warning}")
    for part in done.parts:
        main = [name for name in main_measures(part.protocol, measures) if name in part.pairs]
        counts = f"{part.instances:,} instances of {part.patients:,} patients"
        say(f"\n{part.title}: {counts} (protocol {part.protocol.hash})\n")
        header, rows = pair_rows(part, main or list(part.pairs), ALL, "measure")
        say_table(header, rows, words=["models", "outcome"])
        if any(row[-1].endswith(ONLY_INTERVAL) for row in rows):
            say(ONLY_INTERVAL_NOTE)
        for one in verdicts(part, main):
            say(f"- {one.text}")
        for note in part.notes:
            say(f"- {note}")
    say_problems(done.result["notes"], "notes on the results")
    say(f"\npage: {done.page}\n\n{done.result['note']}")

"""``rightlung diagnose``: find the conventions that reproduce a published number."""

from __future__ import annotations

from pathlib import Path

from rightlung.cli.output import finish, say, say_problems, say_table
from rightlung.core.progress import ProgressBars
from rightlung.diagnosis import Diagnosis, diagnose
from rightlung.diagnosis.page import HEADER, rows_of, verdict
from rightlung.pages.content import MARKS


def run(predictions: str, source: str | None, measure: str, published: str, out: Path, json: bool) -> None:
    """Rescore predictions under every known convention and print those that give the published number."""
    with ProgressBars(say) as tell:
        done = diagnose(predictions, source, measure, published, out, progress=tell)
    result = {**done.result, "page": str(done.page)}
    finish(json, result, lambda: say_diagnosis(done), result["problems"])


def say_diagnosis(done: Diagnosis) -> None:
    """Print the warnings, the verdict and the conventions nearest to ours."""
    said, listed = verdict(done), done.found or done.nearest
    for warning in done.result["warnings"]:
        say(f"Warning: {warning}\n")
    say(f"{MARKS[said.mark]} {said.text}\n{said.detail}\n")
    say_table(HEADER, rows_of([done.ours, *(one for one in listed if one.says)][:12], done.result), words=HEADER[-1:])
    if len(listed) > 11:
        say(f"  … {len(listed)} in all, on the page")
    say_problems(done.result["problems"], "studies or phrases were left out")
    say(f"\npage: {done.page}\n\n{done.result['note']}")

"""``rightlung data``: summarise and check a source."""

from __future__ import annotations

import random
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

from rightlung.cli.output import finish, say, say_problems
from rightlung.core import InputError, Mask, Study
from rightlung.core.progress import Progress, ProgressBars
from rightlung.pages.overlays import Tile, save_sheet
from rightlung.studies import Source, open_source
from rightlung.studies.check import CheckResult, check_source
from rightlung.studies.checks.issue import CHECKS, Severity, parse_severity

_SHOWN = 3
"""Issues of one check that are printed in full."""


def show(address: str, sheet: Path | None, count: int, seed: int, json: bool) -> None:
    """Print a summary of a source and, with ``sheet``, draw ``count`` random studies."""
    source = open_source(address)
    with ProgressBars(say) as shown:
        summary = summarise(source, shown)
    failed: list[str] = []
    if sheet is not None:
        chosen = random.Random(seed).sample(range(len(source)), min(count, len(source)))
        tiles = []
        for position in sorted(chosen):
            try:
                tiles.append(_tile(source[position]))
            except InputError as error:
                failed.append(str(error))
        save_sheet(tiles, sheet)
    problems = dict.fromkeys([*(str(problem) for problem in source.problems), *failed])
    summary |= {"address": source.address, "problems": list(problems)}
    finish(json, summary, lambda: _say(summary, sheet), problems)


def summarise(source: Source, progress: Progress) -> dict[str, Any]:
    """Count studies, patients, splits, views, findings, phrases and targets."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("splits", "views", "findings", "boxed")}
    patients, phrases, targets, total, reports = set(), 0, 0, 0, 0
    for study in source:
        total += 1
        progress("reading", total, len(source))
        patients.add(study.patient)
        counts["splits"][study.split or "none"] += 1
        counts["views"][study.view or "none"] += 1
        counts["findings"].update(name for name, polarity in study.findings.items() if polarity == "positive")
        reports += study.report is not None
        phrases += len(study.phrases)
        for phrase in study.phrases:
            if phrase.boxes or phrase.mask is not None:
                targets += 1
                counts["boxed"].update(list(phrase.findings))
    result: dict[str, Any] = {
        "studies": total,
        "patients": len(patients - {None}),
        "reports": reports,
        "phrases": phrases,
        "phrases_with_target": targets,
    }
    return result | {name: dict(counter.most_common()) for name, counter in counts.items()}


def _tile(study: Study) -> Tile:
    located = [phrase for phrase in study.phrases if phrase.boxes or phrase.mask is not None]
    said = "; ".join(phrase.text for phrase in located or study.phrases[:1])
    masks = [phrase.mask for phrase in located if phrase.mask is not None]
    same_size = [mask for mask in masks if mask.size == masks[0].size]
    together = reduce(Mask.union, same_size) if masks else None
    boxes = [box for phrase in located for box in phrase.boxes]
    return Tile(study.image, said, targets=boxes, mask=together, title=f"{study.id} {study.view or ''}")


def _say(summary: dict[str, Any], sheet: Path | None) -> None:
    say(summary["address"])
    say(f"  {summary['studies']} studies of {summary['patients']} patients, {summary['reports']} with a report")
    say(f"  {summary['phrases']} phrases, {summary['phrases_with_target']} with a target")
    for name in ("splits", "views", "findings", "boxed"):
        listed = [f"{label} {number}" for label, number in summary[name].items()]
        more = f", … {len(listed) - 12} more" if len(listed) > 12 else ""
        say(f"  {name}: {', '.join(listed[:12]) or 'none'}{more}")
    say(f"  sheet: {sheet}" if sheet is not None else "  --sheet FILE draws some of the images")
    say_problems(summary["problems"], "rows or images were left out")


def check(address: str, limit: int | None, images: bool, least: str, json: bool) -> None:
    """Print the issues of a source; exit with 3 if there are any."""
    severity = parse_severity(least)
    with ProgressBars(say) as tell:
        result = check_source(address, images=images, limit=limit, least=severity, progress=tell)
    finish(json, result.as_dict(), lambda: _say_check(result, images), result.counts)


def _say_check(result: CheckResult, images: bool) -> None:
    decoded = f"{result.images:,} images decoded" if images else "images not decoded"
    say(result.address)
    say(f"  {result.studies:,} studies checked, {decoded}, {result.rows:,} rows compared")
    for note in result.notes:
        say(f"  note: {note}")
    order = [(name, severity) for severity in Severity for name in CHECKS]
    for (name, severity), count in sorted(result.counts.items(), key=lambda one: order.index(one[0])):
        say(f"  {severity} {name} ({count:,}): {CHECKS[name][1]}")
        shown = [found for found in result.findings if found.check == name and found.severity is severity]
        for found in shown[:_SHOWN]:
            say(f"    {found}")
        if count > _SHOWN:
            say(f"    … and {count - _SHOWN:,} more; --json lists them all")
    say(f"  {result.total:,} issues" if result.total else "  no issues found")

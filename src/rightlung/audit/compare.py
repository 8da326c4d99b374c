"""Compare results: read them, compare each part that all have, and write the page, the Markdown and the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.compare_page import make_compare_page
from rightlung.audit.report_scores import MAIN as OF_REPORTS
from rightlung.audit.tasks import MAIN as OF_TASKS
from rightlung.core import InputError, OutputError
from rightlung.core.errors import check_known
from rightlung.core.files import folder_lock, read_json
from rightlung.core.progress import Progress, no_progress
from rightlung.measuring import MEASURES, Protocol
from rightlung.pages.write import write_page
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.groups import HEADLINE
from rightlung.results.paired import ComparedPart, compare_tables
from rightlung.results.tables import read_results

MAIN: Mapping[str, Sequence[str]] = {
    **OF_REPORTS, **OF_TASKS, "audit": HEADLINE, "wrong-lung": HEADLINE,
}  # fmt: skip
"""Measures to show first and to compare by finding, by protocol."""
RESAMPLES, SHOWN = 1000, 4


@dataclass(frozen=True)
class CompareResult:
    """The output: ``result`` is the content of ``compare.json``."""

    folder: Path
    result: dict[str, Any]
    parts: Sequence[ComparedPart] = field(default_factory=list)

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "compare.html"


def main_measures(protocol: Protocol, wanted: Sequence[str] = ()) -> list[str]:
    """Return the measures to show first: those asked for, else those of the protocol."""
    chosen = wanted or MAIN.get(protocol.name, protocol.measures)
    return [name for name in chosen if name in protocol.measures][: len(wanted) or SHOWN]


def _warnings(result: Path) -> list[str]:
    """Return the warnings of an audit, such as mirrored heatmaps; none of other results."""
    file = result / "audit.json"
    return list(read_json(file).get("warnings", ())) if file.is_file() else []


def compare(
    paths: Sequence[str | Path],
    out: str | Path = "comparison",
    *,
    measures: Sequence[str] = (),
    condition: str = "none",
    settings: BootstrapSettings | None = None,
    progress: Progress = no_progress,
) -> CompareResult:
    """Compare results (folders of audits or scored reports, or instances tables) on the instances that all have.

    ``measures`` are those to show first and by finding. Writes ``compare.html``, ``compare.md`` and ``compare.json``.
    """
    settings, folder = settings or BootstrapSettings(RESAMPLES), Path(out)
    for name in measures:
        check_known("measure", name, MEASURES)
    tables, notes = read_results(paths)
    if measures and not any(main_measures(one[0].protocol, measures) for one in tables.values()):
        raise InputError(f"none of the results was measured by {', '.join(measures)}")
    with folder_lock(folder, OutputError(f"{folder}: another comparison is writing to this folder; choose another")):
        found: list[ComparedPart] = []
        for place, some in enumerate(tables.values()):
            progress("comparing", place, len(tables))
            found += compare_tables(some, main_measures(some[0].protocol, measures), settings, condition)
        progress("comparing", len(tables), len(tables))
        silent = ["; ".join([f"{one.title}: no measure to compare", *one.notes]) for one in found if not one.pairs]
        found, notes = [one for one in found if one.pairs], [*notes, *silent]
        if not found:
            raise InputError("; ".join(silent))
        first = next(iter(tables.values()))
        result = {
            "note": NOT_A_MEDICAL_DEVICE,
            "version": __version__,
            "models": [{"name": one.model, "path": str(path)} for one, path in zip(first, paths, strict=True)],
            "condition": condition,
            "resamples": settings.resamples,
            "level": settings.level,
            "seed": settings.seed,
            "parts": {one.title: one.as_json() for one in found},
            "notes": notes,
            "warnings": [f"{path}: {said}" for path in paths for said in _warnings(Path(path))],
        }
        page = make_compare_page(result, found, {one.title: main_measures(one.protocol, measures) for one in found})
        write_page(page, folder, html="compare.html", markdown="compare.md", json_name="compare.json", data=result)
    return CompareResult(folder, result, found)

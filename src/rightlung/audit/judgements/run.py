"""A study from end to end: a table of judgements, with key and measures if there are any, to numbers and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.estimates import Sureness
from rightlung.audit.judgements.analysis import Progress, analyse
from rightlung.audit.judgements.blinding import read_key
from rightlung.audit.judgements.content import summary
from rightlung.audit.judgements.instances import Instances, read_instances
from rightlung.audit.judgements.judgement import VERSION
from rightlung.audit.judgements.markdown import render_markdown
from rightlung.audit.judgements.measures import read_measures
from rightlung.audit.judgements.page import render_page
from rightlung.audit.judgements.reading import read_judgements
from rightlung.audit.run import plain
from rightlung.core import InputError
from rightlung.core.files import write_whole


@dataclass(frozen=True)
class Analysis:
    """What an analysis wrote and found. ``result`` is what ``judgements.json`` holds."""

    folder: Path
    result: dict[str, Any]

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "judgements.html"

    @property
    def problems(self) -> list[str]:
        """The rows that were left out, with the reason."""
        problems: list[str] = self.result["problems"]
        return problems


def analyse_table(
    table: str | Path,
    out: str | Path,
    *,
    key: str | Path | None = None,
    measures: Sequence[str | Path] = (),
    instances: str | Path | None = None,
    sureness: Sureness | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Analyse a table of judgements and write ``judgements.json``, ``judgements.md`` and ``judgements.html``.

    Parameters
    ----------
    table
        The judgements, CSV or Parquet.
    key
        Which code stands for which model; without it, models are called by their codes.
    measures
        Experiment folders and audits whose automatic measures the ratings are correlated with; needs ``key``.
    instances
        Where patients and findings come from, if not from ``measures``.
    """
    opened = None if key is None else read_key(key)
    if measures and opened is None:
        raise InputError("measures go by models' names and judgements by codes: give the key as well")
    measured = read_measures(measures) if measures else None
    known: Instances | None = measured.instances if measured is not None else None
    if instances is not None:
        known = read_instances(instances)
    names = () if measured is None else measured.all_names
    read = read_judgements(table, key=opened, instances=known, names=names)
    if not read.judgements:
        first = f"; the first: {read.problems[0]}" if read.problems else ""
        raise InputError(
            f"{table}: no row is judged ({read.open:,} still to be judged, {read.bad_rows:,} with problems{first})"
        )
    found = analyse(
        read.judgements, key=opened, instances=known, measures=measured, sure=sureness, progress=progress
    )  # fmt: skip
    result: dict[str, Any] = {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "table": str(table),
        "table_version": VERSION,
        "open": read.open,
        "left_out": read.bad_rows,
        "problems": [str(problem) for problem in read.problems],
        **found,
    }
    result["summary"] = summary(result)
    folder = Path(out)
    write_whole(folder / "judgements.json", json.dumps(plain(result), indent=1, allow_nan=False))
    write_whole(folder / "judgements.md", render_markdown(result))
    write_whole(folder / "judgements.html", render_page(result))
    return Analysis(folder, result)

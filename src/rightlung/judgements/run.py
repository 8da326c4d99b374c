"""Analyse a table of judgements, optionally with key and measures, and write the numbers and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.core.errors import InputError
from rightlung.core.progress import Progress
from rightlung.judgements.analysis import KEY_NEEDED, analyse
from rightlung.judgements.blinding import BlindingKey, read_key
from rightlung.judgements.judgement import VERSION
from rightlung.judgements.measures import Instances, read_measures
from rightlung.judgements.page import make_page
from rightlung.judgements.reading import Judgements, read_judgements
from rightlung.judgements.summary import summary
from rightlung.pages.write import write_page
from rightlung.results.estimate import BootstrapSettings


@dataclass(frozen=True)
class Analysis:
    """The output of an analysis. ``result`` is the content of ``judgements.json``."""

    folder: Path
    result: dict[str, Any]

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "judgements.html"


def read_judged(
    table: str | Path, key: BlindingKey | None, instances: Instances | None = None, names: Sequence[str] = ()
) -> Judgements:
    """Read a table of judgements; raise an error if no row is judged."""
    read = read_judgements(table, key=key, instances=instances, names=names)
    if not read.judgements:
        bad = f"{len(read.problems):,} bad" + (f"; the first: {read.problems[0]}" if read.problems else "")
        raise InputError(f"{table}: no row is judged ({read.open:,} rows still to be judged, {bad})")
    return read


def analyse_table(
    table: str | Path,
    out: str | Path,
    *,
    key: str | Path | None = None,
    measures: Sequence[str | Path] = (),
    instances: str | Path | None = None,
    settings: BootstrapSettings | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Analyse a table of judgements (CSV or Parquet) and write ``judgements.html``, ``.md`` and ``.json``.

    ``key`` maps codes to models; without it, models are named by their codes. ``measures`` are experiment folders and
    audits with the automatic measures to correlate with the ratings; they require ``key``. Patients and findings come
    from ``instances`` (an experiment or an audit) if given, else from ``measures``.
    """
    opened = None if key is None else read_key(key)
    if measures and opened is None:
        raise InputError(KEY_NEEDED)
    measured = read_measures(measures) if measures else None
    about = measured if instances is None else read_measures([instances])
    known = None if about is None else about.instances
    names = [] if measured is None else [name for pair in measured.names.items() for name in pair]
    read = read_judged(table, opened, known, names)
    study: dict[str, Any] = {"key": opened, "instances": known, "measures": measured}
    result: dict[str, Any] = {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "table": str(table),
        "table_version": VERSION,
        "open": read.open,
        "left_out": len(read.problems),
        "problems": [str(problem) for problem in read.problems],
        **analyse(read.judgements, **study, settings=settings, progress=progress),
    }
    result["summary"] = summary(result)
    name = "judgements"
    write_page(
        make_page(result), out, data=result, html=f"{name}.html", markdown=f"{name}.md", json_name=f"{name}.json"
    )
    return Analysis(Path(out), result)

"""Audit a predictions file against its source.

Writes ``instances.parquet`` (one row per answer), ``audit.json`` (every number), ``audit.html`` (the page) and
``checklist.md`` (a model card, and a checklist for publications).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.asked import asked_warnings
from rightlung.audit.checklist import checklist
from rightlung.audit.coordinates import coordinate_mistakes
from rightlung.audit.gallery import galleries
from rightlung.audit.page import make_page
from rightlung.audit.subgroups import add_persons, subgroup_sentence, subgroup_tables, subgroups
from rightlung.audit.summary import sentences, verdicts
from rightlung.core import InputError, OutputError, Phrase, Polarity, Query
from rightlung.core.files import Content, folder_lock, plain
from rightlung.core.progress import Progress, no_progress
from rightlung.lexicon.wordkeys import word_key
from rightlung.measuring import (
    PhraseTargets,
    Protocol,
    Targets,
    find_protocol,
    gather_targets,
    measure,
    write_instances,
)
from rightlung.measuring.run import NO_ANSWER
from rightlung.measuring.targets import side_told
from rightlung.models.blind.prior import LocationPrior, PriorRow
from rightlung.pages.write import write_page
from rightlung.predictions import Batch, Prediction, Predictions, open_predictions
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.groups import Breakdown, break_down
from rightlung.results.measured import Measured
from rightlung.scoring.localisation import METRICS
from rightlung.studies import Source, open_source
from rightlung.studies.sources import absolute_address

if TYPE_CHECKING:
    import pandas as pd

_LOOK = "import pyarrow.parquet as pq; print(*pq.read_table({path!r}).slice(0, 3).to_pylist(), sep='\\n')"
_OF_PRIOR = (*METRICS, "peak_on_side")
"""Columns of the prior that are added to the model's table as ``prior_…``."""


@dataclass(frozen=True)
class Audit:
    """The output of an audit. ``result`` is the content of ``audit.json``; ``prior`` is the fitted baseline."""

    folder: Path
    result: dict[str, Any]
    found: Breakdown
    table: pa.Table
    prior: LocationPrior | None

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "audit.html"

    @property
    def instances(self) -> Path:
        """The per-instance table."""
        return self.folder / "instances.parquet"

    def to_pandas(self) -> pd.DataFrame:
        """Return every number with its interval (`Breakdown.to_pandas`); ``table.to_pandas()`` has the instances."""
        return self.found.to_pandas()

    @property
    def problems(self) -> list[str]:
        """What was left out, and why."""
        problems: list[str] = self.result["problems"]
        return problems


def audit(
    predictions: str | Path | Predictions,
    source: str | Source | None = None,
    out: str | Path = "audit",
    *,
    prior_source: str | Source | None = None,
    settings: BootstrapSettings | None = None,
    cases: int = 6,
    next_steps: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Audit:
    """Audit predictions against their source; write the instances table, the numbers and the page to ``out``.

    ``source`` is by default the one that the predictions name. The image-blind prior is fitted on ``prior_source``, by
    default on the same phrases, cross-fitted over patients. ``cases`` best and worst cases are drawn.
    """
    settings, folder = settings or BootstrapSettings(), Path(out)
    opened = predictions if isinstance(predictions, Predictions) else open_predictions(predictions)
    studies = source_of(opened, source)
    wanted, other = _wanted(opened)
    notes = _notes(opened, studies, other)
    with folder_lock(folder, OutputError(f"{folder}: another audit is writing to this folder; choose another --out")):
        prior = LocationPrior(source=studies.address)
        elsewhere = open_source(prior_source) if isinstance(prior_source, str) else prior_source
        targets = gather_targets(
            studies, wanted, seen=None if elsewhere else prior_rows(prior),
            progress=lambda done, total: progress("reading studies", done, total),
        )  # fmt: skip
        if not targets.phrases:
            raise InputError(_nothing_matches(opened, studies, targets))
        fitted = None if elsewhere is None else _fit_elsewhere(prior, elsewhere, progress)
        protocol = _protocol(targets, settings, prior, fitted)
        known = prior if len(prior) else None
        targets.add_column("side_told", lambda phrase: side_told(phrase, known))
        add_persons(targets)
        table, prior_table = _measured(opened, targets, protocol, known, progress)
        _check_some_answer(opened, table)
        warnings = asked_warnings(table)
        warnings += [one.sentence for one in coordinate_mistakes(opened, targets, studies)]
        progress("computing intervals", 0, 1)
        tables = {"model": table} | ({} if prior_table is None else {"prior": prior_table})
        measured = Measured.of(tables, complete=False)
        found, groups = break_down(measured, settings), subgroups(measured, settings)
        table = _with_prior(table, prior_table, targets, known)
        result = _result(opened, studies, targets, protocol, table, notes)
        summary = [*(f"Warning: {warning}" for warning in warnings), *sentences(found)]
        verdict = [*map(vars, verdicts(found))]
        summary += filter(None, [subgroup_sentence(groups)])
        result |= found.as_json() | {"warnings": warnings, "verdict": verdict, "summary": summary}
        result["subgroups"] = [one.as_json() for one in groups]
        progress("computing intervals", 1, 1)
        progress("writing the page", 0, 1)
        steps = next_steps or _next_steps(opened, studies, folder)
        drawn = galleries(table, opened, studies, known, cases)
        page = make_page(result, found, drawn, steps, subgroup_tables(groups))
        instances = partial(write_instances, table=table, protocol=protocol, model=opened.model or "")
        further: dict[str, Content] = {
            "instances.parquet": instances,
            "checklist.md": checklist(plain(result)).encode(),
        }
        write_page(page, folder, html="audit.html", json_name="audit.json", data=result, further=further)
        progress("writing the page", 1, 1)
    return Audit(folder, result, found, table, known)


def prior_rows(prior: LocationPrior) -> Any:
    """Return a callback that adds each gathered target to the prior."""

    def learn(phrase: Phrase, target: PhraseTargets, pixels: NDArray[np.bool_]) -> None:
        prior.add(PriorRow(target.patient, phrase.text, phrase.findings, pixels, target.masks["own"].side))

    return learn


def _measured(
    predictions: Predictions, targets: Targets, protocol: Protocol, prior: LocationPrior | None, progress: Progress
) -> tuple[pa.Table, pa.Table | None]:
    """Measure the model's answers, and the prior's answers to the same phrases."""
    count = len(predictions)
    table = measure(predictions.batches(), targets, protocol, progress=lambda done: progress("scoring", done, count))
    if prior is None:
        return table, None
    asked = _asked_of_prior(prior, table, targets)
    return table, measure(asked, targets, protocol, progress=lambda done: progress("scoring the prior", done, count))


def _asked_of_prior(prior: LocationPrior, table: pa.Table, targets: Targets) -> Iterator[Batch]:
    """Yield the prior's answers to the same words; the findings are those of the original phrase."""
    for part in table.select(["study", "query", "condition", "asked"]).to_batches(max_chunksize=1000):
        keys = part.to_pylist()
        own = [targets.phrases[one["study"], one["query"]] for one in keys]
        words = [
            Phrase(one["asked"], findings=dict.fromkeys(phrase.findings, Polarity.POSITIVE))
            for one, phrase in zip(keys, own, strict=True)
        ]
        found = prior.ground_blind(words, [phrase.patient for phrase in own])
        yield Batch.of(
            [
                Prediction(one["study"], one["query"], one["condition"], Query(one["asked"]), grounding)
                for one, grounding in zip(keys, found, strict=True)
            ]
        )


def _with_prior(
    table: pa.Table, prior_table: pa.Table | None, targets: Targets, prior: LocationPrior | None
) -> pa.Table:
    """Return the model's table with the prior's scores as additional columns."""
    if prior_table is None or prior is None:
        return table
    for name in _OF_PRIOR:  # the rows are the same, in the same order
        table = table.append_column(f"prior_{name}", prior_table.column(name))
    support: list[int | None] = []
    for row in table.select(["study", "query", "asked"]).to_pylist():
        phrase = targets.phrases[row["study"], row["query"]]
        key = word_key(row["asked"], phrase.findings)
        support.append(prior.support(key, prior.held_out(phrase.patient)) if phrase.masks else None)
    return table.append_column("prior_support", pa.array(support, pa.int64()))


def source_of(predictions: Predictions, source: str | Source | None) -> Source:
    """Return the source to measure predictions against: the one given, else the one that they name."""
    if isinstance(source, Source):
        return source
    address = source or _address_of(predictions)
    if address is None:
        raise InputError(
            f"{predictions.path}: the predictions name no source; give the address of the studies as a second argument"
        )
    return open_source(address)


def _address_of(predictions: Predictions) -> str | None:
    """Return the source that predictions name; a relative path is relative to their folder."""
    folder = predictions.path if predictions.path.is_dir() else predictions.path.parent
    return None if predictions.source is None else absolute_address(predictions.source, folder)


def _wanted(predictions: Predictions) -> tuple[dict[str, set[int]], int]:
    """Return the phrase indices asked for each study, and the number of rows with other queries."""
    if not len(predictions):
        raise InputError(f"{predictions.path}: the predictions have no rows")
    wanted: dict[str, set[int]] = {}
    other = 0
    for key in predictions.keys():  # noqa: SIM118  (not a mapping)
        match = PHRASE_QUERY.fullmatch(key.query)
        if match is None:
            other += 1
        else:
            wanted.setdefault(key.study, set()).add(int(match[1]))
    if not wanted:
        raise InputError(
            f"{predictions.path}, column 'query': no row asks about a phrase of the source; expected queries such as "
            "'phrase:0', because only phrases have a known target"
        )
    return wanted, other


def _notes(predictions: Predictions, source: Source, other: int) -> list[str]:
    notes = []
    if other:
        notes.append(f"{other:,} rows with queries other than the source's phrases were skipped")
    return [*notes, *other_source(predictions, source)]


def other_source(predictions: Predictions, source: Source) -> list[str]:
    """Return a note if predictions name another source than the one that they are measured against."""
    if _address_of(predictions) in (None, absolute_address(source.address)):
        return []
    return [f"the predictions name the source {predictions.source} but were audited against {source.address}"]


def _check_some_answer(predictions: Predictions, table: pa.Table) -> None:
    """Raise an error with the first reason if no phrase has an answer."""
    reasons = table.column("reason").to_pylist()
    if all(reason.startswith(NO_ANSWER) for reason in reasons):
        first = reasons[0].removeprefix(NO_ANSWER)
        raise InputError(f"{predictions.path}: none of the {len(reasons):,} rows has an answer; first error: {first}")


def _nothing_matches(predictions: Predictions, source: Source, targets: Targets) -> str:
    named = f" (made from {predictions.source!r})" if predictions.source else ""
    example = f"; the first: {targets.problems[0]}" if targets.problems else ""
    return f"{predictions.path}: none of the studies in these predictions{named} is in {source.address}{example}"


def _fit_elsewhere(prior: LocationPrior, source: Source, progress: Progress) -> tuple[str, str]:
    """Fit the prior on another source; return its address and the hash of its phrases."""
    prior.source = source.address
    targets = gather_targets(
        source, seen=prior_rows(prior), progress=lambda done, total: progress("fitting the prior", done, total)
    )
    if not len(prior):
        raise InputError(f"source {source.address} has no phrase with a target, so the prior cannot be fitted on it")
    return source.address, targets.phrase_set


def _protocol(
    targets: Targets, settings: BootstrapSettings, prior: LocationPrior, fitted: tuple[str, str] | None
) -> Protocol:
    changes: dict[str, Any] = {"prior_source": targets.source, "prior_folds": prior.folds}
    if fitted is not None:
        changes |= {"prior_source": fitted[0], "prior_set": f"other phrases, {fitted[1]}"}
    return find_protocol("audit").applied_to(targets, **settings.as_options(), **changes)


def _result(
    predictions: Predictions, source: Source, targets: Targets, protocol: Protocol, table: pa.Table, notes: list[str]
) -> dict[str, Any]:
    asked = targets.phrases.values()
    if targets.studies_without_patient:
        notes.append(
            f"{targets.studies_without_patient:,} studies have no patient id and count as separate patients; if some "
            "belong to the same person, the intervals are too narrow"
        )
    return {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "protocol": protocol.as_json(),
        "model": predictions.model,
        "predictions": str(predictions.path),
        "source": source.address,
        "counts": {
            "rows": table.num_rows,
            "studies": len({target.study for target in asked}),
            "patients": len({target.patient for target in asked}),
            "phrases": len(targets.phrases),
            "phrases_with_target": sum("own" in target.masks for target in asked),
            "rows_by_condition": dict(predictions.rows_by_condition),
        },
        "problems": [*targets.problems, *(str(problem) for problem in source.problems)],
        "notes": notes,
    }


def _next_steps(predictions: Predictions, source: Source, folder: Path) -> tuple[str, ...]:
    return (
        "# the table behind every number: one row per answer",
        shlex.join(["python", "-c", _LOOK.format(path=str(folder / "instances.parquet"))]),
        "# summarise the predictions",
        shlex.join(["rightlung", "predictions", str(predictions.path)]),
        "# look at the studies",
        shlex.join(["rightlung", "data", "show", source.address, "--sheet", str(folder / "studies.png")]),
    )

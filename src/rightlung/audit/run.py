"""Audit a predictions file against its source.

Writes ``instances.parquet`` (one row per answer), ``audit.json`` (every number), ``audit.html`` (the page),
``audit.md`` (the page without pictures and folded tables) and ``checklist.md`` (a model card, and a checklist for
publications).
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.analysis import asked_of
from rightlung.audit.answering import answering, answering_sections
from rightlung.audit.asked import COLUMNS, asked_warnings
from rightlung.audit.batteries import battery_conditions
from rightlung.audit.battery_page import battery_sections, run_batteries
from rightlung.audit.blocks import BlockAudit, rows_in_pieces, tables_of
from rightlung.audit.checklist import checklist
from rightlung.audit.coordinates import MOST, coordinate_mistakes
from rightlung.audit.gallery import galleries
from rightlung.audit.gates import have_gates, map_gates
from rightlung.audit.gates_case import gate_case
from rightlung.audit.gates_page import gate_sections
from rightlung.audit.gathered import Gathered
from rightlung.audit.page import make_page
from rightlung.audit.strata import MOST as DRAWN
from rightlung.audit.strata import sampled, strata
from rightlung.audit.strata_page import strata_section
from rightlung.audit.subgroups import subgroup_sentence, subgroup_tables, subgroups
from rightlung.audit.summary import sentences, verdicts
from rightlung.core import InputError, OutputError, Phrase
from rightlung.core.files import Content, folder_lock, plain
from rightlung.core.progress import Progress, no_progress
from rightlung.measuring import PhraseTargets, Protocol, find_protocol, gather_targets, write_instances
from rightlung.measuring.run import NO_ANSWER
from rightlung.models.blind.prior import LocationPrior, PriorRow
from rightlung.pages.markdown import render_markdown
from rightlung.pages.write import write_page
from rightlung.predictions import Predictions, open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.groups import Breakdown, break_down
from rightlung.results.measured import Measured
from rightlung.results.on_disk import TableOnDisk
from rightlung.studies import Source, open_source
from rightlung.studies.sources import absolute_address

if TYPE_CHECKING:
    import pandas as pd

_LOOK = "import pyarrow.parquet as pq; print(*pq.read_table({path!r}).slice(0, 3).to_pylist(), sep='\\n')"


@dataclass(frozen=True)
class Audit:
    """The output of an audit. ``result`` is the content of ``audit.json``; ``prior`` is the fitted baseline."""

    folder: Path
    result: dict[str, Any]
    found: Breakdown
    prior: LocationPrior | None

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "audit.html"

    @property
    def instances(self) -> Path:
        """The per-instance table."""
        return self.folder / "instances.parquet"

    @cached_property
    def table(self) -> pa.Table:
        """The per-instance table, read when it is asked for."""
        return pq.read_table(self.instances)

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
    not_asked: Mapping[str, str] | None = None,
    batteries: Sequence[str] = (),
    jobs: int | None = 1,
    ray: str | None = None,
    progress: Progress = no_progress,
) -> Audit:
    """Audit predictions against their source; write the instances table, the numbers and the page to ``out``.

    ``source`` is by default the one that the predictions name. The image-blind prior is fitted on ``prior_source``, by
    default on the same phrases, cross-fitted over patients. ``cases`` best and worst cases are drawn. ``not_asked``
    says why gates are missing (`rightlung.audit.gates`).
    ``batteries`` are names of `rightlung.audit.batteries.BATTERIES` whose conditions the predictions hold.

    Large audits go through blocks of studies (`rightlung.audit.blocks`), in ``jobs`` processes (None: all that pay) or
    on the Ray cluster at the address ``ray``; a killed one is continued by the next call.
    """
    settings, folder = settings or BootstrapSettings(), Path(out)
    opened = predictions if isinstance(predictions, Predictions) else open_predictions(predictions)
    studies = source_of(opened, source)
    with folder_lock(folder, OutputError(f"{folder}: another audit is writing to this folder; choose another --out")):
        work = BlockAudit(opened, studies, folder, jobs, ray)
        notes = _notes(opened, studies, 0 if batteries else work.blocks.other)
        elsewhere = open_source(prior_source) if isinstance(prior_source, str) else prior_source
        targets = work.gather(progress)
        if not targets.phrases:
            work.finish()
            raise InputError(_nothing_matches(opened, studies, targets))
        prior, fitted = targets.prior, None
        if elsewhere is not None:
            prior = LocationPrior()
            fitted = _fit_elsewhere(prior, elsewhere, progress)
        protocol = _protocol(studies, targets, settings, prior, fitted)
        protocol = replace(protocol, **asked_of(opened.rows_by_condition, settings.level, batteries, maps=True))
        known = prior if len(prior) else None
        table = work.measure(targets, protocol, known, progress)
        _check_some_answer(opened, table)
        answers = work.sample(max(MOST, DRAWN))
        warnings = asked_warnings(rows_in_pieces(table, COLUMNS))
        warnings += [one.sentence for one in coordinate_mistakes(answers[:MOST], studies)]
        progress("computing intervals", 0, 1)
        whole = Measured.of(tables_of(table), complete=False)
        tested = run_batteries(batteries, whole, opened, table, settings)
        measured = whole.without(battery_conditions(batteries))
        found, groups = break_down(measured, settings), subgroups(measured, settings)
        gates = map_gates(whole, settings, studies, not_asked)
        result = _result(opened, studies, targets, protocol, len(table), notes)
        summary = [*(f"Warning: {warning}" for warning in warnings), *sentences(found)]
        verdict, declining = [*map(vars, verdicts(found))], answering(measured, settings)
        for name, one in (("answering", declining), ("batteries", tested)):
            if one is not None:
                result[name] = one.as_json()
                summary += one.sentences()
        summary += filter(None, [subgroup_sentence(groups), "" if gates is None else gates.sentence])
        result |= found.as_json() | {"warnings": warnings, "verdict": verdict, "summary": summary}
        result["subgroups"] = [one.as_json() for one in groups]
        result |= {} if gates is None else {"gates": gates.as_json()}
        progress("computing intervals", 1, 1)
        progress("writing the page", 0, 1)
        steps = next_steps or _next_steps(opened, studies, folder)
        drawn = galleries(table, opened, studies, known, cases)
        appendix = strata(measured, sampled(answers[:DRAWN], known), settings)
        result["strata"] = appendix.as_json()
        shown = gate_sections(gates, gate_case(table, opened, studies, protocol.seed) if cases else ())
        page = make_page(
            result, found, drawn, steps, subgroup_tables(groups), shown,
            battery_sections(tested), [*answering_sections(declining), strata_section(appendix)],
        )  # fmt: skip
        instances: Content = partial(write_instances, table=table, protocol=protocol, model=opened.model or "")
        if isinstance(table, TableOnDisk):
            instances = partial(shutil.copyfile, table.path)
        further: dict[str, Content] = {
            "instances.parquet": instances,
            "checklist.md": checklist(plain(result)).encode(),
            "audit.md": render_markdown(page.brief()).encode(),
        }
        write_page(page, folder, html="audit.html", json_name="audit.json", data=result, further=further)
        work.finish()
        progress("writing the page", 1, 1)
    return Audit(folder, result, found, known)


def prior_rows(prior: LocationPrior) -> Any:
    """Return a callback that adds each gathered target to the prior."""

    def learn(phrase: Phrase, target: PhraseTargets, pixels: NDArray[np.bool_]) -> None:
        prior.add(PriorRow(target.patient, phrase.text, phrase.findings, pixels, target.masks["own"].side))

    return learn


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


def _check_some_answer(predictions: Predictions, table: pa.Table | TableOnDisk) -> None:
    """Raise an error with the first reason if no phrase has an answer."""
    reasons = table.column("reason").to_pylist()
    if all(reason.startswith(NO_ANSWER) for reason in reasons):
        first = reasons[0].removeprefix(NO_ANSWER)
        raise InputError(f"{predictions.path}: none of the {len(reasons):,} rows has an answer; first error: {first}")


def _nothing_matches(predictions: Predictions, source: Source, targets: Gathered) -> str:
    named = f" (made from {predictions.source!r})" if predictions.source else ""
    example = f"; the first: {next(iter(targets.problems))}" if targets.problems else ""
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
    source: Source,
    targets: Gathered,
    settings: BootstrapSettings,
    prior: LocationPrior,
    fitted: tuple[str, str] | None,
) -> Protocol:
    changes: dict[str, Any] = {"source": source.address, "prior_source": source.address, "prior_folds": prior.folds}
    changes |= {"phrase_set": targets.phrase_set, "target_kinds": tuple(sorted(targets.kinds))}
    if fitted is not None:
        changes |= {"prior_source": fitted[0], "prior_set": f"other phrases, {fitted[1]}"}
    return replace(find_protocol("audit"), **settings.as_options(), **changes)


def _result(
    predictions: Predictions, source: Source, targets: Gathered, protocol: Protocol, rows: int, notes: list[str]
) -> dict[str, Any]:
    if 0 < targets.studies < len(source.ids):
        notes.append(
            f"the predictions answer phrases of {targets.studies:,} of the source's {len(source.ids):,} studies; the "
            "others have no phrase or no answer"
        )
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
            "rows": rows,
            "studies": targets.studies,
            "patients": len(targets.patients),
            "phrases": targets.phrases,
            "phrases_with_target": targets.with_target,
            "rows_by_condition": dict(predictions.rows_by_condition),
        },
        "problems": [*targets.problems, *(str(problem) for problem in source.problems)],
        "notes": notes,
    }


def _next_steps(predictions: Predictions, source: Source, folder: Path) -> tuple[str, ...]:
    steps = (
        "# the table behind every number: one row per answer",
        shlex.join(["python", "-c", _LOOK.format(path=str(folder / "instances.parquet"))]),
        "# summarise the predictions",
        shlex.join(["rightlung", "predictions", str(predictions.path)]),
        "# look at the studies",
        shlex.join(["rightlung", "data", "show", source.address, "--sheet", str(folder / "studies.png")]),
    )
    if predictions.model is None or have_gates(predictions.rows_by_condition):
        return steps
    gates = shlex.join(["rightlung", "audit", predictions.model, source.address, "--gates"])
    return (*steps, "# ask the model whether it uses the finding (docs/gates.md)", gates)

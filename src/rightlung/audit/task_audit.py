"""Audit the tasks that a source has targets for: ask, post-process boxes, measure, compare with image-blind baselines.

Writes ``audit.json`` (every number), ``audit.html`` (the page) and one table of instances for each part of a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.audit.blind import baselines_of
from rightlung.audit.run import other_source, source_of
from rightlung.audit.task_measure import measure_part
from rightlung.audit.task_page import make_task_page
from rightlung.audit.task_results import PartResult
from rightlung.audit.task_run import CROSS_VALIDATE, TaskRun
from rightlung.audit.tasks import TASKS, TaskPart, parts_of
from rightlung.core import InputError, OutputError
from rightlung.core.files import folder_lock
from rightlung.measuring import write_instances
from rightlung.pages.write import write_page
from rightlung.predictions import Predictions
from rightlung.studies import Source, open_source


@dataclass(frozen=True)
class TaskAudit:
    """The output of an audit of tasks; ``result`` is the content of ``audit.json``."""

    folder: Path
    result: dict[str, Any]
    parts: Sequence[PartResult]

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / "audit.html"


def audit_tasks(
    what: object,
    source: str | Source | None,
    out: str | Path,
    tasks: Sequence[str],
    **options: Any,
) -> TaskAudit:
    """Audit tasks of a model, or of predictions, on a source; write the numbers, the page and the instances.

    Without a ``source``, it is the one that the predictions name. ``options`` are the fields of `TaskRun`. A part that
    the source lacks the targets for is named in the result; it is an error if it lacks those of all tasks.
    """
    if isinstance(what, Predictions):
        studies = source_of(what, source)
    elif source is None:
        raise InputError("to audit a model, also give the source of the studies to ask it about")
    else:
        studies = open_source(source) if isinstance(source, str) else source
    folder = Path(out)
    run = TaskRun(what, studies, folder, **options)
    _check(run, parts_of(tasks))
    with folder_lock(folder, OutputError(f"{folder}: another audit is writing to this folder; choose another --out")):
        found: list[PartResult] = []
        missing: dict[str, str] = {}
        for part in parts_of(tasks):
            known = run.known(part, studies)
            if known is None:
                missing[part.slug] = f"{part.title}: not measured, because {studies.address} lacks {part.needs}"
            elif (done := measure_part(run, part, known)) is None:
                missing[part.slug] = f"{part.title}: not measured, because the predictions hold no answers for it"
            else:
                found.append(done)
        warnings = other_source(what, studies) if isinstance(what, Predictions) else []
        if not found:
            raise InputError("; ".join([*missing.values(), *warnings]))
        result = _result(run, found, missing) | {"warnings": warnings}
        page = make_task_page(result, found, [*missing.values()])
        tables: dict[str, Any] = {
            f"instances-{one.part.slug}.parquet": partial(
                write_instances, table=one.table, protocol=one.protocol, model=result["model"] or ""
            )
            for one in found
        }
        write_page(page, folder, html="audit.html", json_name="audit.json", data=result, further=tables)
    return TaskAudit(folder, result, found)


def _check(run: TaskRun, parts: Sequence[TaskPart]) -> None:
    """Raise an error for options that do not fit the tasks, or need a model."""
    if run.tune == run.source.address:
        raise InputError("boxes must not be tuned on the studies that are measured: use --tune cross-validate")
    if isinstance(run.what, Predictions) and run.tune not in (None, CROSS_VALIDATE):
        raise InputError(
            f"--tune {run.tune} needs a model to ask about it; with predictions, use --tune cross-validate"
        )
    probed = any(part.task == "probe" for part in parts)
    if probed and isinstance(run.what, Predictions):
        raise InputError("--task probe needs a model whose embeddings it learns from, not predictions")
    if probed and run.train is None:
        raise InputError("--task probe needs images to learn from: give their source by --train")
    if run.pool is not None and not any(part.method == "embed" for part in parts):
        raise InputError("--pool applies to --task retrieval only: also give that task")
    if run.pool is not None and isinstance(run.what, Predictions):
        raise InputError("--pool needs a model that embeds the pool's reports, not predictions")
    if run.gates and (without := [part for part in parts if not part.has_gates]):
        tasks = ", ".join(dict.fromkeys(part.task for part in parts_of(TASKS) if part.has_gates))
        raise InputError(f"--gates applies to {tasks} and heatmaps (without --task), not to {without[0].slug}")


def _baselines(parts: Iterable[TaskPart]) -> dict[str, dict[str, str]]:
    """Return the titles of the baselines of some parts, by method."""
    titles: dict[str, dict[str, str]] = {}
    for part in parts:
        titles.setdefault(part.method, {}).update(baselines_of(part))
    return titles


def _address(source: str | Source | None) -> str | None:
    return source.address if isinstance(source, Source) else source


def _result(run: TaskRun, found: Sequence[PartResult], missing: Mapping[str, str]) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for one in found:
        if one.part.name == one.part.task:
            tasks[one.part.task] = one.as_json()
        else:
            tasks.setdefault(one.part.task, {})[one.part.name] = one.as_json()
    rows = [row for one in found for row in one.table.select(["study", "patient"]).to_pylist()]
    model = run.what.model if isinstance(run.what, Predictions) else run.name
    result = {
        "note": NOT_A_MEDICAL_DEVICE,
        "version": __version__,
        "model": model,
        "source": run.source.address,
        "tune": run.tune,
        "train": _address(run.train),
        "pool": _address(run.pool),
        "counts": {"studies": len({row["study"] for row in rows}), "patients": len({row["patient"] for row in rows})},
        "tasks": tasks,
        "missing": dict(missing),
        "baselines": _baselines(one.part for one in found),
        "problems": [*dict.fromkeys([*run.problems, *map(str, run.source.problems)])],
    }
    return result | ({"map": tasks["detection"]["map"]} if "detection" in tasks else {})

"""``rightlung audit``: score a model's heatmaps and compare them with an image-blind prior."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import Audit, TaskAudit, audit, audit_tasks
from rightlung.audit.batteries import BATTERIES, conditions_of, report_conditions
from rightlung.audit.gates import gate_conditions
from rightlung.audit.report_gates import dependence_sentence
from rightlung.audit.self_test import CHANGES, ERRORS, self_test
from rightlung.audit.task_page import pool_sentence, task_rows, verdict_of
from rightlung.cli.output import Exit, finish, say, say_problems, say_table
from rightlung.cli.predict import CONDITIONS, ask_model, load_model
from rightlung.core import InputError
from rightlung.core.progress import ProgressBars
from rightlung.measuring import BoxSettings, find_measure
from rightlung.models.base import Reporter
from rightlung.models.maps import with_map
from rightlung.models.probe import ProbeSettings
from rightlung.pages.numbers import number, span, verdict
from rightlung.predictions import open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.groups import HEADLINE, Breakdown
from rightlung.studies import open_source

_OF_MODELS = "applies to a model only: a predictions file already holds its conditions, and its gates are judged anyway"


def run(
    what: str,
    source: str | None,
    out: Path,
    prior_source: str | None,
    conditions: list[str],
    device: str | None,
    batch_size: int,
    settings: BootstrapSettings,
    cases: int,
    overwrite: bool,
    json: bool,
    *,
    gates: bool = False,
    jobs: int | None = None,
    ray: str | None = None,
    batteries: Sequence[str] = (),
) -> None:
    """Audit a predictions file, or ask a model and audit its answers."""
    not_asked: dict[str, str] = {}
    names = chosen_batteries(batteries)
    with ProgressBars(say) as tell:
        problems: list[str] = []
        reused: dict[str, Any] = {}
        if is_predictions(what):
            if conditions:
                raise InputError("--condition applies to a model only: a predictions file already holds its conditions")
            if overwrite:
                raise InputError("--overwrite applies to a model only: a predictions file is read, not written")
            if gates:
                raise InputError(f"--gates {_OF_MODELS}")
            predictions = Path(what)
        else:
            if source is None and (what.endswith(".parquet") or ("/" in what and not Path(what).exists())):
                raise InputError(f"{what}: there is no such predictions file")
            if source is None:
                raise InputError(f"to audit the model {what!r}, also give the source of studies to ask it about")
            predictions, model = out / "predictions", load_model(what, device)
            if gates:
                added, not_asked = gate_conditions(model, open_source(source))
                conditions = [*dict.fromkeys([*CONDITIONS, *conditions, *added])]
            if names:
                conditions = [*dict.fromkeys([*(conditions or CONDITIONS), *conditions_of(names)])]
            asked = {"model_name": what, "batch_size": batch_size}
            summary = ask_model(
                model, source, predictions, conditions, tell, queries=["phrases"], overwrite=overwrite, **asked
            )
            if (of_reports := report_conditions(names)) and isinstance(model, Reporter):
                ask_model(model, source, predictions, of_reports, tell, queries=["image"], **asked)
            reused = {"reused": summary.reused, "reused_from": summary.reused_from}
            problems = [*map(str, summary.failed), *summary.problems]
        done = audit(
            open_predictions(predictions), source, out, prior_source=prior_source, settings=settings, cases=cases,
            batteries=names, not_asked=not_asked, jobs=jobs, ray=ray, progress=tell,
        )  # fmt: skip
    result = {**done.result, **reused, "problems": [*problems, *done.problems], "page": str(done.page)}

    def tell_people() -> None:
        say_audit(done)
        say_problems(result["problems"], "questions or studies were left out")
        say(f"\npage: {done.page}\nrows: {done.instances}\n\n{result['note']}")

    finish(json, result, tell_people, result["problems"])


def run_self_test(json: bool) -> None:
    """Test the text metrics; exit with 1 if one prefers a changed report, with 3 if one could not be computed."""
    found = self_test()

    def tell() -> None:
        say(f"{found.reports} synthetic reports against themselves: {', '.join(CHANGES.values())}\n")
        rows = [
            [one.measure, *(number(one.values[name], 3) for name in CHANGES)]
            + [("yes" if one.notices(error) else "NO") if one.computed else "–" for error in ERRORS]
            for one in found.metrics
        ]
        say_table(["metric", *CHANGES, *(f"punishes {error}" for error in ERRORS)], rows)
        say("\n" + "\n".join(f"- {sentence}" for sentence in found.sentences()))
        say_problems(found.not_computed, "metrics were not computed")
        say(f"\n{NOT_A_MEDICAL_DEVICE}")

    problems = [*found.wrong, *found.not_computed]
    finish(json, found.as_json(), tell, problems, Exit.BUG if found.wrong else Exit.SOME_LEFT_OUT)


def chosen_batteries(given: Sequence[str]) -> list[str]:
    """Return names of batteries, all of them for ``all``."""
    names = [*dict.fromkeys(name for one in given for name in (BATTERIES if one == "all" else [one]))]
    conditions_of(names)  # an unknown name is an error
    return names


def choose_map(what: str, kind: str | None) -> str:
    """Return the name of the model with a kind of map; refuse a kind for a predictions file."""
    if kind is not None and is_predictions(what):
        raise InputError("--map applies to a model only: a predictions file already holds its maps")
    return with_map(what, kind)


def check_no_task_options(
    boxes: str | None, tune: str | None, train: str | None = None, pool: str | None = None
) -> None:
    """Raise an error for options that only tasks have."""
    if pool is not None:
        raise InputError("--pool applies to --task retrieval only: also give that task")
    if train is not None:
        raise InputError("--train applies to --task probe only: also give that task")
    for name, value in (("--boxes", boxes), ("--tune", tune)):
        if value is not None:
            raise InputError(f"{name} applies to --task grounding and --task detection only: also give a task")


def run_tasks(
    what: str,
    source: str | None,
    out: Path,
    tasks: list[str],
    boxes: str | None,
    tune: str | None,
    settings: BootstrapSettings,
    json: bool,
    *,
    conditions: list[str],
    device: str | None,
    batch_size: int,
    cases: int,
    overwrite: bool,
    train: str | None = None,
    missing_labels: str = "unknown",
    probe: str = "logistic",
    pool: str | None = None,
    gates: bool = False,
) -> None:
    """Audit tasks of a model, or of a predictions file."""
    given = None if boxes is None else BoxSettings.parse(boxes)
    options: dict[str, Any] = {"boxes": given, "tune": tune, "settings": settings, "cases": cases}
    options |= {"train": train, "missing_labels": missing_labels, "pool": pool}
    options |= {"probe": ProbeSettings(probe)}  # type: ignore[arg-type]
    with ProgressBars(say) as tell:
        asked: Any
        if is_predictions(what):
            if gates:
                raise InputError(f"--gates {_OF_MODELS}")
            if conditions or overwrite:
                raise InputError("--condition and --overwrite apply to a model only, not to a predictions file")
            asked = open_predictions(what)
        else:
            asked = load_model(what, device)
            conditions = [*dict.fromkeys(["none", *conditions])]
            options |= {"name": what, "conditions": conditions, "batch_size": batch_size, "overwrite": overwrite}
            options["gates"] = gates
        done = audit_tasks(asked, source, out, tasks, **options, progress=tell)
    result = {**done.result, "page": str(done.page)}
    measured = {one.part.task for one in done.parts}
    left_out = [*result["problems"], *(name for name in result["missing"] if not name.startswith(tuple(measured)))]
    finish(json, result, lambda: say_tasks(done), left_out)


def say_tasks(done: TaskAudit) -> None:
    """Print the main measures of each task next to the image-blind baselines."""
    say(f"{done.result['model'] or 'model not named'} on {done.result['source']}")
    for one in done.parts:
        say(f"\n{one.part.title} (protocol {one.protocol.hash})\n")
        say_table(*task_rows(one, main_only=one.part.method != "embed"))
        say(f"\n- {verdict_of(one)}")
        if one.pool:
            say(f"- {pool_sentence(one.pool)}")
        if one.unknown:
            say(f"- Not known by the model and not measured: {', '.join(one.unknown)}.")
        if one.boxes:
            say(f"- Boxes: {one.protocol.box_settings}.")
        if one.without_cardiomegaly:
            say(f"- Without cardiomegaly: mAP {span(one.without_cardiomegaly['model'], 3)}.")
        if one.uses is not None:
            say(f"- {one.uses.sentence}")
        if one.gates:
            say(f"\n{dependence_sentence(one.gates)}\n")
            say_table(["gate", "answer", "wanted"], [[g.question, g.answer, g.wanted or "either"] for g in one.gates])
    for warning in done.result["warnings"]:
        say(f"\n- Warning: {warning}")
    say_problems([*done.result["missing"].values()], "parts were not measured")
    say_problems(done.result["problems"], "questions or studies were left out")
    say(f"\npage: {done.page}\n\n{done.result['note']}")


def is_predictions(what: str) -> bool:
    """Whether ``what`` is an existing file or folder, other than a model folder."""
    path = Path(what)
    return path.is_file() or (path.is_dir() and not (path / "config.json").exists())


def say_audit(done: Audit) -> None:
    """Print the verdict, the main table and the rest of the summary."""
    result = done.result
    counts = result["counts"]
    say(
        f"{result['model'] or 'model not named'} on {result['source']}: {counts['phrases']:,} phrases of "
        f"{counts['patients']:,} patients; {100 * result['protocol']['level']:g} % bootstrap intervals over patients; "
        f"protocol {result['protocol']['hash']}\n"
    )
    first = len(result["warnings"]) + len(result["verdict"])
    for sentence in result["summary"][:first]:
        say(f"- {sentence}")
    if result["overall"]:
        say()
        say_table(*main_table(done.found))
        say()
    for sentence in result["summary"][first:]:
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

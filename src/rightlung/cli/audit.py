"""``rightlung audit``: score a model's heatmaps and compare them with an image-blind prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rightlung.asking import Summary
from rightlung.audit import Audit, TaskAudit, audit, audit_tasks
from rightlung.audit.batteries import BATTERIES, battery_report_conditions, conditions_of
from rightlung.audit.gates import gate_conditions
from rightlung.audit.report_gates import dependence_sentence
from rightlung.audit.task_page import pool_sentence, task_rows, verdict_of
from rightlung.audit.tasks import ALIASES, TASKS
from rightlung.cli.output import finish, say, say_problems, say_table
from rightlung.cli.predict import CONDITIONS, ask_model, load_model
from rightlung.core import InputError
from rightlung.core.progress import ProgressBars
from rightlung.measuring import BoxSettings, find_measure
from rightlung.models.base import Reporter
from rightlung.models.maps import with_map
from rightlung.models.probe import ProbeSettings
from rightlung.pages.content import ONLY_INTERVAL, ONLY_INTERVAL_NOTE
from rightlung.pages.numbers import span, verdict
from rightlung.predictions import Predictions, open_predictions
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.groups import HEADLINE, Breakdown
from rightlung.studies import open_source

_TASKS_OF: Mapping[str, tuple[str, ...]] = {
    "--pool": ("retrieval",),
    "--train": ("probe",),
    "--probe": ("probe",),
    "--missing-labels": ("classification", "probe"),
    "--boxes": ("grounding", "detection"),
    "--tune": TASKS,  # image-blind baselines are fitted on it, too
}
"""The tasks that options apply to."""
_NOT_WITH_TASK = {
    "--battery": "applies to the audit of heatmaps only, not to --task",
    "--prior-source": "does not apply to --task: baselines are fitted on --tune or other patients",
    "--jobs": "applies to the audit of heatmaps only, not to --task",
    "--ray": "applies to the audit of heatmaps only, not to --task",
}


@dataclass(frozen=True)
class Asked:
    """What to audit, how to ask it if it is a model, and where the result goes."""

    what: str
    source: str | None
    out: Path
    settings: BootstrapSettings
    conditions: Sequence[str]
    gates: bool
    device: str | None
    batch_size: int
    overwrite: bool
    json: bool

    def predictions(self) -> Predictions | None:
        """Return the predictions to audit, None for a model; options that only a model takes are errors with them."""
        if not is_predictions(self.what):
            return None
        for option, given, why in (
            ("--condition", self.conditions, "already holds its conditions"),
            ("--overwrite", self.overwrite, "is read, not written"),
            ("--gates", self.gates, "already holds its conditions, and its gates are judged anyway"),
        ):
            if given:
                raise InputError(f"{option} applies to a model only: a predictions file {why}")
        return open_predictions(self.what)


def run(
    asked: Asked, cases: int, prior_source: str | None, batteries: Sequence[str], jobs: int | None, ray: str | None
) -> None:
    """Audit a predictions file, or ask a model and audit its answers."""
    names, not_asked = chosen_batteries(batteries), dict[str, str]()
    reused, problems = dict[str, Any](), list[str]()
    with ProgressBars(say) as tell:
        if (predictions := asked.predictions()) is None:
            summary, not_asked = _ask(asked, names, tell)
            reused = {"reused": summary.reused, "reused_from": summary.reused_from}
            problems = [*map(str, summary.failed), *summary.problems]
            predictions = open_predictions(asked.out / "predictions")
        done = audit(
            predictions, asked.source, asked.out, prior_source=prior_source, settings=asked.settings, cases=cases,
            batteries=names, not_asked=not_asked, jobs=jobs, ray=ray, progress=tell,
        )  # fmt: skip
    result = {**done.result, **reused, "problems": [*problems, *done.problems], "page": str(done.page)}

    def tell_people() -> None:
        say_audit(done)
        say_problems(result["problems"], "questions or studies were left out")
        say(f"\npage: {done.page}\nrows: {done.instances}\n\n{result['note']}")

    finish(asked.json, result, tell_people, result["problems"])


def _ask(asked: Asked, batteries: Sequence[str], tell: ProgressBars) -> tuple[Summary, dict[str, str]]:
    """Ask a model; return what was asked, and why some gates were not."""
    what, source, out = asked.what, asked.source, asked.out / "predictions"
    if source is None and (what.endswith(".parquet") or ("/" in what and not Path(what).exists())):
        raise InputError(f"{what}: there is no such predictions file")
    if source is None:
        raise InputError(f"to audit the model {what!r}, also give the source of studies to ask it about")
    model, conditions, not_asked = load_model(what, asked.device), [*asked.conditions], dict[str, str]()
    if asked.gates:
        added, not_asked = gate_conditions(model, open_source(source))
        conditions = [*dict.fromkeys([*CONDITIONS, *conditions, *added])]
    if batteries:
        conditions = [*dict.fromkeys([*(conditions or CONDITIONS), *conditions_of(batteries)])]
    how: dict[str, Any] = {"model_name": what, "batch_size": asked.batch_size}
    summary = ask_model(model, source, out, conditions, tell, queries=["phrases"], overwrite=asked.overwrite, **how)
    if (of_reports := battery_report_conditions(batteries)) and isinstance(model, Reporter):
        ask_model(model, source, out, of_reports, tell, queries=["image"], **how)
    return summary, not_asked


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


def check_options(tasks: Sequence[str], given: Mapping[str, object]) -> None:
    """Raise an error for options that would be ignored, because they apply to other tasks, or not to tasks."""
    named = {ALIASES.get(name, name) for name in (one.partition(":")[0] for one in tasks)}
    for option in (name for name, value in given.items() if value not in (None, [])):
        if tasks and option in _NOT_WITH_TASK:
            raise InputError(f"{option} {_NOT_WITH_TASK[option]}")
        needed = _TASKS_OF.get(option, TASKS)
        if option in _TASKS_OF and named.isdisjoint(needed) and named.issubset(TASKS):  # unknown tasks are errors later
            which = "--task" if needed == TASKS else " or ".join(f"--task {name}" for name in needed)
            raise InputError(f"{option} applies to {which} only: also give that, or leave {option} out")


def run_tasks(asked: Asked, tasks: list[str], boxes: str | None, probe: str | None, **options: Any) -> None:
    """Audit tasks of a model, or of a predictions file; ``options`` are further fields of `TaskRun` (None: default)."""
    options = {name: value for name, value in options.items() if value is not None}
    options |= {"boxes": None if boxes is None else BoxSettings.parse(boxes), "settings": asked.settings}
    options |= {} if probe is None else {"probe": ProbeSettings(probe)}  # type: ignore[arg-type]
    with ProgressBars(say) as tell:
        what: Any = asked.predictions()
        if what is None:
            what, conditions = load_model(asked.what, asked.device), [*dict.fromkeys(["none", *asked.conditions])]
            options |= {"name": asked.what, "conditions": conditions, "batch_size": asked.batch_size}
            options |= {"overwrite": asked.overwrite, "gates": asked.gates}
        done = audit_tasks(what, asked.source, asked.out, tasks, **options, progress=tell)
    result = {**done.result, "page": str(done.page)}
    measured = {one.part.task for one in done.parts}
    left_out = [*result["problems"], *(name for name in result["missing"] if not name.startswith(tuple(measured)))]
    finish(asked.json, result, lambda: say_tasks(done), left_out)


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
        say_table(*(table := main_table(done.found)))
        if ONLY_INTERVAL in str(table):
            say(ONLY_INTERVAL_NOTE)
        say()
    for sentence in result["summary"][first:]:
        say(f"- {sentence}")


def main_table(found: Breakdown) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the main table: model, prior, and the model under each condition."""
    basis = f"{found.overall[HEADLINE[0]].model.n:,}"
    rows = [["the model", basis, *(span(found.overall[name].model) for name in HEADLINE)]]
    if found.overall[HEADLINE[0]].prior is not None:
        rows.append(["image-blind prior", basis, *(span(found.overall[name].prior) for name in HEADLINE)])
        rows.append(
            ["model − prior", basis, *(verdict(found.overall[name].difference, brief=True) for name in HEADLINE)]
        )
    titles = {"swap-sides": "sides swapped", "exchange-image": "image exchanged"}
    for condition, changes in found.conditions.items():
        if all(name in changes.values for name in HEADLINE):
            title, after = titles.get(condition, condition), [changes.values[name].after for name in HEADLINE]
            asked = f"{after[0].n:,}"
            rows.append([title, asked, *map(span, after)])
            rows.append([f"{title}, change", asked, *(verdict(changes.change[name], brief=True) for name in HEADLINE)])
    return ["", "phrases", *(find_measure(name).title for name in HEADLINE)], rows

"""All experiments that need a GPU on one machine, with one queue for all of them (docs/reproduce.md).

    python benchmarks/run_all.py --out runs --at-once 16 --openi /data/openi.tar --nih /data/nih.tar --for 1500

`eclip`, `fita` and `xbench` train on synthetic studies; `openi` (FITA) needs both archives, and `real-openi` and
`real-nih` (eclip_real.py) their own. Pools are shared. Stop it at any time, or with ``--for``: the same command goes
on, and finished runs are skipped. Pages are written afterwards, on any machine, by the commands that it prints.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from rightlung.core import InputError, OutputError
from rightlung.reproduce.papers import find_paper
from rightlung.reproduce.plan import Plan
from rightlung.reproduce.pools import MOST_WORKERS
from rightlung.reproduce.processes import Task, in_processes, interrupt
from rightlung.reproduce.tasks import plan_tasks
from rightlung.scoring.threads import usable_cores
from rightlung.training.loop import Hardware

REAL = {"real-nih": ("nih", ("boxes", "probe")), "real-openi": ("openi", ("retrieval", "val"))}
"""The parts of eclip_real.py that need one archive."""
NAMES = ("eclip", "fita", "openi", "xbench", *REAL)
REAL_PLACES = 4
POOLS = "data.cache_folder"
QUICK = """--steps 2 --pixels 64 --phantoms 40 --annotated 20 --limit 60 --folds 2 --resamples 50
    --set precision=32-true --set data.workers=0"""
EVERY = 20.0


def openi_plan(given: argparse.Namespace, plan: Plan) -> Plan:
    """Return FITA on Open-I, as docs/fita.md has it; the classifier also learns from phantoms and from NIH."""
    archive, nih = given.openi.absolute(), given.nih.absolute()
    train = f"manifest:{archive}?split=train&report=findings&patients="
    entries = (
        "{source: 'phantom?count=16000&seed=21&part=train', cached_studies: 16000, share: 0.3}",
        f"{{source: 'manifest:{nih}?split=train', share: 0.4, missing_labels: negative}}",
        f"{{source: '{train}0-90', share: 0.3, missing_labels: negative}}",
    )
    changes = ["data.train[0].missing_labels=negative", "data.validation.missing_labels=negative"]
    if not given.quick:
        changes.append("report:schedule={steps: 300, warmup_steps: 30}")
        changes.append(f"classifier:data.train=[{', '.join(entries)}]")
    source = f"manifest:{archive}?split=val&report=findings"
    return replace(plan, source=source, train=f"{train}0-90", validation=f"{train}90-100", seeds=1,
                   limit=20 if given.quick else None, changes=(*changes, *plan.changes))  # fmt: skip


def plan_of(name: str, given: argparse.Namespace) -> Plan:
    """Return the plan of an experiment."""
    paper = "fita" if name == "openi" else name
    asked = (given.variants or "").split(",")
    only = tuple(one.slug for one in find_paper(paper).variants if one.slug in asked)
    if given.variants and not only:
        raise InputError(f"{name} has none of the variants {given.variants}; give --only for the experiments that have")
    plan = Plan(
        paper, given.out / name, seeds=1 if name == "xbench" else given.seeds, quick=given.quick,
        only=only, measure=paper != "fita",
        hardware=Hardware(accelerator=given.device), changes=(f"{POOLS}={given.out.absolute() / 'pools'}",),
    )  # fmt: skip
    return openi_plan(given, plan) if name == "openi" else plan


def page_command(plan: Plan) -> str:
    """Return the command that scores what is left and writes the page."""
    command = ["rightlung", "reproduce", plan.paper_name, "--out", str(plan.out), "--seeds", str(plan.seeds)]
    for name in ("source", "train", "validation", "limit"):
        if (value := getattr(plan, name)) is not None:
            command += [f"--{name}", str(value)]
    changes = (change for change in plan.changes if not change.startswith(POOLS))  # of this machine only
    command += [part for change in changes for part in ("--set", change)]
    return shlex.join(command + (["--only", ",".join(plan.only)] if plan.only else []) + ["--quick"] * plan.quick)


def real_task(name: str, given: argparse.Namespace) -> Task:
    """Return the task of a part of eclip_real.py, which has several processes."""
    archive, parts = REAL[name]
    script, data = Path(__file__).with_name("eclip_real.py"), getattr(given, archive)
    command = [sys.executable, str(script), f"--{archive}", str(data), "--out", str(given.out / name)]
    command += ["--at-once", str(REAL_PLACES), "--device", given.device]
    command += [word for part in parts for word in ("--only", part)] + QUICK.split() * given.quick
    return Task(name, name, command, places=REAL_PLACES)


def prefixed(name: str, task: Task) -> Task:
    """Return a task with the experiment before its name; a pool has one name in all experiments."""

    def named(other: str) -> str:
        return other if other.startswith("pool-") else f"{name}-{other}"

    title = task.title if task.name.startswith("pool-") else f"{name}-{task.title}"
    files = {named(other): file for other, file in task.files.items()}
    return replace(task, name=named(task.name), title=title, after=tuple(map(named, task.after)), files=files)


def ordered(tasks: Iterable[Task], images: Mapping[str, int]) -> list[Task]:
    """Return what others wait for first, and then, longest first, each run with the longest chain of runs behind it."""
    known = {task.name: task for task in tasks}
    behind: dict[str, list[str]] = {name: [] for name in known}
    for task in known.values():
        for other in task.after:
            behind.get(other, []).append(task.name)

    @cache
    def length(name: str) -> int:
        return images.get(name, 0) + max(map(length, behind[name]), default=0)

    return sorted(known.values(), key=lambda task: (not task.prepares, -length(task.name)))


def with_workers(tasks: Iterable[Task], at_once: int) -> list[Task]:
    """Return tasks whose pools share the cores with those of all experiments."""
    found = list(tasks)
    pools = sum(task.name.startswith("pool-") for task in found)
    workers = str(max(1, min(MOST_WORKERS, 2 * usable_cores() // max(1, min(pools, at_once)))))
    return [replace(task, command=[*task.command[:-1], workers]) if task.name.startswith("pool-") else task
            for task in found]  # fmt: skip


def main() -> None:
    """Run everything that is left, and print the commands for the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=NAMES, help="an experiment (repeatable); default: all")
    parser.add_argument("--variants", metavar="A,B", help="of each experiment, those that it knows")
    parser.add_argument("--openi", type=Path, help="tar with the Open-I images and their manifest")
    parser.add_argument("--nih", type=Path, help="tar with the NIH images and their manifest")
    parser.add_argument("--at-once", type=int, default=usable_cores(), help="processes at the same time")
    parser.add_argument("--for", type=int, dest="seconds", metavar="SECONDS", help="stop then; finished work is kept")
    parser.add_argument("--seeds", type=int, default=3, help="of eclip and fita; the others have one")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models that learn nothing")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a script it would be ignored
    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(given.seconds or 0)
    began, told = time.monotonic(), 0.0

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.0f} s  {text}", flush=True)

    def progress(stage: str, done: float, total: float) -> None:
        nonlocal told
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            say(f"{stage} {done:.0f} of {total:.0f}")

    needs = {"openi": ("openi", "nih"), "real-openi": ("openi",), "real-nih": ("nih",)}
    names = [name for name in given.only or NAMES if all(getattr(given, one) for one in needs.get(name, ()))]
    for name in sorted({*(given.only or NAMES)} - {*names}):
        say(f"{name} is left out: it needs {' and '.join(f'--{one}' for one in needs[name])}")
    tasks: dict[str, Task] = {}
    images: dict[str, int] = {}
    plans: dict[str, Plan] = {}
    try:
        for name in names:
            if name in REAL:
                written = given.out / name / "parts"
                if not all((written / f"{part}.json").is_file() for part in REAL[name][1]):
                    tasks[name], images[name] = real_task(name, given), sys.maxsize // 2  # the longest of all
                continue
            plans[name] = plan_of(name, given)
            found = plan_tasks(plans[name], given.at_once)
            for task in found.tasks:
                own = prefixed(name, task)
                tasks.setdefault(own.name, own)
            images |= {f"{name}-{run}": count for run, count in found.images.items()}
            for run, reason in found.lacking.items():
                say(f"{name}-{run} is left out: {reason}")
        say(f"{len(tasks)} tasks")
        threads = max(1, usable_cores() // given.at_once)
        queue = with_workers(ordered(tasks.values(), images), given.at_once)
        failed = in_processes(queue, given.at_once, given.out / "logs", threads=threads, progress=progress, say=say)
    except KeyboardInterrupt:
        say("stopped; the same command goes on")
        sys.exit(130)
    except (InputError, OutputError) as error:
        sys.exit(f"error: {error}")
    for plan in plans.values():
        print(page_command(plan))
    if failed:
        sys.exit(f"{len(failed)} failed, the first: {next(iter(failed.items()))}")


if __name__ == "__main__":
    main()

"""Load of `rightlung serve`: annotators who judge at once for two minutes; nothing may be lost or doubled.

Each annotator goes through their items as the page does: open the maps, think, save both answers. One request in ten
asks a new phrase of a model, so that the queue fills and sheds load (503, Retry-After).

    python benchmarks/serve.py [--annotators 50] [--seconds 120] [--think 2] [--store URL]
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

Saved = dict[tuple[str, str, str], tuple[int, int]]
"""The version and recall of each saved answer, by annotator, item and alias."""


@dataclass
class Load:
    """What was measured."""

    times: dict[str, list[float]] = field(default_factory=lambda: {"save": [], "maps": [], "ask": []})
    statuses: Counter[int] = field(default_factory=Counter)
    shed: int = 0
    saved: Saved = field(default_factory=dict)

    async def send(self, kind: str, client: httpx.AsyncClient, method: str, path: str, **body: Any) -> Any:
        """Send a request, again after 503; return the JSON of the answer, None for other errors."""
        while True:
            started = time.perf_counter()
            response = await client.request(method, path, **body)
            self.times[kind].append(time.perf_counter() - started)
            if response.status_code != 503:
                break
            self.shed += 1
            await asyncio.sleep(float(response.headers["Retry-After"]) * random.uniform(0.5, 1.0))
        self.statuses[response.status_code] += 1
        return response.json() if response.is_success else None


async def judge(name: str, address: str, csrf: str, study: str, until: float, think: float, load: Load) -> None:
    """Judge as one annotator until the time is over."""
    headers, chance = {"X-Annotator": name, "X-CSRF-Token": csrf}, random.Random(name)
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", headers=headers, timeout=60) as client:
        items = (await client.get(f"{study}/items")).json()["items"]
        number = 0
        while time.monotonic() < until:
            item, number = items[number % len(items)], number + 1
            at = f"{study}/items/{item['id']}"
            if chance.random() < 0.1:
                words = f"Opacity number {chance.random():.6f}."
                question = {"study": item["study"], "phrases": [words], "models": ["starter"]}
                somebody = {"X-Annotator": "somebody"}  # nobody may ask openly about images that they still judge
                await load.send("ask", client, "POST", "/ground", json=question, headers=somebody)
            maps = await load.send("maps", client, "GET", f"{at}/maps")
            for alias in maps["maps"] if maps else ():
                await asyncio.sleep(chance.uniform(0.5, 1.5) * think)
                version = load.saved.get((name, item["id"], alias), (None, 0))[0]
                body: dict[str, Any] = {"recall": chance.randint(1, 5), "precision": 3, "intuitiveness": 4}
                body["version"] = version
                answer = await load.send(
                    "save", client, "PUT", f"{at}/answers/{alias}", json=body | {"key": str(uuid.uuid4())}
                )
                if answer is not None:
                    load.saved[name, item["id"], alias] = answer["version"], body["recall"]


def cpu(process: int) -> float:
    """Return the CPU seconds of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def alone(owner: httpx.AsyncClient, process: int) -> None:
    """Print how long one person waits for new answers and for known ones, and the server's CPU time for each."""
    studies = (await owner.get("/studies")).json()["studies"]
    for what in ("new", "known"):
        for model in ("starter", "chex"):
            times, before = [], cpu(process)
            for number in range(60):
                key = studies[number % len(studies)]["key"]
                question = {"study": key, "phrases": [f"Left pleural effusion {number}."], "models": [model]}
                started = time.perf_counter()
                (await owner.post("/ground", json=question)).raise_for_status()
                times.append(1e3 * (time.perf_counter() - started))
            p50, p95 = np.quantile(times, [0.5, 0.95])
            used = 1e3 * (cpu(process) - before) / len(times)
            print(f"alone, {model}, {what} answers: median {p50:.0f} ms, p95 {p95:.0f} ms, CPU {used:.0f} ms each")


async def run(address: str, process: int, annotators: int, seconds: float, think: float) -> bool:
    """Create a reader study, let everybody judge, and compare what was saved with what the store has."""
    names, load = [f"annotator {number}" for number in range(annotators)], Load()
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", timeout=120) as owner:
        csrf = (await owner.get("/session")).json()["csrf"]
        owner.headers["X-CSRF-Token"] = csrf
        while (await owner.get("/studies")).json()["indexing"]:
            await asyncio.sleep(1)
        await alone(owner, process)
        body = {"title": "load", "models": ["starter", "chex"], "annotators": names, "mode": "planned"}
        made = await owner.post("/reader-studies", json=body | {"per_annotator": 40, "overlap": 40})
        made.raise_for_status()
        study = f"/reader-studies/{made.json()['id']}"
        until = time.monotonic() + seconds
        await asyncio.gather(*(judge(name, address, csrf, study, until, think, load) for name in names))
        rows = list(csv.DictReader(io.StringIO((await owner.get(f"{study}/export.csv")).text)))
        kept: Counter[tuple[str, str, str]] = Counter(
            (row["annotator"], row["study"] + row["phrase"], row["model"]) for row in rows
        )
        lost = 0
        for name in names:
            mine = {key: value for key, value in load.saved.items() if key[0] == name}
            for item in {key[1] for key in mine}:
                answers = (
                    await owner.get(f"{study}/items/{item}", headers={"X-Annotator": name.replace(" ", "%20")})
                ).json()["answers"]
                for alias, found in answers.items():
                    expected = mine.get((name, item, alias))
                    lost += (found is None) != (expected is None) or (
                        expected is not None and (found["version"], found["recall"]) != expected
                    )
    doubled = sum(count > 1 for count in kept.values()) + abs(len(rows) - len(load.saved))
    for kind, times in load.times.items():
        if times:
            p50, p95 = 1e3 * np.quantile(times, [0.5, 0.95])
            print(
                f"{kind}: {len(times):,} requests, median {p50:.0f} ms, p95 {p95:.0f} ms, max {1e3 * max(times):.0f} ms"
            )
    errors = sum(count for status, count in load.statuses.items() if status >= 400)
    print(
        f"{annotators} annotators, {seconds:.0f} s: {len(load.saved):,} answers kept, {errors} errors, "
        f"{load.shed} requests shed with 503, {lost} answers lost, {doubled} doubled"
    )
    return not (errors or lost or doubled)


def main() -> None:
    """Start the service on a free port, run the load, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--annotators", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--think", type=float, default=2, help="mean seconds between two answers of an annotator")
    parser.add_argument("--store", help="default: SQLite in a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or f"sqlite:///{Path(folder) / 'store.sqlite'}"
        command = [
            sys.executable,
            "-m",
            "rightlung",
            "serve",
            "--store",
            store,
            "--port",
            "0",
            "--source",
            "phantom?count=12&seed=7",
        ]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        address = next(line.split()[1] for line in server.stderr if "http://" in line)
        try:
            good = asyncio.run(run(address, server.pid, given.annotators, given.seconds, given.think))
        finally:
            server.terminate()
            server.wait(30)
    sys.exit(not good)


if __name__ == "__main__":
    main()

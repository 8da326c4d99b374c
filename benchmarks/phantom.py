"""Making studies: how many a second, scenes and words alone, pictures with masks, and everything there is.

    python benchmarks/phantom.py [--json] [--count 96] [--size 256] [--batch 256] [--device cuda] [--workers 16]

The first lines are on the CPU. Then come those of a device, by default CUDA where there is one: pictures with all
masks from scenes drawn beforehand; on CUDA painting alone, from scenes prepared beforehand, and what this process
needs to tell the device what to do; and the stream with words, as a training loop sees it, scenes being made by
workers, one for each core unless told otherwise.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch

from rightlung.phantom.config import PhantomConfig, default_config
from rightlung.phantom.loader import CHUNK, PhantomLoader
from rightlung.phantom.prepare import prepare
from rightlung.phantom.render import paint, render
from rightlung.phantom.report import write_report
from rightlung.phantom.study import iterate_studies, study_scene
from rightlung.scoring.threads import usable_cores

ROUNDS = 3
SECONDS = 8.0  # for which the stream is watched


def rate(task: Callable[[], object], count: int, rounds: int = ROUNDS) -> float:
    """Return things made a second, the median of some rounds after one that is not counted."""
    task()
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - begin)
    return count / statistics.median(seconds)


def on_cpu(count: int, size: int) -> dict[str, float]:
    """Measure the parts and the whole."""
    config = default_config()
    scenes = [study_scene(config, 1, index) for index in range(count)]

    def tell() -> None:
        for index in range(count):
            write_report(study_scene(config, 1, index), config, 1)

    def make() -> None:
        for study in iterate_studies(config, 1, range(count), size):
            assert study.image.shape == (size, size)

    return {
        "scenes and words": rate(tell, count),
        "pictures prepared": rate(lambda: prepare(scenes[:CHUNK], size), len(scenes[:CHUNK])),
        "pictures with masks": rate(lambda: render(scenes, size), count),
        "everything": rate(make, count),
    }


def on_device(batch: int, size: int, device: str, workers: int) -> dict[str, float]:
    """Measure pictures with masks in batches, words apart, then the stream, and how much memory they took."""
    config = default_config()
    scenes = [study_scene(config, 1, index) for index in range(batch)]
    prepared = [prepare(scenes[begin : begin + CHUNK], size) for begin in range(0, batch, CHUNK)]

    def draw() -> None:
        render(scenes, size, device)
        wait(device)

    def draw_prepared() -> None:
        paint(prepared, device)
        wait(device)

    found = {"pictures with masks": rate(draw, batch)}
    if torch.device(device).type == "cuda":
        found["pictures painted"] = rate(draw_prepared, batch)
        begin = time.perf_counter()
        paint(prepared, device)
        found["ms to order one"] = (time.perf_counter() - begin) * 1000 / batch
        wait(device)
    found[f"stream, {workers} workers"] = stream_rate(config, batch, size, device, workers)
    if torch.device(device).type == "cuda":
        found["peak memory GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def wait(device: str) -> None:
    """Wait until the device has done all it was told."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def stream_rate(config: PhantomConfig, batch: int, size: int, device: str, workers: int) -> float:
    """Return studies a second that a training loop which does nothing else would get, once the workers run."""

    def indices() -> Iterator[range]:
        first = 0
        while True:
            yield range(first, first + batch)
            first += batch

    batches = PhantomLoader(config, 1, size, device, workers).batches(indices())
    # What was made ahead while the workers started would flatter the rate.
    for _ in range(2 + 2 * max(workers, 1) * CHUNK // batch):
        next(batches)
    wait(device)
    begin, made = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        made += len(next(batches))
    wait(device)
    seconds = time.perf_counter() - begin
    batches.close()  # type: ignore[attr-defined]
    return made / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--count", type=int, default=96)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=usable_cores())
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    cpu = f"CPU {platform.processor() or platform.machine()}, {usable_cores()} cores, {torch.get_num_threads()} threads"
    results[cpu] = on_cpu(options.count, options.size)
    name = torch.cuda.get_device_name() if torch.device(options.device).type == "cuda" else options.device
    found = on_device(options.batch, options.size, options.device, options.workers)
    results[f"On {name}, batches of {options.batch}"] = found
    if options.json:
        print(json.dumps({"size": options.size, "a_second": results}, indent=2))
        return
    for device, figures in results.items():
        print(f"{device}, {options.size} pixels", file=sys.stderr)
        for name, figure in figures.items():
            shown = f"{figure:>10,.1f} / s" if " GiB" not in name and "ms " not in name else f"{figure:>10,.3f}"
            print(f"  {name:<22} {shown}", file=sys.stderr)


if __name__ == "__main__":
    main()

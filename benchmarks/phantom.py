"""Making studies: how many a second, scenes and words alone, pictures with masks, and everything there is.

    python benchmarks/phantom.py [--json] [--count 96] [--size 256] [--batch 512]

The first three lines are on the CPU. Where there is a CUDA device, pictures with all masks are rendered there in
batches from scenes drawn beforehand: what a training loop that needs no words would see.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable

import torch

from rightlung.phantom.config import default_config
from rightlung.phantom.render import render
from rightlung.phantom.report import write_report
from rightlung.phantom.study import iterate_studies, study_scene
from rightlung.scoring.threads import usable_cores

ROUNDS = 3


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
        "pictures with masks": rate(lambda: render(scenes, size), count),
        "everything": rate(make, count),
    }


def on_cuda(batch: int, size: int) -> dict[str, float]:
    """Measure pictures with masks in batches, words apart, and how much memory they took."""
    config = default_config()
    scenes = [study_scene(config, 1, index) for index in range(batch)]

    def paint() -> None:
        render(scenes, size, "cuda")
        torch.cuda.synchronize()

    found = {"pictures with masks": rate(paint, batch, rounds=5)}
    found["peak memory GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--count", type=int, default=96)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    cpu = f"CPU {platform.processor() or platform.machine()}, {usable_cores()} cores, {torch.get_num_threads()} threads"
    results[cpu] = on_cpu(options.count, options.size)
    if torch.cuda.is_available():
        results[f"CUDA {torch.cuda.get_device_name()}"] = on_cuda(options.batch, options.size)
    if options.json:
        print(json.dumps({"size": options.size, "a_second": results}, indent=2))
        return
    for device, figures in results.items():
        print(f"{device}, {options.size} pixels", file=sys.stderr)
        for name, figure in figures.items():
            print(f"  {name:<22} {figure:>10,.1f}" + ("" if "memory" in name else " / s"), file=sys.stderr)


if __name__ == "__main__":
    main()

"""How long 10,000 resamples of 10,000 instances take, side by side with ``scipy.stats.bootstrap`` in the same run.

    python benchmarks/bootstrap.py [--instances 10000] [--resamples 10000] [--repeats 3]

Prints the best of some repeats for each, the ratio, and both intervals (which must agree within Monte-Carlo error).
SciPy gets the fastest of three batch sizes; ours is also timed on one thread, as SciPy uses no more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from scipy import stats

from rightlung.scoring import recognition
from rightlung.scoring.statistics import Interval, bootstrap, bootstrap_columns, paired_difference, spearman
from rightlung.scoring.statistics.intervals import Method

Result = TypeVar("Result")
METHODS: tuple[Method, ...] = ("percentile", "bca")


def best(work: Callable[[], Result], repeats: int) -> tuple[float, Result]:
    """Seconds of the fastest repeat, and its result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def main() -> None:
    """Run and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    n, resamples, repeats, workers = options.instances, options.resamples, options.repeats, options.workers
    generator = np.random.default_rng(0)
    values = generator.beta(2, 5, n)
    patients = generator.integers(0, max(2, n // 3), n)

    print(f"{resamples:,} resamples of {n:,} instances, seconds (best of {repeats})")
    for method in METHODS:
        ours = partial(bootstrap, values, resamples=resamples, method=method)
        scipys = partial(stats.bootstrap, (values,), np.mean, n_resamples=resamples, vectorized=True, rng=0)
        times: dict[str, float] = {"ours": np.inf, "alone": np.inf, "scipy": np.inf}
        for _ in range(repeats):  # in turn, so that a busy machine is equally busy for all
            for name, work in (("ours", partial(ours, workers=workers)), ("alone", partial(ours, workers=1))):
                seconds, interval = best(work, 1)
                times[name] = min(times[name], seconds)
            for batch in (20, 100, 500):
                seconds, reference = best(partial(scipys, method=method, batch=batch), 1)
                times["scipy"] = min(times["scipy"], seconds)
        low, high = reference.confidence_interval
        print(
            f"  mean, {method:10}  ours {times['ours']:5.2f} (one thread {times['alone']:5.2f})  "
            f"scipy {times['scipy']:5.2f}  ratio {times['scipy'] / times['ours']:4.1f} "
            f"(one thread {times['scipy'] / times['alone']:4.1f})   "
            f"[{interval.low:.5f}, {interval.high:.5f}] / [{low:.5f}, {high:.5f}]"
        )

    labels = (generator.random(n) < 0.2).astype(float)
    scores = labels + generator.normal(size=n)
    cases: dict[str, Callable[[], Interval | list[Interval]]] = {
        "mean, by patient": lambda: bootstrap(values, clusters=patients, resamples=resamples, workers=workers),
        "20 means, by patient": lambda: bootstrap_columns(
            generator.random((n, 20)), clusters=patients, resamples=resamples, workers=workers
        ),
        "paired difference": lambda: paired_difference(values, values[::-1], resamples=resamples, workers=workers),
        "Spearman, by patient": lambda: spearman(
            values, scores, clusters=patients, resamples=resamples, workers=workers
        ),
        "AUROC, by patient": lambda: recognition.interval(
            scores, labels, clusters=patients, resamples=resamples, workers=workers
        ),
    }
    for name, case in cases.items():
        print(f"  {name:22} ours {best(case, 1)[0]:6.2f}")


if __name__ == "__main__":
    main()

"""Scoring maps: ours beside a scikit-learn loop and torchmetrics, all computing the same eight numbers in one run,
and ours computing all of its measures.

The numbers are AUROC, average precision, and IoU and precision at the top 5, 10 and 30 % of the pixels. The three do
not treat ties at the cut alike (that is the point of ours), so agreement is checked on AUROC and average precision.

    python benchmarks/localisation.py [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from rightlung.core import Heatmap
from rightlung.scoring.localisation import METRICS as ALL_METRICS
from rightlung.scoring.localisation import compiled, score
from rightlung.scoring.threads import usable_cores

SHARES = (5, 10, 30)
METRICS = ["auroc", "average_precision", *(f"{name}@{share}" for share in SHARES for name in ("iou", "precision"))]


def make(kind: str, count: int, side: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return maps and masks; ``random`` pixels, or a 14 x 14 grid upsampled (``bilinear``, ``nearest``)."""
    generator = np.random.default_rng(seed)
    masks = np.zeros((count, side, side), dtype=bool)
    for mask in masks:
        top, left = generator.integers(0, side // 2, 2)
        height, width = generator.integers(side // 10, side // 2, 2)
        mask[top : top + height, left : left + width] = True
    if kind == "random":
        return generator.random((count, side, side), dtype=np.float32), masks
    grids = generator.random((count, 14, 14), dtype=np.float32)
    return np.stack([Heatmap(grid).to_size((side, side), kind) for grid in grids]), masks  # type: ignore[arg-type]


def by_scikit_learn(maps: np.ndarray, masks: np.ndarray) -> dict[str, list[float]]:
    """Score with the loop people write: scikit-learn for the curves, percentiles for the top shares."""
    result: dict[str, list[float]] = {name: [] for name in METRICS}
    for values, mask in zip(maps, masks, strict=True):
        flat, labels = values.ravel(), mask.ravel()
        result["auroc"].append(float(roc_auc_score(labels, flat)))
        result["average_precision"].append(float(average_precision_score(labels, flat)))
        for share in SHARES:
            top = flat >= np.percentile(flat, 100 - share)
            hits = (top & labels).sum()
            result[f"iou@{share}"].append(float(hits / (top | labels).sum()))
            result[f"precision@{share}"].append(float(hits / top.sum()))
    return result


def by_torchmetrics(maps: np.ndarray, masks: np.ndarray) -> dict[str, list[float]]:
    """Score with torchmetrics' functional forms and ``torch.kthvalue`` for the top shares."""
    result: dict[str, list[float]] = {name: [] for name in METRICS}
    for values, mask in zip(torch.from_numpy(maps), torch.from_numpy(masks), strict=True):
        flat, labels = values.flatten(), mask.flatten()
        # Scores outside 0-1 would be sent through a sigmoid; attention maps lie inside.
        result["auroc"].append(float(binary_auroc(flat, labels.int())))
        result["average_precision"].append(float(binary_average_precision(flat, labels.int())))
        for share in SHARES:
            top = flat >= flat.kthvalue(flat.numel() - int(flat.numel() * share / 100)).values
            hits = (top & labels).sum()
            result[f"iou@{share}"].append(float(hits / (top | labels).sum()))
            result[f"precision@{share}"].append(float(hits / top.sum()))
    return result


def seconds_per_map(run: Callable[[], Any], count: int, repeats: int) -> float:
    """Return the median of ``repeats`` runs after one to warm up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / count


def on_gpu(maps: np.ndarray, masks: np.ndarray) -> float:
    """Check that every measure agrees with the arrays' path (an empty and a full mask among them), then time it."""
    masks = masks.copy()
    masks[0], masks[1] = False, True
    arrays = score(maps, masks, tolerance=3)
    on_device = torch.from_numpy(maps).cuda(), torch.from_numpy(masks).cuda()
    tensors = score(*on_device, tolerance=3)
    for name in ALL_METRICS:
        np.testing.assert_allclose(tensors[name].cpu().numpy(), arrays[name], rtol=1e-6, atol=1e-6, err_msg=name)
    assert tensors["reason"].tolist() == arrays["reason"].tolist()

    def run() -> None:
        score(*on_device, metrics=METRICS)
        torch.cuda.synchronize()

    return 1e3 * seconds_per_map(run, len(maps), 7)


def measure(kind: str, side: int, count: int, peers: int) -> dict[str, Any]:
    """Time the three on the same maps (the two peers on the first ``peers`` of them)."""
    maps, masks = make(kind, count, side)
    ours = score(maps, masks, metrics=METRICS)
    for theirs in (by_scikit_learn(maps[:peers], masks[:peers]), by_torchmetrics(maps[:peers], masks[:peers])):
        for name in ("auroc", "average_precision"):
            np.testing.assert_allclose(theirs[name], ours[name][:peers], atol=2e-5)
    row: dict[str, Any] = {"maps": kind, "side": side}
    row["scikit_learn_ms"] = 1e3 * seconds_per_map(lambda: by_scikit_learn(maps[:peers], masks[:peers]), peers, 3)
    row["torchmetrics_ms"] = 1e3 * seconds_per_map(lambda: by_torchmetrics(maps[:peers], masks[:peers]), peers, 3)
    row["ours_ms"] = 1e3 * seconds_per_map(lambda: score(maps, masks, metrics=METRICS), count, 7)
    row["ours_all_ms"] = 1e3 * seconds_per_map(lambda: score(maps, masks), count, 7)
    row["ours_one_thread_ms"] = 1e3 * seconds_per_map(lambda: score(maps, masks, metrics=METRICS, workers=1), count, 5)
    if torch.cuda.is_available():
        row["ours_on_gpu_ms"] = on_gpu(maps, masks)
    row["times_scikit_learn"] = row["scikit_learn_ms"] / row["ours_ms"]
    row["times_scikit_learn_all"] = row["scikit_learn_ms"] / row["ours_all_ms"]
    row["times_torchmetrics"] = row["torchmetrics_ms"] / row["ours_ms"]
    return row


def main() -> None:
    """Print the table, or JSON with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    arguments = parser.parse_args()
    sort = "compiled" if compiled.compiled() else "NumPy"
    print(f"{usable_cores()} cores, {torch.get_num_threads()} torch threads, {sort} sort", file=sys.stderr)
    rows = []
    for kind in ("random", "bilinear", "nearest"):
        for side, count, peers in ((224, 256, 24), (1024, 16, 4)):
            rows.append(row := measure(kind, side, count, peers))
            print(
                f"{kind:>8} {side:>4} px  ours {row['ours_ms']:7.3f} ms  scikit-learn {row['scikit_learn_ms']:8.2f} ms "
                f"({row['times_scikit_learn']:6.1f}x)  torchmetrics {row['torchmetrics_ms']:8.2f} ms "
                f"({row['times_torchmetrics']:6.1f}x)  one thread {row['ours_one_thread_ms']:7.3f} ms  "
                f"all {len(ALL_METRICS)} measures {row['ours_all_ms']:7.3f} ms ({row['times_scikit_learn_all']:.1f}x)"
                + (f"  on the GPU {row['ours_on_gpu_ms']:7.4f} ms" if "ours_on_gpu_ms" in row else ""),
                file=sys.stderr,
            )
    least = min(row["times_scikit_learn_all"] for row in rows if row["side"] == 224)
    print(
        f"All {len(ALL_METRICS)} measures of a 224 x 224 map take at most 1/{least:.0f} of scikit-learn's time for "
        f"{len(METRICS)} of them; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB.",
        file=sys.stderr,
    )
    if arguments.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
